"""What ops over vectors and numbers may fail at (ir/failing.py): lengths that do not agree, indices, empty choices, sizes."""

from __future__ import annotations

from decgraph.ir.expressions import Expressions
from decgraph.ir.failing_trees import LENGTHS, nodes_of
from decgraph.ir.values import Op, Value

INFINITE = "an infinity is no whole number"
COUNTS = {
    **dict.fromkeys(("tile", "noise", "index.new", "canvas.new"), (0, None)),
    **dict.fromkeys(
        ("slice", "take_first", "ctx.get", "topk", "tree.nodes", "topology.narrow", "within", "positions"), (1, None)
    ),
    **dict.fromkeys(("select.top", "batch.top", "draw.many"), (1, 2)),
    "index.ask": (1, None),
    "for": (0, 2),
    "while": (0, 1),
}
"""By opcode the first and last of the operands that are taken without their fraction."""


def _map(k: Expressions, op: Op) -> str:
    wide = [v for v in op.operands if any(d.kind != "vocab" for d in v.type.dims)]
    if len(wide) > 1:
        most = max(len(v.type.dims) for v in wide)
        over = {d.kind for v in wide for d in v.type.dims if d.kind != "vocab"}
        if len({k.rows(v) for v in wide}) > 1 or most > 2 or len(over) > 1 and most > 1:
            return LENGTHS
    if op.attrs["fn"] == "mod" and not k.range(op.operands[1])[0] > 0:
        return "the divisor may be 0"
    return "" if op.attrs["fn"] != "floor" or k.finite(op.operands[0]) else INFINITE


def _empty(k: Expressions, op: Op) -> str:
    made = k.producers.get(op.operands[0])
    if made is not None and made.opcode in ("list", "concat") and any(v.type.elem == "none" for v in made.operands):
        return "there may be none among them"
    if op.opcode == "reduce" and op.attrs["fn"] not in ("max", "min", "mean", "logsumexp"):
        return ""
    x = op.operands[0]
    last = x.type.dims[-1].kind if x.type.dims else "vocab" if x.type.elem in ("dist", "scores") else ""
    if len(op.operands) == 1 and (last == "vocab" or x.type.elem in ("dist", "scores")):
        return ""
    if len({k.rows(v) for v in _keys(k, op.operands)}) > 1:
        return LENGTHS
    return "" if len(x.type.dims) < 2 and k.filled(x) else "there may be nothing to choose from"


def _keys(k: Expressions, values: tuple[Value, ...]) -> list[Value]:
    """Candidates and the keys that they are chosen by, those of a list one by one."""
    lists = {v: made for v in values if v.type.elem == "list" and (made := k.producers.get(v)) and made.opcode == "list"}
    return [x for v in values for x in (lists[v].operands if v in lists else (v,))]


def _gather(k: Expressions, op: Op) -> str:
    v, *index = op.operands
    if op.attrs.get("axis") or len(index) != 1:
        return "an index may be out of range"
    (i,) = index
    if v.type.elem == "topology" or i in k.counters:
        loop = k.counters.get(i)
        if loop is not None and loop.opcode == "each" and k.rows(loop.operands[0]) == k.rows(v):
            return ""
        if loop is not None and loop.opcode == "for" and k.range(loop.operands[0])[0] >= 0:
            count = k.producers.get(loop.operands[1])
            if count is not None and count.opcode == "len":
                of = count.operands[0]
                if of is v or k.rows(of) == k.rows(v) or of.type.elem == "topology" and k.key(of) == k.key(v):
                    return ""
    first = v.type.dims[0].kind if v.type.dims else ""
    if first == "vocab" and i.type.elem in ("token", "draw") and i.type.vocab == v.type.dims[0].of:
        return ""
    if i.type.elem != "node" and k.filled(v) and _below(k, i, v):
        return ""
    made = k.producers.get(v)
    if made is not None and made.opcode == "state.read" and i.type.elem == "int" and not i.type.dims and k.range(i)[0] >= 0:
        if k.always(
            made.attrs["state"], lambda k, x: _as_long(k, x, made.attrs["state"], int(min(k.range(i)[1], 1 << 30)) + 1)
        ):
            return ""
    if i.type.elem == "node":
        tree = k.rows(v)
        if isinstance(tree, tuple) and tree[0] == "nodes" and nodes_of(k, i, tree[1]):
            return ""
    return "an index may be out of range"


