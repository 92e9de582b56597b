"""Operations that no model supports, on any backend: refused at their place before a run begins."""

from __future__ import annotations

from decgraph.errors import DecError
from decgraph.ir.table import lookup
from decgraph.ir.values import Module
from decgraph.ir.walk import functions_of


def refuse_unavailable(module: Module) -> None:
    """Raises DecError for an op of the functions that a module runs which would fail in the middle of a run."""
    for f in functions_of(module):
        for op in f.body.walk():
            reason = lookup(op.opcode).unavailable
            if reason:
                where = f"{op.loc}: " if op.loc.line else ""
                raise DecError(f"{where}{op.opcode}: {reason}", hint="models give distributions and memories")


__all__ = ["refuse_unavailable"]
