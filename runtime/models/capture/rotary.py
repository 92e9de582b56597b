"""Pass: rotary embeddings take three operations a tensor instead of seven, and stay in the projections' layout.

Why: `x * cos + rotate_half(x) * sin` slices twice, negates, concatenates, multiplies twice and adds. Halves swapped
are a roll by half the size, and the sign can live in the sines, which are made once a call. A rotation works row by
row, so it may come before the transposition to heads: the layout in which queries and keys lie side by side.

Precondition: the two slices are the halves of the last dimension, in this order.

    before   x * cos + cat((-x[..., n:], x[..., :n]), -1) * sin
    after    addcmul(x * cos, roll(x, n, -1), sin * signs)              signs = -1 (n times), +1 (n times)

    before   addcmul(t * cos.unsqueeze(1), ...) where t = y.transpose(1, 2)
    after    addcmul(y * cos.unsqueeze(2), ...).transpose(1, 2)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from decgraph.runtime.models.capture.program import Program, dtype_of, either, is_op, shape_of


def rotary(program: Program) -> None:
    for node in program.of("add"):
        found = _rotation(node)
        if found is not None:
            _rewrite(program, node, *found)
    program.sweep()
    for node in program.of("addcmul"):
        _untransposed(program, node)
    program.sweep()


def _rotation(node: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node] | None:
    """(x, cos, sin) of x * cos + rotate_half(x) * sin."""
    if len(node.args) != 2 or not all(is_op(a, "mul") for a in node.args):
        return None
    for plain, turned in (node.args, node.args[::-1]):
        assert isinstance(plain, fx.Node) and isinstance(turned, fx.Node)
        pair = either(turned, lambda a: is_op(a, "cat"))
        x = None if pair is None else _halves(pair[0])
        if x is None or pair is None:
            continue
        other = either(plain, lambda a, x=x: a is x)  # type: ignore[misc]
        if other is not None and isinstance(other[1], fx.Node) and isinstance(pair[1], fx.Node):
            return x, other[1], pair[1]
    return None


def _halves(cat: fx.Node) -> fx.Node | None:
    """x of cat((-x[..., n:], x[..., :n]), -1), n being half of x's last size."""
    parts, dim = cat.args[0], cat.args[1]
    if dim != -1 or not isinstance(parts, tuple | list) or len(parts) != 2:
        return None
    neg, low = parts
    if not is_op(neg, "neg") or not is_op(neg.args[0], "getitem") or not is_op(low, "getitem"):
        return None
    high = neg.args[0]
    x = low.args[0]
    shape = shape_of(x)
    if high.args[0] is not x or shape is None or not isinstance(shape[-1], int) or shape[-1] % 2:
        return None
    half = shape[-1] // 2
    wanted = ((Ellipsis, slice(half, None, None)), (Ellipsis, slice(None, half, None)))
    return x if (high.args[1], low.args[1]) == wanted else None


def _rewrite(program: Program, node: fx.Node, x: fx.Node, cos: fx.Node, sin: fx.Node) -> None:
    shape = shape_of(x)
    assert shape is not None and isinstance(shape[-1], int)
    meta: dict[str, Any] = {"shape": shape, "dtype": dtype_of(node), "layer": node.meta["layer"]}
    half = shape[-1] // 2
    name = f"signs_{half}"
    signs = program.tensors.get(name)
    if signs is None:
        signs = torch.ones(2 * half, dtype=dtype_of(sin), device=program.device)
        signs[:half] = -1
    with program.before(_after(sin)):
        signed = program.make("mul", (sin, program.constant(name, signs)), shape=shape_of(sin), dtype=dtype_of(sin))
    with program.before(node):
        turned = program.make("roll", (x, half, -1), **meta)
        plain = program.make("mul", (x, cos), **meta)
        new = program.make("addcmul", (plain, turned, signed), **meta)
    new.meta["rotation"] = (x, cos, signed)
    program.replace(node, new)


def _after(node: fx.Node) -> fx.Node:
    return node.next


def _untransposed(program: Program, node: fx.Node) -> None:
    """A rotation of y.transpose(1, 2) becomes the transposition of y's rotation."""
    plain, turned, sin = node.args
    if not (is_op(plain, "mul") and is_op(turned, "roll") and isinstance(plain, fx.Node) and isinstance(turned, fx.Node)):
        return
    x, cos = plain.args
    if turned.args[0] is not x or not is_op(x, "transpose") or x.args[1:] not in ((1, 2), (2, 1)):  # type: ignore[union-attr]
        return
    cos, sin = _turned(program, cos), _turned(program, sin)
    if cos is None or sin is None:
        return
    y = x.args[0]  # type: ignore[union-attr]
    meta: dict[str, Any] = {"shape": shape_of(y), "dtype": dtype_of(node), "layer": node.meta["layer"]}
    with program.before(node):
        new = program.make("roll", (y, *turned.args[1:]), **meta)
        new = program.make("addcmul", (program.make("mul", (y, cos), **meta), new, sin), **meta)
        new = program.make("transpose", (new, 1, 2), **{**meta, "shape": shape_of(node)})
    program.replace(node, new)


def _turned(program: Program, table: Any) -> fx.Node | None:
    """The same rows [B, T, n], broadcast over heads in the other layout: [B, 1, T, n] to [B, T, 1, n]."""
    scale = None
    if is_op(table, "mul") and program.tensor(table.args[1]) is not None:  # the signed sines
        table, scale = table.args
    if not is_op(table, "unsqueeze") or table.args[1] != 1:
        return None
    rows = table.args[0]
    shape = shape_of(rows)
    if shape is None or len(shape) != 3:
        return None
    meta: dict[str, Any] = {"shape": (*shape[:2], 1, shape[2]), "dtype": dtype_of(rows), "layer": -1}
    with program.before(_after(rows)):
        if scale is not None:
            rows = program.make("mul", (rows, scale), shape=shape, dtype=dtype_of(rows))
        return program.make("unsqueeze", (rows, 2), **meta)
