"""Claims about cost: what is derived, what is refuted, and that nothing wrong is derived."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.check.verdicts import proof_of

LOOP = """algorithm a(target: causal, drafter: causal, gamma: int in 1..4 = 2, fast: bool = no):
    {claim}
    while not done:
        {body}
"""
DRAFT = "draft t:\n            repeat gamma:\n                grow topk(drafter(t.leaves).raw, 1)\n        "
VERIFY = "verify t by match against target(t)\n        commit t.accepted"

CANVAS = """algorithm a(model: masked, length: int in 1..16 = 4, tau: prob = 0.9, eta: prob = 0.3, budget: int in 0..8 = 2, k: int in 0..4 = 1):
    {claim}
    canvas c: length
    left = budget
    {state}
    while any(c.masked):
        x ~ model(c)
        unmask c where sure(where(c.masked, x.prob, 0), tau) with x
        if any(c.masked):
            doubt = c.decided and model(c).raw[c.token] < eta
            {body}
    commit c
"""


def causal(claim: str, body: str) -> str:
    return LOOP.format(claim=claim, body=body)


def canvas(body: str, claim: str = "at most budget remasked", state: str = "used = 0") -> str:
    lines = body.split("\n")
    return CANVAS.format(claim=claim, body="\n            ".join(lines), state=state)


def rounds(claim: str) -> str:
    every = (
        "    repeat budget:\n        x ~ model(c)\n        unmask c with x\n        remask c[first(c.all, k)]\n    while any"
    )
    return canvas("left = 0", claim).replace("    while any", every)


TRUE = {
    "one call an iteration": causal("at most 1 calls a token", DRAFT + VERIFY),
    "drafts and a branch": causal(
        "at most gamma + 1 calls of drafter a token",
        DRAFT
        + "if fast:\n            y ~ drafter(ctx)\n            commit y\n        else:\n            x ~ target(ctx)\n            commit x",
    ),
    "at a setting": causal(
        "at most 1 calls a token when not fast",
        "if fast:\n            p = target(ctx)\n        x ~ target(ctx)\n        commit x",
    ),
    "a bounded loop": causal(
        "at most 3 calls of drafter a token",
        "n = 0\n        while max(drafter(ctx).raw) < n at most 3:\n            n += 1\n        x ~ target(ctx)\n        commit x",
    )
    .replace("while max(drafter(ctx).raw) < n at", "while n < 9 at")
    .replace("n += 1", "n = n + argmax(drafter(ctx).raw)"),
    "a falling counter": canvas(
        "if left > 0:\n    n = min(left, count(doubt))\n    remask c where doubt and rank(where(doubt, 1, 0)) < n\n    left = left - n"
    ),
    "a rising counter": canvas(
        "n = min(budget - used, count(doubt))\nremask c where doubt and rank(where(doubt, 1, 0)) < n\nused += n"
    ),
    "all of them, if they fit": canvas("if count(doubt) <= left:\n    remask c where doubt\n    left = left - count(doubt)"),
    "the first ones": canvas("ps = first(c.all where doubt, min(left, 1))\nremask c[ps]\nleft = left - len(ps)"),
    "rounds": rounds("at most budget * k remasked"),
}
"""Programs of which the claim is derived."""


@pytest.mark.parametrize("text", TRUE.values(), ids=TRUE)
def test_derived_and_no_world_contradicts(text: str) -> None:
    report = decgraph.check(text, models=3)
    assert (report.verdict, report.counterexample) == ("proved", None), (report.stopped(), report.reasons)


WRONG = {
    "two calls": causal(
        "at most 1 calls a token", "p = target(ctx)\n        " + DRAFT + VERIFY + "\n        commit argmax(p.raw)"
    ),
    "one call too many before": causal("at most 1 calls a token", "x ~ target(ctx)\n        commit x").replace(
        "    while", "    first_ = argmax(target(prompt).raw)\n    while"
    ),
    "a call after the commit": causal(
        "at most 1 calls a token",
        "x ~ target(ctx)\n        commit x\n        if argmax(target(ctx).raw) == 1:\n            commit x",
    ),
    "a second commit that is cut": causal(
        "at most 1 calls a token", "x ~ target(ctx)\n        commit x\n        y ~ target(ctx)\n        commit y"
    ),
    "in one branch": causal(
        "at most 1 calls a token",
        "x ~ target(ctx)\n        if fast:\n            x ~ target(ctx)\n        commit x",
    ),
    "one draft too many": causal("at most gamma calls of drafter a token", DRAFT.replace("gamma", "gamma + 1") + VERIFY),
    "as often as a draw says": causal(
        "at most 2 calls of drafter a token",
        "x ~ target(ctx)\n        repeat int(x) + 1:\n            y = argmax(drafter(ctx).raw)\n            x = x if y == x else y\n        commit x",
    ),
    "leaves without a token": causal("at most 1 calls a token", "x ~ target(ctx)\n        break if x == 0\n        commit x"),
    "in an algorithm that is run": causal(
        "at most 1 calls a token",
        "s = run autoregressive(target) from ctx until len(path) >= 2 at most 2\n        x ~ target(ctx)\n        commit x",
    ),
    "in a helper": "def twice(p: dist, q: dist) -> token:\n    return argmax(p.raw + q.raw)\n\n"
    + causal("at most 1 calls a token", "commit twice(target(ctx), target(prompt))"),
    "in lanes": causal(
        "at most gamma calls of drafter a token",
        "lanes i in gamma + 1:\n            ys[i] = argmax(drafter(ctx).raw)\n        commit ys[0]",
    ),
    "a canvas that the end cuts": "algorithm a(model: masked, length: int in 1..8 = 3):\n    at most 1 calls a token\n"
    "    canvas c: length\n    while any(c.masked):\n        x ~ model(c)\n        unmask c where first_max(where(c.masked, x.prob, 0)) with x\n"
    "    commit c\n",
    "a counter that begins anew": canvas(
        "left = budget\nn = min(left, count(doubt))\nremask c where doubt and rank(where(doubt, 1, 0)) < n\nleft = left - n"
    ),
    "tested, and then more": canvas("if left > 0:\n    remask c where doubt\n    left = left - count(doubt)"),
    "two for one": canvas(
        "n = min(left, count(doubt))\nremask c where doubt and rank(where(doubt, 1, 0)) < n\nremask c where rank(int(c.token)) < n\nleft = left - n"
    ),
    "one more": canvas("n = min(left, count(doubt))\nremask c where doubt and rank(where(doubt, 1, 0)) <= n\nleft = left - n"),
    "a half more": canvas(
        "n = min(left, count(doubt))\nremask c where doubt and rank(where(doubt, 1, 0)) < n + 1 / 2\nleft = left - n"
    ),
    "by one, whatever goes": canvas("if left > 0:\n    remask c where doubt\n    left = left - 1"),
    "the larger of both": canvas(
        "n = max(left, count(doubt))\nremask c where doubt and rank(where(doubt, 1, 0)) < n\nleft = left - n"
    ),
    "counts another thing": canvas("n = min(left, count(c.masked))\nif n > 0:\n    remask c where doubt\n    left = left - n"),
    "paid in one branch": canvas(
        "n = min(left, count(doubt))\nremask c where doubt and rank(where(doubt, 1, 0)) < n\nif n > 1:\n    left = left - n"
    ),
    "a budget for the session": canvas(
        "n = min(purse, count(doubt))\nremask c where doubt and rank(where(doubt, 1, 0)) < n\npurse = purse - n",
        state="purse += budget",
    ).replace("    canvas c", "    state purse: int per session = 0\n    canvas c"),
    "as many rounds as cells": rounds("at most budget remasked"),
    "a cell twice": canvas("ps = first(c.all where doubt, left)\nremask c[ps ++ ps]\nleft = left - len(ps)"),
    "less than nothing": canvas("remask c where doubt and no", "at most budget - 1 remasked"),
}
"""Programs that spend more than they claim somewhere."""


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_not_derived_and_refuted(text: str) -> None:
    module = decgraph.parse(text).module
    faults: list[str] = []
    proofs = [proof_of(module, claim, faults) for claim in module.entry.claims]
    assert not any(proof.derived for proof in proofs) and not faults, proofs
    report = decgraph.check(text, models=3)
    assert report.verdict == "refuted" and report.counterexample is not None, (report.verdict, report.reasons, report.notes)
    assert "at most" in report.counterexample.words
