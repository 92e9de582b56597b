"""Which values are distributions, or not negative, by what made them and not by their types: `x ~ q * 0.5` draws from q and
states q / 2, a branch that yields a row or its logits has the type of a row, and `normalize(2 * p - q)` has entries below 0."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

from decgraph.check.proof.folding import Number
from decgraph.ir.values import Function, Op, Value

MODELS = ("model.eval", "model.read", "head.read", "softmax", "warp", "beta")
KEPT = ("gather", "slice", "compact", "take_first", "sort", "select.top")
DRAWN = ("draw", "draw.many", "draw.race")
CERTAIN = ("draw.point", "topk", "index.ask")
POSITIVE = ("relu", "exp", "sqrt", "abs")
"""Elementwise functions whose results are not negative, and those of operands that are not negative."""
KEEP = ("add", "mul", "weigh", "mix", "minimum", "maximum", "div", "pow", "floor", "select")
Again = Callable[[Value], bool]


class Walked(Protocol):
    """What is known of a function: what made its values, which ones its loops carry (the loop and the place), and ranges."""

    function: Function
    made: dict[Value, Op]
    carried: dict[Value, tuple[Op, int]]

    def low(self, v: Value) -> Number:
        """A number that the value is not below."""
        ...


def sums_to_one(k: Walked, v: Value, seen: frozenset[Value] = frozenset()) -> bool:
    """Whether a row is a distribution, or draws are of what they state."""
    again: Again = lambda x: sums_to_one(k, x, seen | {v})
    op = k.made.get(v)
    if v in seen:
        return True  # what comes round a loop is as its other values are
    if op is None:
        return _from_elsewhere(k, v, again)
    match op.opcode:
        case name if name in MODELS or name in CERTAIN:
            return True
        case "normalize" | "renorm":
            return not_negative(k, op.operands[0])
        case "face":
            return op.attrs["face"] != "logits" and again(op.operands[0])
        case name if name in KEPT or name in DRAWN:
            return again(op.operands[0])
        case "draw.get":
            return op.attrs["field"] == "law" and again(op.operands[0])
    return _from_elsewhere(k, v, again)


def not_negative(k: Walked, v: Value, seen: frozenset[Value] = frozenset()) -> bool:
    """Whether no entry of a value is negative."""
    again: Again = lambda x: not_negative(k, x, seen | {v})
    op = k.made.get(v)
    if v in seen or v.type.elem == "bool" or k.low(v) >= 0:
        return True
    if op is None:
        return _from_elsewhere(k, v, again)
    match op.opcode:
        case name if name in MODELS or name in ("len", "rank", "index.ask"):
            return True
        case "const":  # also of a line that the pass comes to later
            return isinstance(op.attrs["value"], int | Fraction) and op.attrs["value"] >= 0
        case "face":
            return op.attrs["face"] != "logits" and again(op.operands[0])
        case "map" if op.attrs["fn"] in POSITIVE:
            return True
        case "map" if op.attrs["fn"] in KEEP:
            return all(again(x) for x in op.operands)
        case name if name in ("normalize", "renorm", "lookup", "reduce", "scan", *KEPT):
            return again(op.operands[0])
        case "concat" | "list" | "tile":
            return op.attrs.get("kind") == "zeros" or all(again(x) for x in op.operands)
        case "draw.get":
            return op.attrs["field"] == "law" and sums_to_one(k, v)
    return _from_elsewhere(k, v, again)


def _from_elsewhere(k: Walked, v: Value, again: Again) -> bool:
    """Of what a loop, a branch or a column of a tree yields: whether it holds of all that this may be."""
    op = k.made.get(v)
    loop, n = k.carried.get(v) or (op, op.results.index(v) if op is not None else 0)
    if loop is not None and loop.opcode in ("for", "while"):
        many, body = len(loop.results), loop.regions[-1]
        return again(loop.operands[len(loop.operands) - many + n]) and again(body.yields[len(body.yields) - many + n])
    if op is not None and op.opcode == "if":
        return all(again(region.yields[op.results.index(v)]) for region in op.regions)
    return op is not None and op.opcode == "tree.get" and _column(op, k.function, again)


def _column(read: Op, function: Function, again: Again) -> bool:
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
