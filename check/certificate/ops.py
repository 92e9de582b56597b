"""What follows of an op's results from what is claimed of its operands: a rule for each op that has one, by the op's meaning
(docs/reference/ops.md) and the theorems (docs/proof.md). Of an op without a rule nothing may be claimed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import floor, trunc
from typing import TYPE_CHECKING, Any

from decgraph.check.certificate.data import MASS, NONE, SCORES, Fact, one_model
from decgraph.ir.values import Constant, Op, Value

if TYPE_CHECKING:
    from decgraph.check.certificate.following import Pass

POINTS: Fact = ("drafts", NONE, False, False, None)
"""Point masses: certain, whatever chose them."""


def faced(fact: Fact, face: str) -> Fact:
    return (*fact[:-1], face)


def is_row(fact: Fact | None, faces: tuple[str, ...]) -> bool:
    return fact is not None and fact[0] in ("row", "cell rows") and fact[-1] in faces


def reads_noises(k: Pass, op: Op) -> None:
    """What an op makes with a noise depends on it."""
    told = frozenset((k.names[v], None) for v in op.operands if v.type.elem == "noise")
    for v in op.results if told else ():
        k.depends[v] |= told


# -- models
def remembers(k: Pass, model: str, given: Value | None, version: int) -> bool:
    """Whether a call on a memory computes what it computes without: the model's own, of a beginning, no row missing."""
    if given is None:
        return True
    match k.of(given):
        case ("memory", m, v, _, (), False):
            return bool(m == model and v <= version)
    return False


def model_eval(k: Pass, op: Op) -> Fact | None:
    given = dict(zip(op.attrs.get("with", ()), op.operands[2:]))
    model, place, at = k.of(op.operands[0]), k.of(op.operands[1]), op.operands[1]
    if model is None or model[0] != "model" or op.attrs.get("part"):
        return None
    name = model[1]
    if at.type.elem == "canvas":
        where = k.names[given["at"]] if "at" in given else None
        return None if given.keys() - {"at"} else ("cell rows", name, k.names[at], where, "shaped")
    tree = k.of(given["tree"]) if "tree" in given else place
    version = tree[2] if tree and tree[0] == "tree" else tree[1] if tree and tree[0] == "context" else -1
    if given.keys() - {"tree", "given"} or not remembers(k, name, given.get("given"), version):
        return None
    match place, tree:
        case ("context", v, False), _:
            return ("row", name, v, "shaped")
        case ("nodes", _, _, "root"), ("tree", _, v, *_):
            return ("row", name, v, "shaped")
        case ("tree", *_), ("tree", t, *_):
            return ("rows", name, t, True)
        case ("nodes", of, _, which), ("tree", t, *_):
            return ("rows", name, t, which == "all" and of == t)
        case _, ("tree", t, *_):
            return ("cell rows", name, t, k.names[at], "shaped")
    return None


def model_read(k: Pass, op: Op) -> Fact | None:
    match k.of(op.operands[0]), k.of(op.operands[1]):
        case ("model", name), ("piece", start, end) if not op.attrs.get("each") and k.numbers.whole_context(op, start, end):
            given = op.operands[2] if op.attrs.get("given") else None
            return ("row", name, k.version, "shaped") if remembers(k, name, given, k.version) else None
    return None


def face(k: Pass, op: Op) -> Fact | None:
    """The other faces are the model's where the row is what the model returned; a computed row has one face only."""
    made = k.made.get(op.operands[0])
    while made is not None and made.opcode == "gather":
        made = k.made.get(made.operands[0])
    row = k.of(op.operands[0])
    returned = made is not None and made.opcode in ("model.eval", "model.read")
    return faced(row, op.attrs["face"]) if row is not None and returned and is_row(row, ("shaped",)) else None


def softmax(k: Pass, op: Op) -> Fact | None:
    row = k.of(op.operands[0])
    return faced(row, "mass") if row is not None and is_row(row, SCORES) else None


def normalize(k: Pass, op: Op) -> Fact | None:
    """What sums to one stays what it is; tokens without mass stay without."""
    row = k.of(op.operands[0])
    if row is None or row[0] == "rows" or is_row(row, ("shaped",)):
        return row
    return faced(row, "mass") if is_row(row, MASS) else None


