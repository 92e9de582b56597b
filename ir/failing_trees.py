"""What ops over trees, models, canvases and requests may fail at (ir/failing.py)."""

from __future__ import annotations

from decgraph.ir.expressions import Expressions
from decgraph.ir.values import Op, Value

NODE, LENGTHS = "there may be no such node", "its vectors may have different lengths"
PLACE = "`as output` needs an index where a distribution has no place of its own"


def nodes_of(k: Expressions, nodes: Value, tree: Value, seen: frozenset[tuple[Value, Value]] = frozenset()) -> bool:
    """Whether nodes are nodes of this very tree."""
    op = k.producers.get(nodes)
    if (nodes, tree) in seen:
        return True
    if len(seen) > 30:
        return False
    seen |= {(nodes, tree)}
    carried, other = k.carried(nodes), k.carried(k.tree(tree))
    if carried is not None and other is not None and carried[0] is other[0]:
        return all(nodes_of(k, a, b, seen) for a, b in zip(k.ways(nodes), k.ways(k.tree(tree)), strict=True))
    if carried is not None:
        bases = [
            a for a in (*carried[0].regions[-1].args, *carried[0].results) if a.type.elem == "tree" and k.grown_to(a, tree)
        ]
        return any(nodes_of(k, nodes, base, seen) for base in bases)
    if op is None:
        counted = next((c for c in k.counters.values() if c.opcode == "each" and c.regions[0].args[-1] is nodes), None)
        return counted is not None and nodes_of(k, counted.operands[0], tree, seen)
    match op.opcode:
        case "if":
            made = k.producers.get(k.tree(tree))
            both = made is op
            ways = k.ways(k.tree(tree)) if both else (tree, tree)
            return all(nodes_of(k, a, b, seen) for a, b in zip(k.ways(nodes), ways, strict=True))
        case "tree.nodes":
            return op.attrs["which"] == "root" or k.grown_to(op.operands[0], tree)
        case "tree.grow":
            return k.grown_to(op.results[0], tree)
        case "tree.get":
            return op.attrs["column"] == "parent" and k.grown_to(op.operands[0], tree)
        case "concat" | "list":
            return all(nodes_of(k, x, tree, seen) for x in op.operands)
        case "compact" | "slice" | "select.top" | "take_first" | "gather" | "arg" | "batch.top":
            return op.operands[0].type.elem == "node" and nodes_of(k, op.operands[0], tree, seen)
        case "const":
            return bool(op.attrs["value"] == 0)
    return False


def _folds(k: Expressions, op: Op) -> str:
    return "" if k.rows(op.operands[1]) == ("nodes", k.tree(op.operands[0])) else "its vectors may have different lengths"


def _grow(k: Expressions, op: Op) -> str:
    """Draws at nodes of this tree: named ones, or those where their distributions were evaluated."""
    t, what, *rest = op.operands
    at = rest[0] if op.attrs.get("has_at") else None
    columns = rest[at is not None :]
    if any(v.type.dims and k.rows(v) != k.rows(what) for v in columns) or what.type.elem not in ("draw", "edit"):
        return LENGTHS
    if at is not None and not nodes_of(k, at, t):
        return NODE
    if op.attrs.get("chain"):
        return "" if at is None or not at.type.dims or k.filled(at) else "there may be no node to grow at"
    if at is not None and at.type.dims and what.type.dims and k.rows(at) != k.rows(what):
        return LENGTHS
    return "" if at is not None or _placed(k, what, t) else NODE


