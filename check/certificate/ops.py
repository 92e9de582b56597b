"""What follows of an op's first result from what is claimed of its operands: a rule for each op that has one, by the op's
meaning (docs/reference/ops.md) and the theorems (docs/proof.md). Of an op without a rule nothing may be claimed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import trunc
from typing import Any

from decgraph.check.certificate.data import MASS, NONE, SCORES, Fact, Known, one_model
from decgraph.ir.values import Op, Value

POINTS: Fact = ("drafts", NONE, None)
"""Point masses: certain, whatever chose them."""
INF = float("inf")
INFINITE = ("-inf", -INF)


def faced(fact: Fact, face: str) -> Fact:
    """The fact of rows in another view."""
    return (*fact[:-1], face)


def is_row(fact: Fact | None, faces: tuple[str, ...]) -> bool:
    """Whether a fact says that a value is a row of a model in one of these views."""
    return fact is not None and fact[0] in ("row", "cell rows") and fact[-1] in faces


def weaker(fact: Fact | None, faces: tuple[str, ...]) -> Fact | None:
    """A row that has no mass, or scores of -inf, where such a row has none."""
    return faced(fact, "mass" if faces is MASS else "scores") if fact is not None and is_row(fact, faces) else None


def drafts_of(fact: Fact | None) -> Fact | None:
    """What is known of draws as drafts."""
    match fact:
        case ("token", _, _, "drawn", labels):
            return ("drafts", labels, None)
        case ("cell tokens", _, _, _, drafts):
            return drafts  # type: ignore[no-any-return]
    return fact


def concluded(k: Known, op: Op) -> Fact | None:
    """The fact of an op's first result."""
    attrs, name = op.attrs, k.names[op.results[0]] if op.results else ""
    xs: list[Fact | None] = [k.of(v) for v in op.operands]
    a, b = (*xs, None, None)[:2]
    place = b if len(xs) > 1 else ("context", k.version, False)
    match op.opcode, a, b:
        case "model.eval" | "model.read" | "model.memory", ("model", model), _:
            return _of_model(k, op, model, b)
        case "model.derive", _, _:  # a model of which no layer is left out is the model
            none = all(v.type.elem != "set" and k.numbers.empty(op, v) for v in op.operands[1:])
            return a if attrs["how"] == "skip" and none else None
        # -- rows: what the request shapes at its own place is the distribution; no token without mass gets any
        case "face", ("row" | "cell rows", *_, "shaped") as row, _:  # a computed row has one face only
            made = k.producers.get(op.operands[0])
            while made is not None and made.opcode == "gather":
                made = k.producers.get(made.operands[0])
            return faced(row, attrs["face"]) if made is not None and made.opcode in ("model.eval", "model.read") else None
        case "warp", ("row", _, v, ("logits" | "logs" as face)) as row, _ if place == ("context", v, False):
            good = face == "logits" or "log-probabilities" in k.claims["premises"]
            return faced(row, "shaped" if good else "mass")
        case "softmax" | "warp", _, _:
            return faced(a, "mass") if a is not None and is_row(a, SCORES) else None
        case "normalize", ("rows" | "row" | "cell rows", *_), _:
            return a if a[0] == "rows" or is_row(a, ("shaped",)) else weaker(a, MASS)
        case "renorm", _, _:  # a nucleus with all of the mass is the distribution
            whole = attrs["kind"] == "topp" and k.constants.get(op.operands[1]) == 1 and is_row(a, ("shaped", "raw"))
            return a if whole else weaker(a, MASS)
        case "map", _, _:
            return _map(k, op, xs)
        # -- draws
        case "draw" | "draw.many" | "draw.race", _, _:
            return _draw(k, op, a)
        case "draw.point", _, _:
            return (*a[:4], POINTS) if a is not None and a[0] == "cell tokens" else POINTS
        case "topk" | "index.ask", _, _:
            return POINTS if op.result.type.elem == "draw" else None
        case "draw.get", ("token" | "cell tokens", *_), _:
            return a if attrs["field"] == "token" else None
        case "arg", _, _:
            return _arg(k, op, a)
        # -- lists and vectors
        case "gather", _, _:
            return _gather(k, op, a, b)
        case "compact", ("cell tokens", model, c, str() as at, _), _:
            return ("cell tokens", model, c, (at, k.names[op.operands[1]]), None)
        case "concat", (("piece", *_) | None), (("piece", *_) | None):
            return next((y for v, y in zip(op.operands, (b, a)) if k.numbers.empty(op, v)), None)
        case "slice", ("cell tokens", model, c, None, _), _ if not attrs.get("has_lo"):
            return ("cell tokens", model, c, None, None)
        # -- trees
        case "context", _, _:
            return ("context", k.version, bool(attrs.get("parent")))
        case "tree.new", (("context", _, False) | None), _ if (a or not xs) and attrs.get("edge", "token") == "token":
            return ("tree", name, a[1] if a is not None else k.version, NONE, True, frozenset({name}), "")
        case "tree.continue", _, _:  # it stands on the context as it is now; of its drafts nothing is known
            tree_name, edge, *_ = op.result.type.of
            tokens = edge == "token" or edge == "any" and all(_of_draws(o, tree_name) for o in k.function.body.walk())
            return ("tree", name, k.version, NONE, False, frozenset({name}), None) if tokens else None
        case "tree.grow", ("tree", _, v, labels, true, grown, inside), _ if op.operands[1].type.elem == "draw":
            inside = one_model(inside, _edges(k, op, a, b))
            drafts = drafts_of(b)
            if drafts is None or drafts[0] != "drafts":
                return ("tree", name, v, labels, False, grown | {name}, inside)
            return ("tree", name, v, labels | drafts[1], true and _grows(k, op, drafts[1]), grown | {name}, inside)
        case "tree.keep", ("tree", _, v, labels, true, _, inside), _:  # sampled drafts may stay or go by what they are
            return ("tree", name, v, labels, true and not labels, frozenset({name}), inside)
        case "tree.best_first", ("tree", _, v, labels, true, grown, _), _:
            return ("tree", name, v, labels, true, grown | {name}, None)
        case "tree.nodes", ("tree", t, v, *_), _ if attrs["which"] in ("all", "root"):
            return ("nodes", t, v, attrs["which"])
        case "tree.set" | "tree.front" | "within", _, _:
            return a
        # -- canvases: tokens that the model gives mass to on this very canvas, at the positions where they are put
        case "canvas.new", _, _:
            return ("canvas", "", k.version)
        case "canvas.extend", ("canvas", *_), _:
            return a
        case "canvas.put", ("canvas", model, begun), _:
            of = _put(k, op)
            return a if attrs["kind"] == "mask" else ("canvas", of, begun) if of and model in ("", of) else None
        # -- text
        case "request", _, _ if attrs["field"] == "prompt":
            return ("piece", "start", "prompt")
        case "ctx.get", ("context", v, False), _ if attrs["field"] == "path":
            return ("piece", "start", ("context", v))
    return None