def warp(k: Pass, op: Op) -> Fact | None:
    """The request's shaping of a model's own scores at their own place is its distribution."""
    row = k.of(op.operands[0])
    place = k.of(op.operands[1]) if len(op.operands) > 1 else ("context", k.version, False)
    if row is not None and row[0] == "row" and place == ("context", row[2], False):
        if row[3] == "logits" or row[3] == "logs" and "log-probabilities" in k.certificate.premises:
            return faced(row, "shaped")
    return softmax(k, op)


def renorm(k: Pass, op: Op) -> Fact | None:
    """Tokens without mass stay without; a nucleus with all of the mass is the distribution."""
    row = k.of(op.operands[0])
    if row is None or not is_row(row, MASS):
        return None
    whole = op.attrs["kind"] == "topp" and k.constants.get(op.operands[1]) == 1 and row[-1] != "mass"
    return row if whole else faced(row, "mass")


# -- draws
def draw(k: Pass, op: Op) -> Fact | None:
    row, noise = k.of(op.operands[0]), op.operands[1]
    name = k.names[noise]
    fresh, output = k.fresh(op, noise), k.is_output(name)
    labels = frozenset({(name, None)})
    match row:
        case ("row", model, v, "shaped"):
            how = "own" if output else "drawn" if fresh and v == k.version else "inside"
            return ("token", model, v, how, labels if how == "drawn" else NONE)
        case ("row", model, v, ("raw" | "mass")):
            return ("token", model, v, "inside", NONE)
        case ("row", *_):
            return None
        case ("rows", model, t, True) if output:
            return ("tokens", model, t)
    drafts = ("drafts", labels, False, False, None) if fresh and law(k, op.operands[0]) else None
    if row is not None and row[0] == "cell rows" and is_row(row, MASS):
        return ("cell tokens", *row[1:4], drafts)
    return drafts


def draw_many(k: Pass, op: Op) -> Fact | None:
    row, noise = k.of(op.operands[0]), op.operands[2]
    after = (row[1], row[2]) if row is not None and row[0] == "row" and is_row(row, MASS) else None
    good = k.fresh(op, noise) and law(k, op.operands[0])
    return ("drafts", frozenset({(k.names[noise], None)}), False, False, after) if good else None


def draw_race(k: Pass, op: Op) -> Fact | None:
    good = k.fresh(op, op.operands[1]) and law(k, op.operands[0])
    return ("drafts", frozenset({(k.names[op.operands[1]], None)}), True, False, None) if good else None


def draw_point(k: Pass, op: Op) -> Fact | None:
    tokens = k.of(op.operands[0])
    return (*tokens[:4], POINTS) if tokens is not None and tokens[0] == "cell tokens" else POINTS


def draw_get(k: Pass, op: Op) -> Fact | None:
    known = k.of(op.operands[0])
    kept = known is not None and known[0] in ("token", "tokens", "cell tokens", "picked")
    return known if op.attrs["field"] == "token" and kept else None


def points(k: Pass, op: Op) -> Fact | None:
    """A choice among point masses is of point masses; sampled draws that are chosen are not draws of what they state."""
    known = k.of(op.operands[0]) if op.operands else None
    return known if known is not None and known[0] == "drafts" and not known[1] else None


def stated(k: Pass, op: Op) -> Fact | None:
    return POINTS if op.result.type.elem == "draw" else None


def top(k: Pass, op: Op) -> Fact | None:
    """The first of a race are draws without replacement."""
    known, keys = k.of(op.operands[0]), op.operands[2:]
    match known:
        case ("drafts", labels, True, _, _) if labels:
            made = [k.made.get(v) for v in keys]
            own = all(o is not None and o.opcode == "draw.get" and o.operands[0] is op.operands[0] for o in made)
            by_race = op.attrs.get("by_race") and own and not k.tells(labels, op.operands[1])
            return ("drafts", labels, False, False, None) if by_race else None
    return points(k, op)