def _placed(k: Expressions, draws: Value, t: Value, deep: int = 8) -> bool:
    """Whether draws have a place in a tree: where their distribution was evaluated, or none, which is the frontier."""
    op = k.producers.get(draws)
    if op is None or not deep:
        return False
    match op.opcode:
        case "if":
            return all(_placed(k, w, t, deep - 1) for w in k.ways(draws))
        case "draw.point":
            return True
        case "model.eval":
            place = op.operands[1]
            return (
                not place.type.dims and place.type.of[0] == "ctx" or nodes_of(k, place, t)
                if place.type.elem == "node"
                else False
            )
        case "map":
            return all(_placed(k, x, t, deep - 1) for x in op.operands if x.type.elem in ("dist", "scores") or x.type.dims)
        case "tree.get" | "tile" | "rank" | "state.read" | "head.read":
            return False
        case _ if op.operands:
            return _placed(k, op.operands[0], t, deep - 1)
    return False


def _eval(k: Expressions, op: Op) -> str:
    """A model is called at nodes of the tree that they are said to be of, and reads a token at least."""
    place, extra = op.operands[1], op.attrs.get("with", op.attrs.get("named", ()))
    if op.opcode == "model.read":
        return "" if op.attrs.get("each") or k.filled(place) else "its text may be empty"
    if op.opcode == "model.eval" and "allow" in extra:
        return "no token may be allowed"
    if place.type.elem == "node" and place.type.of[0] == "ctx":
        memory = op.opcode in ("model.memory", "model.states")
        return "" if place.type.dims or memory or k.whole(place) else "the context's parent may be empty"
    if place.type.elem != "node":
        return ""
    trees = [v for v in op.operands[2:] if v.type.elem == "tree"]
    return "" if len(trees) == 1 and "tree" in (*extra, "tree") and nodes_of(k, place, trees[0]) else NODE


def _text(k: Expressions, op: Op) -> str:
    return "" if op.attrs["field"] != "token" or k.whole(op.operands[0]) else "the context's parent may be empty"


def _walk(k: Expressions, op: Op) -> str:
    """A walk reads the evidence at the nodes that it comes to."""
    return "" if k.rows(op.operands[1]) == ("nodes", k.tree(op.operands[0])) else LENGTHS


def _field(k: Expressions, op: Op) -> str:
    """Where little was left to draw some draws are none, which come from no distribution."""
    v = op.operands[0]
    while (made := k.producers.get(v)) is not None and made.opcode in ("gather", "slice", "compact", "take_first"):
        v = made.operands[0]
    grown = any(v in o.regions[0].args for o in k.function.body.walk() if o.opcode == "tree.walk")
    there = made is not None and made.opcode in ("draw", "draw.point", "topk", "tree.get")
    return "" if there or grown or op.attrs["field"] != "law" else "a draw may be none"


def _token(k: Expressions, op: Op) -> str:
    """A number is a token where it is cut to the vocabulary; the end token may be none where it is only to be compared with."""
    made = k.producers.get(op.operands[0])
    if made is not None and made.opcode == "tile":
        made = k.producers.get(made.operands[0])
    if op.operands[0].type.elem != "int":
        none = made is not None and made.opcode == "request" and made.attrs["field"] == "eos_or_none"
        return "it may be no token of the vocabulary" if none else ""
    last = ("map", "sub", ("vocab_size",), ("const", 1))
    cut = made is not None and made.attrs.get("fn") == "minimum" and k.key(made.operands[1]) == last
    low, high = k.range(op.operands[0])  # every vocabulary has token 0
    sound = made is not None and cut and k.range(made.operands[0])[0] >= 0 or low >= 0 and high <= 0
    return "" if sound else "it may be no token of the vocabulary"


def _front(k: Expressions, op: Op) -> str:
    return "" if nodes_of(k, op.operands[1], op.operands[0]) else NODE


def _request(k: Expressions, op: Op) -> str:
    return "the request may have no end token" if op.attrs["field"] == "eos" else ""


def _column(k: Expressions, op: Op) -> str:
    """A column of numbers is 0 where it was not set; another one is set at all drafts where every growth sets it."""
    name, column = str(op.operands[0].type.of[0]), op.attrs["column"]
    if op.result.type.elem not in ("dist", "list", "scores") or column in ("law", "draw"):
        return ""
    ops = list(k.function.body.walk())
    grown = [o for o in ops if o.opcode == "tree.grow" and str(o.operands[0].type.of[0]) == name]
    reads = [o for o in ops if op.result in o.operands]
    drafted = all(o.opcode == "gather" and _drafted(k, o.operands[1]) for o in reads)
    return "" if drafted and all(column in o.attrs.get("columns", ()) for o in grown) else "the column may not be set"


