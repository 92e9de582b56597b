"""Claims about masked specifications: programs that decide cells in the specification's order are derived, others are not."""

from __future__ import annotations

from textwrap import indent

import pytest

from decgraph.check.proof.claims import Open, prove
from decgraph.check.proof.derive import Derivation
from decgraph.dsl.lower import load_text

HEAD = """
from static_masked import static_masked
from llada import llada
from rules import agreed
from helpers import one

extern looks_good(text) -> bool on host

policy every_other(b: span):
    on every 2:  recompute all
    otherwise:   recompute b, reuse the rest

rule trusting(then: edit, children: edits):
    for x in children:
        accept x

algorithm program(model: masked, length: int in 1..1024 = 16, block: int in 1..256 = 4, steps: int in 1..1024 = 4,
                  tau: prob = 0.9, k: int in 1..64 = 2, marks: set = [3]):
    refines {claim}
    canvas c: length
"""
ONE_BY_ONE = "static_masked(model, length, block) in distribution when block == 1"
AT_ONCE = "llada(model, length, length, 1) in distribution when steps == 1"


def proof(claim: str, body: str) -> Derivation | Open:
    module = load_text(HEAD.format(claim=claim) + indent(body.strip("\n"), "    ") + "\n    commit c\n")
    (found,) = [prove(module, claim) for claim in module.entry.claims]
    return found