def _as_long(k: Expressions, v: Value, state: str, least: int) -> bool:
    """Whether a vector has so many elements: zeros, or what a state was with some of them replaced."""
    made = k.producers.get(v)
    if made is None:
        return False
    match made.opcode:
        case "state.read":
            return bool(made.attrs["state"] == state)
        case "scatter":
            return _as_long(k, made.operands[0], state, least)
        case "map":
            return any(x.type.dims and _as_long(k, x, state, least) for x in made.operands)
        case "tile" if made.attrs["kind"] == "zeros" and made.operands:
            return k.range(made.operands[0])[0] >= least
    return False


def _below(k: Expressions, i: Value, v: Value) -> bool:
    """Whether an index is 0 or -1, taken modulo the length of a vector that has elements, or held between its ends."""
    made = k.producers.get(i)
    if k.range(i) in ((0, 0), (-1, -1)):
        return True
    if made is None or made.opcode != "map":
        return False
    if made.attrs["fn"] == "mod":
        return k.key(made.operands[1]) == ("len", k.rows(v))
    if made.attrs["fn"] == "clamp":
        last = ("map", "sub", ("len", k.rows(v)), ("const", 1))
        return k.range(made.operands[1])[0] >= 0 and k.range(made.operands[1])[1] <= 0 and k.key(made.operands[2]) == last
    return False


def _lookup(k: Expressions, op: Op) -> str:
    p, x = op.operands
    row = p.type.elem in ("dist", "scores") or bool(p.type.dims) and p.type.dims[-1].kind == "vocab"
    if not row or x.type.elem not in ("token", "draw"):
        return "an index may be out of range"
    wide = [v for v in (p, x) if v.type.dims and v.type.dims[0].kind != "vocab"]
    return LENGTHS if len(wide) > 1 and len({k.rows(v) for v in wide}) > 1 else ""


def _compact(k: Expressions, op: Op) -> str:
    v, c = op.operands
    if v.type.dims and not c.type.dims or k.rows(v) == k.rows(c):
        return ""
    tree = k.rows(c)
    if v.type.elem == "node" and isinstance(tree, tuple) and tree[0] == "nodes" and nodes_of(k, v, tree[1]):
        return ""
    return LENGTHS


def counted(op: Op) -> tuple[Value, ...]:
    """The operands of an op that are taken without their fraction: ends, counts, indices of draws."""
    first, last = COUNTS.get(op.opcode, (0, 0))
    if op.opcode == "tile" and op.attrs["kind"] == "tile":
        first = 1
    return (
        ()
        if op.attrs.get("kind") == "output" or op.opcode == "while" and not op.attrs.get("limited")
        else op.operands[first:last]
    )


def endless(k: Expressions, op: Op) -> str:
    """Whether what is taken as a whole number may be none."""
    return "" if all(map(k.finite, counted(op))) else INFINITE


def _as_int(k: Expressions, op: Op) -> str:
    return "" if k.finite(op.operands[0]) else INFINITE


def _within(k: Expressions, op: Op) -> str:
    """A number is within the limits of every program; a vector within the capacity that it is shown to have."""
    if len(op.operands) == 1:
        return "" if k.finite(op.operands[0]) else INFINITE
    x, *sizes = op.operands
    inner = x.type
    for n, room in enumerate(sizes):
        bound = inner.dims[0].bound if inner.dims else None
        if not (bound is not None and bound <= k.range(room)[0]) and not (
            n == 0 and (_cut(k, x, room) or _held(k, x, room, op.attrs["what"]))
        ):
            return f"{op.attrs['what']} may be too small"
        inner = inner.item if inner.elem == "list" else inner.drop() if inner.dims else inner
    return ""


def _held(k: Expressions, x: Value, room: Value, what: str) -> bool:
    """Whether a state of some capacity, filled up to it, or what was drafted from it and is left, fits into it again."""

    def is_state(v: Value) -> bool:
        made = k.producers.get(v)
        return made is not None and made.opcode == "state.read" and what == f"state `{made.attrs['state']}`"

    made = k.producers.get(x)
    while made is not None and made.opcode in ("draw", "gather") and made.operands[made.opcode == "gather"].type.dims:
        made = k.producers.get(made.operands[made.opcode == "gather"])
    if made is not None and made.opcode == "concat" and is_state(made.operands[0]):
        more = k.producers.get(made.operands[1])
        left = ("map", "sub", k.key(room), ("len", k.rows(made.operands[0])))
        return more is not None and more.opcode == "draw.many" and k.key(more.operands[1]) == left
    if made is not None and made.opcode == "compact":  # nodes of a tree without its root, of which there are as many as drafts
        nodes, deep = k.producers.get(made.operands[0]), k.producers.get(made.operands[1])
        depth = k.producers.get(deep.operands[0]) if deep is not None and deep.attrs.get("fn") == "gt" else None
        below = (
            depth is not None
            and depth.attrs.get("column") == "depth"
            and deep is not None
            and k.range(deep.operands[1])[0] >= 0
        )
        tree = k.producers.get(k.tree(nodes.operands[0])) if below and nodes and nodes.opcode == "tree.nodes" else None
        root = k.producers.get(tree.operands[0]) if tree is not None and tree.attrs.get("chain") else None
        return root is not None and root.opcode == "tree.new" and tree is not None and is_state(tree.operands[1])
    return False