def arg(k: Pass, op: Op) -> Fact | None:
    """The likeliest token of a model's distribution has mass; where the request is greedy it is the own draw."""
    row, x = k.of(op.operands[0]), op.operands[0]
    likeliest = len(op.operands) == 1 and op.attrs["fn"] == "max" and is_row(row, ("shaped", "raw"))
    if row is not None and row[0] == "cell rows" and likeliest:
        return ("cell tokens", *row[1:4], None)
    if len(op.operands) > 1 and x.type.elem in ("position", "draw", "token") and not op.result.type.dims:
        tokens = row if row is not None and row[0] == "cell tokens" else None
        of = tokens[3] if tokens is not None and isinstance(tokens[3], str) else k.names[x]
        return ("picked", of, (op.attrs["fn"], *(k.names[v] for v in op.operands[1:])), tokens)
    if row is not None and row[0] == "row" and likeliest:
        return ("token", row[1], row[2], "own" if k.certificate.greedy and row[3] == "shaped" else "inside", NONE)
    return None


# -- lists and vectors
def gather(k: Pass, op: Op) -> Fact | None:
    column, index = k.of(op.operands[0]), op.operands[1:]
    place = k.of(index[0]) if index else None
    one = len(index) == 1
    if column is not None and column[0] == "cell tokens" and index and index[0].type.elem != "position":
        column = column[4]
    match column, place:
        case ("alone", inner), _ if one and not index[0].type.dims:
            return inner  # type: ignore[no-any-return]
        case ("rows", model, t, _), ("nodes", of, v, "root") if of == t:
            return ("row", model, v, "shaped")
        case ("rows", _, t, _), ("nodes", of, _, "all") if of == t:
            return column
        case ("cell rows", model, c, _, shape), _ if one and index[0].type.elem == "position":
            return ("cell rows", model, c, k.names[index[0]], shape)
        case ("cell tokens", model, c, _, _), _ if one and index[0].type.elem == "position":
            return ("cell tokens", model, c, k.names[index[0]], None)
        case ("drafts", labels, False, single, after), _ if op.result.type.elem == "draw":
            if not labels:
                return column
            if k.tells(labels, *index):
                return None
            if _of_level(k, index):
                return column
            if one and not index[0].type.dims and index[0].type.elem == "int":
                return ("drafts", labels, False, True, None)
    return None


def _of_level(k: Pass, index: tuple[Value, ...]) -> bool:
    """Whether an index is [level.parent, level.rank]: each pair occurs once, in the order of drawing."""
    made = [k.made.get(v) for v in index]
    fields = [o.attrs["field"] if o is not None and o.opcode == "level.get" else None for o in made]
    return fields == ["parent", "rank"] and made[0].operands == made[1].operands  # type: ignore[union-attr]


def compact(k: Pass, op: Op) -> Fact | None:
    """Some nodes, the root among them, where the condition is true there."""
    kept = k.of(op.operands[1])
    match k.of(op.operands[0]), kept:
        case ("nodes", t, v, "all"), ("column", of, holds) if of == t and holds != "depth":
            return ("nodes", t, v, "all" if holds == "everywhere" else "some")
        case ("cell tokens", model, c, str() as at, _), _:
            return ("cell tokens", model, c, (at, k.names[op.operands[1]]), None)
    return points(k, op)


def take_first(k: Pass, op: Op) -> Fact | None:
    """The first of some draws, where what they turned out to be does not say how many."""
    match k.of(op.operands[0]):
        case ("drafts", labels, False, _, _) as drafts if not k.tells(labels, op.operands[1]):
            return drafts
    return points(k, op)


def concat(k: Pass, op: Op) -> Fact | None:
    a, b = (k.of(v) for v in op.operands)
    for v, other in zip(op.operands, (b, a)):
        if other is not None and other[0] in ("piece", "alone") and k.numbers.empty(op, v):
            return other
    match a, b:
        case ("piece", start, end), ("piece", again, last) if k.numbers.equal(op, end, again):
            return ("piece", start, last)
        case ("drafts", labels, False, False, _), ("drafts", others, False, False, _) if op.result.type.elem == "draw":
            told = labels & others or k.tells(others, op.operands[0])
            return None if told else ("drafts", labels | others, False, False, None)
    return None


def list_(k: Pass, op: Op) -> Fact | None:
    known = k.of(op.operands[0]) if len(op.operands) == 1 else None
    return None if known is None else ("alone", known)


