"""Where a program reads how sure a drawn token is, and not from what it was drawn from.

`p.raw[x]` beside `x ~ p` is the token's probability before temperature, top-k and top-p. It is that of the draw only where the
request shapes nothing. Some published decoders read it so, others after them; both are the same in a greedy run.
"""

from __future__ import annotations

from collections.abc import Iterator

from decgraph.ir.values import Loc, Module, Op, Region, Value
from decgraph.ir.walk import ops_of

PARTS = frozenset({"gather", "compact", "slice", "take_first"})
"""Ops that give some of the rows, or some of the draws, that they are given first."""


def unshaped_confidences(module: Module) -> list[tuple[Loc, Loc]]:
    """Each place where a drawn token is looked up in the raw face of the distribution it was drawn from, and the draw's place.
    What only greedy requests reach is none: their draws are the likeliest tokens of the raw face."""
    found: dict[Loc, Loc] = {}
    for function in module.functions.values():
        made = {value: op for op in ops_of(function) for value in op.results}
        for op in _reached_by_draws(function.body, made):
            if op.opcode == "lookup" and (drawn := _drawn(op, made)) is not None:
                found.setdefault(op.loc, drawn.loc)
    return sorted(found.items(), key=lambda places: (places[0].path, places[0].line, places[0].column))


def _reached_by_draws(region: Region, made: dict[Value, Op]) -> Iterator[Op]:
    """Every op but those that stand where the request is greedy."""
    for op in region.ops:
        yield op
        skipped = _greedy_side(op, made) if op.opcode == "if" else None
        for n, inner in enumerate(op.regions):
            if n != skipped:
                yield from _reached_by_draws(inner, made)


def _greedy_side(op: Op, made: dict[Value, Op]) -> int | None:
    """The region of an `if` that greedy requests alone reach, where its condition says so."""
    condition, side = made.get(op.operands[0]), 0
    while condition is not None and condition.opcode == "map" and condition.attrs.get("fn") == "not":
        condition, side = made.get(condition.operands[0]), 1 - side
    greedy = condition is not None and condition.opcode == "request" and condition.attrs.get("field") == "greedy"
    return side if greedy else None


def _drawn(op: Op, made: dict[Value, Op]) -> Op | None:
    """The draw that a lookup reads in the raw face of the draw's own distribution."""
    rows, raw = op.operands[0], False
    while (at := made.get(rows)) is not None and (at.opcode in PARTS or at.opcode == "face"):
        if at.opcode == "face" and at.attrs["face"] != "raw":
            return None
        raw, rows = raw or at.opcode == "face", at.operands[0]
    drawn = _whole(op.operands[1], made)
    if not raw or drawn is None or drawn.opcode != "draw":
        return None
    source = drawn.operands[0]
    while (at := made.get(source)) is not None and at.opcode in PARTS:
        source = at.operands[0]
    return drawn if source is rows else None


def _whole(value: Value, made: dict[Value, Op]) -> Op | None:
    """What a part of some draws, or of their tokens, is a part of."""
    op = made.get(value)
    while op is not None and (op.opcode in PARTS or (op.opcode == "draw.get" and op.attrs["field"] == "token")):
        op = made.get(op.operands[0])
    return op