BLOCKS = """
for b in blocks(c, block):
    while any(c.masked[b]):
        p = model(c, at = b)
        x ~ p
        {}
"""
RIGHT_ONE_BY_ONE = {
    "a threshold, at least the surest": BLOCKS.format("unmask c[b] where p.raw[x] >= tau or first_max(p.raw[x]) with x"),
    "all of the block": BLOCKS.format("unmask c[b] with x"),
    "the best k": BLOCKS.format("unmask c[b] where rank(p.raw[x]) < k with x"),
    "the noise of the specification": BLOCKS.replace("x ~ p", "x ~ p as output(count(c.decided))").format("unmask c[b] with x"),
    "a branch that decides nothing": BLOCKS.format(
        """unmask c[b] with x
        if max(p.raw[b]) > tau:
            remask c[b] where c.masked[b]"""
    ).replace("max(p.raw[b])", "mean(p.raw[x])"),
    "a loop over cells": """
for i in 0..len(c.all):
    p = model(c)
    x ~ p
    unmask c where int(c.all) == i with x
""",
    "a start that moves": """
start = 0
while any(c.masked) at most length:
    b = span(c, start, block)
    x ~ model(c, at = b)
    unmask c[b] with x
    start += len(b)
""",
}
RIGHT_AT_ONCE = {
    "a schedule of one step": """
for n in spread(len(c.all), steps):
    p = model(c)
    x ~ p
    unmask c where rank(p.raw[x]) < n with x
""",
    "any order": """
p = model(c)
x ~ p
order = sort(c.all, by = p.raw[x])
c[order] = x[order]
""",
    "a memory that holds nothing": """
m = model.memory(c, at = first(c.all, 0))
x ~ model(c, at = c.all, given = m)
unmask c with x
""",
    "what is left, of which there is nothing": """
x ~ model(c)
unmask c with x
while any(c.masked):
    y ~ model(c)
    unmask c with y
""",
}
WRONG_ONE_BY_ONE = {
    "a threshold alone": BLOCKS.replace("any(c.masked[b])", "any(c.masked[b]) at most 999").format(
        "unmask c[b] where p.raw[x] >= tau with x"
    ),
    "the better of two draws": BLOCKS.format("y ~ p\n        unmask c[b] with (x if max(p.raw[x]) > max(p.raw[y]) else y)"),
    "the second draw where the first is unlikely": BLOCKS.format(
        """y ~ p
        if max(p.raw[x]) > tau:
            unmask c[b] with x
        else:
            unmask c[b] with y"""
    ),
    "a second draw where a stranger dislikes the first": BLOCKS.format(
        """y ~ p
        if looks_good(text_of(x.token)):
            unmask c[b] with x
        else:
            unmask c[b] with y"""
    ),
    "a coin on the draw": BLOCKS.replace("any(c.masked[b])", "any(c.masked[b]) at most 999").format(
        "unmask c[b] where bernoulli(p.raw[x]) with x"
    ),
    "the likeliest token": BLOCKS.format("c[b] = argmax(p)"),
    "another distribution": BLOCKS.format("y ~ p.raw\n        unmask c[b] with y"),
    "a sharpened distribution": BLOCKS.format("y ~ normalize(p * p)\n        unmask c[b] with y"),
    "rows of the empty canvas": """
p = model(c)
for b in blocks(c, block):
    while any(c.masked[b]):
        x ~ p
        unmask c[b] with x
""",
    "draws of the empty canvas": """
x ~ model(c)
for b in blocks(c, block):
    unmask c[b] with x
""",
    "rows of an earlier block": """
p = model(c)
for b in blocks(c, block):
    x ~ p
    unmask c[b] with x
    if block > 1 or any(max(p[b].raw) > tau):
        p = model(c)
""",
    "one noise for all cells": BLOCKS.replace("x ~ p", "x ~ p as output(0)").format("unmask c[b] with x"),
    "noises that come again": BLOCKS.replace("x ~ p", "x ~ p as output(count(c.decided) % 16)").format("unmask c[b] with x"),
    "from the right": """
for i in 0..len(c.all):
    p = model(c)
    x ~ p
    unmask c where int(c.all) == len(c.all) - 1 - i with x
""",
    "two cells a step": """
for i in 0..len(c.all):
    p = model(c)
    x ~ p
    unmask c where int(c.all) < 2 * (i + 1) with x
""",
    "two cells a step from cell 20 on": """
for i in 0..len(c.all):
    p = model(c)
    x ~ p
    unmask c where int(c.all) <= i or i >= 20 and int(c.all) == i + 1 with x
""",
    "blocks of two": BLOCKS.replace("block)", "block + 1)").format("unmask c[b] with x"),
    "larger blocks where there is room": BLOCKS.replace("block)", "1 + int(length / 1000))").format("unmask c[b] with x"),
    "a token of another cell": """
for i in 0..len(c.all):
    p = model(c)
    x ~ p
    c[c.all[i]] = x[c.all[max(0, i - 1)]]
""",
    "a cell that is drawn again": BLOCKS.format("c[b] = x\n        y ~ model(c, at = b)\n        c[b] = y"),
    "a cell that is masked again": BLOCKS.format("unmask c[b] with x")
    + "remask c[first(c.all, 1)]\ny ~ model(c)\nunmask c with y",
    "cells that may be masked again": BLOCKS.format("unmask c[b] with x")
    + "remask c where bernoulli(0.001)\ny ~ model(c)\nunmask c with y",
    "a mixture in the mask's place": """
for b in blocks(c, block):
    p = model(c, at = b)
    c.soft[b] = model.embed(p.raw)
    x ~ model(c, at = b)
    unmask c[b] with x
""",
    "a memory of the empty canvas": """
m = model.memory(c)
for b in blocks(c, block):
    x ~ model(c, at = b, given = m)
    unmask c[b] with x
""",
    "a memory of the empty canvas, and all cells": """
m = model.memory(c)
for b in blocks(c, block):
    x ~ model(c, at = c.all, given = m)
    unmask c[b] with x
""",
    "a memory without the context": """
m = model.memory(c, at = first(c.all, 0)).without(range_(0 - ctx.length, 0))
for b in blocks(c, block):
    x ~ model(c, at = c.all, given = m)
    unmask c[b] with x
""",
    "a policy that reuses": "cache model by every_other" + BLOCKS.format("unmask c[b] with x"),
    "a loop that may end early": """
for i in 0..len(c.all):
    x ~ model(c)
    unmask c where int(c.all) == i with x
    break if any(x.token in marks)
""",
}
WRONG_AT_ONCE = {
    "all but one": """
p = model(c)
x ~ p
unmask c where rank(p.raw[x]) < len(c.all) - 1 with x
y ~ model(c)
unmask c with y
""",
    "in two halves": """
h = int(len(c.all) / 2)
x ~ model(c)
unmask c[before(c, h)] with x
y ~ model(c)
unmask c with y
""",
    "one half without the other": """
h = int(len(c.all) / 2)
x ~ model(c)
y ~ model(c, at = before(c, h), given = model.memory(c, at = first(c.all, 0)))
c[before(c, h)] = y
unmask c with x
""",
    "surer than a threshold first": """
while any(c.masked):
    p = model(c)
    x ~ p
    unmask c where p.raw[x] >= tau or first_max(p.raw[x]) with x
""",
    "one cell a step": """
while any(c.masked):
    p = model(c)
    x ~ p
    unmask c where first_max(p.raw[x]) with x
""",
    "a schedule of two steps": """
for n in spread(len(c.all), steps + 1):
    p = model(c)
    x ~ p
    unmask c where rank(p.raw[x]) < n with x
""",
    "tokens in the order of their probabilities": """
p = model(c)
x ~ p
order = sort(c.all, by = p.raw[x])
for i in 0..len(c.all):
    c[c.all[i]] = x[order[i]]
""",
}


