"""Which cases `make test` runs: the mark `quick`, tried on a small project of its own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from lib.waiting import SECONDS
from quick import FOLDER, SLOW_FILES, slow_cases

TESTS = """
import pytest

@pytest.mark.quick("b", ("c", "2"))
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_words(name, n): pass

@pytest.mark.quick(first=1, each="name")
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", ["a", "b"])
def test_first(name, n): pass

@pytest.mark.quick(but=("a", ("b", "2")))
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", ["a", "b"])
def test_but(name, n): pass

@pytest.mark.quick("typo")
@pytest.mark.parametrize("n", [1, 2])
def test_typo(n): pass

@pytest.mark.parametrize("n", [1, 2])
def test_all(n): pass

def test_one(): pass
"""


class Seen:
    """A plugin that keeps what was collected."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.items = list(items)


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[pytest.Item]:
    folder, seen = tmp_path_factory.mktemp("project"), Seen()
    (folder / "test_marked.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = quick: tried\n")
    options = [
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:benchmark",
        "-c",
        str(folder / "pytest.ini"),
        str(folder),
    ]
    assert pytest.main(options, plugins=[seen]) == 0
    return seen.items


def test_which_cases_are_left_to_make_slow(items: list[pytest.Item]) -> None:
    slow = {i.name for i in slow_cases(items)[0]}
    quick = {i.name for i in items} - slow
    assert quick == {
        "test_words[b-1]",
        "test_words[b-2]",
        "test_words[c-2]",
        "test_first[a-1]",
        "test_first[b-1]",
        "test_but[b-1]",
        "test_all[1]",
        "test_all[2]",
        "test_one",
    }


def test_words_that_choose_nothing_are_named(items: list[pytest.Item]) -> None:
    assert slow_cases(items)[1] == {"test_marked.py::test_typo": "quick chooses no case by typo"}


def test_what_is_wrong_in_one_file_stops_no_other(tmp_path: Path) -> None:
    """A mark that chooses nothing fails its test; a table that raises when it is read fails its file. The others run."""
    here = Path(__file__).parent.parent
    for name in ("conftest.py", "selection.py", "quick.py", "costs.py"):
        (tmp_path / name).write_text((here / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "test_marked.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "test_table.py").write_text("TABLE = {}\nROW = TABLE['missing']\n", encoding="utf-8")
    options = tomllib.loads((here.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    chosen = {**options, "testpaths": ".", "pythonpath": ".", "filterwarnings": "", "markers": "\n ".join(options["markers"])}
    (tmp_path / "pytest.ini").write_text("[pytest]\n" + "".join(f"{k} = {v}\n" for k, v in chosen.items()), encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert "9 passed" in done.stdout and "2 errors" in done.stdout, done.stdout + done.stderr
    assert "ERROR test_table.py - KeyError: 'missing'" in done.stdout
    assert "ERROR test_marked.py::test_typo[1] - Failed: quick chooses no case by typo" in done.stdout


def test_slow_files_are_there() -> None:
    """A file that was moved would come back into `make test`."""
    assert [name for name in sorted(SLOW_FILES) if not (FOLDER / name).is_file()] == []