def slice_(k: Pass, op: Op) -> Fact | None:
    known, first = k.of(op.operands[0]), not op.attrs.get("has_lo")
    match known:
        case ("tokens", model, t) if first and k.numbers.single(op):
            tree = k.facts.get(t)
            return ("path", model, tree[2], "own", NONE) if tree is not None and tree[0] == "tree" and tree[1] == t else None
        case ("cell tokens", model, c, None, _) if first:
            return ("cell tokens", model, c, None, None)
        case ("piece", start, end):
            return k.numbers.sliced(op, start, end)
    return points(k, op)


def same_draws(k: Pass, op: Op) -> Fact | None:
    return k.of(op.operands[0])


# -- trees
def context(k: Pass, op: Op) -> Fact | None:
    return ("context", k.version, bool(op.attrs.get("parent")))


def tree_new(k: Pass, op: Op) -> Fact | None:
    base, name = k.of(op.operands[0]) if op.operands else ("context", k.version, False), k.names[op.result]
    if base is None or base[0] != "context" or base[2] or op.attrs.get("edge", "token") != "token":
        return None
    return ("tree", name, base[1], NONE, True, frozenset({name}), "")


def tree_continue(k: Pass, op: Op) -> Fact | None:
    """A carried tree stands on the context as it is now; of its drafts nothing is known. What starts as `empty` does not say
    what its edges are: they are tokens where all that grows such a tree anywhere is draws."""
    name, edge, *_ = op.result.type.of
    if edge != "token" and not (edge == "any" and all(_draws(o, name) for o in k.function.body.walk())):
        return None
    return ("tree", k.names[op.result], k.version, NONE, False, frozenset({k.names[op.result]}), None)


def _draws(op: Op, tree: object) -> bool:
    if op.opcode == "state.write" and op.attrs["type"].elem == "tree" and op.attrs["type"].of[0] == tree:
        return op.operands[0].type.elem == "tree" and op.operands[0].type.of[0] == tree
    if op.opcode not in ("tree.new", "tree.grow") or op.results[0].type.of[0] != tree:
        return True
    return op.operands[1].type.elem == "draw" if op.opcode == "tree.grow" else op.attrs.get("edge", "token") == "token"


def tree_grow(k: Pass, op: Op) -> Fact | None:
    """What drafts state stays true where they are fresh, grown once, in the order and the loops of drawing, and where nothing
    that decides where they grow depends on them."""
    tree, drafts, name = k.of(op.operands[0]), k.of(op.operands[1]), k.names[op.results[0]]
    if tree is None or tree[0] != "tree" or op.operands[1].type.elem != "draw":
        return None
    _, _, version, labels, true, grown, inside = tree
    inside = one_model(inside, _edges(k, op, tree, drafts))
    if drafts is not None and drafts[0] == "token" and drafts[3] == "drawn":
        drafts = ("drafts", drafts[4], False, False, None)
    if drafts is not None and drafts[0] == "cell tokens":
        drafts = drafts[4]
    known = drafts is not None and drafts[0] == "drafts" and not drafts[2]
    if known and drafts is not None:
        labels, true = labels | drafts[1], true and _grows(k, op, drafts[1])
    return ("tree", name, version, labels, true and known, grown | {name}, inside)


def _grows(k: Pass, op: Op, labels: Any) -> bool:
    place = op.operands[2:3] if op.attrs.get("has_at") else ()
    if k.tells(labels, op.operands[0], *place) or labels & (k.control | k.stored.get("context", NONE)):
        return False
    for noise, past in labels:
        value = k.by_name[noise]
        here = k.counters[value] and k.counters[value] == k.counters[op.result]
        if past is not None or not here or k.grown.setdefault(noise, op) is not op:
            return False
    return True


def _edges(k: Pass, op: Op, tree: Fact, drafts: Fact | None) -> str | None:
    """The model that gives mass to every edge that is grown: draws that are grown where they were drawn."""
    at = k.names[op.operands[2]] if op.attrs.get("has_at") else None
    if op.attrs.get("chain"):
        return None
    made = k.made.get(op.operands[1])
    match drafts:
        case ("cell tokens", model, t, nodes, _) if t in tree[5]:
            return model if nodes == at or at is None and made is not None and made.opcode == "draw" else None
        case ("token", model, v, _, _) | ("drafts", _, _, _, (model, v)) if v == tree[2]:
            before = k.made.get(op.operands[0])
            bare = before is not None and before.opcode == "tree.new" and at is None
            place = k.of(op.operands[2]) if at is not None else None
            return model if bare or place is not None and place[0] == "nodes" and place[3] == "root" else None
    return None


