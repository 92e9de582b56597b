"""Every function, method and construct with arguments of every type: one hole of a well-typed call takes each kind of value.

`texts()` are these programs, `FORMS` the calls, and a test asks that no function or method is missing here. `drawn()` puts
calls into the holes of calls, at random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

VALUES = {
    "int": "n",
    "real": "0.5",
    "condition": "n > 1",
    "text": '"ab"',
    "nothing": "none",
    "vocabulary": "vocab",
    "infinite": "inf",
    "ints": "[2, 0, 1]",
    "reals": "rs",
    "bools": "rs > 1",
    "empty": "[]",
    "ragged": "[[1], [1, 2]]",
    "numbers_empty": "range_(0)",
    "law": "p",
    "raw": "p.raw",
    "logits": "p.logits",
    "laws": "target(t)",
    "weights": "p.raw * 2",
    "table": "zeros(2, vocab)",
    "chances": "p.raw > 0.1",
    "token": "x.token",
    "draw": "x",
    "tokens": "ctx.last(2)",
    "draws": "topk(p.raw, 2)",
    "context": "ctx",
    "parent": "ctx.parent",
    "tree": "t",
    "node": "root",
    "nodes": "t.nodes",
    "leaves": "t.leaves",
    "column": "t.depth",
    "path": "w",
    "canvas": "c",
    "cells": "c.all",
    "cell": "c.all[0]",
    "masked_cells": "c.masked",
    "edit": "edit(c.all[0], x)",
    "blocks": "blocks(c, 2)",
    "automaton": "g",
    "state": "g.start",
    "memory": "m",
    "layer": "m[0]",
    "hidden": "target.upto(1)(ctx)",
    "embedding": "target.embed(x)",
    "model": "target",
    "masked_model": "model",
    "trunk": "target.upto(1)",
    "head": "judge",
    "topology": "shape",
    "index": "seen",
    "keyed": "near",
    "set": "layers",
}
"""A value of every kind, by the kind."""

FORMS = [
    "exp({rs})",
    "log({rs})",
    "sqrt({rs})",
    "abs({rs})",
    "floor({rs})",
    "relu({rs})",
    "int({rs})",
    "clamp({rs}, {0}, {1})",
    "min({1}, {2})",
    "max({rs}, {1})",
    "min({rs})",
    "max({rs})",
    "any({rs > 1})",
    "all({rs > 1})",
    "count({rs > 1})",
    "ratio({rs > 1})",
    "sum({rs})",
    "mean({rs})",
    'sum({target(t).raw * 2}, over = "t")',
    "where({n > 1}, {1}, {2})",
    "spread({4}, {2})",
    "len({rs})",
    "last({rs})",
    "first({rs})",
    "first({rs}, {2})",
    "range_({n})",
    "range_({0}, {n})",
    "zeros({n})",
    "zeros({n}, vocab)",
    "tile({1}, {n})",
    "repeat_({1}, {n})",
    "cycle({rs}, {n})",
    "cumsum({rs})",
    "leading({rs > 1})",
    "maxpool({rs}, {3})",
    "rank({rs})",
    "first_max({rs})",
    "argmax({rs})",
    "argmin({rs})",
    "argmax({rs}, by = {rs})",
    "argmin({rs}, by = [{rs}, {rs}])",
    "top({rs}, {1}, by = {rs})",
    "top({rs}, {1})",
    "sort({rs})",
    "sort({rs}, by = {rs}, descending = yes)",
    "counts({ctx.last(2)})",
    "softmax({rs})",
    "normalize({p.raw})",
    "uniform({vocab})",
    "onehot({x})",
    "entropy({p})",
    "kl({p}, {p})",
    "renorm_topk({p}, {2})",
    "renorm_topp({p}, {0.5})",
    "similarity({target.upto(1)(ctx)}, {target.upto(1)(ctx)})",
    "mean({target.upto(1)(t)})",
    "warp({p.raw}, at = {ctx})",
    "warp({p.raw})",
    "adjust({p.raw}, at = {ctx})",
    "narrow({shape}, {2})",
    "argmax({p})",
    "topk({p.raw}, {2})",
    "sample({p}, {2})",
    "sample({p}, {2}, replace = no)",
    "drawn({[x, x]}, {[p, p]})",
    "point({x})",
    "race({p})",
    "race({p}, under = {0.5})",
    "bernoulli({0.5})",
    "shuffle({rs})",
    "only({p.raw > 0.1})",
    "down({t}, {t.depth}, sum)",
    "up({t}, {t.depth}, max)",
    "soft({target.embed(x)})",
    "ended({ctx})",
    "ended({root})",
    "ended({c})",
    "text_of({ctx})",
    "text_of({w})",
    "blocks({c}, {2})",
    "span({c}, {0}, {2})",
    "before({c}, {1})",
    "from_({c}, {1})",
    "edit({c.all[0]}, {x})",
    "suffixes({2}, {8})",
    "ngrams({2})",
    "retokenize({ctx}, {target})",
    "learn({seen}, {ctx.last(2)})",
    'completes({"ab"}, {w})',
    "sure({rs}, {0.5})",
    "by_factor({rs}, {1})",
    "one({pc}, {y}, {c.all})",
    "second({p})",
    "margin({p})",
    "transferred({4}, {1}, {2}, {0.1})",
    "distinct({p}, {2})",
    "reprompted({prompt})",
    "contrasted({p}, {p}, {0.1}, {1})",
    "target({ctx})",
    "target({t})",
    "target({t.leaves}, given = {m})",
    "target({ctx}, allow = {p.raw > 0.1})",
    "target({prompt}, given = {m})",
    "target.each({prompt})",
    "target.memory({ctx.parent})",
    "target.memory({t.leaves[0]}, given = {m})",
    "target.attention({ctx}, given = {m}, last = {2})",
    "target.heads({ctx.parent})",
    "target.embed({p.raw})",
    "target.exit({1})({ctx})",
    "target.skip({[1]})({ctx})",
    "target.skip(attention = {[1]}, mlp = {[1]})({ctx})",
    "target.upto({1})({ctx})",
    "target.upto({1})({ctx.parent}, given = {m})",
    "target.upto(1).each({prompt})",
    "target.parallel({2})({ctx})",
    "target.quantized({8})({ctx})",
    "target.expert({0})({ctx})",
    "target.speaking({target})({ctx})",
    "target.head({target.upto(1)})({ctx})",
    "target.head({target.upto(1)}, norm = no)",
    "target.since({1}, {target.upto(1)})({ctx})",
    "model({c})",
    "model({c}, at = {c.all})",
    "model({c}, at = {c.all}, given = {model.memory(c)})",
    "model.memory({c}, at = {c.all})",
    "model.memory({c}, queries = yes)",
    "judge({ctx})",
    "judge({t.leaves})",
    "judge({target.upto(1)(ctx)}, layer = {1})",
    "m.only({[0]})",
    "m.without({[0]})",
    "m.join({m})",
    "m.quantized({8})",
    "m.merged({[0, 1]}, {[0, 0]})",
    "m[{0}].scores({c.all}, at = {c.all})",
    "m[{0}]",
    "seen.has({x})",
    "seen.matched({ctx})",
    "seen.after({2}, at_most = {3})",
    "seen({ctx})",
    'seen.path({ctx}, at_least = {1}, at_most = {2}, pick = "last")',
    "near[{x}]",
    "near.get({x})",
    "g.allowed({g.start})",
    "g.step({g.start}, {x})",
    "g.state({ctx})",
    "g.run({g.start}, {ctx.last(2)})",
    "g.weights({g.start})",
    "ctx.last({2})",
    "c.extend({1})",
    "shape[{0}]",
    "run autoregressive({target}) from {ctx} until {done} at most {2}",
    'run autoregressive(target) until completes({"ab"}) at most 2',
    "{rs}[{0}]",
    "{p}[{x}]",
    "{target(t)}[{root}]",
    "{t.depth}[{root}]",
    "t.children[{root}]",
    "{c.masked}[{c.all}]",
    "{rs}[{0}:{1}]",
    "{p}[{0}, {1}]",
    "{rs} where {rs > 1}",
    "{rs} ++ {rs}",
    "{1} + {1}",
    "{rs} - {rs}",
    "{2} * {rs}",
    "{1} / {2}",
    "{n} % {2}",
    "{2} ^ {n}",
    "-{n}",
    "not {yes}",
    "{yes} and {no}",
    "{rs > 1} or {rs > 1}",
    "{1} == {1}",
    "{1} < {1}",
    "{x} in {prompt}",
    "{root} not in {t.nodes}",
    "{1} if {yes} else {2}",
    "[{1}, {2}]",
    "[{1} for i in {rs}]",
    "[i for i in {rs} if {yes}]",
    *(
        f"{{p}}.{field}"
        for field in (
            "token",
            "law",
            "prob",
            "raw",
            "logits",
            "point",
            "race",
            "length",
            "depth",
            "start",
            "stop",
            "index",
            "position",
            "masked",
            "decided",
            "draws",
            "all",
            "soft",
            "parent",
            "leaves",
            "size",
            "frontier",
            "accepted",
            "children",
            "layers",
            "vocab",
            "states",
            "live",
            "width",
            "rank",
            "path",
            "emitted",
            "nothing_of_this_name",
            "own",
            "calls",
        )
    ),
    *(
        f"{{m}}.{method}(1)"
        for method in ("memory", "only", "extend", "has", "allowed", "last", "path", "scores", "merged", "nothing_of_this_name")
    ),
]
"""Calls whose arguments in braces fit; each of them is replaced by every value in turn."""

STATEMENTS = [
    "x ~ {p}",
    "x ~ {p} as output({0})",
    "v ~ beta({1}, {2})",
    "commit {x}",
    "verify t by rejection against {target(t)}",
    "verify t by typical_longest({0.1}, {0.2}) against target(t)",
    "prune {t} to {t.nodes}",
    "for i in {rs}:\n            v = i",
    "for i in {0}..{2}:\n            v = i",
    "repeat {2}:\n            v = 1",
    "repeat {2} while {yes}:\n            v = 1",
    "while {no} at most {2}:\n            v = 1",
    "loop at most {2}:\n            v = 1",
    "if {yes}:\n            v = 1",
    "lanes i in {2}:\n            vs[i] = {1}",
    "across batch:\n            v = max({n})",
    "across batch:\n            v = top({rs}, {1}, by = {rs})",
    "unmask c[{c.all}] where {c.masked} with {y}",
    "remask c[{c.all}] where {c.masked}",
    "c[{c.all}] = {y}",
    "c[{c.all} where {c.masked}] = {x}",
    "c.soft[{c.all}] = {model.embed(x)}",
    "near[{x}] = {ctx.last(1)}",
    "near[{x}] += {ctx.last(1)}",
    "seen.learn({ctx.last(1)})",
    "m[{0}] = {m[0]}",
    "rs[{0}] = {1}",
    "rs[{0}] += {1}",
    "rs += {1}",
    "rs ++= {rs}",
    "kept = {2}",
    "kept += {2}",
    "t.frontier = {t.leaves}",
    "t.own[{root}] = {1}",
    "t.own = {t.depth}",
    "rows, tokens, scores = best({zeros(2, vocab)}, {2})",
    "scores, back, tokens = relax({g}, {g.weights(g.start)}, {p.raw})",
    "return {x}",
    "return {x}, {x}",
    "break if {yes}",
    "draft u:\n            grow {x}",
    "draft u:\n            grow {x} at {root}",
    "draft u:\n            grow {x} with own = {1}",
    "draft u:\n            grow {x} with logprob = {1}",
    "draft u:\n            grow chain({[x]}) at {root}",
    "draft u:\n            grow topk({p}, {2})",
    "draft u:\n            grow soft({target.embed(x)}) at {root}",
    "draft u:\n            grow best_first({seen.after(1)}, size = {2}, above = {0.1})",
    "draft u of {c}:\n            grow edit({c.all[0]}, {x})",
    "model small = {target.exit(1)}",
    "noise z[{n}, vocab]: race",
    "canvas d: {3}",
    "canvas d: {0} growing to {3}",
]

HEAD = """algorithm called(target: causal with heads, model: masked, judge: head(target) -> prob, n: int in 0..4 = 2,
                 shape: topology = "2x1", g: automaton = "[a-z]*", layers: set = [1]):
    state seen: suffixes(2) per sequence = prompt
    state near: lru[token, 2] -> token[1] per sequence
    state kept: int per sequence = 0
    canvas c: 4

    while not done:
        p = target(ctx)
        x ~ p as output
        rs = [0.5, 2.0, 2.5]
        pc = model(c)
        y ~ pc
        m = target.memory(ctx.parent)
        w = run autoregressive(target) from ctx until done at most 2
        draft t:
            grow topk(p.raw, 2)
            grow topk(target(t.leaves).raw, 1)
