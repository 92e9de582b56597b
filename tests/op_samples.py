"""Samples of every op: a line or a few of IR over the named operands below, and what the last op gives.

A sample `(text, expected)` is run by tests/ir/test_ops.py; `expected` is the first result as plain data, or ANYTHING.
An error sample `(op, operand types, attributes, word)` says a word that the refusal or its hint must contain.
"""

# ruff: noqa: ISC004  (a table: a sample a line reads better than three)
from __future__ import annotations

from typing import Any

import numpy as np
from op_machine import Automaton, Index, Memory, Model, dists, draws

from decgraph.ir.data.canvas import Canvas, Edit
from decgraph.ir.data.dist import Draw, Draws, Path, value_row
from decgraph.ir.data.topology import Topology
from decgraph.ir.data.tree import Tree
from decgraph.ir.ops.draws import NoiseKey
from decgraph.ir.types import parse_type

ANYTHING = object()


def _draw(token: int) -> Draw:
    return Draw(token, value_row(np.array([0.5, 0.25, 0.25])), race=-1.0)


def _tree() -> Tree:
    """The root, two draws under it, and one under the first."""
    t = Tree.start((1, 0, 2))
    t = t.grow([_draw(0), _draw(1)], [0, 0], [-0.5, -1.5], [{"score": 2}, {"score": 3}])
    return t.grow([_draw(2)], [1], [-2.0], [{"score": 4}])


def _canvas() -> Canvas:
    return Canvas.start((1, 0, 2), 3, 4).put([1], [_draw(2)])


def _canvases() -> Tree:
    return Tree.start(_canvas()).grow([Edit(0, 1)], [0], [0.0], [{}])


_ROW = Draws(np.array(_draw(1), dtype=object))
LEVELS = Topology.of([[0], [1], [0, 0]])

OPERANDS: dict[str, tuple[str, Any]] = {
    "i": ("int", 2),
    "three": ("int", 3),
    "h": ("hidden<target>[k<=2]", np.array([[2.0, 4.0]])),
    "n": ("int", 1),
    "r": ("real", 0.5),
    "pr": ("prob", 0.25),
    "b": ("bool", True),
    "nil": ("none", None),
    "word": ("text", "ab"),
    "xs": ("int[k<=4]", np.array([3, 1, 2])),
    "rs": ("real[k<=3]", np.array([0.5, 2.0, 2.0])),
    "bs": ("bool[k<=3]", np.array([True, True, False])),
    "q": ("dist<V,shaped>", dists(1, single=True)),
    "qs": ("dist<V,shaped>[k<=2]", dists(2)),
    "w": ("real[vocab.V]", np.array([1.0, 3.0, 0.0])),
    "m": ("real[k<=2,vocab.V]", np.array([[0.0, 5.0, 1.0], [4.0, -np.inf, 5.0]])),
    "x": ("draw<V>", _ROW),
    "ds": ("draw<V>[k<=2]", draws([_draw(2), _draw(0)])),
    "tok": ("token<V>", 1),
    "toks": ("token<V>[k<=3]", np.array([2, 0])),
    "g": ("noise", NoiseKey("f.0", ())),
    "ctx": ("node<ctx>", (1, 0, 2)),
    "t": ("tree<t,token,V>", _tree()),
    "root_alone": ("tree<t,token,V>", Tree.start((1, 0, 2))),
    "cost": ("real[k.states]", np.array([0.0, -np.inf])),
    "node": ("node<t>", 3),
    "first": ("node<t>", 1),
    "ns": ("node<t>[part.t<=2]", np.array([1, 3])),
    "deep": ("int[nodes.t]", np.array([0, 1, 1, 2])),
    "col": ("real[nodes.t]", np.array([9.0, 1.0, 2.0, 3.0])),
    "ok": ("bool[nodes.t]", np.array([0, 1, 0, 1], bool)),
    "at_t": ("dist<V,shaped>[nodes.t]", dists(4)),
    "c": ("canvas<c,V>", _canvas()),
    "ps": ("position<c>[part.c<=2]", np.array([0, 2])),
    "sure": ("bool[cells.c]", np.array([True, False, True])),
    "pos": ("position<c>", 2),
    "u": ("tree<u,edit,c>", _canvases()),
    "e": ("edit<c>", Edit(0, 1)),
    "target": ("model<causal,V,target,causal>", Model()),
    "head": ("model<features,V,head,causal>", Model()),
    "masked": ("model<masked,V,masked,full>", Model()),
    "trunk": ("model<trunk,V,target,causal>", Model()),
    "mem": ("memory<target>", Memory([0, 1, 2])),
    "mem2": ("memory<target>", Memory([2, 3])),
    "path": ("path<V>", Path([0, 2], node=3, depth=2)),
    "shape": ("topology", LEVELS),
    "level": ("level", LEVELS[0]),
    "lst": ("list<int[k],-1>", [np.array([1]), np.array([2, 3])]),
    "ix": ("index<suffixes,V>", Index(0, 2)),
    "au": ("automaton<V>", Automaton()),
    "st": ("astate", 0),
}

