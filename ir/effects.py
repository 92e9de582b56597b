"""What ops do beside giving results: whether they may be moved, merged or dropped."""

from __future__ import annotations

from collections.abc import Iterable

from decgraph.ir.table import lookup
from decgraph.ir.values import Op


def effects(ops: Op | Iterable[Op]) -> frozenset[str]:
    """The effects of an op, or of ops, with all that stands in their regions: of "read", "commit", "state",
    ..."""
    found: set[str] = set()
    for op in (ops,) if isinstance(ops, Op) else ops:
        found.add(lookup(op.opcode).effects)
        for region in op.regions:
            found |= effects(region.ops)
    return frozenset(found - {""})


def is_pure(op: Op) -> bool:
    """Whether an op neither has effects nor reads what effects change: it may be moved, merged or dropped."""
    return not effects(op)


def is_removable(op: Op) -> bool:
    """Whether an op whose results nobody uses may be dropped: it may read, but changes nothing."""
    return effects(op) <= {"read"}
