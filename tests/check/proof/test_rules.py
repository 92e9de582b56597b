"""Rules of verification as users write them: right ones have a derivation, wrong ones have none and are refuted."""

from __future__ import annotations

import pytest

import decgraph

STEP = """
algorithm tried(target: causal, drafter: causal):
    refines autoregressive(target) in {mode}

    while not done:
        draft t:
            {grow}
        verify t by {rule} against target(t)
        commit t.accepted
"""


def step(rule: str, grow: str, mode: str = "distribution") -> str:
    """A text whose step grows drafts and verifies them: `rule` is a name, or a rule's text."""
    name = rule.split("(")[0].removeprefix("rule ") if "\n" in rule else rule
    return (rule if "\n" in rule else "") + STEP.format(mode=mode, grow=grow, rule=name)


IID = "grow sample(drafter(t.leaves), {})"
DIFFERENT = "grow sample(drafter(t.leaves), {}, replace = no)"
POINTS = "grow topk(drafter(t.leaves).raw, {})"


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("grow", [IID, DIFFERENT, POINTS])
@pytest.mark.parametrize(("rule", "mode"), [("rejection", "distribution"), ("match", "tokens")])
def test_right_uses_are_proved(rule: str, mode: str, grow: str, count: int) -> None:
    report = decgraph.parse(step(rule, grow.format(count), mode)).check(models=1)
    assert report.verdict == "proved", report.counterexample


RULE = """rule {name}(p: dist, children: draws):
    for x in children:
        if {test}:
            accept x
{then}    y ~ p
    emit y
"""
TWO = """rule {name}(p: dist, children: draws):
    r = p
    for x in children:
        if bernoulli(r[x] / x.law[x]):
            accept x
        r = normalize(relu({left} - x.law))
    y ~ {last}
    emit y
"""
RESIDUAL = "        p = normalize(relu(p - x.law))\n"


def wrong(name: str, test: str = "bernoulli(p[x] / x.law[x])", then: str = RESIDUAL) -> str:
    return RULE.format(name=name, test=test, then=then)


WRONG = {
    "the residual is forgotten": (wrong("forgets", then=""), IID.format(1)),
    "accepts with q/p": (wrong("upside_down", "bernoulli(x.law[x] / p[x])"), IID.format(1)),
    "accepts where p >= q": (wrong("greedy_test", "p[x] >= x.law[x]"), IID.format(1)),
    "lenience of 2": (wrong("lenient", "bernoulli(2 * p[x] / x.law[x])"), IID.format(1)),
    "the residual is turned round": (wrong("turned", then="        p = normalize(relu(x.law - p))\n"), IID.format(1)),
    "emits from p at a rejection of the second": (TWO.format(name="late", left="r", last="p"), IID.format(2)),
    "the first sibling's distribution is put back for the second": (TWO.format(name="once", left="p", last="r"), IID.format(2)),
    "siblings without replacement by the rule for independent ones": (
        wrong("independent", "bernoulli(p[x] / x.prob)"),
        DIFFERENT.format(2),
    ),
    "a guess is taken for a draw": (wrong("as_drawn", "bernoulli(p[x] / x.prob)"), POINTS.format(1)),
    "a guess is always accepted": (wrong("trusting", "p[x] > 0"), POINTS.format(1)),
    "a guess is taken for a draw from uniform": (wrong("uniform", "bernoulli(3 * p[x])"), POINTS.format(1)),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_rules_are_refuted(what: str) -> None:
    report = decgraph.parse(step(*WRONG[what])).check()
    assert report.verdict == "refuted"
    assert report.counterexample is not None and "is not known to be right" in report.stopped()[0]


def test_a_lossless_rule_gives_no_equal_tokens() -> None:
    report = decgraph.parse(step("rejection", IID.format(1), "tokens")).check()
    assert report.verdict == "refuted"