def _of_model(k: Known, op: Op, name: str, place: Fact | None) -> Fact | None:
    """A model's distribution, where nothing but its own memory of the very text is given; such a memory."""
    at, read = op.operands[1], op.opcode == "model.read"
    given: dict[str, Value] = dict(
        zip(("given",) if op.attrs.get("given") is True else op.attrs.get("with", ()), op.operands[2:])
    )
    if op.attrs.get("part") or read and op.attrs.get("each"):
        return None
    if at.type.elem == "canvas":
        return None if given.keys() - {"at"} else ("cell rows", name, k.names[at], k.names.get(given.get("at")), "shaped")
    tree = k.of(given["tree"]) if "tree" in given else place
    version = tree[2] if tree and tree[0] == "tree" else tree[1] if tree and tree[0] == "context" else k.version
    memory: Fact | None = k.of(given["given"]) if "given" in given else ("memory", name, version)
    if given.keys() - {"tree", "given"} or memory is None or memory[:2] != ("memory", name) or memory[2] > version:
        return None
    if op.opcode == "model.memory":
        begins = place is not None and (place[:2] == ("context", k.version) or place[:2] == ("piece", "start"))
        return ("memory", name, k.version) if begins and op.operands[0].type.of[0] == "causal" else None
    match place, tree:
        case (("context", v, False), _) | (("nodes", _, _, "root"), ("tree", _, v, *_)):
            return ("row", name, v, "shaped")
        case ("piece", "start", ("context", v)), _ if read and v == k.version:
            return ("row", name, v, "shaped")
        case ("tree", *_), ("tree", t, *_):
            return ("rows", name, t, True)
        case ("nodes", of, _, which), ("tree", t, *_):
            return ("rows", name, t, which == "all" and of == t)
        case _, ("tree", t, *_):
            return ("cell rows", name, t, k.names[at], "shaped")
    return None


