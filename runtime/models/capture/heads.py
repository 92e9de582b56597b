"""Pass: queries and keys that lie side by side are cut into heads once and rotated together.

Why: after the projections are one product, its parts are each viewed as heads, and queries and keys go through the
same rotation one after the other. On one row every call costs more than its arithmetic.

Precondition: all parts of the product are viewed as heads of one size; the parts rotated are neighbours and use the
same cosines and sines.

    before   q, k, v = p.split((nq, nk, nv), -1); q = rotate(q.view(B, T, hq, d)); k = rotate(k.view(B, T, hk, d)) ...
    after    qk, v = p.view(B, T, h, d).split((hq + hk, hv), 2); q, k = rotate(qk).split((hq, hk), 2)
"""

from __future__ import annotations

from typing import Any

from torch import fx

from decgraph.runtime.models.capture.program import Program, dtype_of, is_op, only_user, shape_of


def heads(program: Program) -> None:
    for split in program.of("split"):
        _view_first(program, split)
    program.sweep()
    for split in program.of("split"):
        _rotate_together(program, split)
    program.sweep()


def _items(split: fx.Node) -> list[fx.Node] | None:
    """The items of a split in order, if every one is there once."""
    sizes = split.args[1]
    if not isinstance(sizes, tuple):
        return None
    items = sorted(split.users, key=lambda n: n.args[1] if isinstance(n.args[1], int) else -1)
    return items if [n.args[1] for n in items] == list(range(len(sizes))) and all(is_op(n, "item") for n in items) else None


def _view_first(program: Program, split: fx.Node) -> None:
    """Views of all parts as heads become one view of the whole."""
    items, whole = _items(split), split.args[0]
    if items is None or split.args[2] != -1 or len(shape_of(whole) or ()) not in (2, 3) or not isinstance(whole, fx.Node):
        return
    views = [only_user(n) for n in items]
    shapes = [shape_of(v) if is_op(v, "view", "reshape") else None for v in views]
    if any(s is None or len(s) != 4 or s[:2] != ("B", "T") for s in shapes):
        return
    if len({s[3] for s in shapes if s is not None}) != 1:
        return
    counts = tuple(int(s[2]) for s in shapes if s is not None)
    shape = ("B", "T", sum(counts), shapes[0][3])  # type: ignore[index]
    meta: dict[str, Any] = {"dtype": dtype_of(whole), "layer": split.meta["layer"]}
    with program.before(split):
        view = program.make("view", (whole, program.sizes(shape)), shape=shape, **meta)
        cut = program.make("split", (view, counts, 2), shape=None, dtype=None, layer=split.meta["layer"])
        for place, (old, part_shape) in enumerate(zip(views, shapes, strict=True)):
            part = program.make("getitem", (cut, place), shape=part_shape, **meta)
            part.meta["op"] = "item"
            assert old is not None
            program.replace(old, part)


def _rotation(item: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node] | None:
    """(cos, sin, result) if this tensor is rotated and not used otherwise."""
    if len(item.users) != 2:
        return None
    plain = next((u for u in item.users if is_op(u, "mul")), None)
    turned = next((u for u in item.users if is_op(u, "roll")), None)
    if plain is None or turned is None or plain.args[0] is not item or turned.args[2] != -1:
        return None
    result = only_user(plain)
    if result is None or only_user(turned) is not result or not is_op(result, "addcmul") or result.args[:2] != (plain, turned):
        return None
    cos, sin = plain.args[1], result.args[2]
    return (cos, sin, result) if isinstance(cos, fx.Node) and isinstance(sin, fx.Node) else None


def _rotate_together(program: Program, split: fx.Node) -> None:
    items = _items(split)
    if items is None or split.args[2] != 2:
        return
    found = [_rotation(n) for n in items]
    first = next((i for i, r in enumerate(found) if r is not None), None)
    if first is None or first + 1 >= len(items) or found[first + 1] is None:
        return
    one, two = found[first], found[first + 1]
    assert one is not None and two is not None
    if one[:2] != two[:2]:
        return
    counts = list(split.args[1])  # type: ignore[arg-type]
    together = counts[first] + counts[first + 1]
    shape = shape_of(items[first])
    assert shape is not None
    joined_shape = (*shape[:2], together, shape[3])
    meta: dict[str, Any] = {"dtype": dtype_of(items[first]), "layer": split.meta["layer"]}
    turned = next(u for u in items[first].users if is_op(u, "roll"))
    with program.before(split):
        cut = program.make(
            "split",
            (split.args[0], (*counts[:first], together, *counts[first + 2 :]), 2),
            shape=None,
            dtype=None,
            layer=split.meta["layer"],
        )
        slab = program.make("getitem", (cut, first), shape=joined_shape, **meta)
        slab.meta["op"] = "item"
        for place, item in enumerate(items):
            if place not in (first, first + 1):
                other = program.make("getitem", (cut, place - (place > first)), shape=shape_of(item), **meta)
                other.meta["op"] = "item"
                item.replace_all_uses_with(other)
    with program.before(one[2]):
        plain = program.make("mul", (slab, one[0]), shape=joined_shape, **meta)
        rolled = program.make("roll", (slab, *turned.args[1:]), shape=joined_shape, **meta)
        rotated = program.make("addcmul", (plain, rolled, one[1]), shape=joined_shape, **meta)
        parts = program.make("split", (rotated, (counts[first], counts[first + 1]), 2), shape=None, dtype=None)
        for place, (item, result) in enumerate(((items[first], one[2]), (items[first + 1], two[2]))):
            part = program.make("getitem", (parts, place), shape=shape_of(item), **meta)
            part.meta["op"] = "item"
            result.replace_all_uses_with(part)
