"""How many tokens the drafts of an exported program have at most, read off the IR: what its engine is to be started with."""

from __future__ import annotations

from collections.abc import Mapping

from decgraph.ir.values import Function, Op, Region, Value
from decgraph.ir.walk import definitions


def longest(function: Function) -> int | None:
    """The most tokens of a step's chain; None where the program sets no number, or one that its parameters' values, which have
    to be constants of the function by now, do not tell."""
    made = definitions(function.body)
    loop = next((op for op in function.body.ops if op.opcode == "while" and op.attrs.get("bound") == "done"), None)
    return None if loop is None else _grown(loop.regions[-1], made)


def _grown(region: Region, made: Mapping[Value, Op]) -> int | None:
    """How many tokens are grown onto the chain in a region."""
    total = 0
    for op in region.ops:
        count = _of(op, made)
        if count is None:
            return None
        total += count
    return total


def _of(op: Op, made: Mapping[Value, Op]) -> int | None:
    if op.opcode == "tree.grow":
        return _source(op.operands[1], made) if op.attrs.get("chain") else 1
    if op.opcode == "tree.walk":  # rules grow nothing
        return 0
    within = [_grown(region, made) for region in op.regions]
    known = [count for count in within if count is not None]
    if len(known) < len(within):
        return None
    most = max(known, default=0)
    if not most or op.opcode not in ("for", "while"):
        return most
    times = op.attrs.get("bound")
    if op.opcode == "for":
        first, last = (_constant(value, made) for value in op.operands[:2])
        times = last - first if first is not None and last is not None else times
    return max(0, times) * most if isinstance(times, int) else None


def _source(tokens: Value, made: Mapping[Value, Op]) -> int | None:
    """The most items of a vector that is grown as a chain."""
    op = made.get(tokens)
    if op is not None and op.opcode == "index.ask" and "at_most" in op.attrs.get("named", ()):
        named = op.attrs["named"]
        return _constant(op.operands[len(op.operands) - len(named) + named.index("at_most")], made)
    bounds = [dim.bound for dim in tokens.type.dims if dim.kind == "k"]
    return bounds[0] if bounds and isinstance(bounds[0], int) else None


def _constant(value: Value, made: Mapping[Value, Op]) -> int | None:
    op = made.get(value)
    found = op.attrs["value"] if op is not None and op.opcode == "const" else None
    return found if isinstance(found, int) else None


__all__ = ["longest"]
