"""Lowerings of ir/ops/ordering.py: sorting, ranks, firsts, and selection by a condition."""

from __future__ import annotations

import numpy as np
import torch

from decgraph.backends.torch.data import Vector, array, host
from decgraph.backends.torch.draws import Mixed, TorchDraws
from decgraph.backends.torch.lowering import lowering
from decgraph.backends.torch.ops.distributions import tensor_of
from decgraph.backends.torch.ops.selection import keys_of
from decgraph.backends.torch.ops.vectors import on_device
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import TorchDist
from decgraph.ir.opdef import OpError
from decgraph.ir.table import lookup
from decgraph.ir.values import Op


@lowering("sort")
def sort(m: Machine, x: object, *by: object, descending: bool = False) -> object:
    """The candidates in the order of their keys, or a vector's own values."""
    keys = keys_of(by) or [np.asarray(host(x), dtype=np.float64).ravel()]
    order = np.asarray(m.num.order(keys, descending), dtype=np.int64)
    return x.pick(order) if isinstance(x, TorchDraws | Mixed) else array(x)[order]


@lowering("compact")
def compact(m: Machine, v: object, c: object, *, op: Op) -> object:
    """The elements at which a condition holds, in order."""
    if not isinstance(v, TorchDist | TorchDraws | Mixed):
        return lookup("compact").meaning(m, op, v, array(c))[0]
    c, n = array(c), v.shape[0]
    keep = np.arange(n) if c.ndim == 0 and bool(c) else np.flatnonzero(c) if c.ndim else np.zeros(0, dtype=np.int64)
    if c.ndim and len(c) != n:
        raise OpError(f"`where`: {n} elements and {len(c)} conditions")
    at = v.at if v.at is not None else (np.arange(n) if isinstance(v, TorchDist) else None)
    return v.pick(keep, None if at is None else at[keep])


@lowering("take_first")
def take_first(m: Machine, x: Vector, k: int, *, op: Op) -> object:
    """The first k of a vector; of a condition over positions, the first k where it holds."""
    k = max(0, int(k))
    if op.operands[0].type.elem == "bool" and op.results[0].type.elem == "position":
        return np.flatnonzero(array(x))[:k]
    if isinstance(x, TorchDist | TorchDraws | Mixed):
        at = x.at if x.at is not None else (np.arange(x.shape[0]) if isinstance(x, TorchDist) else None)
        return x.pick(slice(None, k), None if at is None else at[:k])
    return x[:k]


@lowering("rank")
def rank(m: Machine, x: object) -> object:
    """The place of each entry in its row, the largest 0; stable."""
    if on_device(x):
        order = torch.sort(-tensor_of(x), dim=-1, stable=True).indices  # NaN comes last
        return torch.empty_like(order).scatter_(-1, order, torch.arange(order.shape[-1], device=order.device).expand_as(order))
    a = np.asarray(host(x), dtype=np.float64)
    out = np.empty(a.shape, dtype=np.int64)
    np.put_along_axis(out, np.argsort(-a, axis=-1, kind="stable"), np.broadcast_to(np.arange(a.shape[-1]), a.shape), -1)
    return out


@lowering("first_max")
def first_max(m: Machine, x: object) -> object:
    """Which entry of each row is the first of the largest."""
    if on_device(x):
        t = tensor_of(x)
        best = torch.where(torch.isnan(t), -torch.inf, t).argmax(-1, keepdim=True)
        return torch.arange(t.shape[-1], device=t.device) == best
    a = np.asarray(host(x), dtype=np.float64)
    a = np.where(np.isnan(a), -np.inf, a)
    return np.arange(a.shape[-1]) == a.argmax(-1)[..., None] if a.size else np.zeros(a.shape, dtype=bool)
