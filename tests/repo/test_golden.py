"""The golden fixture itself: it compares, writes when asked, and does not let a file go unread."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lib.repository import ROOT
from lib.waiting import SECONDS

READS_ONE = "def test_one(golden):\n    golden('one.txt', 'new\\n')\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of one test, with this project's conftest.py and what it imports."""
    (tmp_path / "tests" / "golden" / "x").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntestpaths = tests\naddopts = -m 'not slow and not nightly' -p no:cacheprovider\npythonpath = tests\n"
    )
    for name in ("conftest.py", "selection.py", "quick.py", "costs.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    (tmp_path / "tests" / "test_x.py").write_text(READS_ONE)
    return tmp_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)


def test_a_difference_is_shown_and_then_written(project: Path) -> None:
    file = project / "tests" / "golden" / "x" / "one.txt"
    file.write_text("old\n")
    failed = run(project)
    assert failed.returncode == 1
    assert "-old" in failed.stdout
    assert "+new" in failed.stdout
    assert file.read_text() == "old\n"
    assert run(project, "--update-golden").returncode == 0
    assert file.read_text() == "new\n"
    assert run(project).returncode == 0


def test_a_missing_golden_fails(project: Path) -> None:
    assert run(project).returncode == 1
    assert not (project / "tests" / "golden" / "x" / "one.txt").exists()


@pytest.mark.parametrize(
    "workers", [pytest.param((), id="alone"), pytest.param(("-n", "2"), id="workers", marks=pytest.mark.slow)]
)
def test_a_golden_that_no_test_reads_fails_a_full_run(project: Path, workers: tuple[str, ...]) -> None:
    (project / "tests" / "golden" / "x" / "one.txt").write_text("new\n")
    assert run(project, *workers).returncode == 0
    (project / "tests" / "golden" / "x" / "two.txt").write_text("left behind\n")
    full = run(project, *workers)
    assert full.returncode == 1
    assert "x/two.txt" in full.stdout
    assert "x/one.txt" not in full.stdout
    assert run(project, *workers, "-k", "one").returncode == 0
