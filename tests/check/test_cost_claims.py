"""Claims about cost: what is derived, what worlds refute, and that nothing wrong is derived."""

from __future__ import annotations

from textwrap import indent

import pytest

import decgraph
from decgraph.check.verdicts import Proof, proof_of
from decgraph.dsl.prelude import Annotated, Causal, at_most, commit, ctx, done, sample


@decgraph.algorithm
def in_python(target: Causal, drafter: Causal, gamma: Annotated[int, 1, 4] = 2) -> None:
    at_most(gamma + 1, "calls", of=drafter, a="token", when=gamma > 1)
    while not done():
        x = sample(target(ctx))
        commit(x)


def causal(claim: str, body: str, before: str = "pass_ = 0") -> str:
    return f"""algorithm a(target: causal, drafter: causal, gamma: int in 1..4 = 2, fast: bool = no):
    {claim}
    {before}
    while not done:
{indent(body.strip(), "        ")}
"""


def canvas(body: str, claim: str = "at most budget remasked", begin: str = "left = budget", state: str = "") -> str:
    return f"""algorithm a(model: masked, length: int in 1..16 = 4, tau: prob = 0.9, eta: prob = 0.3,
            budget: int in 0..8 = 2, k: int in 0..4 = 1):
    {claim}
    {state}
    canvas c: length
    {begin}
    while any(c.masked):
        x ~ model(c)
        unmask c where sure(where(c.masked, x.prob, 0), tau) with x
        if any(c.masked):
            doubt = c.decided and model(c).raw[c.token] < eta
{indent(body.strip(), "            ")}
    commit c
"""


def rounds(claim: str) -> str:
    begin = "repeat budget:\n        x ~ model(c)\n        unmask c with x\n        remask c[first(c.all, k)]"
    return canvas("pass_ = 0", claim, begin)


DRAFT = """
draft t:
    repeat gamma:
        grow topk(drafter(t.leaves).raw, 1)
"""
VERIFY = "verify t by match against target(t)\ncommit t.accepted\n"
PLAIN = "x ~ target(ctx)\ncommit x\n"
LEAST = "n = min(left, count(doubt))\n"
TAKE = "remask c where doubt and rank(where(doubt, 1, 0)) < n\n"
PAY = "left = left - n\n"

TRUE = {
    "one call an iteration": causal("at most 1 calls a token", DRAFT + VERIFY),
    "drafts, or one call": causal(
        "at most gamma calls of drafter a token",
        f"if fast:\n    y ~ drafter(ctx)\n    commit y\nelse:{indent(DRAFT + VERIFY, '    ')}",
    ),
    "at a setting": causal("at most 1 calls a token when not fast", "if fast:\n    p = target(ctx)\n" + PLAIN),
    "a bounded loop": causal(
        "at most 3 calls of drafter a token", "n = 0\nwhile n < 9 at most 3:\n    n += argmax(drafter(ctx).raw)\n" + PLAIN
    ),
    "a falling counter": canvas(f"if left > 0:\n{indent(LEAST + TAKE + PAY, '    ')}"),
    "a rising counter": canvas("n = min(budget - left, count(doubt))\n" + TAKE + "left += n", begin="left = 0"),
    "all, if they fit": canvas("if count(doubt) <= left:\n    remask c where doubt\n    left = left - count(doubt)"),
    "the first ones": canvas("ps = first(c.all where doubt, min(left, 1))\nremask c[ps]\nleft = left - len(ps)"),
    "rounds": rounds("at most budget * k remasked"),
}
"""Programs of which the claim is derived."""