@pytest.mark.parametrize("body", RIGHT_ONE_BY_ONE.values(), ids=RIGHT_ONE_BY_ONE)
def test_cells_one_by_one_are_derived(body: str) -> None:
    found = proof(ONE_BY_ONE, body)
    assert isinstance(found, Derivation), found
    assert [step.rule for step in found.steps][-1] == "commit-scheduled"
    assert isinstance(proof(ONE_BY_ONE.replace(" when block == 1", ""), body), Open)
    assert isinstance(proof("llada(model, length, length, 1) in distribution when block == 1", body), Open)


@pytest.mark.parametrize("body", RIGHT_AT_ONCE.values(), ids=RIGHT_AT_ONCE)
def test_all_cells_at_once_are_derived(body: str) -> None:
    found = proof(AT_ONCE, body)
    assert isinstance(found, Derivation), found
    assert isinstance(proof(AT_ONCE.replace("length, 1)", "length, 2)"), body), Open)
    assert isinstance(proof("static_masked(model, length, 1) in distribution when steps == 1", body), Open)


@pytest.mark.parametrize("body", WRONG_ONE_BY_ONE.values(), ids=WRONG_ONE_BY_ONE)
def test_what_is_not_one_by_one_is_not_derived(body: str) -> None:
    found = proof(ONE_BY_ONE, body)
    assert isinstance(found, Open) and found.why, found


@pytest.mark.parametrize("body", WRONG_AT_ONCE.values(), ids=WRONG_AT_ONCE)
def test_what_is_not_at_once_is_not_derived(body: str) -> None:
    found = proof(AT_ONCE, body)
    assert isinstance(found, Open) and found.why, found