def tree_keep(k: Pass, op: Op) -> Fact | None:
    """The nodes that stay are those of the tree, with other numbers. Sampled ones may stay or go by what they turned out to be."""
    tree, name = k.of(op.operands[0]), k.names[op.result]
    if tree is None or tree[0] != "tree":
        return None
    return ("tree", name, *tree[2:4], tree[4] and not tree[3], frozenset({name}), tree[6])


def best_first(k: Pass, op: Op) -> Fact | None:
    """What an index says comes next is certain, and no model need give mass to it."""
    tree, name = k.of(op.operands[0]), k.names[op.results[0]]
    if tree is None or tree[0] != "tree":
        return None
    return ("tree", name, *tree[2:5], tree[5] | {name}, None)


def tree_nodes(k: Pass, op: Op) -> Fact | None:
    match k.of(op.operands[0]), op.attrs["which"]:
        case ("tree", t, v, *_), ("all" | "root" as which):
            return ("nodes", t, v, which)
    return None


def tree_get(k: Pass, op: Op) -> Fact | None:
    match k.of(op.operands[0]):
        case ("tree", t, *_) if op.attrs["column"] == "depth":
            return ("column", t, "depth")
    return None


# -- canvases
def canvas_new(k: Pass, op: Op) -> Fact | None:
    return ("canvas", "", k.version)


def canvas_extend(k: Pass, op: Op) -> Fact | None:
    known = k.of(op.operands[0])
    return known if known is not None and known[0] == "canvas" else None


def canvas_put(k: Pass, op: Op) -> Fact | None:
    """Tokens that the model gives mass to on this very canvas, at the positions where they are put."""
    canvas, kind = k.of(op.operands[0]), op.attrs["kind"]
    if canvas is None or canvas[0] != "canvas" or kind != "token":
        return canvas if canvas is not None and canvas[0] == "canvas" and kind == "mask" else None
    where, tokens, name = op.operands[1], k.of(op.operands[2]), k.names[op.operands[0]]
    right = False
    match tokens:
        case ("cell tokens", _, c, at, _):
            dims, made = op.operands[2].type.dims[:1], k.made.get(where)
            if at is None:
                right = bool(c == name and dims and dims[0].kind == "cells")
            else:
                filtered = made is not None and made.opcode == "compact" and at == tuple(k.names[v] for v in made.operands)
                right = bool(c == name and (at == k.names[where] or filtered))
        case ("edit", _, c, _):
            right = bool(c == name and k.of(where) == tokens)
    if not right or tokens is None or canvas[1] not in ("", tokens[1]):
        return None
    return ("canvas", tokens[1], canvas[2])


def edit(k: Pass, op: Op) -> Fact | None:
    """A position and the token that was drawn there, picked out by the same keys."""
    match tuple(k.of(v) for v in op.operands):
        case (("picked", of, keys, _), ("picked", again, same_keys, tuple() as tokens)) if (of, keys) == (again, same_keys):
            return ("edit", tokens[1], tokens[2], k.names[op.result])
    return None


def edit_get(k: Pass, op: Op) -> Fact | None:
    known = k.of(op.operands[0])
    return known if known is not None and known[0] == "edit" else None