def _drafted(k: Expressions, nodes: Value, deep: int = 6) -> bool:
    """Whether nodes are drafts, and none is a root."""
    made = k.producers.get(nodes)
    if made is None or not deep:
        return False
    if made.opcode == "tree.nodes":
        return bool(made.attrs["which"] == "drafted")
    return made.opcode in ("gather", "compact", "slice", "select.top") and _drafted(k, made.operands[0], deep - 1)


def _set(k: Expressions, op: Op) -> str:
    """A column set at nodes of its tree, to one value for all or to one for each."""
    t, nodes, values = op.operands
    if not nodes_of(k, nodes, k.tree(t)):
        return "there may be no such node"
    alike = not values.type.dims and values.type.elem != "list" or k.rows(values) == k.rows(nodes)
    return "" if alike else "its vectors may have different lengths"


def _drawn(k: Expressions, op: Op) -> str:
    if not k.of_model(op.operands[0]):
        return "there may be no mass to draw from"
    return PLACE if without_place(k, op) else ""


def without_place(k: Expressions, op: Op) -> bool:
    """Whether a draw reads output noise without an index for a distribution that may stand at no position of the text."""
    noise = k.producers.get(next(v for v in op.operands if v.type.elem == "noise"))
    output = noise is None or noise.attrs.get("kind") == "output" and not noise.operands
    return output and not has_place(k, op.operands[0])


def has_place(k: Expressions, v: Value, deep: int = 8) -> bool:
    """Whether a distribution stands where a model was called, whatever it was shaped to since."""
    v = k.same.get(v, v)
    made = k.producers.get(v)
    if made is None or not deep:
        return v.type.elem == "dist"  # of a path, a loop or a rule: lowering counts those of no place (`State.nowhere`)
    if made.opcode == "if":
        return all(has_place(k, r.yields[made.results.index(v)], deep - 1) for r in made.regions)
    if made.opcode in ("model.eval", "model.evals", "model.read", "head.read", "head.score", "warp"):
        return True
    first = made.operands[0] if made.operands else None
    return first is not None and first.type.elem == "dist" and made.opcode != "normalize" and has_place(k, first, deep - 1)


def _derive(k: Expressions, op: Op) -> str:
    """Layers that parameters name are tried before a run; those of `layers` are there."""
    given = {p.value for p in k.function.params}
    for v in op.operands[1:]:
        if v.type.elem != "model" and v not in given and not _layer(k, v) and not _layers(k, v, set()):
            return "a layer may not be there"
    return ""


def _layers(k: Expressions, v: Value, seen: set[str]) -> bool:
    """Whether numbers are all of layers that are there, also where a state holds them."""
    made = k.producers.get(v)
    if made is None:
        return False
    match made.opcode:
        case "model.layers" | "const":
            return True
        case "compact" | "take_first" | "slice":
            return _layers(k, made.operands[0], seen)
        case "if":
            return all(_layers(k, r.yields[made.results.index(v)], seen) for r in made.regions)
        case "state.read":
            return made.attrs["state"] in seen or k.always(
                made.attrs["state"], lambda k, x: _layers(k, x, {*seen, made.attrs["state"]})
            )
    return False


def _layer(k: Expressions, v: Value) -> bool:
    """Whether a number is made of parameters and of how many layers there are, so that a session tries it before it begins, or
    counts layers."""
    made, loop = k.producers.get(v), k.counters.get(v)
    if loop is not None and loop.opcode == "for" and k.range(loop.operands[0])[0] >= 0:
        most = k.key(loop.operands[1])
        return any(
            isinstance(x, tuple) and x[0] == "len" and x[1][0] == "layers"
            for x in (most, *(most if isinstance(most, tuple) else ()))
        )
    if made is None:
        return v in {p.value for p in k.function.params}
    if made.opcode in ("map", "as_int", "len", "within"):
        return all(_layer(k, x) for x in made.operands)
    return made.opcode in ("const", "model.layers", "vocab_size")