SUREST = "static_masked(model, length, block) in distribution"
TOKENS = "static_masked(model, length, block) in tokens"
SPREAD = "llada(model, length, block, steps) in distribution"
OWN = BLOCKS.replace("x ~ p", "x ~ p as output(count(c.decided))")
COUNTED = """
for b in blocks(c, block):
    for n in spread(len(b), steps * len(b) / length):
        p = model(c, at = b)
        x ~ p
        {}
"""
ONE = "e = one(p, x, b where c.masked[b])\n        c[e.position] = e.token"
DRAFTED = """
for b in blocks(c, block):
    while any(c.masked[b]):
        p = model(c, at = b)
        x ~ p as output(count(c.decided))
        e = one(p, x, b where c.masked[b])
        c[e.position] = e.token
        if any(c.masked[b]):
            left = b where c.masked[b]
            draft v of c:
                for j in 0..min(k, len(left)):
                    grow edit(left[j], x[left[j]])
            q = model(v, at = b)
            y ~ q as output(count(v.decided))
            verify v by agreed against [one(q[n], y[n], b where v.masked[n][b]) if any(v.masked[n][b]) else none for
                                        n in v.nodes]
            c = v.accepted
"""
RIGHT_SUREST = {
    "the first of the surest": BLOCKS.format("unmask c[b] where first_max(p.raw[x]) with x"),
    "the best one": BLOCKS.format("unmask c[b] where rank(p.raw[x]) < 1 with x"),
    "a number that is 1": BLOCKS.format("unmask c[b] where rank(p.raw[x]) < max(1, int(1 / 16)) with x"),
    "the specification's own edit": BLOCKS.format(ONE),
    "the first in order": BLOCKS.format(
        """left = b where c.masked[b]
        order = sort(left, by = p[left].raw[x[left]], descending = yes)
        c[first(order, 1)] = x[first(order, 1)]"""
    ),
    "the top one": BLOCKS.format(
        """left = b where c.masked[b]
        a = top(left, 1, by = p[left].raw[x[left]])
        c[a] = x[a]"""
    ),
    "as many steps as cells": """
for b in blocks(c, block):
    for n in spread(len(b), len(b)):
        x ~ model(c, at = b)
        p = model(c, at = b)
        unmask c[b] where rank(p.raw[x]) < n with x
""",
    "a threshold that decides nothing": BLOCKS.format("unmask c[b] where first_max(p.raw[x] * where(x == eos, 1, 1)) with x"),
}
WRONG_SUREST = {
    "the two surest": BLOCKS.format("unmask c[b] where rank(p.raw[x]) < 2 with x"),
    "more in large blocks": BLOCKS.format("unmask c[b] where rank(p.raw[x]) < 1 + floor(len(b) / 32) with x"),
    "a sixteenth of the block": BLOCKS.format("unmask c[b] where rank(p.raw[x]) < max(1, int(len(b) / 16)) with x"),
    "more in later blocks": BLOCKS.format("unmask c[b] where rank(p.raw[x]) < 1 + min(1, int(b.start / 20)) with x"),
    "all beyond a threshold": BLOCKS.format("unmask c[b] where p.raw[x] >= tau or first_max(p.raw[x]) with x"),
    "the least sure": BLOCKS.format("unmask c[b] where first_max(0 - p.raw[x]) with x"),
    "the least probable edit": BLOCKS.format(
        """left = b where c.masked[b]
        a = argmin(left, by = p[left].raw[x[left]])
        c[a] = x[a]"""
    ),
    "the last in order": BLOCKS.format(
        """left = b where c.masked[b]
        order = sort(left, by = p[left].raw[x[left]])
        c[first(order, 1)] = x[first(order, 1)]"""
    ),
    "by the shaped distribution": BLOCKS.format("unmask c[b] where first_max(p[x]) with x"),
    "by what is likeliest": BLOCKS.format("unmask c[b] where first_max(max(p.raw)) with x"),
    "by entropy": BLOCKS.format("unmask c[b] where first_max(0 - entropy(p.raw)) with x"),
    "by another draw": BLOCKS.format("y ~ p\n        unmask c[b] where first_max(p.raw[y]) with x"),
    "by what was drawn for the neighbour": BLOCKS.format(
        "s = maxpool(p.raw[x], 3)\n        unmask c[b] where first_max(s) with x"
    ),
    "by twice as much for one token": BLOCKS.format("unmask c[b] where first_max(p.raw[x] * where(x == eos, 2, 1)) with x"),
    "with another draw": BLOCKS.format("y ~ p\n        unmask c[b] where first_max(p.raw[x]) with y"),
    "of the whole canvas": BLOCKS.format("q = model(c)\n        y ~ q\n        unmask c where first_max(q.raw[y]) with y"),
    "of an earlier canvas": """
for b in blocks(c, block):
    p = model(c, at = b)
    x ~ p
    while any(c.masked[b]):
        unmask c[b] where first_max(p.raw[x]) with x
""",
    "only where the draws are likely": """
for b in blocks(c, block):
    for i in 0..100:
        p = model(c, at = b)
        x ~ p
        if any(c.masked[b]):
            if mean(p.raw[x]) > tau:
                unmask c[b] where first_max(p.raw[x]) with x
    while any(c.masked[b]):
        p = model(c, at = b)
        x ~ p
        unmask c[b] where first_max(p.raw[x]) with x
""",
    "in a loop that may end early": BLOCKS.replace("any(c.masked[b])", "any(c.masked[b]) at most 100").format(
        "unmask c[b] where first_max(p.raw[x]) with x"
    ),
    "one step too few": """
for b in blocks(c, block):
    for i in 0..len(b) - 1:
        p = model(c, at = b)
        x ~ p
        unmask c[b] where first_max(p.raw[x]) with x
    x ~ model(c, at = b)
    unmask c[b] with x
""",
    "one masked again": BLOCKS.format("unmask c[b] where first_max(p.raw[x]) with x")
    + "remask c[first(c.all, 1)]\nx ~ model(c)\nunmask c with x",
}
FIRST_DRAFTED = """
for b in blocks(c, block):
    draft v of c:
        for j in 0..min(k, len(b)):
            grow edit(b[j], 0)
    q = model(v, at = b)
    y ~ q as output(count(v.decided))
    verify v by agreed against [one(q[n], y[n], b where v.masked[n][b]) if any(v.masked[n][b]) else none for n in v.nodes]
    c = v.accepted
    while any(c.masked[b]):
        p = model(c, at = b)
        x ~ p
        e = one(p, x, b where c.masked[b])
        c[e.position] = e.token
"""
WRONG_TOKENS = {
    "noise of its own": BLOCKS.format(ONE),
    "noises that come again": OWN.replace("c.decided)", "c.decided) % 16").format(ONE),
    "the number of masked cells": OWN.replace("c.decided", "c.masked").format(ONE),
    "one number further": OWN.replace("c.decided)", "c.decided) + 1").format(ONE),
    "evidence with other noise": DRAFTED.replace("y ~ q as output(count(v.decided))", "y ~ q"),
    "evidence one number further": DRAFTED.replace("count(v.decided)", "count(v.decided) + 1"),
    "evidence by another order": DRAFTED.replace("one(q[n], y[n]", "one(q[n], x"),
    "evidence of the root": DRAFTED.replace("one(q[n], y[n]", "one(q[root], y[root]"),
    "evidence elsewhere": DRAFTED.replace("b where v.masked[n][b])", "c.all where v.masked[n])").replace("v, at = b", "v"),
    "drafts taken on trust": DRAFTED.replace("verify v by agreed", "verify v by trusting").replace("agreed against", "against"),
    "a canvas of its own": DRAFTED.replace("c[e.position] = e.token", "d = c\n        c[e.position] = e.token").replace(
        "of c:", "of d:"
    ),
}
WRONG_SPREAD = {
    "one more a step": COUNTED.format("unmask c[b] where rank(p.raw[x]) < n + 1 with x"),
    "one a step": COUNTED.format("unmask c[b] where first_max(p.raw[x]) with x"),
    "the first ones": COUNTED.format("c[first(b where c.masked[b], n)] = x[first(b where c.masked[b], n)]"),
    "all steps in each block": COUNTED.replace("steps * len(b) / length", "steps").format(
        "unmask c[b] where rank(p.raw[x]) < n with x"
    ),
    "as many in all blocks": COUNTED.replace("len(b), steps * len(b) / length", "block, steps * block / length").format(
        "unmask c[b] where rank(p.raw[x]) < n with x"
    ),
    "fewer at the end": COUNTED.format("unmask c[b] where rank(p.raw[x]) < min(n, 5) with x"),
}


