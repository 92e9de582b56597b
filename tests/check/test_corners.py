"""Wrong programs of somebody who had read nothing but the docs, which were once proved or left undecided: each is wrong in a
corner alone. Their right twins are proved, or hold in all worlds."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import decgraph
from decgraph.check.constants import facts
from decgraph.check.functions import answers
from decgraph.check.plans import further_plans, places
from decgraph.check.table_models import MODELS, Style, row
from decgraph.check.worlds import world
from decgraph.ir.data.hidden import similarity, states_value
from decgraph.ir.types import Type
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.reading import AnyReading
from decgraph.runtime.models.table import TableModel

FOLDER = Path(__file__).parent / "corners"
NAMES = sorted(path.stem for path in (FOLDER / "wrong").glob("*.dec"))
LEAST = """algorithm least(target: causal, drafter: causal, gamma: int in 1..2 = 2):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by rejection against target(t)
        own = len(t.accepted)
        across batch:
            least = min(own)
        commit t.accepted[:least]
"""
WHOLE = """algorithm whole(target: causal, k: int in 1..4 = 2):
    refines autoregressive(target) in tokens
    model small = {model}

    while not done:
        x ~ small(ctx) as output
        commit x
"""
FIRST = """algorithm first_alone(target: causal, drafter: causal):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            {draft}
        verify t by rejection against target(t)
        {commit}
"""


def test_every_wrong_program_has_a_right_twin() -> None:
    assert NAMES and sorted(path.stem for path in (FOLDER / "right").glob("*.dec")) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_wrong_program_is_refuted(name: str) -> None:
    assert decgraph.check(FOLDER / "wrong" / f"{name}.dec").verdict == "refuted"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_right_twin_is_proved_or_holds(name: str) -> None:
    """Or undecided, where a line of it can never run as the claim's condition has it, and nothing shows that."""
    allowed = ("proved", "holds", "undecided") if name == "parallel_states" else ("proved", "holds")
    assert decgraph.check(FOLDER / "right" / f"{name}.dec", models=8).verdict in allowed


@pytest.mark.slow
def test_no_sequence_of_a_batch_accepts_nothing() -> None:
    """It commits as many tokens as the sequence that accepted least, which is right. An adversary knows more than another
    sequence does, so it is not proved; nor is it refuted, by a sequence that there is not."""
    report = decgraph.check(LEAST, models=8)
    assert report.verdict != "refuted" and not any("committed nothing" in note for note in report.notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["target.parallel(1)", "target.exit(len(target.layers))", "target.skip(target.layers where target.layers < 0)"]
)
def test_all_layers_one_after_the_other_are_the_model(model: str) -> None:
    assert decgraph.check(WHOLE.format(model=model), models=4).verdict in ("proved", "holds")


def test_a_table_without_a_change_is_the_table() -> None:
    table = TableModel(3, 1)
    path = (0, 1)
    assert derive(table, "parallel", 1).eval([path]) == table.eval([path]) != derive(table, "parallel", 2).eval([path])
    assert derive(table, "exit", 1).eval([path]) != table.eval([path])
    table.counted = True
    assert derive(table, "exit", table.layers).eval([path]) == table.eval([path])


def test_states_that_are_not_equal_may_be_parallel() -> None:
    rows = [similarity(states_value([f"a{n}"], ()), states_value([f"b{n}"], ()))[()] for n in range(200)]
    assert {Fraction(1), Fraction(-1)} <= set(rows) and len(set(rows)) > 3


@pytest.mark.parametrize("gives", ["bool", "prob", "int"])
def test_a_drawn_head_gives_all_its_answers(gives: str) -> None:
    options = answers(Type(gives), 3, (), (9,))
    head = AnyReading(TableModel(3, 1), gives, 5, answers=options)
    paths = [tuple(n // 3**i % 3 for i in range(5)) for n in range(200)]
    assert set(head.read(paths)) == set(options)
    assert set(head.of_states(np.arange(200).reshape(-1, 1), None)) == set(options)
    assert gives != "int" or 9 in options


def test_a_text_that_is_certain_up_to_a_late_token_comes_to_it() -> None:
    module = decgraph.load("speculative").module
    claim = module.entry.claims[0]
    plans = [p for p in further_plans(module, claim, 3, 20, {}) if p.style.point_until]
    cases = [(plan, world(module, claim, plan)) for plan in plans]
    assert any(plan.tight for plan in plans)
    for plan, case in cases:
        assert len(case.request.prompt) + case.request.max_tokens > plan.style.point_until and case.length == plan.length


def test_drafts_come_to_the_places_that_constants_name() -> None:
    module = decgraph.load(FOLDER / "wrong" / "tenth_draft.dec").module
    plans = list(places(module.entry, facts(module, module.entry), module.entry.claims[0], {}))
    assert {plan.params for plan in plans} == {(("gamma", 12),)}
    late = next(plan for plan in plans if plan.style.point_until)
    open_ = [n for n in range(20) if max(row(late.style, 5, 3, tuple([0] * n))) < 1]
    assert open_ == [11, 12, 13]  # behind two tokens of the prompt and nine, ten, eleven drafts


def test_free_models_have_layers_enough_for_constants() -> None:
    module = decgraph.load(FOLDER / "wrong" / "middle_layers.dec").module
    claim = module.entry.claims[0]
    plans = [p for p in further_plans(module, claim, 3, 20, {}) if p.deep]
    assert plans and all(world(module, claim, plan).models["target"].layers >= 9 for plan in plans)


@pytest.mark.parametrize("number", [Fraction(1, 10**7), 1 - Fraction(1, 10**5)])
def test_masses_beside_a_number(number: Fraction) -> None:
    style = Style("near", near=(number,))
    tiny = min(number, 1 - number)
    first = [row(style, 7 * MODELS, 3, (n,)) for n in range(60)]
    other = [row(style, 7 * MODELS + 1, 3, (n,)) for n in range(60)]
    assert all(sum(r) == 1 and min(r) >= 0 for r in first + other)
    masses = {x for r in first for x in (*r, *(1 - y for y in r))}
    assert any(0 < x < tiny for x in masses) and tiny in masses and any(tiny < x < 2 * tiny for x in masses)
    apart = [sum(abs(x - y) for x, y in zip(p, q, strict=True)) for p, q in zip(first, other, strict=True)]
    assert any(0 < x < 2 * tiny for x in apart) and 0 in apart


def test_the_first_model_and_the_others_are_apart() -> None:
    style = Style("apart")
    assert max(max(row(style, 3 * MODELS, 4, (n,))) for n in range(40)) <= Fraction(9, 12)
    assert min(max(row(style, 3 * MODELS + 1, 4, (n,))) for n in range(40)) > Fraction(9, 10)
