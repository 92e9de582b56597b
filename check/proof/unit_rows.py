"""Whether values are distributions by what made them: a draw states what it was drawn from, and `x ~ q * 0.5` states q / 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from decgraph.ir.values import Function, Op, Value

MADE = ("model.eval", "normalize", "softmax", "warp", "renorm", "model.read")
KEPT = ("gather", "slice", "compact", "take_first", "sort", "select.top")
DRAWN = ("draw", "draw.many", "draw.race")
CERTAIN = ("draw.point", "topk", "index.ask")


def sums_to_one(
    v: Value,
    function: Function,
    made: Mapping[Value, Op],
    carried: Mapping[Value, tuple[Op, int]],
    seen: frozenset[Value] = frozenset(),
) -> bool:
    """Whether a row is a distribution, or draws are of what they state, by what made it and not by its type: a branch that
    yields a row or its logits has the type of a row. carried: the loop and the place of every value that a loop carries."""
    if v in seen:
        return True  # comes round a loop, whose other values are looked at

    def again(x: Value) -> bool:
        return sums_to_one(x, function, made, carried, seen | {v})

    op = made.get(v)
    loop, n = carried.get(v) or (op, op.results.index(v) if op is not None else 0)
    if loop is not None and loop.opcode in ("for", "while"):
        many, body = len(loop.results), loop.regions[-1]
        return again(loop.operands[len(loop.operands) - many + n]) and again(body.yields[len(body.yields) - many + n])
    match op.opcode if op is not None else "":
        case name if op is None:
            return False
        case name if name in MADE:
            return True
        case "face":
            return op.attrs["face"] != "logits" and again(op.operands[0])
        case name if name in KEPT:
            return again(op.operands[0])
        case name if name in DRAWN:
            return again(op.operands[0])
        case name if name in CERTAIN:
            return True
        case "draw.get":
            return op.attrs["field"] == "law" and again(op.operands[0])
        case "tree.get":
            return _column(op, function, again)
        case "if":
            return all(again(region.yields[op.results.index(v)]) for region in op.regions)
    return False


def _column(read: Op, function: Function, again: Callable[[Value], bool]) -> bool:
    """A column holds what is written to it anywhere, and a node what is grown anywhere; to read what nothing was written to is
    an error."""
    name, writes = read.attrs["column"], []
    for op in function.body.walk():
        if op.opcode == "tree.grow" and name in ("law", "draw") and op.operands[1].type.elem == "draw":
            writes.append(op.operands[1])
        if op.opcode == "tree.set" and op.attrs["column"] == name:
            writes.append(op.operands[2])
        if op.opcode == "tree.grow" and name in op.attrs.get("columns", ()):
            first = 3 if op.attrs.get("has_at") else 2
            writes.append(op.operands[first + op.attrs["columns"].index(name)])
    return bool(writes) and all(again(v) for v in writes)
