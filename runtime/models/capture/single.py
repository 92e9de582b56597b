"""Last step before a graph for one token of one sequence runs: heads and tokens are not transposed.

Why: with one token, [1, 1, h, d] and [1, h, 1, d] are the same numbers in the same places. Four of the thirty calls of a
Llama layer are transpositions between the two, and a small model's step is what its calls cost, whatever they compute.

Precondition: B = T = 1. Between the view as heads and the transposition there are only operations on the last dimension,
whose other operands are numbers, rows of one dimension, or a row per token that is broadcast over heads.

    before   q, v = p.view(1, 1, n, d).split((h, n - h), 2); a = attention(f(q).transpose(1, 2), ...)
             a.transpose(1, 2).reshape(-1, h * d)
    after    q, v = p.view(1, n, 1, d).split((h, n - h), 1); a = attention(f(q), ...); a.reshape(-1, h * d)
"""

from __future__ import annotations

from torch import fx

from decgraph.runtime.models.capture.ops import POINTWISE
from decgraph.runtime.models.capture.program import CapturedGraph, is_op, only_user, shape_of

_ROWS = POINTWISE | {"roll", "vector_norm"}


def single(program: CapturedGraph) -> None:
    """Removes transpositions of heads and tokens; see above."""
    for node in list(program.graph.nodes):
        if is_op(node, "view", "reshape") and _by_token(shape_of(node)):
            inside = _inside(node)
            if inside is not None:
                _turn(program, node, inside)
    for node in program.of("attention"):
        _merge(program, node)
        mask = node.kwargs.get("attn_mask")
        if is_op(mask, "repeat") and mask.args[1:3] == (1, 1) and mask.args[4] == 1:
            mask.target, mask.args = "expand", (mask.args[0], -1, -1, mask.args[3], -1)
            mask.meta["op"] = "expand"
    program.sweep()


def _by_token(shape: tuple[int | str, ...] | None) -> bool:
    return shape is not None and len(shape) == 4 and shape[:2] == ("B", "T") and isinstance(shape[2], int)


def _turned(node: fx.Node) -> bool:
    return is_op(node, "transpose") and node.args[1:] in ((1, 2), (2, 1))


def _inside(view: fx.Node) -> list[fx.Node] | None:
    """What lies between this view and transpositions, these among it, in the graph's order; None if there is anything else."""
    inside = {view}
    node = view.next
    while node.op != "root":
        given = [n for n in node.all_input_nodes if n in inside and not _turned(n)]
        if given:
            if not (_turned(node) or is_op(node, "item") or _along_rows(node, inside)):
                return None
            inside.add(node)
        node = node.next
    order = [n for n in view.graph.nodes if n in inside]
    return order if any(map(_turned, order)) else None


def _along_rows(node: fx.Node, inside: set[fx.Node]) -> bool:
    if is_op(node, "split"):
        return len(node.args) == 3 and node.args[2] == 2
    if node.meta["op"] not in _ROWS or not _by_token(shape_of(node)):
        return False
    for other in node.all_input_nodes:
        shape = shape_of(other)
        row = shape is not None and (len(shape) <= 1 or (len(shape) == 4 and shape[:3] == ("B", "T", 1)))
        if other not in inside and not row:
            return False
    return True


def _turn(program: CapturedGraph, view: fx.Node, inside: list[fx.Node]) -> None:
    shape = shape_of(view)
    assert shape is not None
    view.args = (view.args[0], (1, shape[2], 1, shape[3]))
    for node in inside:
        if is_op(node, "split"):
            node.args = (*node.args[:2], 1)
        elif _turned(node):
            assert isinstance(node.args[0], fx.Node)
            program.replace(node, node.args[0])


def _merge(program: CapturedGraph, attention: fx.Node) -> None:
    """Heads become one row again without being transposed or, of grouped heads, permuted."""
    out = only_user(attention)
    if out is None:
        return
    last = only_user(out) if is_op(out, "view") else None
    if last is not None and is_op(last, "permute") and last.args[1] == (0, 3, 1, 2, 4):
        out = last
    elif not _turned(out):
        return
    for use in out.users:
        sizes = use.args[1] if is_op(use, "view", "reshape") else None
        if not (isinstance(sizes, tuple) and len(sizes) == 2):
            return
    for use in list(out.users):
        use.target, use.meta["op"] = "reshape", "reshape"
    out.replace_all_uses_with(attention)
