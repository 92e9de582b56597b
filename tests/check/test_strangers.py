"""Wrong programs of somebody who had read nothing but the docs, which the check once called proved."""

from __future__ import annotations

from fractions import Fraction

import pytest

import decgraph
from decgraph.backends.exact.run import folds_of
from decgraph.ir.intervals import FALSE, Interval

CHAIN = """
    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves){output}
                grow x
        verify t by {rule} against target(t)
        commit t.accepted
"""
LENIENT = """rule lenient(p: dist, children: draws, bad: bool):
    for x in children:
        if bernoulli(min(1, p[x] / x.law[x])):
            accept x
        p = p if bad else normalize(relu(p - x.law))
    y ~ p
    emit y

"""
HEAD = (
    "algorithm wrong(target: causal, drafter: causal, gamma: int in 1..8 = 2):\n    refines autoregressive(target) in {mode}\n"
)
LAST = "\n    while not done:\n        x ~ target(ctx.last({size})) as output\n        commit x\n"
SAMPLED = HEAD.format(mode="distribution")
MASKED = """algorithm wrong(model: masked, length: int in 1..256 = 64):
    refines static_masked(model, length, length) in tokens
    canvas c: length
    {first}            n = {n}
            p = model(c)
            x ~ p as output(count(c.decided))
            unmask c where rank(p.raw[x]) < n with x
    commit c
"""
SHARPER = """algorithm wrong(target: causal):
    refines autoregressive(target) in tokens

    while not done:
        x ~ warp((1 + {by}) * target(ctx).logits, at = ctx) as output
        commit x
"""
IDS = """algorithm wrong(target: causal):
    refines autoregressive(target) in tokens

    while not done:
        x ~ target(ctx) as output
        commit int(x) % {n}
"""
LEAST = """algorithm least(target: causal, drafter: causal, gamma: int in 1..8 = 2):
    refines autoregressive(target) in tokens

    while not done:
        draft t:
            repeat gamma:
                grow topk(drafter(t.leaves).raw, 1)
        verify t by match against target(t)
        own = t.accepted.depth + {more}
        across batch:
            least = min(own)
        commit t.accepted[:least]
"""
WRONG = {
    # Its coin reads drafts behind the one that it refuses, and the next step drafts with the same noise.
    "block": SAMPLED + CHAIN.format(output=" as output", rule="block_rejection"),
    "traverse": SAMPLED + CHAIN.format(output=" as output", rule="traverse"),
    # The residual is forgotten from the sixth request of a session on.
    "sixth_request": LENIENT
    + SAMPLED
    + "    state served: int per session = 0\n    served += 1\n"
    + CHAIN.format(output="", rule="lenient(served > 5)"),
    # Contexts longer than are tried are cut.
    "window": HEAD.format(mode="tokens") + LAST.format(size="64 * 20"),
    "pages": HEAD.format(mode="tokens").replace("gamma: int in 1..8 = 2", "pages: int in 20..64 = 32")
    + LAST.format(size="pages * 64"),
    # One token a step in all worlds that are enumerated.
    "schedule": MASKED.format(first="for i in 0..32:\n        if any(c.masked):\n", n="spread(max(length, 32), 32)[i]"),
    "tenths": MASKED.format(first="while any(c.masked):\n        if yes:\n", n="1 + floor(count(c.masked) / 10)"),
    # The target's own distribution in short texts.
    "long_prompt": SHARPER.format(by="floor(ctx.length / 512) / 10"),
    "long_text": SHARPER.format(by="floor(room / 100) / 10"),
    # The target's own tokens in small vocabularies.
    "ids": IDS.format(n=64),
    "many_ids": IDS.format(n=255),
    "ids_beyond": IDS.format(n=5000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_none_is_proved(name: str) -> None:
    verdict = decgraph.check(WRONG[name], models=8).verdict
    assert verdict == ("undecided" if name in ("sixth_request", "pages", "ids_beyond") else "refuted")


@pytest.mark.slow
def test_the_least_of_a_batch_is_a_number_that_a_sequence_can_have() -> None:
    """All sequences commit as many tokens as the one that accepted least: at least one. Without the token after the drafts that
    is nothing, somewhere. The mutant whose additional token nobody counts is not planted."""
    assert decgraph.check(LEAST.format(more=1), models=8).verdict in ("proved", "holds")
    assert decgraph.check(LEAST.format(more=0), models=8).verdict not in ("proved", "holds")


def test_keys_of_several_races_are_not_followed_and_no_fault_of_ours() -> None:
    text = """algorithm keys(target: causal, k: int in 1..4 = 2):
    refines autoregressive(target) in distribution
    draft t:
        t.race[root] = 0.0
        now, over = t.leaves, t.nodes where t.depth < 0
        repeat room while len(now) > 0:
            xs = race(target(now), under = t.race[now])
            best = top(xs, k, by = xs.race)
            new = grow best with race = best.race
            break if len(new) == 0
            some = over ++ new
            some = top(some, k, by = t.race[some])
            over = some where ended(some)
            now = some where not ended(some)
    found = over ++ now
    commit argmax(found, by = t.race[found])
"""
    report = decgraph.check(text, models=3)
    assert (report.verdict, report.faults) == ("undecided", [])
    assert any("race keys are followed where" in note for note in report.notes)


def test_what_a_fold_over_a_batch_may_be() -> None:
    """The adversary stays within what any sequence's number can be, and nothing else is left out."""
    known = Interval(1, 5)
    assert folds_of("min", 3, False) == [3, 2, 0] and folds_of("min", 3, False, known) == [3, 2, 1]
    assert folds_of("min", 1, False, known) == [1] and folds_of("min", -1, False) == [-1, -2]
    assert folds_of("max", 3, False) == [3, 4, 7] and folds_of("max", 3, False, known) == [3, 4, 5]
    assert folds_of("sum", 3, False, known) == [3, 4, 7] and folds_of("sum", 3, False, Interval(2, 9)) == [3, 5, 7]
    assert folds_of("any", False, False) == [False, True] and folds_of("any", False, False, FALSE) == [False]
    assert folds_of("min", Fraction(1, 2), True, Interval(Fraction(1, 3), 1)) == [Fraction(1, 2), Fraction(1, 3)]