def _canvas(k: Expressions, op: Op) -> str:
    return "" if k.range(op.operands[0])[0] >= 0 else "its length may be negative"


def _cells(k: Expressions, op: Op) -> str:
    """Cells of a block of this canvas, with one value each."""
    c, at, *values = op.operands
    made = k.producers.get(at)
    block = k.producers.get(made.operands[0]) if made is not None and made.opcode == "gather" else None
    mine = block is not None and block.opcode == "positions" and block.operands[0].type == c.type
    plain = len(values) == 1 and op.attrs["kind"] == "token" and not op.attrs.get("has_mask")
    return "" if mine and plain and k.rows(values[0]) == k.rows(at) else "there may be no such cell, or no value for it"


def _positions(k: Expressions, op: Op) -> str:
    return "there may be no cell" if op.attrs["kind"] in ("start", "stop") else ""


def _race(k: Expressions, op: Op) -> str:
    under = op.operands[2:]
    return LENGTHS if under and under[0].type.dims and k.rows(under[0]) != k.rows(op.operands[0]) else ""


def _rounded(k: Expressions, op: Op) -> str:
    """The memory of a context can be rounded, that of a canvas cannot on every backend."""
    made = k.producers.get(op.operands[0])
    while made is not None and made.opcode in ("memory.only", "memory.join"):
        made = k.producers.get(made.operands[0])
    context = made is not None and made.opcode == "model.memory" and made.operands[1].type.elem == "node"
    return "" if context else "this memory may not be one of a context"


def _concat(k: Expressions, op: Op) -> str:
    return "" if len(op.result.type.dims) < 2 else LENGTHS


def _ends(k: Expressions, op: Op) -> str:
    """`while not done` commits in every iteration, and a bounded loop ends; another one does where it asks for that too, and
    commits what a verification accepts."""
    cond, accepts = k.producers.get(op.regions[0].yields[0]), {o for o in op.regions[1].ops if o.opcode == "tree.walk"}
    asked = (
        []
        if cond is None
        else [k.producers.get(v) for v in (cond.operands if cond.attrs.get("fn") == "and" else op.regions[0].yields)]
    )
    done = any(o is not None and o.attrs.get("fn") == "not" and _is(k, o, "done") for o in asked)
    commits = any(o.opcode == "commit" and k.producers.get(o.operands[0]) in accepts for o in op.regions[1].ops)
    return "" if op.attrs.get("limited") or op.attrs.get("bound") == "done" or done and commits else "this loop may not end"


def _is(k: Expressions, op: Op, opcode: str) -> bool:
    made = k.producers.get(op.operands[0])
    return made is not None and made.opcode == opcode


TREES = {
    "tree.down": _folds,
    "tree.up": _folds,
    "draw": _drawn,
    "draw.many": _drawn,
    "model.derive": _derive,
    "tree.get": _column,
    "request": _request,
    "tree.set": _set,
    "tree.grow": _grow,
    "tree.front": _front,
    "ctx.get": _text,
    "draw.point": _token,
    "commit": _token,
    "draw.get": _field,
    "tree.walk": _walk,
    "tree.keep": _front,
    "model.eval": _eval,
    "model.states": _eval,
    "model.read": _eval,
    "model.memory": _eval,
    "model.attention": _eval,
    "head.read": _eval,
    "concat": _concat,
    "while": _ends,
    "positions": _positions,
    "draw.race": _race,
    "memory.quantized": _rounded,
    "canvas.new": _canvas,
    "canvas.put": _cells,
}
"""By opcode: what an op may fail at."""