WRONG = {
    "two calls": causal("at most 1 calls a token", "p = target(ctx)" + DRAFT + VERIFY + "commit argmax(p.raw)"),
    "one call before": causal("at most 1 calls a token", PLAIN, "first_ = argmax(target(prompt).raw)"),
    "a call after the commit": causal("at most 1 calls a token", PLAIN + "if argmax(target(ctx).raw) == 1:\n    commit x"),
    "a second commit that is cut": causal("at most 1 calls a token", PLAIN + PLAIN),
    "in one branch": causal("at most 1 calls a token", "if fast:\n    p = target(ctx)\n" + PLAIN),
    "one draft too many": causal("at most gamma calls of drafter a token", DRAFT.replace("gamma", "gamma + 1") + VERIFY),
    "as often as a draw says": causal(
        "at most 2 calls of drafter a token",
        "x ~ target(ctx)\nrepeat int(x) + 1:\n    y = argmax(drafter(ctx).raw)\n    x = x if y == x else y\ncommit x",
    ),
    "leaves without a token": causal("at most 1 calls a token", "x ~ target(ctx)\nbreak if x == 0\ncommit x"),
    "in an algorithm that is run": causal(
        "at most 1 calls a token", "s = run autoregressive(target) from ctx until len(path) >= 2 at most 2\n" + PLAIN
    ),
    "in a helper": "def both(p: dist, q: dist) -> token:\n    return argmax(p.raw + q.raw)\n\n"
    + causal("at most 1 calls a token", "commit both(target(ctx), target(prompt))"),
    "in lanes": causal(
        "at most gamma calls of drafter a token", "lanes i in gamma + 1:\n    ys[i] = argmax(drafter(ctx).raw)\ncommit ys[0]"
    ),
    "a canvas that the end cuts": canvas("pass_ = 0", "at most 1 calls a token"),
    "a counter that begins anew": canvas("left = budget\n" + LEAST + TAKE + PAY),
    "tested, and then more": canvas("if left > 0:\n    remask c where doubt\n    left = left - count(doubt)"),
    "two for one": canvas(LEAST + TAKE + "remask c where rank(int(c.token)) < n\n" + PAY),
    "one more": canvas(LEAST + TAKE.replace("< n", "<= n") + PAY),
    "a half more": canvas(LEAST + TAKE.replace("< n", "< n + 1 / 2") + PAY),
    "by one, whatever goes": canvas("if left > 0:\n    remask c where doubt\n    left = left - 1"),
    "the larger of both": canvas(LEAST.replace("min", "max") + TAKE + PAY),
    "counts another thing": canvas("n = min(left, count(c.masked))\nif n > 0:\n    remask c where doubt\n    " + PAY),
    "paid in one branch": canvas(LEAST + TAKE + "if n > 1:\n    " + PAY),
    "a budget for the session": canvas(
        *(LEAST + TAKE + PAY, "at most budget remasked", "left += budget", "state left: int per session = 0")
    ),
    "as many rounds as cells": rounds("at most budget remasked"),
    "a cell twice": canvas("ps = first(c.all where doubt, left)\nremask c[ps ++ ps]\nleft = left - len(ps)"),
    "by a mixture": canvas("c.soft[c.all] = model.embed(x.token)", "at most 0 remasked"),
    "less than nothing": canvas("remask c where doubt and no", "at most budget - 1 remasked"),
}
"""Programs that spend more than they claim somewhere."""

BELOW_ZERO = {
    "in a branch": "if b > 0:\n    remask c[first(c.all, b)]",
    "in a branch, or its other side": "if b > 0:\n    remask c[first(c.all, b)]\nelse:\n    remask c[first(c.all, 0 - b)]",
    "in a loop": "while b > 0 at most 1:\n    remask c[first(c.all, b)]",
}
"""What masks b cells again, if b is not negative, which it may be."""

SHELF = {
    "rest": ("at most 1 calls a token", "at most 1 / 2 calls a token"),
    "pard": ("at most 1 calls of drafter a token", "at most 1 / 2 calls of drafter a token"),
    "remdm_loop": ("at most rounds * k remasked", "at most rounds remasked when k == 2"),
    "maskgit": ("at most steps calls", "at most steps - 1 calls"),
    "secondary_remask": ("at most steps calls", "at most 0 remasked when again"),
}
"""Programs of the shelf: what they claim, and a wrong variation."""


def proofs(text: str) -> list[Proof]:
    module, faults = decgraph.parse(text).module, list[str]()
    found = [proof_of(module, claim, faults) for claim in module.entry.claims if claim.bound]
    assert not faults
    return found


