"""Specifications whose distributions are powers, products and mixtures of others: true programs proved, wrong ones refuted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decgraph.check import check_algorithm

PROGRAMS = Path(__file__).parent / "powers"
TRUE: list[tuple[str, dict[str, Any]]] = [
    ("contrastive", {}),                      # strength 1: rational
    ("contrastive", {"strength": 0.5}),       # square roots
    ("guidance", {}),
    ("guidance", {"strength": 1.5}),
    ("guidance", {"strength": 0.3}),          # tenth roots
    ("mixture", {}),
    ("geometric", {}),
    ("geometric", {"share": "1/3"}),
    ("tempered", {}),                         # temperature 0.7
    ("tempered", {"heat": 2}),
]
WRONG: list[tuple[str, dict[str, Any]]] = [
    *[(p.stem, {}) for p in sorted(PROGRAMS.glob("wrong_*.dec"))],
    ("wrong_guidance_strength", {"strength": 1.5}),
    ("wrong_guidance_one_side", {"strength": 0.5}),
    ("wrong_guidance_exchanged", {"strength": 1.5}),
    ("wrong_contrastive_uncut", {"strength": 0.5}),
    ("wrong_mixture_exchanged", {"share": "1/3"}),
    ("wrong_tempered_multiplied", {"heat": 2}),
]


def named(case: tuple[str, dict[str, Any]]) -> str:
    return " ".join([case[0], *(f"{k}={v}" for k, v in case[1].items())])


@pytest.mark.parametrize("case", TRUE, ids=named)
def test_true_programs_are_proved(case: tuple[str, dict[str, Any]]) -> None:
    name, params = case
    found = check_algorithm(PROGRAMS / f"{name}.dec", models=3, params=params, mutants=False)
    assert (found.verdict, found.notes) == ("proved", [])


@pytest.mark.parametrize("case", WRONG, ids=named)
def test_wrong_programs_are_refuted(case: tuple[str, dict[str, Any]]) -> None:
    name, params = case
    found = check_algorithm(PROGRAMS / f"{name}.dec", models=4, params=params, mutants=False)
    assert found.verdict == "refuted" and found.counterexample is not None
    assert "total variation" in found.counterexample.render()


def test_bugs_planted_in_a_guided_program_are_found() -> None:
    found = check_algorithm(PROGRAMS / "guidance.dec", models=6, params={"strength": 1.5})
    assert found.verdict == "proved" and found.planted > 3 and found.killed == found.planted
