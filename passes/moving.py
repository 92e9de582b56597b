"""Part of simplify: what every iteration of a loop computes alike is computed once, before it."""

from __future__ import annotations

from decgraph.ir.values import Op, Region, Value
from decgraph.passes.motion import LOOPS, reads, speculable, within, writes


def hoist(region: Region) -> Region:
    """The region with invariant ops of its loops before them, innermost first.

    Only ops that cannot fail and cost little are moved: a loop may have no iterations. Draws stay: an edge for each iteration.
    """
    ops: list[Op] = []
    changed = False
    for old in region.ops:
        op = old
        regions = tuple(map(hoist, op.regions))
        if any(a is not b for a, b in zip(regions, op.regions, strict=True)):
            op = Op(op.opcode, op.operands, op.attrs, regions, op.results, op.loc)
        if op.opcode in LOOPS:
            moved, op = _invariant(op)
            ops += moved
        changed = changed or op is not old
        ops.append(op)
    return Region(region.args, tuple(ops), region.yields) if changed else region


def _invariant(loop: Op) -> tuple[list[Op], Op]:
    """The ops to stand before a loop, and the loop without them."""
    changing = writes(loop)
    inside: set[Value] = set(within(loop.regions))
    moved: list[Op] = []
    regions = []
    for r in loop.regions:
        kept = []
        for op in r.ops:
            stays = op.regions or not speculable(op) or reads(op) & changing or any(v in inside for v in op.operands)
            if stays:
                kept.append(op)
            else:
                moved.append(op)
                inside.difference_update(op.results)
        regions.append(Region(r.args, tuple(kept), r.yields))
    if not moved:
        return [], loop
    return moved, Op(loop.opcode, loop.operands, loop.attrs, tuple(regions), loop.results, loop.loc)