# -- arithmetic
def map_(k: Pass, op: Op) -> Fact | None:
    """Rows that have no mass, or scores of -inf, where the model's has none; conditions on depths that the root meets."""
    fn, args = op.attrs["fn"], [k.of(v) for v in op.operands]
    first = args[0]
    if first is not None and first[0] == "column" and first[2] == "depth" and len(args) == 2:
        limit = op.operands[1]
        if fn == "ge" and k.constants.get(limit) == 0:
            return ("column", first[1], "everywhere")
        return ("column", first[1], "at root") if fn == "lt" and k.numbers.at_least(op, limit, 1) else None
    if fn == "mod" and first is not None and first[0] == "token":  # of the number of tokens
        made = k.made.get(op.operands[1])
        return first if made is not None and made.opcode == "vocab_size" else None
    mass = [x if is_row(x, MASS) else None for x in args]
    scores = [x if is_row(x, SCORES) else None for x in args]
    above = [lambda n=n: k.numbers.positive(op, op.operands[n]) for n in range(len(args))]  # type: ignore[misc]
    row: Fact | None = None
    match fn:
        case "log" if mass[0] is not None:
            return faced(mass[0], "logs" if mass[0][-1] == "raw" else "scores")
        case "mul" | "weigh":
            row = mass[0] or mass[1] or (scores[1] if scores[1] and above[0]() else None)
            row = row or (scores[0] if scores[0] and above[1]() else None)
        case "div":
            row = mass[0] or (scores[0] if scores[0] and above[1]() else None)
        case "pow":
            row = mass[0] if mass[0] and above[1]() else None
        case "relu" | "sqrt":
            row = mass[0] or (_less(k, op) if fn == "relu" else None)
        case "mix" | "contrast":  # what one operand rules out is ruled out
            row = scores[0] or scores[1]
        case "add" | "sub":
            row = scores[0] or (scores[1] if fn == "add" else None)
        case "exp" if scores[0] is not None:
            return faced(scores[0], "mass")
        case "select":
            return _select(k, op, args)
    return None if row is None else faced(row, "scores" if row[-1] in SCORES else "mass")


def _less(k: Pass, op: Op) -> Fact | None:
    """`relu(p - x)` with x not negative is 0 where p is."""
    made = k.made.get(op.operands[0])
    if made is None or made.opcode != "map" or made.attrs["fn"] != "sub":
        return None
    row = k.of(made.operands[0])
    return row if is_row(row, MASS) and k.numbers.positive(op, made.operands[1], strict=False) else None


def _select(k: Pass, op: Op, args: list[Fact | None]) -> Fact | None:
    """Entries of one of two rows, of which one may be 0, or -inf, throughout. `where(p.raw > 0, p.logits, -inf)` is p.logits."""
    test, constants = k.made.get(op.operands[0]), [k.constants.get(v) for v in op.operands]
    scores = args[1]
    infinite = ("-inf", -float("inf"))
    if scores is not None and is_row(scores, ("logits", "logs")) and scores[0] == "row" and constants[2] in infinite:
        if test is not None and test.opcode == "map" and test.attrs.get("fn") == "gt":
            limit = k.constants.get(test.operands[1])
            if k.of(test.operands[0]) == faced(scores, "raw") and limit == 0 and not isinstance(limit, bool):
                return scores
    if args[1] is not None and args[1] == args[2] and args[1][0] == "row":
        return args[1]
    if not op.operands[0].type.dims and args[1] is not None and args[2] is not None and args[1][0] == "row":
        if faced(args[1], "logs") == faced(args[2], "logs") and {args[1][-1], args[2][-1]} == {"logits", "logs"}:
            return faced(args[1], "logs")
    for faces, nothing, weak in ((MASS, (0,), "mass"), (SCORES, infinite, "scores")):
        rows = [faced(x, weak) for x in args[1:] if x is not None and is_row(x, faces)]
        zero = [not isinstance(c, bool) and c in nothing for c in constants[1:]]
        if rows and rows[0] == rows[-1] and all(is_row(x, faces) or z for x, z in zip(args[1:], zero)):
            return rows[0]
    return None


def within(k: Pass, op: Op) -> Fact | None:
    return k.of(op.operands[0])


def as_int(k: Pass, op: Op) -> Fact | None:
    token = k.of(op.operands[0])
    return token if token is not None and token[0] == "token" and op.operands[0].type.of[:1] == ("V",) else None


def request(k: Pass, op: Op) -> Fact | None:
    return k.numbers.prompt(op) if op.attrs["field"] == "prompt" else None


def ctx_get(k: Pass, op: Op) -> Fact | None:
    return k.numbers.last(op)


def model_derive(k: Pass, op: Op) -> Fact | None:
    """A model of which no layer is left out is the model."""
    none = op.attrs["how"] == "skip" and all(v.type.elem != "set" and k.numbers.empty(op, v) for v in op.operands[1:])
    return k.of(op.operands[0]) if none else None


