"""What lies in examples/ runs, and does what its first lines say."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from lib.repository import ROOT
from lib.waiting import SECONDS

import decgraph

EXAMPLES = sorted((ROOT / "examples").iterdir())


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment
    )


def test_every_example_has_a_test() -> None:
    """Here, and of the notebook in tests/editor/test_notebook.py."""
    assert [p.name for p in EXAMPLES if p.is_file()] == [
        "compare.py", "forgets_the_residual.dec", "hf_generate.py", "notebook.ipynb", "test_mine.py",
    ]  # fmt: skip


@pytest.mark.slow
def test_comparing_algorithms() -> None:
    done = run("examples/compare.py", "import os\n")
    assert done.returncode == 0, done.stderr
    figures = re.findall(r"^(\w+) +([\d.]+) tokens per target call   the same tokens$", done.stdout, re.M)
    assert [name for name, _ in figures] == ["autoregressive", "prompt_lookup", "speculative", "medusa_match", "eagle2"]
    assert float(figures[0][1]) == 1.0
    assert all(float(figure) >= 1.0 for _, figure in figures)


@pytest.mark.slow
def test_inside_generate() -> None:
    done = run("examples/hf_generate.py", "import os\n")
    assert done.returncode == 0, done.stderr
    figures = re.findall(r"^(\w+) +([\d.]+) tokens per target call   generate's tokens$", done.stdout, re.M)
    assert [name for name, _ in figures] == ["speculative", "prompt_lookup", "eagle2", "medusa_match"]
    assert "sampled, as it comes:\nimport os\n" in done.stdout


def test_an_algorithm_in_ones_own_tests() -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/test_mine.py")
    assert done.returncode == 0, done.stdout


def test_the_forgotten_residual_is_refuted() -> None:
    report = decgraph.check(str(ROOT / "examples" / "forgets_the_residual.dec"), models=3)
    assert report.verdict == "refuted"
    with pytest.raises(AssertionError, match="autoregressive"):
        decgraph.testing.assert_claims(str(ROOT / "examples" / "forgets_the_residual.dec"), models=3)
