"""Which cases measured costs leave to `make slow` and to the night."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import costs
import pytest


def cases(test: str, count: int, *marks: Any, golden: bool = False) -> list[Any]:
    """Items of one test, as pytest collects them."""
    held = {mark.name: mark for mark in marks}
    names = ("golden",) if golden else ()
    return [SimpleNamespace(nodeid=f"{test}[{i}]", get_closest_marker=held.get, fixturenames=names) for i in range(count)]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file of costs in which a case of `long` takes 2 s, one of `longest` 9, one of `middling` 0.5 s."""
    folder = tmp_path / "workers"
    folder.mkdir()
    monkeypatch.setattr(costs, "FILE", tmp_path / "costs.tsv")
    (folder / "gw0").write_text("1.0\tlong[a]\n0.01\tquick[a]\n0.4\tmiddling[a]\n", encoding="utf-8")
    (folder / "gw1").write_text("3.0\tlong[b]\n9.0\tlongest[a]\n0.6\tmiddling[b]\n" + "0.1\tmany[x]\n" * 100, encoding="utf-8")
    costs.write(folder)
    yield
    costs.costs.cache_clear()


@pytest.mark.usefixtures("measured")
def test_what_takes_long_is_slow_and_what_takes_middling_runs_once() -> None:
    assert costs.costs() == {"long": 2.0, "longest": 9.0, "many": 0.1, "middling": 0.5}
    items = [*cases("long", 2), *cases("middling", 3), *cases("quick", 20), *cases("new", 2)]
    left = [item.nodeid for item in costs.costly(items)]
    assert left[:4] == ["long[0]", "long[1]", "middling[1]", "middling[2]"]
    assert len(left) == 4 + 20 - costs.MOST
    assert not costs.costly(cases("long", 2, golden=True))
    assert not costs.costly(cases("long", 2, pytest.mark.slow.mark))


@pytest.mark.usefixtures("measured")
def test_a_budget_bounds_what_ci_spends_on_a_test() -> None:
    slow = pytest.mark.slow.mark
    assert [i.nodeid for i in costs.beyond_budget(cases("long", 4, slow))] == ["long[1]", "long[2]", "long[3]"]
    assert len(costs.beyond_budget(cases("many", 100, slow))) == 100 - costs.BUDGET / 0.1
    assert not costs.beyond_budget(cases("long", 4, slow, pytest.mark.budget().mark))
    assert len(costs.beyond_budget(cases("long", 40, slow, pytest.mark.budget(36).mark))) == 40 - 36 / 2
    assert not costs.beyond_budget(cases("long", 9)) and not costs.beyond_budget(cases("new", 99, slow))
    assert len(costs.beyond_budget(cases("long", 5, slow))) < 5  # at least one runs
    assert len(costs.beyond_budget(cases("longest", 5, slow))) == 5
    assert len(costs.beyond_budget(cases("longest", 5, slow, pytest.mark.budget(8).mark))) == 5
    assert len(costs.beyond_budget(cases("longest", 5, slow, pytest.mark.budget(10).mark))) == 4


def test_the_file_names_tests_that_there_are() -> None:
    """Renamed tests count as fast until `make costs` runs again; few of them may."""
    root = Path(__file__).parents[2]
    gone = [test for test in costs.costs() if (at := test.split("::"))[1] not in _names(root / at[0])]
    assert len(gone) < 30, gone


def _names(file: Path) -> set[str]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {line.split("def ")[1].split("(")[0] for line in lines if "def test" in line}