SAMPLES: dict[str, list[tuple[str, Any]]] = {
    # control
    "for": [
        ('%z = for(%n, %i, %i, bound = 4) (%k: int, %a: int) {\n%s = map(%a, %k, fn = "add")\nyield %s\n}', 3),
        ("%z = for(%n, %i, %i, stops = true) (%k: int, %a: int) {\nyield %b, %k\n}", 1),
    ],
    "while": [
        (
            '%z = while(%i, bound = "progress") (%k: int, %a: int) {\n%go = map(%k, %n, fn = "le")\nyield %go\n}'
            ' (%k: int, %a: int) {\n%s = map(%a, %a, fn = "add")\nyield %s\n}',
            8,
        ),
        ("%z = while(%n, %i, limited = true) (%k: int, %a: int) {\nyield %b\n} (%k: int, %a: int) {\nyield %k\n}", 0),
    ],
    "if": [("%z = if(%b) {\nyield %i\n} {\nyield %r\n}", 2)],
    "segment": [('%z = segment(%i, %n, kind = "device", name = "s") {\n%s = map(%i, %n, fn = "add")\nyield %s\n}', 3)],
    "each": [
        ('%z = each(%xs) (%k: int, %v: int) {\n%s = map(%v, %k, fn = "add")\nyield %s\n}', [3, 2, 4]),
        ("%z = each(%bs, filtered = true) (%k: int, %v: bool) {\nyield %k, %v\n}", [0, 1]),
        ('%z = each(%shape) (%k: int, %v: level) {\n%p = level.get(%v, field = "parent")\n%l = len(%p)\nyield %l\n}', [2, 1]),
    ],
    "run": [
        ('%z = run(%ctx, %i, callee = "f", args = (), has_tree = false, site = "f.1") (%p: path<V>) {\nyield %b\n}', [0, 1])
    ],
    "const": [
        ("%z = const(value = 7, type = !int)", 7),
        ("%z = const(value = 1/4, type = !prob)", 0.25),
        ("%z = const(value = [], type = !list<any,-1>)", []),
    ],
    # the request, effects, state
    "context": [("%z = context()", (1, 0, 2)), ("%z = context(parent = true)", (1, 0))],
    "ctx.get": [
        ('%z = ctx.get(%ctx, field = "token")', 2),
        ('%z = ctx.get(%ctx, field = "length")', 3),
        ('%z = ctx.get(%ctx, %i, field = "last", bound = 2)', [0, 2]),
    ],
    "request": [
        (f'%z = request(field = "{f}")', v)
        for f, v in [("prompt", [1, 0]), ("limit", 9), ("room", 7), ("eos", 2), ("pad", 0), ("greedy", False)]
    ],
    "done": [("%z = done()", False)],
    "commit": [("commit(%x)", None), ("commit(%toks)", None), ("commit(%path)", None), ("commit(%c)", None)],
    "ended": [("%z = ended(%ns, %t)", [False, False]), ("%z = ended(%path)", False)],
    "state.read": [('%z = state.read(state = "count", type = !int)', 5)],
    "state.write": [('state.write(%i, state = "count", type = !int)', None)],
    "return": [("return(%path)", None)],
    "completes": [("%z = completes(%path, %word)", False)],
    "vocab_size": [("%z = vocab_size()", 3)],
    "text_of": [("%z = text_of(%toks)", "ca")],
    # noise and draws
    "noise": [
        ('%z = noise(kind = "race", site = "f.0")', NoiseKey("f.0", ())),
        ('%z = noise(%i, kind = "output", site = "output")', NoiseKey("output", (), "output", 2)),
    ],
    "draw": [("%z = draw(%q, %g)", 2), ("%z = draw(%qs, %g)", [2, 2]), ("%z = draw(%at_t, %g)", [2, 2, 0, 0])],
    "draw.many": [
        ("%z = draw.many(%q, %i, %g, replace = false, bound = 2)", [2, 1]),
        ("%z = draw.many(%w, %i, %g, replace = false, bound = 2)", [1, 0]),
        ("%z = draw.many(%qs, %i, %g, replace = true, bound = 2)", [[2, 1], [2, 0]]),
    ],
    "draw.race": [("%z = draw.race(%q, %g)", [2, 1, 0]), ("%z = draw.race(%w, %g)", [1, 0, 2])],
    "draw.point": [("%z = draw.point(%toks)", [2, 0]), ("%z = draw.point(%i)", 2)],
    "draw.get": [
        ('%z = draw.get(%ds, field = "token")', [2, 0]),
        ('%z = draw.get(%ds, field = "prob")', [0.25, 0.5]),
        ('%z = draw.get(%x, field = "law")', [0.5, 0.25, 0.25]),
        ('%z = draw.get(%ds, field = "point")', [False, False]),
        ('%z = draw.get(%ds, field = "race")', [-1.0, -1.0]),
    ],
    "bernoulli": [("%z = bernoulli(%r, %g)", True), ("%z = bernoulli(%rs, %g)", [True] * 3)],
    "beta": [("%z = beta(%i, %i, %g)", 0.5)],
    # distributions
    "face": [('%z = face(%q, face = "raw")', ANYTHING)],
    "softmax": [("%z = softmax(%w)", ANYTHING), ("%z = softmax(%rs)", ANYTHING)],
    "normalize": [("%z = normalize(%w)", [0.25, 0.75, 0.0])],
    "warp": [("%z = warp(%w)", ANYTHING), ("%z = warp(%q)", [1 / 6, 2 / 6, 3 / 6])],
    "lookup": [
        ("%z = lookup(%q, %tok)", 1 / 3),
        ("%z = lookup(%qs, %tok)", [1 / 3, 2 / 7]),
        ("%z = lookup(%q, %toks)", [1 / 2, 1 / 6]),
        ("%z = lookup(%w, %x)", 3.0),
        ("%z = lookup(%m, %ds)", [1.0, 4.0]),
    ],
    "info": [('%z = info(%q, kind = "entropy")', ANYTHING), ('%z = info(%q, %q, kind = "kl")', 0.0)],
    "renorm": [
        ('%z = renorm(%q, %i, kind = "topk")', [0.0, 0.4, 0.6]),
        ('%z = renorm(%q, %r, kind = "topp")', [0.0, 0.0, 1.0]),
    ],
    # choosing
    "arg": [
        ('%z = arg(%rs, fn = "max")', 1),
        ('%z = arg(%q, fn = "max")', 2),
        ('%z = arg(%m, fn = "min")', [0, 1]),
        ('%z = arg(%ds, %rs, fn = "min")', 2),
        ('%z = arg(%xs, %rs, %xs, fn = "max")', 2),
    ],
    "topk": [("%z = topk(%q, %i, bound = 2)", [2, 1]), ("%z = topk(%m, %n, bound = 1)", [[1], [2]])],
    "select.top": [
        ("%z = select.top(%xs, %i, %rs, bound = 2)", [1, 2]),
        ('%z = select.top(%xs, %i, order = "kept", bound = 2)', [3, 2]),
        ("%z = select.top(%ns, %n, %col, bound = 1)", [3]),
    ],
    "pairs.top": [("%z, %y, %v = pairs.top(%m, %i, bound = 2)", [0, 1])],
    "sort": [("%z = sort(%xs)", [1, 2, 3]), ("%z = sort(%xs, %rs, descending = true)", [1, 2, 3])],
    "rank": [("%z = rank(%rs)", [2, 0, 1]), ("%z = rank(%qs)", [[2, 1, 0], [1, 2, 0]])],
    "first_max": [
        ("%z = first_max(%rs)", [False, True, False]),
        ("%z = first_max(%m)", [[False, True, False], [False, False, True]]),
    ],
    "compact": [
        ("%z = compact(%rs, %bs)", [0.5, 2.0]),
        ("%z = compact(%ns, %ok)", [1, 3]),
        ("%z = compact(%ps, %sure)", [0, 2]),
        ("%z = compact(%i, %b)", [2]),
    ],
    "take_first": [("%z = take_first(%xs, %i, bound = 2)", [3, 1]), ("%z = take_first(%sure, %n, bound = 1)", [0])],
    "batch.top": [("%z = batch.top(%ns, %n, %col)", [1])],
    # vectors
    "map": [
        ('%z = map(%rs, %r, fn = "add")', [1.0, 2.5, 2.5]),
        ('%z = map(%q, %q, fn = "sub")', [0.0] * 3),
        ('%z = map(%bs, %xs, %n, fn = "select")', [3, 1, 1]),
        ('%z = map(%tok, %i, fn = "eq")', False),
        ('%z = map(%path, %nil, fn = "ne")', True),
        ('%z = map(%rs, %nil, fn = "eq")', False),
        ('%z = map(%pr, %r, %i, fn = "clamp")', 0.5),
        ('%z = map(%pr, %pr, fn = "add")', 0.5),
        ('%z = map(%b, fn = "not")', False),
        ('%z = map(%rs, fn = "floor")', [0, 2, 2]),
        ('%z = map(%m, %qs, fn = "mul")', ANYTHING),
    ],
    "reduce": [
        ('%z = reduce(%xs, fn = "sum")', 6),
        ('%z = reduce(%q, fn = "max")', 0.5),
        ('%z = reduce(%bs, fn = "all")', False),
        ('%z = reduce(%bs, fn = "count")', 2),
        ('%z = reduce(%xs, fn = "mean")', 2.0),
        ('%z = reduce(%m, fn = "max", over = "k")', [4.0, 5.0, 5.0]),
        ('%z = reduce(%bs, fn = "sum")', 2),
        ('%z = reduce(%bs, fn = "max")', 1),
    ],
    "scan": [('%z = scan(%xs, fn = "cumsum")', [3, 4, 6]), ('%z = scan(%bs, fn = "leading")', 2)],
    "gather": [
        ("%z = gather(%xs, %n)", 1),
        ("%z = gather(%col, %ns)", [1.0, 3.0]),
        ("%z = gather(%at_t, %node)", ANYTHING),
        ("%z = gather(%lst, %n)", [2, 3]),
        ("%z = gather(%m, %n, %i)", 5.0),
        ("%z = gather(%ds, %n)", 0),
    ],
    "slice": [
        ("%z = slice(%xs, %n, has_lo = true)", [1, 2]),
        ("%z = slice(%path, %n, has_hi = true)", [0]),
        ("%z = slice(%ds, %n, %i, has_lo = true, has_hi = true)", [0]),
    ],
    "concat": [
        ("%z = concat(%xs, %i)", [3, 1, 2, 2]),
        ("%z = concat(%path, %path)", [0, 2, 0, 2]),
        ("%z = concat(%ds, %x)", [2, 0, 1]),
        ("%z = concat(%q, %at_t)", ANYTHING),
        ("%z = concat(%lst, %lst)", [[1], [2, 3], [1], [2, 3]]),
    ],
    "list": [
        ("%z = list(%i, %r)", [2.0, 0.5]),
        ("%z = list()", []),
        ("%z = list(%path, %path)", ANYTHING),
        ("%z = list(%path, %nil)", ANYTHING),
    ],
    "tile": [
        ('%z = tile(%r, %i, kind = "tile", bound = 2)', [0.5, 0.5]),
        ('%z = tile(%n, %i, kind = "iota")', [1]),
        ('%z = tile(%i, kind = "zeros", elem = "int", dims = [dim k, dim vocab.V])', [[0] * 3] * 2),
    ],
    "within": [
        ('%z = within(%i, what = "n", most = 2)', 2),
        ('%z = within(%xs, %three, what = "state xs")', [3, 1, 2]),
        ('%z = within(%ds, %three, what = "ds")', [2, 0]),
    ],
    "len": [("%z = len(%xs)", 3), ("%z = len(%path)", 2), ("%z = len(%t)", 4), ("%z = len(%c)", 3)],
    "as_int": [("%z = as_int(%pos)", 2), ("%z = as_int(%rs)", [0, 2, 2])],
    "contains": [("%z = contains(%i, %xs)", True), ("%z = contains(%toks, %xs)", [True, False])],
    "scatter": [
        ('%z = scatter(%rs, %r, %n, mode = "last")', [0.5, 0.5, 2.0]),
        ('%z = scatter(%xs, %i, %i, mode = "sum")', [3, 1, 4]),
    ],
    # trees
    "tree.new": [('%z = tree.new(%ctx, tree = "t")', []), ('%z = tree.new(%c, tree = "v")', [])],
    "tree.continue": [('%z = tree.continue(%t, tree = "s")', [0, 1, 2])],
    "edit": [
        ('%z = edit(%pos, %tok, canvas = "c")', (2, 1)),
        ('%z = edit(%ps, %toks, canvas = "c")', [(0, 2), (2, 0)]),
        ('%z = edit(%ps, %tok, canvas = "c")', [(0, 1), (2, 1)]),
    ],
    "edit.get": [('%z = edit.get(%e, field = "position")', 0), ('%z = edit.get(%e, field = "token")', 1)],
    "tree.grow": [
        ("%z, %new = tree.grow(%t, %x)", [0, 1, 2, 1]),
        ("%z, %new = tree.grow(%t, %ds, %ns, has_at = true)", [0, 1, 2, 2, 0]),
        ("%z, %new = tree.grow(%t, %ds, %node, has_at = true, chain = true)", [0, 1, 2, 2, 0]),
        ("%z, %new = tree.grow(%u, %e)", [1, 1]),
    ],
    "tree.get": [
        ('%z = tree.get(%t, column = "token")', [2, 0, 1, 2]),
        ('%z = tree.get(%t, column = "parent")', [0, 0, 0, 1]),
        ('%z = tree.get(%t, column = "depth")', [0, 1, 1, 2]),
        ('%z = tree.get(%t, column = "law")', ANYTHING),
        ('%z = tree.get(%t, column = "logprob")', [0.0, -0.5, -1.5, -2.0]),
        ('%z = tree.get(%t, column = "prob")', [1.0, 0.5, 0.25, 0.25]),
        ('%z = tree.get(%t, column = "draw")', [2, 0, 1, 2]),
        ('%z = tree.get(%t, column = "point")', [True, False, False, False]),
        ('%z = tree.get(%t, column = "score", type = !int)', [0, 2, 3, 4]),
        ('%z = tree.get(%u, column = "token", vocab = "V")', [2, 1]),
        ('%z = tree.get(%u, column = "masked")', [[True, False, True], [False, False, True]]),
    ],
    "tree.set": [('%z = tree.set(%t, %ns, %i, column = "score")', [0, 1, 2])],
    "tree.front": [("%z = tree.front(%t, %ns)", [0, 1, 2])],
    "tree.nodes": [
        (f'%z = tree.nodes(%t, which = "{w}")', v)
        for w, v in [
            ("root", 0),
            ("all", [0, 1, 2, 3]),
            ("drafted", [1, 2, 3]),
            ("leaves", [2, 3]),
            ("new", [3]),
            ("frontier", [3]),
        ]
    ]
    + [('%z = tree.nodes(%t, %first, which = "children")', [3]), ('%z = tree.nodes(%t, %node, which = "path")', [0, 1, 3])],
    "tree.size": [('%z = tree.size(%t, what = "size")', 3), ('%z = tree.size(%t, what = "height")', 2)],
    "tree.down": [
        ('%z = tree.down(%t, %ok, fn = "all")', [True, True, False, True]),
        ('%z = tree.down(%t, %col, fn = "sum")', [0.0, 1.0, 2.0, 4.0]),
        ('%z = tree.down(%t, %deep, fn = "max")', [0, 1, 1, 2]),
    ],
    "tree.up": [
        ('%z = tree.up(%t, %col, fn = "max")', [9.0, 3.0, 2.0, 3.0]),
        ('%z = tree.up(%t, %ok, fn = "any")', [True, True, False, True]),
    ],
    "tree.keep": [("%z = tree.keep(%t, %ns)", [0, 2])],
    "tree.reroot": [("%z = tree.reroot(%t, %path)", [])],
    "tree.walk": [
        (
            '%z = tree.walk(%t, %at_t, scope = "node") (%d: int, %p: dist<V,shaped>, %xs: draw<V>[k]) {\n'
            "%o = const(value = 0, type = !int)\n%first = gather(%xs, %o)\nyield %b, %first, %b, %first\n}",
            [0],
        )
    ],
    "path.get": [
        ('%z = path.get(%path, field = "depth")', 2),
        ('%z = path.get(%path, field = "token")', [0, 2]),
        ('%z = path.get(%path, field = "length")', 2),
        ('%z = path.get(%path, field = "node")', 3),
    ],
    "topology": [("%z = topology(shape = [[0], [1], [0, 0]])", LEVELS), ('%z = topology(shape = "2x1")', ANYTHING)],
    "level.get": [
        ('%z = level.get(%level, field = "parent")', [0, 0]),
        ('%z = level.get(%level, field = "rank")', [0, 1]),
        ('%z = level.get(%level, field = "width")', 2),
        ('%z = level.get(%level, field = "index")', 0),
    ],
    "tree.best_first": [("%z, %new = tree.best_first(%root_alone, %ix, %i, %r)", [0, 0])],
    # canvases
    "canvas.new": [('%z = canvas.new(%i, canvas = "c")', [None, None])],
    "canvas.extend": [("%z = canvas.extend(%c, %i)", [None, 2, None, None])],
    "canvas.put": [
        ('%z = canvas.put(%c, %ps, %toks, kind = "token")', [2, 2, 0]),
        ('%z = canvas.put(%c, %ps, %tok, %bs, kind = "token", has_mask = true)', ANYTHING),
        ('%z = canvas.put(%c, %ps, kind = "mask")', [None, 2, None]),
    ],
    "canvas.get": [
        ('%z = canvas.get(%c, field = "masked")', [True, False, True]),
        ('%z = canvas.get(%c, field = "decided")', [False, True, False]),
        ('%z = canvas.get(%c, field = "token")', [3, 2, 3]),
        ('%z = canvas.get(%c, field = "all")', [0, 1, 2]),
        ('%z = canvas.get(%c, field = "length")', 3),
        ('%z = canvas.get(%c, field = "draws")', [None, 2, None]),
    ],
    "positions": [
        ('%z = positions(%c, %n, %i, kind = "span")', [1, 2]),
        ('%z = positions(%c, %i, kind = "blocks")', [[0, 1], [2]]),
        ('%z = positions(%c, %n, kind = "from")', [1, 2]),
        ('%z = positions(%c, %n, kind = "before")', [0]),
        ('%z = positions(%ps, kind = "start")', 0),
        ('%z = positions(%ps, kind = "stop")', 3),
        ('%z = positions(%ps, %ps, kind = "union")', [0, 2]),
        ('%z = positions(%ps, %ps, kind = "minus")', []),
    ],
    "block_index": [("%z = block_index(%ps)", 0)],
    "schedule": [("%z = schedule(%i, %n)", [2])],
    # models
    "model.eval": [
        ("%z = model.eval(%target, %ctx)", ANYTHING),
        ("%z = model.eval(%target, %t)", ANYTHING),
        ('%z = model.eval(%target, %ns, %t, with = ("tree",))', ANYTHING),
        ('%z = model.eval(%head, %ctx, %mem, with = ("given",))', ANYTHING),
        ('%z = model.eval(%target, %ctx, part = "heads", heads = 4)', ANYTHING),
        ("%z = model.eval(%masked, %c)", ANYTHING),
        ('%z = model.eval(%masked, %c, %ps, with = ("at",))', ANYTHING),
    ],
    "model.evals": [
        ('%z, %y = model.evals(%target, %ctx, %ns, %t, parts = ((), ("tree",)))', ANYTHING),
        ('%z, %y = model.evals(%target, %t, %ctx, parts = ((), ()), reuse = "target")', ANYTHING),
    ],
    "model.memory": [("%z = model.memory(%target, %ctx)", [0, 1, 2])],
    "model.derive": [
        ('%z = model.derive(%target, %n, how = "exit")', ANYTHING),
        ('%z = model.derive(%target, %trunk, how = "head")', ANYTHING),
        ('%z = model.derive(%target, how = "speaking", vocab = "W")', ANYTHING),
    ],
    "model.layers": [("%z = model.layers(%target)", [0, 1])],
    "memory.only": [
        ('%z = memory.only(%mem, %ps, kind = "only")', [0, 2]),
        ('%z = memory.only(%mem, %ps, kind = "without")', [1]),
    ],
    "memory.join": [("%z = memory.join(%mem, %mem2)", [0, 1, 2, 3])],
    "model.embed": [("%z = model.embed(%target, %toks)", ANYTHING)],
    "memory.layer": [("%z = memory.layer(%mem, %n)", [0, 1, 2])],
    "memory.put": [("%z = memory.put(%mem, %mem2, %n)", [0, 1, 2])],
    "memory.scores": [("%z = memory.scores(%mem, %ps)", [0.0] * 3)],
    "maxpool": [("%z = maxpool(%xs, %three)", [3, 3, 2])],
    "hidden.map": [
        ('%z = hidden.map(%h, %r, fn = "mul")', [[1.0, 2.0]]),
        ('%z = hidden.map(%h, %h, fn = "add")', [[4.0, 8.0]]),
    ],
    # stores and the host
    "index.new": [('%z = index.new(%i, kind = "suffixes")', ANYTHING)],
    "index.ask": [
        ('%z = index.ask(%ix, what = "has")', True),
        ('%z = index.ask(%ix, %i, what = "path", bound = 4)', [0, 2]),
        ('%z = index.ask(%ix, %tok, what = "get")', []),
        ('%z = index.ask(%ix, %ctx, what = "after")', ANYTHING),
    ],
    "index.learn": [("%z = index.learn(%ix, %toks)", ANYTHING)],
    "automaton": [
        ('%z = automaton(%au, what = "start")', 0),
        ('%z = automaton(%au, %st, %tok, what = "step")', 1),
        ('%z = automaton(%au, %st, what = "allowed")', [True, True, False]),
        ('%z = automaton(%au, what = "live")', [True, False]),
        ('%z = automaton(%au, what = "states")', 2),
        ('%z = automaton(%au, %st, %toks, what = "run")', ANYTHING),
        ('%z = automaton(%au, %st, what = "weights")', [0.0, -np.inf]),
    ],
    "relax": [("%z, %back, %tok1 = relax(%au, %cost, %w)", [1.0, 3.0])],
    "extern": [('%z = extern(%word, extern = "judge", params = (!text,), returns = !bool)', True)],
}