def _draw(k: Known, op: Op, row: Fact | None) -> Fact | None:
    """A draw of the model's distribution, its own where the noise is the output stream; of a computed one, a draft."""
    noise = op.operands[2 if op.opcode == "draw.many" else 1]
    labels, one = frozenset({(k.names[noise], None)}), op.opcode == "draw"
    fresh, output = k.fresh(op, noise), k.is_output(k.names[noise])
    match row:
        case ("row", model, v, "shaped") if one and (output or fresh and v == k.version):
            return ("token", model, v, "own" if output else "drawn", NONE if output else labels)
        case ("row", model, v, face) if one:
            return ("token", model, v, "inside", NONE) if face in MASS else None
    after = row[1:3] if row is not None and row[0] == "row" and is_row(row, MASS) and op.opcode == "draw.many" else None
    good = fresh and k.names[op.operands[0]] in k.claims["laws"]
    drafts = ("drafts", labels, after) if good else None
    return (
        ("cell tokens", *row[1:4], drafts)
        if row is not None and row[0] == "cell rows" and one and is_row(row, MASS)
        else drafts
    )


def _arg(k: Known, op: Op, row: Fact | None) -> Fact | None:
    """The likeliest token of a model's distribution has mass; where the request is greedy it is the own draw."""
    likeliest = len(op.operands) == 1 and op.attrs["fn"] == "max" and is_row(row, ("shaped", "raw"))
    if row is not None and likeliest:
        own = k.claims["greedy"] and row[-1] == "shaped"
        return ("token", *row[1:3], "own" if own else "inside", NONE) if row[0] == "row" else ("cell tokens", *row[1:4], None)
    return None


def _gather(k: Known, op: Op, column: Fact | None, place: Fact | None) -> Fact | None:
    """A model's distributions at nodes of the tree that they are of, or at positions; draws that are taken out."""
    index = op.operands[1]
    match column, place:
        case ("rows", model, t, _), ("nodes", of, v, "root") if of == t:
            return ("row", model, v, "shaped")
        case ("cell rows", model, c, _, face), _ if len(op.operands) == 2 and index.type.elem == "position":
            return ("cell rows", model, c, k.names[index], face)
        case ("cell tokens", model, c, _, _), _ if len(op.operands) == 2 and index.type.elem == "position":
            return ("cell tokens", model, c, k.names[index], None)
    return column if column is not None and column[0] == "drafts" and not column[1] else None


def _of_draws(op: Op, tree: object) -> bool:
    """Whether an op gives the trees of a name no edges but draws, and none of another name's trees."""
    if op.opcode == "state.write" and op.attrs["type"].elem == "tree" and op.attrs["type"].of[0] == tree:
        return op.operands[0].type.elem == "tree" and op.operands[0].type.of[0] == tree
    if op.opcode not in ("tree.new", "tree.grow") or op.results[0].type.of[0] != tree:
        return True
    return op.operands[1].type.elem == "draw" if op.opcode == "tree.grow" else op.attrs.get("edge", "token") == "token"


def _grows(k: Known, op: Op, labels: Any) -> bool:
    """Whether drafts may be grown: once, in the loops of drawing, and before anything that decides where tells of them."""
    place = op.operands[2:3] if op.attrs.get("has_at") else ()
    if k.tells(labels, op.operands[0], *place) or labels & (k.control | k.stored.get("context", NONE)):
        return False
    for noise, past in labels:
        drawn = k.counters.get(k.by_name[noise])
        if past is not None or not drawn or drawn != k.counters[op.result] or k.grown.setdefault(noise, op) is not op:
            return False
    return True


