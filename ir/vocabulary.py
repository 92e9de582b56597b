"""Which ops go over rows of the vocabulary: what is costly, and what kernels are made of."""

from __future__ import annotations

from decgraph.ir.types import Type
from decgraph.ir.values import Op

ON_ROWS = frozenset(
    {
        "face",
        "warp",
        "softmax",
        "normalize",
        "lookup",
        "draw",
        "draw.many",
        "draw.race",
        "topk",
        "arg",
        "info",
        "renorm",
        "map",
        "reduce",
        "scan",
        "draw.get",
        "draw.point",
        "rank",
        "first_max",
        "pairs.top",
        "gather",
    }
)
"""Ops that may read or make rows over the vocabulary."""


def over_vocabulary(t: Type) -> bool:
    """Whether a value holds rows over a vocabulary."""
    return t.elem in ("dist", "scores") or bool(t.dims) and t.dims[-1].kind == "vocab"


def on_rows(op: Op) -> bool:
    return op.opcode in ON_ROWS and any(over_vocabulary(v.type) for v in (*op.operands, *op.results))
