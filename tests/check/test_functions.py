"""Functions of the caller, batches and text: any function of its type, the real one, and programs of docs/ that call some."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from decgraph.check import check_algorithm
from decgraph.check.functions import DrawnFunction, answers
from decgraph.ir.types import BOOL, INT, PROB, Type

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```dec[^\n]*\n(.*?)^```", re.S | re.M)
WITH_EXTERNS = [
    block
    for page in sorted(DOCS.glob("**/*.md"))
    for block in BLOCK.findall(page.read_text(encoding="utf-8"))
    if re.search(r"^extern ", block, re.M) and "refines" in block
]
STEERED = """extern sure(text, float) -> {type} on host

algorithm steered(target: causal, drafter: causal, gamma: int in 1..2 = 2):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            repeat gamma:
                q = drafter(t.leaves)
                x ~ q
                grow x
                break if any({condition})
        verify t by {rule}
        commit t.accepted
"""


def test_there_are_programs_with_functions_in_docs() -> None:
    assert len(WITH_EXTERNS) >= 1


@pytest.mark.parametrize("text", WITH_EXTERNS)
def test_every_program_of_docs_with_a_function_is_proved(text: str) -> None:
    assert check_algorithm(text, models=4).verdict in ("proved", "holds", "undecided")


@pytest.mark.quick(first=1)
@pytest.mark.parametrize(
    ("returns", "condition"),
    [
        ("bool", "sure(text_of(ctx), max(q))"),
        ("int", "sure(text_of(ctx), max(q)) > 7"),
        ("float", "sure(text_of(ctx), max(q)) < 0.3"),
    ],
)
def test_what_steers_drafting_may_be_any_function(returns: str, condition: str) -> None:
    text = STEERED.format(type=returns, condition=condition, rule="rejection against target(t)")
    assert check_algorithm(text, derive=False, models=4).verdict == "holds"


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("condition", ["sure(text_of(ctx), 0.5)", "sure(text_of(ctx), 0.25)"])
def test_what_chooses_the_evidence_may_not(condition: str) -> None:
    text = STEERED.format(type="bool", condition="[no]", rule=f"rejection against drafter(t) if {condition} else target(t)")
    found = check_algorithm(text, derive=False)
    assert found.verdict == "refuted" and found.counterexample is not None
    assert found.counterexample.kind in ("distribution", "tokens")  # of a function that there is, and not of an adversary
    assert any("sure(" in line and "= yes" in line for line in found.counterexample.functions)
    honest = check_algorithm(text, derive=False, models=3, externs={"sure": lambda text, p: False})
    assert honest.verdict != "refuted"


def test_answers_stand_on_both_sides_of_what_the_program_names() -> None:
    assert answers(BOOL, 3) == [False, True]
    assert {Fraction(49, 100), Fraction(1, 2), Fraction(51, 100)} <= set(answers(PROB, 3, (Fraction(1, 2),)))
    assert {6, 7, 8} <= set(answers(INT, 3, (Fraction(7),)))
    assert answers(Type("token", ("V",)), 4) == [0, 1, 2, 3]


def test_a_drawn_function_answers_equal_questions_equally() -> None:
    f = DrawnFunction("f", [False, True], 3)
    first = [f(n, "a") for n in range(20)]
    assert first == [f(n, "a") for n in range(20)] and set(first) == {False, True}
    assert len(f.asked) == 20