@pytest.mark.parametrize("text", TRUE.values(), ids=TRUE)
def test_derived_and_no_world_contradicts(text: str) -> None:
    report = decgraph.check(text, models=3)
    assert (report.verdict, report.counterexample) == ("proved", None), (report.stopped(), report.reasons)


@pytest.mark.parametrize("spends", BELOW_ZERO.values(), ids=BELOW_ZERO)
def test_what_does_not_run_gives_nothing_back(spends: str) -> None:
    """A bound that is known where something is spent may be negative elsewhere."""
    text = f"""algorithm a(model: masked, length: int in 1..16 = 6, budget: int in 0..4 = 1, b: int in -4..4 = -2):
    at most budget remasked when budget >= 2 * b
    canvas c: length
    repeat 2:
        x ~ model(c)
        unmask c with x
{indent(spends, "        ")}
    x ~ model(c)
    unmask c with x
    remask c[first(c.all, budget - 2 * b)]
    commit c
"""
    assert not any(proof.derived for proof in proofs(text))
    assert decgraph.check(text, models=2).verdict == "refuted"


LONG = {"by one, whatever goes", "counts another thing", "two for one"}
"""Programs that many worlds do not refute."""


@pytest.mark.parametrize(
    "text", [pytest.param(text, id=name, marks=[pytest.mark.slow] * (name in LONG)) for name, text in WRONG.items()]
)
def test_not_derived_and_refuted(text: str) -> None:
    assert not any(proof.derived for proof in proofs(text))
    report = decgraph.check(text, models=3)
    assert report.verdict == "refuted" and report.counterexample is not None, (report.reasons, report.notes)
    assert "are claimed" in report.counterexample.render()


@pytest.mark.parametrize("name", SHELF)
def test_of_the_shelf_and_its_wrong_variation(name: str) -> None:
    claim, wrong = SHELF[name]
    text = decgraph.load(name).text
    assert [p.derived for p in proofs(text) if p.claim == claim] == [True]
    others = "\n".join(
        line for line in text.splitlines() if not line.strip().startswith(("refines", "keeps", "at most 1 calls a"))
    )
    wrongly = others.replace(claim, wrong) if claim in others else text.replace(claim, wrong)
    assert decgraph.check(wrongly + "\n", models=3).verdict == "refuted"


def test_what_is_not_derived_holds() -> None:
    """The tokens of an end that cuts a canvas are paid for by its cells, which no derivation says."""
    text = canvas("pass_ = 0", "at most 2 * length calls").replace("1..16 = 4", "1..3 = 3")
    report = decgraph.check(text, models=2)
    assert report.verdict == "holds" and "it is not known that no more calls" in report.stopped()[0]


def test_written_in_python_it_is_the_same_claim() -> None:
    text = causal("at most gamma + 1 calls of drafter a token when gamma > 1", PLAIN)
    a, b = decgraph.parse(text).module.entry.claims[0], in_python.module.entry.claims[0]
    assert (a.kind, a.mode, a.models, a.bound, a.setting) == (b.kind, b.mode, b.models, b.bound, b.setting)
    assert a.models == ("drafter",) and a.mode == "token"


@pytest.mark.parametrize(
    "claim, code, words",
    [
        ("at most fast calls", "E410", "`fast` is no number"),
        ("at most yes calls", "E410", "no number"),
        ("at most 1 calls of nobody", "E410", "calls of which model?"),
        ("at most gamma remasked", "E410", "nothing is masked"),
        ("at most 1 remasked a token", "E410", "of the whole request"),
        ("at most x calls", "E411", "not `x`"),
        ("at most 1 calls a step", "E011", "`step`"),
        ("at most 1 rounds", "E011", "`rounds`"),
    ],
)
def test_a_claim_that_says_nothing_is_refused(claim: str, code: str, words: str) -> None:
    with pytest.raises(decgraph.DecError, match=code) as refused:
        decgraph.parse(causal(claim, PLAIN))
    assert words in str(refused.value) and "try" in str(refused.value)
