"""Pass: the chain that spells root-mean-square normalisation becomes one operation, or the cheapest few.

Why: written out it is six calls and four temporaries of the states' size. On CUDA `torch.rms_norm` is one kernel. On
the CPU it is the same chain behind one name (16 us on a row of 256; a vector norm, a division and a product take 5),
so there, in float32, the norm is taken directly: mean(x^2) + eps = (|x|^2 + n eps) / n, so
x / sqrt(mean(x^2) + eps) = x / hypot(|x|, sqrt(n eps)) * sqrt(n), and sqrt(n) goes into the weight once.

Precondition: the mean is over the last dimension, eps is a number, the weight a constant of the last dimension's size
(or there is none). In 16 bits the fused operation multiplies by the weight before rounding, the module after.

    before   w * (x * rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))
    after    x / hypot(vector_norm(x, 2, -1, True), c) * (w * sqrt(n))          CPU, float32
             torch.rms_norm(x, (n,), w, eps)                                    elsewhere
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from decgraph.runtime.models.capture.program import CapturedGraph, argument, dtype_of, either, is_op, shape_of


@dataclass(frozen=True)
class _Norm:
    x: fx.Node  # in the dtype in which the chain computes
    weight: fx.Node | None
    eps: float


def norms(program: CapturedGraph) -> None:
    """Fuses root-mean-square normalisations, those with a weight first."""
    for node in list(program.graph.nodes):
        if is_op(node, "mul") and node.users:
            found = _weighted(program, node)
            if found is not None:
                _rewrite(program, node, found)
    program.sweep()
    for node in program.of("mul"):  # norms without a weight are the inner half of those with one: last
        found = _plain(node)
        if found is not None and node.users:
            _rewrite(program, node, found)
    program.sweep()


def _weighted(program: CapturedGraph, node: fx.Node) -> _Norm | None:
    pair = either(node, lambda a: program.tensor(a) is not None)
    if pair is None:
        return None
    weight, rest = pair
    inner = _plain(rest.args[0] if is_op(rest, "to", "type_as") else rest)
    shape = shape_of(node)
    if inner is None or shape is None or shape_of(weight) != shape[-1:]:
        return None
    x = inner.x
    if is_op(rest, "to", "type_as"):  # rounded before the weight: take the states as they were before widening
        if not is_op(x, "to", "float") or dtype_of(x.args[0]) != dtype_of(node):
            return None
        x = x.args[0]
    if dtype_of(x) != dtype_of(weight):
        return None
    return _Norm(x, weight, inner.eps)


def _plain(node: Any) -> _Norm | None:
    """x * rsqrt(mean(x * x) + eps)."""
    if not is_op(node, "mul"):
        return None
    pair = either(node, lambda a: is_op(a, "rsqrt"))
    if pair is None:
        return None
    root, x = pair
    if not is_op(root.args[0], "add"):
        return None
    total = either(root.args[0], lambda a: is_op(a, "mean"))
    if total is None or not isinstance(total[1], float | int):
        return None
    mean, eps = total
    square = mean.args[0]
    last = argument(mean, 1, "dim") in (-1, (-1,), [-1]) and argument(mean, 2, "keepdim", False)
    squared = (is_op(square, "pow") and square.args[1] == 2 and square.args[0] is x) or (
        is_op(square, "mul") and square.args == (x, x)
    )
    return _Norm(x, None, float(eps)) if last and squared and isinstance(x, fx.Node) else None


def _rewrite(program: CapturedGraph, node: fx.Node, norm: _Norm) -> None:
    shape, dtype, layer = shape_of(norm.x), dtype_of(norm.x), node.meta["layer"]
    if shape is None or not isinstance(shape[-1], int):
        return
    size = shape[-1]
    meta: dict[str, Any] = {"dtype": dtype, "layer": layer}
    with program.before(node):
        if program.device.type == "cpu" and dtype == torch.float32:
            floor = _floor(program, size, norm.eps)
            length = program.make("vector_norm", (norm.x, 2, -1, True), shape=(*shape[:-1], 1), **meta)
            length = program.make("hypot", (length, floor), shape=(*shape[:-1], 1), **meta)
            new = program.make("div", (norm.x, length), shape=shape, **meta)
            new = program.make("mul", (new, _scaled(program, norm.weight, size)), shape=shape, **meta)
        else:
            new = program.make("rms_norm", (norm.x, (size,), norm.weight, norm.eps), shape=shape, **meta)
    program.replace(node, new)


def _floor(program: CapturedGraph, size: int, eps: float) -> fx.Node:
    """sqrt(size eps)."""
    name = f"norm_floor_{size}_{eps}".replace(".", "_").replace("-", "_")
    if name in program.named:
        return program.named[name]
    return program.constant(name, torch.tensor(math.sqrt(size * eps), dtype=torch.float32, device=program.device))


def _scaled(program: CapturedGraph, weight: fx.Node | None, size: int) -> fx.Node | float:
    """The weight times the square root of its size."""
    if weight is None:
        return math.sqrt(size)
    name = f"{weight.target}_scaled"
    held = program.tensors.get(name)
    return program.constant(name, program.tensors[str(weight.target)] * math.sqrt(size) if held is None else held)
