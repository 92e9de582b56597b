"""Pass: between attentions, states are matrices [B T, width] instead of [B, T, width].

Why: linear maps, norms and activations work row by row. On three dimensions every `linear` flattens its input and
unflattens its result, and the additions around it cannot be part of it (residual.py).

Precondition: none; an operation not listed as row-wise gets its three dimensions back.

    before   h = embedding(ids, w)                     [B, T, n]
             y = linear(norm(h), v)                    [B, T, m];  y.view(B, T, heads, d)
    after    h = embedding(ids, w).view(-1, n)         [BT, n]
             y = linear(norm(h), v)                    [BT, m];    y.view(B, T, heads, d)
"""

from __future__ import annotations

from typing import Any

from torch import fx

from decgraph.runtime.models.capture.ops import POINTWISE
from decgraph.runtime.models.capture.program import CapturedGraph, Shape, argument, dtype_of, is_op, shape_of

_LAST = {"linear", "rms_norm", "layer_norm", "vector_norm", "other:all_reduced"}


def rows(program: CapturedGraph) -> None:
    """Flattens [B, T, width] to [BT, width] between attentions."""
    flat: set[fx.Node] = set()
    back: dict[fx.Node, fx.Node] = {}
    matrices = {n for n in program.graph.nodes if _is_matrix(shape_of(n))}  # the module's own
    wants: dict[tuple[fx.Node, fx.Node], bool] = {}  # (user, operand): whether the module handed on a matrix
    for node in list(program.graph.nodes):
        if node.op in ("placeholder", "get_attr"):
            continue
        touched = [n for n in node.all_input_nodes if n in flat]
        shape = shape_of(node)
        if node.meta["op"] in ("view", "reshape") and touched and _same_rows(shape, shape_of(node.args[0])):
            assert isinstance(node.args[0], fx.Node)
            wants.update({(user, node.args[0]): node in matrices for user in node.users})
            program.replace(node, node.args[0])  # the module's own way to matrices and back
        elif _is_matrix(shape):
            flat.add(node)
        elif _flattens(node, flat):
            _flatten(program, node, flat)
            flat.add(node)
        elif is_op(node, "item") and touched:
            node.meta["shape"] = _matrix(node.meta["shape"])
            flat.add(node)
        elif touched and node.meta["op"] not in ("view", "reshape"):  # a view has all its sizes: the same from a matrix
            for operand in (n for n in touched if not wants.get((node, n), n in matrices)):
                node.replace_input_with(operand, _unflattened(program, operand, back))
    program.sweep()


def _three(shape: Shape | None) -> bool:
    return shape is not None and len(shape) == 3 and shape[:2] == ("B", "T") and isinstance(shape[2], int)


def _is_matrix(shape: Shape | None) -> bool:
    return shape is not None and len(shape) == 2 and shape[0] == "BT" and isinstance(shape[1], int)


def _same_rows(shape: Shape | None, matrix: Shape | None) -> bool:
    return (_three(shape) or _is_matrix(shape)) and _is_matrix(matrix) and shape[-1] == matrix[-1]  # type: ignore[index]


def _matrix(shape: Shape) -> Shape:
    return ("BT", *shape[2:])


def _flattens(node: fx.Node, flat: set[fx.Node]) -> bool:
    """Whether this is an operation on rows that are, or may as well be, a matrix."""
    op, shape = node.meta["op"], shape_of(node)
    if op in ("split", "chunk"):
        return node.args[0] in flat and argument(node, 2, "dim", 0) in (-1, 2)
    if not _three(shape):
        return False
    if op in ("view", "reshape"):  # heads [B, T, h, d] merged: rows begin here
        return len(shape_of(node.args[0]) or ()) == 4
    if op in _LAST:
        return True
    operands = [a for a in node.args if isinstance(a, fx.Node)]
    return op in POINTWISE and any(a in flat for a in operands) and all(_fits(a, flat) for a in operands)


def _fits(operand: fx.Node, flat: set[fx.Node]) -> bool:
    """Whether a pointwise operand broadcasts equally with matrices: rows, or one row for all, or a number."""
    shape = shape_of(operand)
    if operand in flat or _three(shape):
        return True
    return shape is not None and len(shape) <= 1 and all(isinstance(s, int) for s in shape)


def _flatten(program: CapturedGraph, node: fx.Node, flat: set[fx.Node]) -> None:
    op, shape = node.meta["op"], shape_of(node)
    if op in ("split", "chunk"):
        node.args = (node.args[0], node.args[1], -1)
        node.kwargs = {}
        return
    assert shape is not None
    if op in ("view", "reshape"):
        node.args = (node.args[0], (-1, shape[2]))
    else:
        for operand in node.all_input_nodes:
            inner = shape_of(operand)
            if operand not in flat and _three(inner):
                assert inner is not None
                with program.before(operand.next):
                    meta: dict[str, Any] = {"dtype": dtype_of(operand), "layer": operand.meta["layer"]}
                    made = program.make("reshape", (operand, (-1, inner[2])), shape=_matrix(inner), **meta)
                flat.add(made)
                node.replace_input_with(operand, made)
    node.meta["shape"] = _matrix(shape)


def _unflattened(program: CapturedGraph, node: fx.Node, back: dict[fx.Node, fx.Node]) -> fx.Node:
    if node not in back:
        shape = shape_of(node)
        assert shape is not None
        whole: Shape = ("B", "T", *shape[1:])
        with program.before(node.next):
            back[node] = program.make(
                "view", (node, program.sizes(whole)), shape=whole, dtype=dtype_of(node), layer=node.meta["layer"]
            )
    return back[node]