Rule = Callable[["Pass", Op], "Fact | None"]
RULES: dict[str, Rule] = {
    **{"model.eval": model_eval, "model.read": model_read, "model.derive": model_derive, "face": face, "softmax": softmax},
    **{"normalize": normalize, "warp": warp, "renorm": renorm, "draw": draw, "draw.many": draw_many, "draw.race": draw_race},
    **{"draw.point": draw_point, "draw.get": draw_get, "topk": stated, "index.ask": stated, "select.top": top, "arg": arg},
    **{"gather": gather, "compact": compact, "take_first": take_first, "concat": concat, "list": list_, "slice": slice_},
    **{"sort": points, "tile": points, "context": context, "tree.new": tree_new, "tree.continue": tree_continue},
    **{"tree.grow": tree_grow, "tree.keep": tree_keep, "tree.best_first": best_first, "tree.set": same_draws},
    **{"tree.front": same_draws, "tree.nodes": tree_nodes, "tree.get": tree_get, "canvas.new": canvas_new},
    **{"canvas.extend": canvas_extend, "canvas.put": canvas_put, "edit": edit, "edit.get": edit_get, "map": map_},
    **{"within": within, "as_int": as_int, "request": request, "ctx.get": ctx_get},
}


# -- distributions, and numbers that are not negative
def law(k: Pass, v: Value) -> bool:
    """Whether the certificate claims that a value is distributions: the pass checks each such claim where the value is made."""
    return k.names.get(v) in k.certificate.laws


def sums_rule(k: Pass, v: Value) -> bool:
    op = k.made.get(v)
    if op is None:
        return False
    match op.opcode:
        case "model.eval" | "model.read" | "head.read" | "softmax" | "warp" | "beta" | "draw.point" | "topk" | "index.ask":
            return True
        case "normalize" | "renorm":
            return k.names[op.operands[0]] in k.certificate.positive
        case "face":
            return op.attrs["face"] != "logits" and law(k, op.operands[0])
        case "gather" | "slice" | "compact" | "take_first" | "sort" | "select.top" | "draw" | "draw.many" | "draw.race":
            return law(k, op.operands[0])
        case "draw.get":
            return op.attrs["field"] == "law" and law(k, op.operands[0])
    return _everywhere(k, v, lambda x: law(k, x))


def positive_rule(k: Pass, v: Value) -> bool:
    claimed = lambda x: k.names.get(x) in k.certificate.positive
    op = k.made.get(v)
    if v.type.elem == "bool" or k.numbers.low(v) >= 0:
        return True
    if op is None:
        return False
    match op.opcode:
        case "model.eval" | "model.read" | "head.read" | "softmax" | "warp" | "beta" | "len" | "rank" | "index.ask":
            return True
        case "face":
            return op.attrs["face"] != "logits" and claimed(op.operands[0])
        case "map":
            fn = op.attrs["fn"]
            kept = "add mul weigh mix minimum maximum div pow floor select".split()
            return fn in ("relu", "exp", "sqrt", "abs") or fn in kept and all(map(claimed, op.operands))
        case "normalize" | "renorm" | "lookup" | "reduce" | "scan" | "gather" | "slice" | "compact" | "take_first" | "sort":
            return claimed(op.operands[0])
        case "select.top":
            return claimed(op.operands[0])
        case "concat" | "list" | "tile":
            return op.attrs.get("kind") == "zeros" or all(map(claimed, op.operands))
        case "draw.get":
            return op.attrs["field"] == "law" and law(k, v)
    return _everywhere(k, v, claimed)


def _everywhere(k: Pass, v: Value, holds: Callable[[Value], bool]) -> bool:
    """Of what a branch or a column of a tree yields: of all that it may be."""
    op = k.made[v]
    n = op.results.index(v)
    if op.opcode == "if":
        return all(holds(r.yields[n]) for r in op.regions)
    if op.opcode in ("for", "while"):  # the pass asks it of the carried value, at the head and at the end of the body
        many = len(op.results)
        return holds(op.operands[len(op.operands) - many + n]) and holds(op.regions[-1].yields[n - many])
    return op.opcode == "tree.get" and _column(k, op, holds)


def carried_rule(op: Op, n: int, holds: Callable[[Value], bool]) -> bool:
    """Of the n-th value that a loop carries: at its start, and as its body leaves it."""
    many = len(op.results)
    return holds(op.operands[len(op.operands) - many + n]) and holds(op.regions[-1].yields[n - many])


