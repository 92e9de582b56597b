"""`ensures` and `keeps support of` at a setting: claims about every token, decided where their condition is true."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.check import check_algorithm
from decgraph.check.report import Report
from decgraph.dsl.lower import load_text
from decgraph.dsl.prelude import *  # noqa: F403
from decgraph.errors import DecError
from decgraph.ir.settings import holds
from decgraph.ir.text import parse_module, print_module

FIXED = """algorithm fixed(target: causal, delta: float in 0..4 = 2.0, k: int in 1..64 = 2, calm: bool = no):
    {claim}{when}
    while not done:
        p = target(ctx)
        x ~ p as output
        if {sound}:
            commit x
        else:
            commit argmax(-1 * p.raw)
"""
"""The target's token where a condition is true, and elsewhere the least likely one, which may have no probability."""
CLAIMS = ("keeps support of target", "ensures p[x] > 0")


def fixed(claim: str, when: str, sound: str = "delta == 0") -> str:
    return FIXED.format(claim=claim, when=f" when {when}" if when else "", sound=sound)


def check(text: str) -> Report:
    return check_algorithm(decgraph.parse(text), models=3, derive=False)


@pytest.mark.budget(14)
@pytest.mark.quick("delta == 0")
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("when", ["delta == 0", "not delta > 0 and k < 9"])
def test_what_holds_at_a_setting_is_proved(claim: str, when: str) -> None:
    found = check(fixed(claim, when))
    assert (found.verdict, found.claims) == ("holds", [f"{claim} when {when}"])


@pytest.mark.budget(14)
@pytest.mark.quick("calm")
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize(
    ("when", "sound"),
    [
        ("", "delta == 0"),
        ("calm", "calm and delta < 4"),  # wrong at an end of a range
        ("delta <= 3", "delta < 3"),  # wrong at a constant of the condition
        ("k > 1", "k < 64"),
    ],
)
def test_what_fails_somewhere_in_a_setting_is_refuted_there(claim: str, when: str, sound: str) -> None:
    text = fixed(claim, when, sound)
    found = check(text)
    assert found.verdict == "refuted" and found.counterexample is not None
    assert holds(load_text(text).entry.claims[0].setting, found.counterexample.params)


@pytest.mark.budget(14)
def test_greedy_requests_alone() -> None:
    """A drawn token is the likeliest where the request asks for it, and others too where it does not."""
    drawn = "algorithm drawn(target: causal):\n    {}\n    while not done:\n        x ~ target(ctx)\n        commit x\n"
    claim = "ensures p[x] == max(p)"
    assert check(drawn.format(f"{claim} when greedy")).verdict == "holds"
    assert check(drawn.format(claim)).verdict == "refuted"
    kept = "keeps support of target when greedy"
    assert check(drawn.format(kept)).verdict == "holds"
    assert check(drawn.format(kept).replace("commit x", "commit argmax(-1 * target(ctx).raw)")).verdict == "refuted"


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("delta == 5", "no value was found that satisfies `delta == 5`"),
        ("1 == 1", "is a constant"),
        ("p[0] > 0", "reads parameters, constants, `len(prompt)`, `room` and `greedy`"),
        ("x == 3", "not `x`"),
        ("delta == 0 or greedy", "joined to a condition by `and`"),
        ("k", "`k` is no condition"),
    ],
)
def test_conditions_that_say_nothing_are_errors_with_a_place(claim: str, when: str, told: str) -> None:
    with pytest.raises(DecError) as error:
        load_text(fixed(claim, when))
    said = error.value.diagnostics[0]
    assert said.code == "E411" and told in said.message and said.help
    assert said.span.start > 0 and "^" in str(error.value)


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_condition_goes_through_the_texts(claim: str) -> None:
    """Of the IR and of the language."""
    text = fixed(claim, "delta * 2 == 1 / 2 or (k > 3 and not calm)")
    module = load_text(text)
    assert module.entry.claims[0].setting and module.entry.claims[0].conditional
    again = parse_module(print_module(module))
    assert print_module(again) == print_module(module)
    assert again.entry.claims[0].setting == module.entry.claims[0].setting
    assert decgraph.parse(text).function.claims[0].when in text


def test_in_python_and_in_words() -> None:
    @decgraph.algorithm
    def sampled(target: Causal, delta: Annotated[float, 0, 4] = 2.0) -> None:  # noqa: F405
        keeps_support(target, when=delta == 0)  # noqa: F405
        ensures(p[x] > 0, when=delta > 1 and greedy())  # type: ignore[name-defined]  # noqa: F405
        while not done():  # noqa: F405
            commit(sample(target(ctx), as_=output))  # noqa: F405

    kept, ensured = sampled.claims
    assert (kept.kind, kept.setting, kept.for_greedy) == ("keeps_support", ("==", ("param", "delta"), ("const", 0)), False)
    assert (ensured.kind, ensured.setting, ensured.for_greedy) == ("ensures", (">", ("param", "delta"), ("const", 1)), True)
    told = " ".join(sampled.explain().split())
    assert "under that model, where `delta == 0`" in told and "distribution is p, where `delta > 1 and greedy`" in told