ERRORS: list[tuple[str, str, dict[str, Any], str]] = [
    ("for", "bool, int", {}, "integer bounds"),
    ("canvas.new", "text", {"canvas": "c"}, "length"),
    ("canvas.extend", "int, int", {}, "canvas"),
    ("canvas.get", "int", {"field": "masked"}, "canvas"),
    ("canvas.get", "canvas<c,V>", {"field": "blank"}, "masked"),
    ("canvas.put", "canvas<c,V>, position<c>, dist<V,shaped>", {"kind": "token"}, "x ~ p"),
    ("positions", "int, int", {"kind": "blocks"}, "canvas"),
    ("block_index", "int", {}, "block"),
    ("draw", "real[k], noise", {}, "distribution"),
    ("draw", "scores<V>, noise", {}, "softmax"),
    ("draw.many", "dist<V,shaped>, text, noise", {"replace": True}, "number"),
    ("draw.race", "int, noise", {}, "distribution"),
    ("draw.point", "dist<V,shaped>", {}, "sample"),
    ("draw.get", "token<V>", {"field": "law"}, "draws"),
    ("bernoulli", "text, noise", {}, "probability"),
    ("beta", "bool, int, noise", {}, "numbers"),
    ("noise", "", {"kind": "loud", "site": "f.0"}, "loud"),
    ("face", "int", {"face": "raw"}, "distribution"),
    ("softmax", "int", {}, "vocabulary"),
    ("normalize", "real[k]", {}, "vocabulary"),
    ("warp", "real", {}, "vocabulary"),
    ("lookup", "real[k], token<V>", {}, "distribution"),
    ("lookup", "dist<V,shaped>, token<W>", {}, "share one"),
    ("info", "real[k]", {"kind": "entropy"}, "distribution"),
    ("renorm", "int, int", {"kind": "topk"}, "vocabulary"),
    ("arg", "int", {"fn": "max"}, "vector"),
    ("topk", "node<t>[part.t], int", {}, "top(candidates"),
    ("select.top", "dist<V,shaped>, int", {}, "topk"),
    ("pairs.top", "real[k], int", {}, "scores"),
    ("sort", "int", {}, "vector"),
    ("rank", "int", {}, "numbers"),
    ("first_max", "bool[k]", {}, "numbers"),
    ("compact", "int[k], int[k]", {}, "condition"),
    ("compact", "int, bool[k]", {}, "a if cond else b"),
    ("take_first", "int, int", {}, "vector"),
    ("batch.top", "int, int", {}, "candidates"),
    ("map", "text, int", {"fn": "add"}, "do not go together"),
    ("map", "int[nodes.t], int[vocab.V]", {"fn": "add"}, "index one of them"),
    ("map", "token<V>, token<W>", {"fn": "eq"}, "W"),
    ("map", "int", {"fn": "sing"}, "sing"),
    ("reduce", "int", {"fn": "sum"}, "vector"),
    ("reduce", "int[k]", {"fn": "any"}, "bools"),
    ("scan", "int[k]", {"fn": "leading"}, "bools"),
    ("gather", "int[k], bool[k]", {}, "where"),
    ("gather", "int, int", {}, "single"),
    ("gather", "int[nodes.t], node<s>", {}, "tree s"),
    ("slice", "int, int", {"has_lo": True}, "vector"),
    ("concat", "int[k], text", {}, "go together"),
    ("list", "int, text", {}, "go together"),
    ("len", "int", {}, "vector"),
    ("within", "int, int", {"what": "n"}, "no elements"),
    ("within", "int[k]", {"what": "n", "most": 2}, "one number"),
    ("as_int", "text", {}, "number"),
    ("contains", "int, int", {}, "vector or a set"),
    ("scatter", "int, int, int", {"mode": "last"}, "indexed"),
    ("tree.new", "int", {"tree": "t"}, "context or a canvas"),
    ("tree.continue", "int", {"tree": "t"}, "tree"),
    ("edit", "real, token<V>", {}, "position"),
    ("edit.get", "int", {"field": "token"}, "edit"),
    ("tree.grow", "tree<t,token,V>, token<V>", {}, "point(x)"),
    ("tree.grow", "tree<t,token,V>, dist<V,shaped>", {}, "x ~ q"),
    ("tree.grow", "tree<t,token,V>, draw<W>", {}, "W"),
    ("tree.grow", "int, draw<V>", {}, "tree"),
    ("tree.get", "tree<t,token,V>", {"column": "colour"}, "columns: token"),
    ("tree.set", "tree<t,token,V>, node<s>, int", {"column": "a"}, "nodes"),
    ("tree.front", "tree<t,token,V>, int", {}, "nodes"),
    ("tree.nodes", "int", {"which": "all"}, "tree"),
    ("tree.size", "int", {"what": "size"}, "tree"),
    ("tree.down", "tree<t,token,V>, int[k]", {"fn": "all"}, "column"),
    ("tree.up", "int, int", {"fn": "all"}, "tree"),
    ("tree.keep", "tree<t,token,V>, node<s>[part.s]", {}, "tree t"),
    ("tree.reroot", "int, path<V>", {}, "tree"),
    ("path.get", "int", {"field": "depth"}, "path"),
    ("level.get", "level", {"field": "colour"}, "parent"),
    ("level.get", "int", {"field": "rank"}, "topology"),
    ("tree.best_first", "tree<t,token,V>, int, int, real", {}, "index.after"),
    ("relax", "int, int, int", {}, "automaton"),
    ("model.eval", "int, node<ctx>", {}, "model"),
    ("model.eval", "model<masked,V,m,full>, node<ctx>", {}, "canvas c: length"),
    ("model.eval", "model<features,V,m,causal>, node<ctx>", {}, "given"),
    ("model.eval", "model<causal,V,m,causal>, int", {}, "model(ctx)"),
    ("model.memory", "model<causal,V,m,causal>, int", {}, "memory"),
    ("model.derive", "int", {"how": "exit"}, "model"),
    ("model.derive", "model<causal,V,m,causal>", {"how": "paint"}, "paint"),
    ("model.layers", "int", {}, "model"),
    ("memory.only", "int, int", {"kind": "only"}, "memory"),
    ("memory.join", "memory<a>, memory<b>", {}, "one family"),
    ("model.embed", "int, int", {}, "model"),
    ("model.embed", "model<causal,V,m,causal>, text", {}, "weights"),
    ("memory.layer", "int, int", {}, "memory"),
    ("memory.put", "memory<a>, memory<b>, int", {}, "same model"),
    ("memory.scores", "memory<a>, int", {}, "positions"),
    ("maxpool", "int, int", {}, "vector"),
    ("hidden.map", "int, int", {"fn": "add"}, "embeddings"),
    ("commit", "dist<V,shaped>", {}, "x ~ p"),
    ("ended", "int", {}, "path"),
    ("completes", "int, text", {}, "path"),
    ("state.write", "text", {"state": "s", "type": parse_type("int")}, "state s"),
    ("index.ask", "int", {"what": "has"}, "index"),
    ("index.learn", "int", {}, "index"),
    ("index.learn", "index<ngrams,V>, model<causal,V,m,causal>", {}, "tokens"),
    ("automaton", "automaton<V>, int", {"what": "allowed"}, "g.start"),
    ("arg", "int[k], dist<V,shaped>[k]", {"fn": "max"}, "every candidate"),
    ("sort", "int[k], real", {}, "by ="),
    ("select.top", "int[k], int[k]", {}, "one number"),
    ("topk", "dist<V,shaped>, real[k]", {}, "one number"),
    ("for", "int[k], int", {}, "for x in xs"),
    ("map", "dist<V,shaped>, real[vocab.W]", {"fn": "sub"}, "share one"),
    ("concat", "int[k], none", {}, "if"),
    ("concat", "int[k], int[k,vocab.V]", {}, "not alike"),
    ("scatter", "int[k], int, path<V>", {"mode": "last"}, "index"),
    ("scatter", "int[k], int[k], int", {"mode": "last"}, "does not fit"),
    ("tree.nodes", "tree<t,token,V>, int", {"which": "children"}, "one node"),
    ("tree.down", "tree<t,token,V>, int[nodes.t]", {"fn": "all"}, "bools"),
    ("tree.get", "tree<t,edit,c>", {"column": "prob"}, "column"),
    ("ctx.get", "node<t>", {"field": "token"}, "context"),
    ("text_of", "real", {}, "tokens"),
    ("schedule", "int[k], int", {}, "one number"),
    ("index.new", "text", {"kind": "lru"}, "one number"),
    ("tile", "int, int[k]", {"kind": "tile"}, "one number"),
    ("lookup", "dist<V,shaped>, bool[k]", {}, "where"),
    ("info", "dist<V,shaped>, int", {"kind": "kl"}, "distribution"),
    ("automaton", "int", {"what": "start"}, "automaton"),
    (
        "extern",
        "int",
        {"extern": "judge", "params": (parse_type("text"),), "returns": parse_type("bool")},
        "argument 1 of judge",
    ),
    ("model.evals", "model<causal,V,m,causal>, node<ctx>", {"parts": ((), ())}, "2 parts"),
    ("segment", "", {"kind": "loud", "name": "s"}, "vocabulary"),
    ("extern", "", {"extern": "judge", "params": (parse_type("text"),), "returns": parse_type("bool")}, "judge"),
]

# Ops that take whatever they are given, or whose region rules are tested in test_verify.py.
TAKES_ANYTHING = {
    "while",
    "if",
    "each",
    "run",
    "const",
    "context",
    "request",
    "done",
    "state.read",
    "return",
    "vocab_size",
    "topology",
    "tree.walk",
}
