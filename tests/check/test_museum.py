"""Every bug of the museum has the status that its table says: wrong programs refuted or refused, right ones proved, or hold."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from entries import ENTRIES
from entry import FOLDER, Program
from page import PAGE, page

from decgraph.check import check_algorithm
from decgraph.dsl.format import format_source
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError

PROGRAMS = {p.name: p for e in ENTRIES for p in e.programs}
FILES = sorted(FOLDER.glob("*.dec"))
ENGINE = ast.parse((Path(__file__).parent / "test_museum_engine.py").read_text(encoding="utf-8"))


def named(verdict: str) -> list[Program]:
    return [p for p in PROGRAMS.values() if p.verdict == verdict]


def test_all_of_the_survey_is_there() -> None:
    assert [e.number for e in ENTRIES if e.number[0] == "M"] == [f"M{n:02}" for n in range(1, 58)]
    for e in ENTRIES:
        assert e.status, f"{e.number} has no status"
    assert {p.stem for p in FILES} == set(PROGRAMS)


LONG = {
    "m06_one_side_shaped",
    "m12_block_early",
    "m16_accepts_impossible",
    "m28_growth_order",
    "m51_last_token_of_a_step",
    "m52_penalty_of_the_root",
    "m53_rejected_recorded",
    "m54_unpenalised",
}
"""Refuted after a second or more."""


@pytest.mark.budget(14)
@pytest.mark.quick(*({p.name for p in named("refuted")} - LONG), "m01_no_residual_right")
@pytest.mark.parametrize("name", [p.name for p in PROGRAMS.values() if p.verdict in ("refuted", "proved", "holds")])
def test_verdict(name: str) -> None:
    p = PROGRAMS[name]
    report = check_algorithm(FOLDER / f"{name}.dec", **p.options)
    assert report.verdict == p.verdict, report.notes
    assert (report.counterexample is not None) == (p.verdict == "refuted")


@pytest.mark.parametrize("name", [p.name for p in PROGRAMS.values() if p.verdict.startswith("E")])
def test_refused(name: str) -> None:
    path = FOLDER / f"{name}.dec"
    with pytest.raises(DecError) as caught:
        load_text(path.read_text(encoding="utf-8"), str(path))
    assert caught.value.codes == (PROGRAMS[name].verdict,)


def test_what_is_refuted_loads_and_has_a_twin() -> None:
    """A refuted program passes the front end; beside it stands what is right, and differs from it."""
    for p in named("refuted"):
        text = (FOLDER / f"{p.name}.dec").read_text(encoding="utf-8")
        assert load_text(text, p.name).entry.claims
        twin = PROGRAMS[f"{p.name.removesuffix('_greedy')}_right"]
        assert twin.verdict in ("proved", "holds") and (FOLDER / f"{twin.name}.dec").read_text(encoding="utf-8") != text


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_house_layout(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    if not PROGRAMS[file.stem].verdict.startswith("E0"):
        assert format_source(text) == text


def test_engine_tests_are_there() -> None:
    there = {f.name for f in ENGINE.body if isinstance(f, ast.FunctionDef) and f.name.startswith("test_")}
    used = {name for e in ENTRIES for name in e.tests}
    assert used <= there, used - there
    assert there <= used, there - used


def test_the_page_is_made_of_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python tests/check/museum/page.py"