"""


def holes(form: str) -> list[tuple[int, int]]:
    """Where a form's arguments stand: (from the opening brace, behind the closing one). Braces do not nest."""
    out, at = [], 0
    while (start := form.find("{", at)) >= 0:
        at = form.index("}", start) + 1
        out.append((start, at))
    return out


def filled(form: str, hole: int, value: str) -> str:
    """A form with one of its arguments replaced, and the others as they fit."""
    out, at = "", 0
    for i, (start, end) in enumerate(holes(form)):
        out += form[at:start] + (value if i == hole else form[start + 1 : end - 1])
        at = end
    return out + form[at:]


def texts(forms: tuple[str, ...] = (*FORMS, *STATEMENTS)) -> Iterator[tuple[str, str]]:
    """(What is tried, the program) for every form, hole and kind of value."""
    for form in forms:
        for hole in range(len(holes(form))):
            for value in VALUES.values():
                start = holes(form)[hole][0]
                bare = value.replace(".", "").replace("_", "").isalnum() or value[0] in '["'
                line = filled(form, hole, value if bare or start and form[start - 1] in "([" else f"({value})")
                yield line, HEAD + f"        {line if form in STATEMENTS else 'v = ' + line}\n        commit x\n"


USES = (
    "int(sum(v))", "int(sum(v * 1))", "int(v * 3)", "1 if v else 0", "int(max(v))", "count(v)", "int(sum(log(v + 1)))",
    "v.token", "sum(v.token)", "len(v)", "1 if v == v else 0",
)  # fmt: skip
"""What makes a token of a value."""


def expression(rng: random.Random, depth: int = 2) -> str:
    """A call whose arguments fit, or are any values, or calls."""
    form = rng.choice(FORMS)
    for hole in range(len(holes(form)) - 1, -1, -1):
        draw = rng.random()
        if draw < 0.5:
            start, end = holes(form)[hole]
            form = form[:start] + form[start + 1 : end - 1] + form[end:]
        else:
            value = f"({expression(rng, depth - 1)})" if depth > 1 and draw < 0.7 else f"({rng.choice([*VALUES.values()])})"
            form = form[: holes(form)[hole][0]] + value + form[holes(form)[hole][1] :]
    return form


def drawn(seed: int) -> Iterator[list[str]]:
    """Programs of one expression after the other, for each all its uses; many do not pass the type check."""
    rng = random.Random(seed)
    while True:
        value = expression(rng)
        yield [
            HEAD + f"        v = {value}\n        k = {use}\n        commit x\n        commit 1 if k > 1 else 0\n"
            for use in USES
        ]
