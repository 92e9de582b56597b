"""Segments put back in place: the generated driver has the ops of a segment where the author wrote them.

A segment is a function only where a backend has a kernel for it (kit.fused). Nothing is batched between the ops of a torch
segment, so a call of its own buys nothing there, and a reader would have to look for every straight line in two places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from decgraph.ir.values import Function, Op, Region, Value


def without_segments(f: Function, fused: Callable[[Op], bool]) -> tuple[Function, dict[Op, Op], dict[Value, Value]]:
    """The function with the ops of every segment that is not `fused` in its place; the op that each rewritten op was; and
    the value that stands in the place of each segment's result."""
    origin: dict[Op, Op] = {}
    same: dict[Value, Value] = {}

    def value(v: Value) -> Value:
        while v in same:
            v = same[v]
        return v

    def region(r: Region) -> Region:
        ops = tuple(o for op in r.ops for o in written(op))
        return Region(r.args, ops, tuple(value(v) for v in r.yields))

    def written(op: Op) -> list[Op]:
        if op.opcode == "segment" and not fused(op):
            inner = [o for step in op.regions[0].ops for o in written(step)]
            for r, y in zip(op.results, op.regions[0].yields, strict=True):
                same[r] = value(y)
            return inner
        made = replace(op, operands=tuple(value(v) for v in op.operands), regions=tuple(region(r) for r in op.regions))
        origin[made] = op
        return [made]

    states = tuple(replace(s, init=region(s.init)) for s in f.states)
    return replace(f, states=states, body=region(f.body)), origin, same
