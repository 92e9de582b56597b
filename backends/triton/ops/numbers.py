"""Arithmetic, folds and scans over numbers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.ops.vectors import _MAPS, _folded
from decgraph.backends.triton.evaluate import joins, step
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Draws, Operand, Vec, is_static
from decgraph.backends.triton.vectors import alike, beside, both, filled, live_of, vec_of
from decgraph.ir.ops.common import align, numeric
from decgraph.ir.ops.vectors import _axis
from decgraph.ir.types import Dim
from decgraph.ir.values import Op


@step("map", folded=True)
def elementwise(s: Step, op: Op, *xs: Operand) -> Operand:
    """An elementwise function."""
    fn = op.attrs["fn"]
    if fn == "select" and any(isinstance(x, Draws) for x in xs[1:]) and op.result.type.elem == "draw":
        raise NotSteppable("draws that are selected element by element", op)
    types = [numeric(v.type) for v in op.operands]
    if fn in ("eq", "ne") and any(t.elem in ("path", "text", "astate", "list") for t in types):
        raise NotSteppable("texts that are compared", op)
    want = max((t.dims for t in types), key=len, default=())
    if len({id(live_of(x)) for x in xs if live_of(x) is not None}) > 1:
        xs = tuple(s.packed(x) for x in xs)
    values = [lined(s.tensor(x), t.dims, want) for x, t in zip(xs, types, strict=True)]
    found = [live_of(x) for x, t in zip(xs, types, strict=True) if t.dims[:1] == want[:1] or len(t.dims) == len(want)]
    live, known = None, [live for live in found if live is not None]
    n = min((int(v.shape[1]) for v in values if v.ndim > 1 and v.shape[1] != 1), default=1)
    # What stands behind the shorter one's room is missing in the other.
    values = [v[:, :n] if v.ndim > 1 and v.shape[1] > 1 else v for v in values]
    for other in known:
        s.same_count(known[0], other)
        live = both(live, other if other.shape[1] == n else other[:, :n])
    if fn == "floor":
        values = [v.double() if not v.is_floating_point() else v for v in values]
    if fn == "select":
        values = [values[0], *alike(values[1:])]
    if fn in ("minimum", "maximum", "clamp"):
        values = alike(values)
    if fn == "mod" and not values[1].is_floating_point():  # a lane that is not here may divide by 0
        values = [values[0], torch.where(values[1] == 0, 1, values[1])]
    if not want:
        s.bounds_of(op, fn)
    # a step on the device asks no numbers: what has no whole part is any number there (docs/language.md)
    return vec_of(torch.floor(values[0]).long() if fn == "floor" else _MAPS[fn](*values), live)


def lined(a: Tensor, have: tuple[Dim, ...], want: tuple[Dim, ...]) -> Tensor:
    """A tensor [B or 1, *have] with axes of one put in, so that it lines up with [B, *want]."""
    if len(have) == len(want) or a.ndim == 1 + len(want):
        return a
    axes = align(have, want) or tuple(range(len(have)))
    shape = [int(a.shape[0])] + [1] * len(want)
    for i, axis in enumerate(axes):
        shape[1 + axis] = int(a.shape[1 + i])
    return a.reshape(shape)


NEUTRAL = {"sum": 0, "any": False, "all": True, "count": 0, "prod": 1, "mean": 0}


@step("reduce", folded=True)
def reduce(s: Step, op: Op, x: Operand) -> Operand:
    """Fold one dimension."""
    fn, a, live = op.attrs["fn"], s.tensor(x), live_of(x)
    if a.dtype == torch.bool and op.result.type.elem == "int" and fn != "count":
        a = a.long()
    axis = 1 + _axis(op.attrs.get("over", ""), numeric(op.operands[0].type))
    a = a.double() if fn == "mean" and not a.is_floating_point() else a
    if live is None or axis != 1:
        return vec_of(_folded(fn, a, axis), live if axis != 1 else None)
    return folded(fn, Vec(a, live))


def folded(fn: str, x: Vec) -> Tensor:
    """A fold of the elements [B, n, ...] that are there."""
    a, live = x.data, x.live
    mask = beside(live, a)
    if fn == "mean":
        return torch.where(mask, a.double(), 0).sum(1) / mask.sum(1)
    if fn in NEUTRAL:
        return _folded(fn, torch.where(mask, a, torch.full((), NEUTRAL[fn], dtype=a.dtype, device=a.device)), 1)
    return _folded(fn, filled(a, live, fn in ("max", "logsumexp")), 1)


@step("scan", folded=True)
def scan(s: Step, op: Op, x: Operand) -> Operand:
    """Running folds along the last dimension."""
    x = s.packed(x)
    a, fn, live = s.tensor(x), op.attrs["fn"], live_of(x)
    if fn == "leading":
        return (a if live is None else a & live).long().cumprod(-1).sum(-1)
    if fn == "cummax":
        return vec_of(torch.cummax(a, -1).values, live)
    return vec_of((torch.cumsum if fn == "cumsum" else torch.cumprod)(a, -1), live)


@step("maxpool", folded=True)
def maxpool(s: Step, op: Op, x: Operand, width: Operand) -> Operand:
    """The largest of each value and its neighbours."""
    if not is_static(width):
        raise NotSteppable("neighbours whose number depends on data", op)
    x, width = s.packed(x), max(1, int(width))
    a, live, half = s.tensor(x), live_of(x), (width - 1) // 2
    a = filled(a if a.is_floating_point() else a.double(), live)
    wide = torch.nn.functional.pad(a, (half, width - 1 - half), value=-torch.inf)
    return vec_of(wide.unfold(1, width, 1).amax(-1), live)


@step("as_int", folded=True)
def whole(s: Step, op: Op, x: Operand) -> Operand:
    """A number rounded towards zero."""
    if not op.result.type.dims:
        s.bounds_of(op, "floor")
    a = s.tensor(x)
    return vec_of((a.trunc() if a.is_floating_point() else a).long(), live_of(x))


@step("contains", folded=True)
def contains(s: Step, op: Op, x: Operand, xs: Operand) -> Operand:
    """Whether numbers are among others."""
    xs = s.tokens_of(np.array(sorted(xs), dtype=np.int64) if isinstance(xs, set | frozenset) else xs)
    a, live = s.tensor(x), live_of(xs)

    def across(t: Tensor) -> Tensor:
        return t.reshape(len(t), *([1] * (a.ndim - 1)), -1)

    found = a[..., None] == across(s.tensor(xs))
    return vec_of((found if live is None else found & across(live)).any(-1), live_of(x))


@joins(Vec)
def join_vectors(s: Step, lanes: Tensor, a: Operand, b: Operand) -> Operand:
    """Vectors of different lengths, or with missing elements. lanes: bool[B]."""
    return Vec(s.either(lanes, a, b), s.either(lanes, s.lives(a), s.lives(b)))
