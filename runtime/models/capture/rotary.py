"""Pass: rotary embeddings take three operations a tensor instead of seven.

Why: `x * cos + rotate_half(x) * sin` slices twice, negates, concatenates, multiplies twice and adds. Halves swapped
are a roll by half the size, and the sign can be part of the sines, which are computed once a call.

Precondition: the two slices are the halves of the last dimension, in this order.

    before   x * cos + cat((-x[..., n:], x[..., :n]), -1) * sin
    after    addcmul(x * cos, roll(x, n, -1), sin * signs)              signs = -1 (n times), +1 (n times)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from decgraph.runtime.models.capture.program import CapturedGraph, dtype_of, either, is_op, shape_of


def rotary(program: CapturedGraph) -> None:
    """Rewrites rotary embeddings with `roll` and `addcmul`."""
    for node in program.of("add"):
        found = _rotation(node)
        if found is not None:
            _rewrite(program, node, *found)
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


def _rewrite(program: CapturedGraph, node: fx.Node, x: fx.Node, cos: fx.Node, sin: fx.Node) -> None:
    shape = shape_of(x)
    assert shape is not None and isinstance(shape[-1], int)
    meta: dict[str, Any] = {"shape": shape, "dtype": dtype_of(node), "layer": node.meta["layer"]}
    half = shape[-1] // 2
    name = f"signs_{half}"
    signs = program.tensors.get(name)
    if signs is None:
        signs = torch.ones(2 * half, dtype=dtype_of(sin), device=program.device)
        signs[:half] = -1
    signed = _signed(program, sin, program.constant(name, signs))
    with program.before(node):
        turned = program.make("roll", (x, half, -1), **meta)
        plain = program.make("mul", (x, cos), **meta)
        new = program.make("addcmul", (plain, turned, signed), **meta)
    program.replace(node, new)


def _signed(program: CapturedGraph, sin: fx.Node, signs: fx.Node) -> fx.Node:
    """The sines times the signs, before they are broadcast over heads, so that they are rows of a table."""
    if is_op(sin, "unsqueeze"):
        inner = _signed(program, sin.args[0], signs)
        with program.before(sin.next):
            return program.make("unsqueeze", (inner, sin.args[1]), shape=shape_of(sin), dtype=dtype_of(sin))
    with program.before(sin.next):
        return program.make("mul", (sin, signs), shape=shape_of(sin), dtype=dtype_of(sin))
