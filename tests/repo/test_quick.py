"""Which cases `make test` runs: the mark `quick`, tried on a small project of its own."""

from __future__ import annotations

import pytest
from quick import slow_cases

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
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-c", str(folder / "pytest.ini"), str(folder)]
    assert pytest.main(options, plugins=[seen]) == 0
    return seen.items


def test_which_cases_are_left_to_make_slow(items: list[pytest.Item]) -> None:
    slow = {i.name for i in slow_cases(items, whole=False)}
    quick = {i.name for i in items} - slow
    assert quick == {
        "test_words[b-1]",
        "test_words[b-2]",
        "test_words[c-2]",
        "test_first[a-1]",
        "test_first[b-1]",
        "test_all[1]",
        "test_all[2]",
        "test_one",
    }


def test_words_that_choose_nothing_are_an_error(items: list[pytest.Item]) -> None:
    with pytest.raises(ValueError, match="typo"):
        slow_cases(items, whole=True)