def _edges(k: Known, op: Op, tree: Fact, drafts: Fact | None) -> str | None:
    """The model that gives mass to every edge that is grown: draws that are grown where they were drawn."""
    at = k.names[op.operands[2]] if op.attrs.get("has_at") else None
    made, before = k.producers.get(op.operands[1]), k.producers.get(op.operands[0])
    match drafts:
        case ("cell tokens", model, t, nodes, _) if t in tree[5] and not op.attrs.get("chain"):
            return model if nodes == at or at is None and made is not None and made.opcode == "draw" else None
        case ("token", model, v, _, _) | ("drafts", _, (model, v)) if v == tree[2] and not op.attrs.get("chain"):
            place = k.of(op.operands[2]) if at is not None else None
            root = place is not None and place[0] == "nodes" and place[3] == "root"
            return model if root or at is None and before is not None and before.opcode == "tree.new" else None
    return None


def _put(k: Known, op: Op) -> str | None:
    """The model that gives mass to what is put at positions of a canvas."""
    tokens = k.of(op.operands[2]) if op.attrs["kind"] == "token" else None
    where, made = op.operands[1], k.producers.get(op.operands[1])
    if tokens is None or tokens[0] != "cell tokens" or tokens[2] != k.names[op.operands[0]]:
        return None
    dims = op.operands[2].type.dims[:1]
    filtered = made is not None and made.opcode == "compact" and tokens[3] == tuple(k.names[v] for v in made.operands)
    right = bool(dims and dims[0].kind == "cells") if tokens[3] is None else filtered or tokens[3] == k.names[where]
    return tokens[1] if right else None


def _map(k: Known, op: Op, xs: list[Fact | None]) -> Fact | None:
    """Rows that have no mass, or scores of -inf, where the model's has none; conditions on depths that the root meets."""
    fn, (a, b) = op.attrs["fn"], (*xs, None)[:2]
    above: Callable[[int], bool] = lambda n: bool(k.numbers.positive(op, op.operands[n]))
    match fn:
        case "log" if a is not None and is_row(a, MASS):
            return faced(a, "logs" if a[-1] == "raw" else "scores")
        case "mul" | "weigh":
            found = weaker(a, MASS) or weaker(b, MASS)
            found = found or (weaker(b, SCORES) if is_row(b, SCORES) and above(0) else None)
            return found or (weaker(a, SCORES) if is_row(a, SCORES) and above(1) else None)
        case "div":
            return weaker(a, MASS) or (weaker(a, SCORES) if is_row(a, SCORES) and above(1) else None)
        case "pow":
            return weaker(a, MASS) if is_row(a, MASS) and above(1) else None
        case "relu" | "sqrt":
            made, row = k.producers.get(op.operands[0]), None
            if fn == "relu" and made is not None and made.attrs.get("fn") == "sub" and is_row(k.of(made.operands[0]), MASS):
                row = k.of(made.operands[0]) if k.numbers.positive(op, made.operands[1], 0) else None
            return weaker(a or row, MASS)  # nothing is left of 0 where something not negative is taken away
        case "mix" | "contrast" | "add":  # what one operand rules out is ruled out
            return weaker(a, SCORES) or weaker(b, SCORES)
        case "sub":
            return weaker(a, SCORES)
        case "select":
            return _select(k, op, xs)
    return None


def _select(k: Known, op: Op, xs: list[Fact | None]) -> Fact | None:
    """Entries of one of two rows, of which one may be 0 or -inf throughout. `where(p.raw > 0, p.logits, -inf)` is p.logits;
    `where(p > 0, any numbers, 0)` has nothing where p has none."""
    test, (a, b), (_, c, d) = k.producers.get(op.operands[0]), xs[1:], [k.constants.get(v) for v in op.operands]
    limit = k.constants.get(test.operands[1]) if test is not None and test.attrs.get("fn") == "gt" else None
    asked = k.of(test.operands[0]) if test is not None and limit == 0 and not isinstance(limit, bool) else None
    if a is not None and a[0] == "row" and is_row(a, ("logits", "logs")) and d in INFINITE and asked == faced(a, "raw"):
        return a
    if a is not None and b is not None and a[0] == "row" and (a == b or not op.operands[0].type.dims):
        if a == b or {a[-1], b[-1]} == {"logits", "logs"} and faced(a, "logs") == faced(b, "logs"):
            return a if a == b else faced(a, "logs")
    for faces, nothing in ((MASS, (0,)), (SCORES, INFINITE)):
        rows = [weaker(x, faces) for x in (a, b)]
        fits = [row is not None or not isinstance(x, bool) and x in nothing for row, x in zip(rows, (c, d))]
        kinds = {row for row in rows if row is not None}
        if all(fits) and len(kinds) == 1:
            return kinds.pop()
        if asked is not None and asked[0] == "row" and is_row(asked, MASS) and not isinstance(d, bool) and d in nothing:
            return faced(asked, "mass" if faces is MASS else "scores")
    return None


