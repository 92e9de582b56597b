"""Which ops go over rows of the vocabulary: what is costly, and what becomes kernels."""

from __future__ import annotations

from decgraph.ir.table import lookup
from decgraph.ir.types import Type
from decgraph.ir.values import Op


def over_vocabulary(t: Type) -> bool:
    """Whether a value holds rows over a vocabulary."""
    return t.elem in ("dist", "scores") or bool(t.dims) and t.dims[-1].kind == "vocab"


def on_rows(op: Op) -> bool:
    """Whether an op reads or makes rows over a vocabulary."""
    return lookup(op.opcode).vocabulary and any(over_vocabulary(v.type) for v in (*op.operands, *op.results))