def _cut(k: Expressions, x: Value, room: Value) -> bool:
    """Whether a vector was cut to its capacity: `first(xs, n)`, `top(xs, n)`, `xs[:n]`."""
    made = k.producers.get(x)
    while made is not None and made.opcode in ("gather", "draw.get") and made.operands[-1].type.dims:
        made = k.producers.get(made.operands[-1])
    if made is None or made.opcode not in ("take_first", "select.top", "slice") or made.attrs.get("has_lo"):
        return False
    most = made.operands[1]  # a negative end of a slice is counted from the end
    return k.range(most)[0] >= 0 and (k.key(most) == k.key(room) or k.range(most)[1] <= k.range(room)[0])


def _scatter(k: Expressions, op: Op) -> str:
    v, x, *index = op.operands
    dims = list(v.type.dims)
    if len(index) != 1 or not dims:
        return "an index may be out of range"
    (i,) = index
    if x.type.dims and (not i.type.dims or k.rows(x) != k.rows(i)) or len(dims) > 1 and not _as_wide(k, v, x):
        return LENGTHS
    if dims[0].kind == "vocab" and i.type.elem in ("token", "draw") and i.type.vocab == dims[0].of:
        return ""
    return _gather(k, Op("gather", (v, i), {}, (), op.results, op.loc))


def _as_wide(k: Expressions, v: Value, x: Value) -> bool:
    """Whether the rows of a state are as wide as the best `topk` tokens that are written there."""
    chosen = k.producers.get(x)
    while chosen is not None and chosen.opcode in ("draw.get", "face"):
        chosen = k.producers.get(chosen.operands[0])
    read = k.producers.get(v)
    if chosen is None or chosen.opcode != "topk" or read is None or read.opcode != "state.read":
        return False
    state = next(s for s in k.function.states if s.name == read.attrs["state"])
    inner = Expressions(k.function, k.consts)
    inner.producers |= {r: op for op in state.init.walk() for r in op.results}
    made = inner.producers.get(state.init.yields[0])
    while made is not None and made.opcode in ("map", "within"):
        made = inner.producers.get(made.operands[0])
    if made is None or made.opcode != "tile" or made.attrs["kind"] != "zeros" or not made.operands:
        return False
    width = inner.key(made.operands[-1])
    return width == ("map", "minimum", k.key(chosen.operands[1]), ("vocab_size",))


def _select(k: Expressions, op: Op) -> str:
    x, _, *keys = op.operands
    same = len({k.rows(v) for v in _keys(k, (x, *keys))}) == 1
    return "" if same else LENGTHS


def _each(k: Expressions, op: Op) -> str:
    y = op.regions[0].yields[0].type
    return "" if not y.dims or op.result.type.elem == "list" else LENGTHS


def _sorted(k: Expressions, op: Op) -> str:
    return "" if len({k.rows(v) for v in op.operands}) == 1 else LENGTHS


def _listed(k: Expressions, op: Op) -> str:
    wide = any(v.type.dims or v.type.elem in ("topology", "list", "path") for v in op.operands)
    plain = op.result.type.elem == "list" or not wide
    return "" if plain or len(op.operands) < 2 else LENGTHS


def _alike(k: Expressions, op: Op) -> str:
    return "" if len({k.rows(v) for v in op.operands if v.type.dims}) < 2 else LENGTHS


VECTORS = {
    "map": _map,
    "reduce": _empty,
    "arg": _empty,
    "gather": _gather,
    "lookup": _lookup,
    "compact": _compact,
    "as_int": _as_int,
    "within": _within,
    "scatter": _scatter,
    "select.top": _select,
    "each": _each,
    "info": _alike,
    "hidden.similarity": _alike,
    "sort": _sorted,
    "list": _listed,
}
"""By opcode: what an op may fail at."""
