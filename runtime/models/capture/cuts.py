"""Pass: one spelling for cutting a tensor into parts along its last dimension.

Why: modules slice (`qkv[..., :n]`), `chunk(3)` or `split(n)` where others have separate matrices; passes on
neighbouring parts should handle one spelling only. Parts of width 0 are removed, as are slices of the whole dimension
(a rotary embedding of part of a head, configured to be of all of it).

Precondition: the slices are exactly the tensor, in order, without overlap.

    before   q = x[..., :n]; k = x[..., n:m]; v = x[..., m:]        x.chunk(2, -1)        x.split(n, -1)
    after    q, k, v = x.split((n, m - n, ...), -1)
"""

from __future__ import annotations

from typing import Any

from torch import fx

from decgraph.runtime.models.capture.program import CapturedGraph, argument, dtype_of, is_op, shape_of


def cuts(program: CapturedGraph) -> None:
    """Spells every cut of the last dimension as one `split` with its sizes."""
    for node in list(program.graph.nodes):
        if is_op(node, "getitem") and node.users and shape_of(node) == shape_of(node.args[0]) and _slice(node) is not None:
            program.replace(node, node.args[0])
        elif is_op(node, "cat"):
            _without_nothing(program, node)
    program.sweep()
    for node in list(program.graph.nodes):
        if is_op(node, "split", "chunk"):
            _sized(node)
        else:
            _split(program, node)
    program.sweep()


def _without_nothing(program: CapturedGraph, cat: fx.Node) -> None:
    dim = cat.args[1]
    parts = [p for p in cat.args[0] if (shape_of(p) or (1,))[-1] != 0]
    if dim != -1 or len(parts) == len(cat.args[0]):
        return
    if len(parts) == 1:
        program.replace(cat, parts[0])
    else:
        cat.args = (tuple(parts), dim)


def _sized(node: fx.Node) -> None:
    """`chunk` and `split` by a width, as a split by widths."""
    whole, dim = shape_of(node.args[0]), argument(node, 2, "dim", 0)
    items = sorted((n for n in node.users if is_op(n, "item")), key=lambda n: int(n.args[1]))
    if whole is None or dim not in (-1, len(whole) - 1) or len(items) != len(node.users) or isinstance(whole[-1], str):
        return
    asked = argument(node, 1, "split_size", argument(node, 1, "chunks"))
    if not isinstance(asked, int):
        return
    width = asked if node.meta["op"] == "split" else -(-whole[-1] // asked)
    count = -(-whole[-1] // width)
    node.target, node.kwargs = "split", {}
    node.args = (node.args[0], tuple(min(width, whole[-1] - i * width) for i in range(count)), -1)
    node.meta["op"] = "split"


def _slice(node: fx.Node) -> slice | None:
    """The slice of the last dimension that this node takes; None for other nodes."""
    index: Any = node.args[1]
    if not (isinstance(index, tuple) and len(index) == 2 and index[0] is Ellipsis and isinstance(index[1], slice)):
        return None
    ends = (index[1].start, index[1].stop)
    return index[1] if index[1].step is None and all(e is None or isinstance(e, int) for e in ends) else None


def _split(program: CapturedGraph, node: fx.Node) -> None:
    """Slices of this tensor, as a split."""
    shape = shape_of(node)
    if shape is None or not shape or not isinstance(shape[-1], int):
        return
    taken = [(u, s.indices(shape[-1])) for u in node.users if is_op(u, "getitem") and (s := _slice(u)) is not None]
    taken.sort(key=lambda pair: pair[1][0])
    if len(taken) < 2 or any(is_op(u, "neg") for t, _ in taken for u in t.users):  # halves of a rotation: rotary.py
        return
    ends = [0, *(stop for _, (_, stop, _) in taken)]
    if ends[-1] != shape[-1] or any(start != end for (_, (start, _, _)), end in zip(taken, ends)):
        return
    layer = node.meta["layer"]
    with program.before(node.next):
        widths = tuple(stop - start for _, (start, stop, _) in taken)
        made = program.make("split", (node, widths, -1), shape=None, dtype=None, layer=layer)
        parts = []
        for place, (old, _) in enumerate(taken):
            parts.append(program.make("getitem", (made, place), shape=shape_of(old), dtype=dtype_of(old), layer=layer))
            parts[-1].meta["op"] = "item"
    for (old, _), part in zip(taken, parts):
        program.replace(old, part)