@pytest.mark.parametrize("body", RIGHT_SUREST.values(), ids=RIGHT_SUREST)
def test_the_surest_one_by_one_is_derived(body: str) -> None:
    found = proof(SUREST, body)
    assert isinstance(found, Derivation), found
    assert isinstance(proof(TOKENS, body), Open)
    assert isinstance(proof(SUREST.replace("block)", "length)"), body), Open)
    assert isinstance(proof("llada(model, length, block, steps) in distribution", body), Open)
    assert isinstance(proof("llada(model, length, block, length) in distribution", body), Derivation)


@pytest.mark.parametrize("body", [OWN.format(ONE), DRAFTED], ids=["one by one", "drafted"])
def test_own_draws_are_derived_in_tokens(body: str) -> None:
    assert isinstance(proof(TOKENS, body), Derivation)
    found = proof(SUREST, body)
    assert isinstance(found, Derivation) and found.premises == ("no-errors",)
    assert isinstance(proof(TOKENS.replace("block)", "length)"), body), Open)


def test_drafts_that_own_draws_decide_are_derived() -> None:
    body = FIRST_DRAFTED.replace("x ~ p", "x ~ p as output(count(c.decided))")
    assert isinstance(proof(TOKENS, body), Derivation)


def test_spread_counts_are_derived() -> None:
    body = COUNTED.format("unmask c[b] where rank(p.raw[x]) < n with x")
    assert isinstance(proof(SPREAD, body), Derivation)
    assert isinstance(proof(SUREST, body), Open)
    assert isinstance(proof(SUREST + " when steps == length", body), Derivation)


@pytest.mark.parametrize("body", [*WRONG_SUREST.values(), FIRST_DRAFTED], ids=[*WRONG_SUREST, "drawn anew after a draft"])
def test_what_is_not_the_surest_is_not_derived(body: str) -> None:
    found = proof(SUREST, body)
    assert isinstance(found, Open) and found.why, found


@pytest.mark.parametrize("body", WRONG_TOKENS.values(), ids=WRONG_TOKENS)
def test_what_has_other_tokens_is_not_derived(body: str) -> None:
    found = proof(TOKENS, body)
    assert isinstance(found, Open) and found.why, found


@pytest.mark.parametrize("body", WRONG_SPREAD.values(), ids=WRONG_SPREAD)
def test_what_spreads_otherwise_is_not_derived(body: str) -> None:
    found = proof(SPREAD, body)
    assert isinstance(found, Open) and found.why, found
