"""Specifications whose distributions are powers, products and mixtures of others: true programs proved, wrong ones refuted."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from decgraph.check import check_algorithm
from decgraph.check.algorithm import find
from decgraph.check.claims import decide
from decgraph.check.distributions import RunTally
from decgraph.check.report import cases

# The machine of backends/exact/run.py draws from weights that are reals (`real`), which is not this file's to see to.
PROGRAMS = Path(__file__).parent / "powers"
Case = tuple[str, dict[str, Any]]
RATIONAL: list[Case] = [("contrastive", {}), ("guidance", {}), ("mixture", {})]
REAL: list[Case] = [
    ("contrastive", {"strength": 0.5}),  # square roots
    ("guidance", {"strength": 1.5}),
    ("geometric", {}),
    *(
        pytest.param(case, marks=pytest.mark.nightly)
        for case in (
            ("guidance", {"strength": 0.3}),  # tenth roots
            ("geometric", {"share": "1/3"}),
            ("tempered", {}),  # temperature 0.7
            ("tempered", {"heat": 2}),
        )
    ),
]
ONLY_REAL = ("wrong_geometric_arithmetic", "wrong_tempered_multiplied", "wrong_contrastive_hundredth")
WRONG: list[Case] = [(p.stem, {}) for p in sorted(PROGRAMS.glob("wrong_*.dec")) if p.stem not in ONLY_REAL]
WRONG_REAL: list[Case] = [
    *[(name, {}) for name in ONLY_REAL],
    ("wrong_guidance_strength", {"strength": 1.5}),
    ("wrong_guidance_one_side", {"strength": 0.5}),
    ("wrong_guidance_exchanged", {"strength": 1.5}),
    ("wrong_contrastive_uncut", {"strength": 0.5}),
    ("wrong_mixture_exchanged", {"share": "1/3"}),
    ("wrong_tempered_multiplied", {"heat": 2}),
]


def named(case: Case) -> str:
    return " ".join([case[0], *(f"{k}={v}" for k, v in case[1].items())])


def is_proved(case: Case) -> None:
    name, params = case
    found = check_algorithm(PROGRAMS / f"{name}.dec", models=3, params=params, derive=False)
    assert found.verdict == "holds"


def is_refuted(case: Case) -> None:
    name, params = case
    found = check_algorithm(PROGRAMS / f"{name}.dec", models=4, params=params, derive=False)
    assert found.verdict == "refuted" and found.counterexample is not None
    assert "total variation" in found.counterexample.render()


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("case", RATIONAL, ids=named)
def test_true_programs_are_proved(case: Case) -> None:
    is_proved(case)


@pytest.mark.parametrize("case", WRONG, ids=named)
def test_wrong_programs_are_refuted(case: Case) -> None:
    is_refuted(case)


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("case", REAL, ids=str)
def test_true_programs_beyond_the_rationals_are_proved(case: Case) -> None:
    is_proved(case)


@pytest.mark.quick(first=4)
@pytest.mark.parametrize("case", WRONG_REAL, ids=named)
def test_wrong_programs_beyond_the_rationals_are_refuted(case: Case) -> None:
    is_refuted(case)


FORGETS = """
rule forgets(p: dist, children: draws):
    for x in children:
        if bernoulli(p[x] / x.law[x]):
            accept x
    y ~ p
    emit y

"""
REQUESTS: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"temperature": 2},
    {"temperature": Fraction(1, 2)},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.5, "top_k": 2},
    {"presence_penalty": 0.5},
    {"bias": {1: -1.5}, "min_p": 0.1},
    {"presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.2, "temperature": 0.7},
]


@pytest.mark.parametrize("fields", REQUESTS, ids=str)
@pytest.mark.parametrize("right", [True, False])
def test_requests_beyond_the_rationals_are_decided(fields: dict[str, Any], right: bool) -> None:
    """Speculative sampling under temperatures and amounts that leave the rationals; wrong where it forgets the residual."""
    module, text = find("speculative")
    if not right:
        module, _ = find(FORGETS + text.replace("by rejection", "by forgets"))
    for case in cases(module, module.entry.claims[0], vocab=3, models=2, params={"gamma": 2}):
        failure = decide(replace(case, request=replace(case.request, **fields)), RunTally())
        assert (failure is None) == right
        if failure is not None:
            assert failure.kind == "distribution" and failure.distance > 0


def test_what_cannot_be_told_is_undecided_at_its_line() -> None:
    text = """
algorithm nested(target: causal, drafter: causal):
    refines autoregressive(target) in distribution
    while not done:
        q = target(ctx)
        if sqrt(3 + 2 * sqrt(2)) > 1 + sqrt(2):
            q = drafter(ctx)
        x ~ q
        commit x
"""
    found = check_algorithm(text, models=2, derive=False)
    assert found.verdict == "undecided"
    assert any(":6:" in note and "cannot be told apart with 400 digits" in note for note in found.notes)