def _column(k: Pass, read: Op, holds: Callable[[Value], bool]) -> bool:
    """A column holds what is written to it anywhere, and a node what is grown anywhere."""
    name, writes = read.attrs["column"], []
    for op in k.function.body.walk():
        if op.opcode == "tree.grow" and name in ("law", "draw") and op.operands[1].type.elem == "draw":
            writes.append(op.operands[1])
        if op.opcode == "tree.set" and op.attrs["column"] == name:
            writes.append(op.operands[2])
        if op.opcode == "tree.grow" and name in op.attrs.get("columns", ()):
            writes.append(op.operands[(3 if op.attrs.get("has_at") else 2) + op.attrs["columns"].index(name)])
    return bool(writes) and all(map(holds, writes))


# -- constants
def number(x: object) -> Any:
    return x if isinstance(x, int | float | Fraction) and not isinstance(x, bool) and abs(x) < float("inf") else None


def constant(op: Op, known: Mapping[Value, Constant], numbers: Any) -> Constant:
    """The value that an op makes, of a row that of each entry, where it is known; else None."""
    xs = [known.get(v) for v in op.operands]
    if len(op.results) != 1 or op.opcode not in ("map", "len", "list", "gather", "within", "as_int", "tile"):
        return None
    match op.opcode, op.attrs.get("fn"), xs:
        case "len", _, [list() | tuple() as x]:
            return len(x)
        case "list", _, _:
            return tuple(xs) if xs and None not in xs else () if not xs else None
        case "gather", _, [list() | tuple() as x, *_]:
            return x[0] if x and all(y == x[0] for y in x) else None
        case "tile", _, _:
            return 0 if op.attrs["kind"] == "zeros" else None
        case "within", _, [x]:
            return number(x)  # type: ignore[no-any-return]
        case "as_int", _, [x]:
            return None if number(x) is None else trunc(number(x))
        case "map", "not", [bool() as x]:
            return not x
        case "map", "and", _ if False in [x for x in xs if isinstance(x, bool)]:
            return False
        case "map", "or", _ if True in [x for x in xs if isinstance(x, bool)]:
            return True
        case "map", "select", [_, x, y] if x is not None and x == y:
            return x
        case "map", ("weigh" | "mul"), _ if any(number(x) == 0 for x in xs):
            return 0  # 0 times anything is 0 in the language
        case "map", fn, _ if fn in FOLDED and len(xs) == len([x for x in map(number, xs) if x is not None]):
            try:
                return FOLDED[fn](*(x if isinstance(x, int) else Fraction(str(x)) for x in xs))
            except (ArithmeticError, ValueError):
                return None
    return None


FOLDED: Mapping[str, Callable[..., Any]] = {
    **{"add": operator.add, "mix": operator.add, "sub": operator.sub, "contrast": operator.sub, "mul": operator.mul},
    **{"weigh": operator.mul, "neg": operator.neg, "minimum": min, "maximum": max, "abs": abs, "mod": operator.mod},
    **{"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge},
    **{"div": lambda x, y: Fraction(x) / y, "relu": lambda x: max(x, 0), "floor": floor},
    **{"clamp": lambda x, low, high: min(max(x, low), high), "exp": lambda x: {0: 1}.get(x), "log": lambda x: {1: 0}.get(x)},
}


def same(op: Op, known: Mapping[Value, Constant]) -> Value | None:
    """The operand that a `map` gives back unchanged, in the same shape."""
    if op.opcode != "map":
        return None
    fn, xs = op.attrs["fn"], op.operands
    c = [number(known.get(v)) for v in xs]
    found: Value | None = None
    match fn:
        case "select" if isinstance(known.get(xs[0]), bool):
            found = xs[1 if known[xs[0]] else 2]
        case "mul" | "weigh":
            found = xs[1] if c[0] == 1 else xs[0] if c[1] == 1 else None
        case "add" | "mix":
            found = xs[1] if c[0] == 0 else xs[0] if c[1] == 0 else None
        case "sub" | "contrast":
            found = xs[0] if c[1] == 0 else None
        case "div" | "pow":
            found = xs[0] if c[1] == 1 else None
    wide = found is not None and (len(op.result.type.dims) == len(found.type.dims) or found.type.elem in ("dist", "scores"))
    return found if wide else None