# -- distributions: claimed by name, and checked where each is made
MADE = ("model.eval", "model.read", "head.read", "softmax", "warp", "beta", "draw.point", "topk", "index.ask")
PASSED = ("gather", "slice", "compact", "take_first", "sort", "draw", "draw.many", "face", "draw.get", "renorm")


def law(k: Known, v: Value) -> bool:
    """Whether a value is distributions, or draws are of what they state, by what made it and not by its type."""
    claimed: Callable[[Value], bool] = lambda x: k.names.get(x) in k.claims["laws"]
    op = k.producers.get(v)
    if op is not None and op.opcode == "normalize":
        inner = k.producers.get(op.operands[0])
        return claimed(op.operands[0]) or inner is not None and inner.attrs.get("fn") == "relu"
    if op is not None and op.opcode in PASSED:
        return op.attrs.get("face") != "logits" and op.attrs.get("field", "law") == "law" and claimed(op.operands[0])
    if op is not None and op.opcode == "if":
        return all(claimed(r.yields[op.results.index(v)]) for r in op.regions)
    return op is not None and op.opcode in MADE


# -- constants
FOLDED: dict[str, Callable[..., Any]] = {name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "abs", "mod")}
FOLDED |= {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
FOLDED |= {"mix": operator.add, "contrast": operator.sub, "weigh": operator.mul, "minimum": min, "maximum": max}
FOLDED |= {"div": lambda x, y: Fraction(x) / y, "log": lambda x: {1: 0}.get(x)}


def number(x: Any) -> Any:
    """A constant that is a finite number, else None."""
    return x if isinstance(x, int | float | Fraction) and not isinstance(x, bool) and -INF < x < INF else None


def constant(op: Op, known: Mapping[Value, Any]) -> Any:
    """The value that an op makes, of a row that of each entry, where it is known; else None."""
    xs = [known.get(v) for v in op.operands]
    match op.opcode, op.attrs.get("fn"), xs:
        case "len", _, [list() | tuple() as x]:
            return len(x)
        case "list", _, _ if None not in xs:
            return tuple(xs)
        case "tile", _, _ if op.attrs["kind"] == "zeros":
            return 0
        case (("within" | "as_int"), _, [x]) if number(x) is not None:
            return trunc(number(x)) if op.opcode == "as_int" else number(x)
        case "map", "not", [bool() as x]:
            return not x
        case "map", ("and" | "or" as fn), _ if any(x is (fn == "or") for x in xs):
            return fn == "or"
        case "map", ("and" | "or" as fn), _ if all(isinstance(x, bool) for x in xs):
            return fn == "and"
        case "map", "select", [_, x, y] if x is not None and x == y:
            return x
        case "map", ("weigh" | "mul"), _ if any(number(x) == 0 for x in xs):
            return 0  # 0 times anything is 0 in the language
        case "map", fn, _ if fn in FOLDED and all(number(x) is not None for x in xs):
            try:
                return FOLDED[fn](*(x if isinstance(x, int) else Fraction(str(x)) for x in xs))
            except (ArithmeticError, ValueError):
                return None
    return None


def same(op: Op, known: Mapping[Value, Any]) -> Value | None:
    """The operand that a `map` gives back unchanged, in the same shape."""
    fn, xs = op.attrs.get("fn"), op.operands
    c = [number(known.get(v)) for v in xs]
    found: Value | None = None
    if op.opcode == "map" and fn == "select" and isinstance(known.get(xs[0]), bool):
        found = xs[1 if known[xs[0]] else 2]
    elif op.opcode == "map" and len(xs) == 2:
        one = {"mul": 1, "weigh": 1, "add": 0, "mix": 0, "sub": 0, "contrast": 0, "div": 1, "pow": 1}.get(str(fn))
        swaps = fn in ("mul", "weigh", "add", "mix")
        found = None if one is None else xs[0] if c[1] == one else xs[1] if swaps and c[0] == one else None
    wide = found is not None and (len(op.result.type.dims) == len(found.type.dims) or found.type.elem in ("dist", "scores"))
    return found if wide else None
