"""Pass: operations on the last dimension alone move before the transposition of heads and tokens.

Why: modules transpose [B, T, heads, d] to [B, heads, T, d] right after the projections, and normalise and rotate there.
In the projections' layout, queries and keys are neighbours (heads.py), rows are contiguous, and a key is written into
the cache without being transposed back.

Precondition: every operand is transposed alike, a constant of the last dimension, or a row per position broadcast over
heads, [B, 1, T, d], which can be broadcast in the other layout as well.

    before   f(y.transpose(1, 2), w, cos.unsqueeze(1))
    after    f(y, w, cos.unsqueeze(2)).transpose(1, 2)
"""

from __future__ import annotations

from typing import Any

from torch import fx

from decgraph.runtime.models.capture.ops import POINTWISE
from decgraph.runtime.models.capture.program import CapturedGraph, Shape, argument, dtype_of, is_op, shape_of

_LAST = {"vector_norm", "rms_norm", "layer_norm"}


def layout(program: CapturedGraph) -> None:
    """Moves operations on the last dimension before the transposition of heads and tokens."""
    plain: dict[fx.Node, fx.Node] = {}  # transposed tensor -> the tensor before the transposition
    for node in list(program.graph.nodes):
        if is_op(node, "transpose") and node.args[1:] in ((1, 2), (2, 1)) and len(shape_of(node) or ()) == 4:
            plain[node] = node.args[0]
        elif is_op(node, "item") and node.args[0] in plain:
            plain[node] = _made(program, node, (plain[node.args[0]], *node.args[1:]))
        elif any(n in plain for n in node.all_input_nodes) and _row_wise(node):
            args = _operands(program, node, plain)
            if args is not None:
                plain[node] = _made(program, node, args)
    for node, made in plain.items():
        if node.users and shape_of(node) is not None and not is_op(node, "transpose"):
            with program.before(node):
                turned = program.make(
                    "transpose", (made, 1, 2), shape=shape_of(node), dtype=dtype_of(node), layer=node.meta["layer"]
                )
            program.replace(node, turned)
    program.sweep()


def _row_wise(node: fx.Node) -> bool:
    op = node.meta["op"]
    if op in ("split", "chunk"):
        return argument(node, 2, "dim", 0) in (-1, 3)
    if len(shape_of(node) or ()) != 4:
        return False
    if op == "roll":
        return node.args[2] in (-1, 3)
    if op == "cat":
        return node.args[1] in (-1, 3)
    if op == "getitem":
        index = node.args[1]
        return isinstance(index, tuple) and len(index) == 2 and index[0] is Ellipsis and isinstance(index[1], slice)
    return op in POINTWISE or op in _LAST


def _operands(program: CapturedGraph, node: fx.Node, plain: dict[fx.Node, fx.Node]) -> tuple[Any, ...] | None:
    if node.meta["op"] == "cat":
        parts = node.args[0]
        if not all(p in plain for p in parts):
            return None
        return (tuple(plain[p] for p in parts), *node.args[1:])
    found: list[Any] = []
    for value in node.args:
        if isinstance(value, fx.Node) and value in plain:
            value = plain[value]
        elif isinstance(value, fx.Node) and (program.tensor(value) is None or len(shape_of(value) or ()) > 1):
            value = _turned(program, value)
            if value is None:
                return None
        found.append(value)
    return tuple(found)


def _made(program: CapturedGraph, node: fx.Node, args: tuple[Any, ...]) -> fx.Node:
    """The same operation in the other layout."""
    shape = shape_of(node)
    if shape is not None:
        shape = (shape[0], shape[2], shape[1], shape[3])
    op = "getitem" if is_op(node, "item") else str(node.meta["op"])
    with program.before(node):
        made = program.make(op, args, shape=shape, dtype=dtype_of(node), layer=node.meta["layer"], **node.kwargs)
    made.meta["op"] = node.meta["op"]
    return made


def _turned(program: CapturedGraph, table: fx.Node) -> fx.Node | None:
    """Rows [B, 1, T, d], broadcast over heads in the other layout, [B, T, 1, d]; None if this is something else."""
    if not is_op(table, "unsqueeze") or table.args[1] != 1:
        return None
    rows = table.args[0]
    inner = shape_of(rows)
    if inner is None or len(inner) != 3 or not isinstance(rows, fx.Node):
        return None
    shape: Shape = (*inner[:2], 1, inner[2])
    with program.before(rows.next):
        return program.make("unsqueeze", (rows, 2), shape=shape, dtype=dtype_of(rows))
