"""Bugs of the museum have the status that docs/museum.md says: wrong programs refuted or refused, right ones not."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from decgraph.check import check_algorithm
from decgraph.dsl.format import format_source
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError

FOLDER = Path(__file__).parent / "museum"
FILES = sorted(FOLDER.glob("*.dec"))
PAGE = (Path(__file__).parents[2] / "docs" / "museum.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([MR]\d+) \| .* \| ([\w, ]+) \| (.*) \|$", PAGE, re.M)
"""Of each bug the number, the status, and what shows it."""
PROGRAMS = dict(re.findall(r"\[(\w+)\]\(\.\./tests/check/museum/\1\.dec\): (\w+)", PAGE))
"""The verdict on each program: proved, holds, refuted, or the code of the error that refuses it."""
MODELS = {
    **dict.fromkeys(("m07_rounded_draft", "m12_block_product", "m12_block_early", "m12_block_first", "m28_growth_order"), 8),
    **dict.fromkeys(("x_lenience", "x_spechub"), 6),
    **dict.fromkeys(("m51_last_token_of_a_step", "m53_rejected_recorded"), 4),
}
"""How many models of small worlds are tried, where the usual number does not show it."""
ENGINE = ast.parse((Path(__file__).parent / "test_museum_engine.py").read_text(encoding="utf-8"))


def named(verdict: str) -> list[str]:
    return [name for name, said in PROGRAMS.items() if said == verdict]


def test_all_of_the_survey_is_there() -> None:
    assert [number for number, _, _ in ROWS if number[0] == "M"] == [f"M{n:02}" for n in range(1, 58)]
    assert {p.stem for p in FILES} == set(PROGRAMS)


@pytest.mark.parametrize(("status", "shown"), [pytest.param(s, by, id=number) for number, s, by in ROWS])
def test_its_status_is_what_is_shown(status: str, shown: str) -> None:
    found = {"refuted"} if ": refuted" in shown else set()
    found |= {"engine test"} if "test: `" in shown else set()
    said = set(status.split(", "))
    assert said - {"refused", "cannot be written"} == found
    assert bool(said & {"refused", "cannot be written"}) == bool(re.search(r": E\d+", shown))


def test_it_counts_its_bugs() -> None:
    (line,) = re.findall(r"^Of the 57, (.*); most", PAGE, re.M)
    statuses = [status for number, status, _ in ROWS if number[0] == "M"]
    assert line.split(", ") == [
        f"{sum(word in status.split(', ') for status in statuses)} {word}"
        for word in ("refuted", "refused", "cannot be written", "engine test")
    ]


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
@pytest.mark.quick(*(set(named("refuted")) - LONG), "m01_no_residual_right")
@pytest.mark.parametrize("name", [*named("refuted"), *named("proved"), *named("holds")])
def test_verdict(name: str) -> None:
    models = MODELS.get(name.removesuffix("_right"))
    options: dict[str, Any] = {} if models is None else {"models": models}
    report = check_algorithm(FOLDER / f"{name}.dec", **options)
    assert report.verdict == PROGRAMS[name], report.notes
    assert (report.counterexample is not None) == (PROGRAMS[name] == "refuted")


@pytest.mark.parametrize("name", [name for name, said in PROGRAMS.items() if said.startswith("E")])
def test_refused(name: str) -> None:
    path = FOLDER / f"{name}.dec"
    with pytest.raises(DecError) as caught:
        load_text(path.read_text(encoding="utf-8"), str(path))
    assert caught.value.codes == (PROGRAMS[name],)


def test_what_is_refuted_loads_and_has_a_twin() -> None:
    """A refuted program passes the front end; beside it stands what is right, and differs from it."""
    for name in named("refuted"):
        text = (FOLDER / f"{name}.dec").read_text(encoding="utf-8")
        assert load_text(text, name).entry.claims
        twin = f"{name.removesuffix('_greedy')}_right"
        assert PROGRAMS[twin] in ("proved", "holds") and (FOLDER / f"{twin}.dec").read_text(encoding="utf-8") != text


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_house_layout(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    if not PROGRAMS[file.stem].startswith("E0"):
        assert format_source(text) == text


def test_engine_tests_are_there() -> None:
    there = {f.name for f in ENGINE.body if isinstance(f, ast.FunctionDef) and f.name.startswith("test_")}
    used = {name for _, _, shown in ROWS for name in re.findall(r"`(test_\w+)`", shown)}
    assert used == there, used ^ there
