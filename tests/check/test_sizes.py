"""docs/reference/mutants.md is the table of the planted bugs as they are."""

from __future__ import annotations

import runpy

import pytest
from lib.repository import ROOT

from decgraph.check.mutants import MUTANTS

PAGE = ROOT / "docs" / "reference" / "mutants.md"
SCRIPT = runpy.run_path(str(PAGE.with_suffix(".py")))
HEAD, HOSTS, WORLDS, lines = (SCRIPT[name] for name in ("HEAD", "HOSTS", "WORLDS", "lines"))


def rows() -> dict[str, list[str]]:
    text = PAGE.read_text(encoding="utf-8")
    assert text.startswith(HEAD), "python docs/reference/mutants.py"
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text[len(HEAD) :].splitlines()]
    return {row[0].strip("`"): row for row in table}


def test_every_mutant_has_its_line() -> None:
    found = rows()
    assert list(found) == [m.name for m in MUTANTS]
    for m in MUTANTS:
        row = found[m.name]
        assert [row[5], row[6], row[7]] == [m.sees, m.bugs, m.why], m.name
        assert row[1] in HOSTS
        if row[2] != "refused":
            shown = [int(n) for n in row[2:5]]
            assert all(0 <= n <= WORLDS for n in shown) and max(shown) > 0, m.name


def test_what_two_tokens_cannot_show_three_do() -> None:
    found = rows()
    for name in ("siblings-merged", "noise-shared-by-siblings"):
        assert int(found[name][3]) > 0 and int(found[name][4]) > 0


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("name", ["accept-always", "residual-skipped"])
def test_numbers_are_what_they_are(name: str) -> None:
    (line,) = lines(vocabs=(2,), only=(name,))
    assert rows()[name][2] == str(line.shown[0])


def test_a_set_that_has_a_default_is_also_a_small_one() -> None:
    """Tokens of a large vocabulary are in no world: a program that looks for them is to find some."""
    from decgraph import load
    from decgraph.check.worlds import params_for

    function = load("adablock").module.entry
    assert {params_for(function, seed)["marks"] for seed in range(8)} >= {frozenset({1})}
    assert len({tuple(params_for(function, seed)["marks"]) for seed in range(8)}) == 2
