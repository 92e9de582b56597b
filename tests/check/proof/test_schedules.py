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

extern looks_good(text) -> bool on host

policy every_other(b: span):
    on every 2:  recompute all
    otherwise:   recompute b, reuse the rest

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
    "backup draws that are never taken": BLOCKS.format("y ~ p\n        unmask c[b] with x"),
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
    "every other cell first": """
for i in 0..len(c.all):
    p = model(c)
    x ~ p
    unmask c where int(c.all) == (2 * i) % (len(c.all) + 1 - len(c.all) % 2) with x
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
    "some cells left": """
while any(c.masked) at most 40:
    b = first(c.all where c.masked, 1)
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
