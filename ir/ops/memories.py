"""Arithmetic on the rows of a memory."""

from __future__ import annotations

import numpy as np

from decgraph.errors import DecError
from decgraph.ir import labels
from decgraph.ir.machine import Datum, Machine, Memory
from decgraph.ir.opdef import Attrs, Regions, Types, op
from decgraph.ir.ops.common import need
from decgraph.ir.values import Op


@op("memory.merged")
class MemoryMerged:
    """A memory in which positions share a row: those with the same number become one, which stands at the last of them, and
    whose key and value are the mean of theirs. Operands: the memory, positions, and a number for each. Other positions stay,
    and one that is not in the memory counts for nothing."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(types[0].elem == "memory", f".merged needs a memory, got {types[0]}")
        for t, what in zip(types[1:], ("positions", "their groups"), strict=True):
            need(
                t.elem == "int" and len(t.dims) == 1,
                f".merged takes {what} as a vector of whole numbers, got {t}",
                "i = range_(0, ctx.length - 1), then m.merged(i, int(i / 2))",
            )
        return (types[0],)

    @staticmethod
    def meaning(m: Machine, op: Op, mem: Memory, positions: Datum, numbers: Datum) -> tuple[Datum, ...]:
        return (mem.merged(groups(np.asarray(positions), np.asarray(numbers))),)

    label, batch = labels.joined, "ragged"
    samples = (("%z = memory.merged(%mem, %xs, %xs)", [0, 1, 2]),)
    refusals = (
        ("int, int[k], int[k]", "memory"),
        ("memory<a>, int, int[k]", "positions"),
        ("memory<a>, int[k], real[k]", "groups"),
    )


def groups(positions: np.ndarray, numbers: np.ndarray) -> list[tuple[int, ...]]:
    """The positions of each group in ascending order, the groups by number. positions, numbers: int[n]. Raises DecError where
    they are not equally many."""
    if len(positions) != len(numbers):
        raise DecError(
            f"merged got {len(positions)} positions and {len(numbers)} groups",
            hint="a group for every position: m.merged(i, int(i / 2))",
        )
    return [tuple(sorted(int(i) for i in positions[numbers == n])) for n in np.unique(numbers)]
