"""Shapes of trees against the vocabulary, checked when a session is made: before the first run."""

from __future__ import annotations

from collections.abc import Mapping

from decgraph.errors import DecError
from decgraph.ir.data.topology import Topology
from decgraph.ir.values import Function


def check_shapes(function: Function, params: Mapping[str, object], size: int) -> None:
    """Raises DecError for a topology with more children below a node than the vocabulary has tokens (`size`), in a program that
    takes as many of the likeliest tokens as a level is wide."""
    ops = list(function.body.walk())
    widths = {op.result for op in ops if op.opcode == "level.get" and op.attrs["field"] == "width"}
    if not any(op.opcode == "topk" and op.operands[1] in widths for op in ops):
        return
    for name, value in params.items():
        if isinstance(value, Topology) and value.width > size:
            raise DecError(
                f"{function.name}: `{name}` has {value.width} children below a node, and the vocabulary has {size} tokens",
                hint=f"give a tree with at most {size} children below a node: {name}={min(size, 4)}x2x1",
            )
