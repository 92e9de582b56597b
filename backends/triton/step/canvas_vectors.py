"""Vectors whose length data decides, on the device: every op gives what it would give for the elements that are there."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.ops.vectors import _MAPS
from decgraph.backends.triton.step.canvas_rows import Rows, Values, tokens_of, vector
from decgraph.backends.triton.step.canvas_step import form
from decgraph.backends.triton.step.canvas_values import Dist, Draws, Edit, Live, Num, both, picked
from decgraph.backends.triton.step.canvases import located
from decgraph.backends.triton.step.evaluate import NotStatic
from decgraph.ir.ops.common import align, numeric
from decgraph.ir.ops.vectors import _axis
from decgraph.ir.values import Op


def packed(x: Live) -> Live:
    """The same elements, those that are there first. [B, N]"""
    if x.live is None or x.packed:
        return x
    order = torch.sort(~x.live, dim=1, stable=True).indices
    data = x.data if isinstance(x.data, Tensor) else None
    if data is None or data.ndim != 2:
        raise NotStatic("only numbers are moved together")
    return Live(data.gather(1, order), x.live.gather(1, order), packed=True)


def numbers(s: Any, x: Any, op: Op) -> Any:
    """A value in arithmetic: a Live, a Num, or a tensor without the axis of sequences for what the host knows."""
    if isinstance(x, Dist):
        data = vector(x)
        return Live(data if x.ids.ndim else data[:, 0], x.live)
    if isinstance(x, Draws):
        return Live(tokens_of(x, s.stream), x.live)
    if isinstance(x, Live):
        return x if isinstance(x.data, Tensor) else replace(x, data=s.constant(x.data)[None].expand(s.batch, -1))
    if isinstance(x, Num):
        return x
    if isinstance(x, bool | int | float | np.generic | np.ndarray):
        return s.constant(x)
    raise NotStatic(f"arithmetic on a {type(x).__name__}", op)


@form("map")
def elementwise(s: Any, op: Op, *xs: Any) -> Any:
    """An elementwise function."""
    fn = op.attrs["fn"]
    if not any(getattr(x, "on_device", False) for x in xs):
        return s.hosted(op, xs)
    if any(isinstance(x, Edit) for x in xs):
        raise NotStatic("edits are compared on the host", op)
    values = [numbers(s, x, op) for x in xs]
    types = [numeric(v.type) for v in op.operands]
    want = max((t.dims for t in types), key=len)
    lives = [v for v in values if isinstance(v, Live) and (v.live is not None or v.data.ndim == 2)]
    live, keep = None, False
    if lives:
        aligned = all(v.live is lives[0].live and v.size == lives[0].size for v in lives)
        if not aligned:    # elements go together by their place among those that are there
            lined = {id(v): packed(v) for v in lives}
            size = min(v.size for v in lined.values())
            for v in lined.values():
                live = both(live, None if v.live is None else v.live[:, :size])
            values = [Live(lined[id(v)].data[:, :size], live) if id(v) in lined else v for v in values]
            keep = True
        else:
            live, keep = lives[0].live, all(v.packed for v in lives)
    tensors = [_spread(v.data, t.dims, want) if isinstance(v, Live | Num) else v
               for v, t in zip(values, types, strict=True)]
    if fn in ("div", "exp", "log", "sqrt"):
        tensors = [t if t.is_floating_point() else t.double() for t in tensors]
    out = _MAPS[fn](*tensors)
    if not want:
        return Num(out, _most(fn, xs))
    return Live(out, live, packed=keep and live is not None)


def _spread(a: Tensor, have: tuple[Any, ...], want: tuple[Any, ...]) -> Tensor:
    """[B, ...] with axes of one where it has none of the axes wanted."""
    if len(have) == len(want):
        return a
    axes = align(have, want) or ()
    shape = [int(a.shape[0])] + [1] * len(want)
    for i, axis in enumerate(axes):
        shape[1 + axis] = int(a.shape[1 + i])
    return a.reshape(shape)


def _most(fn: str, xs: tuple[Any, ...]) -> int | None:
    """The greatest that a sum or a choice of counted numbers can be."""
    bounds = [x.most if isinstance(x, Num) else x if isinstance(x, int) and not isinstance(x, bool) else None for x in xs]
    if None in bounds:
        return min((b for b in bounds if b is not None), default=None) if fn == "minimum" else None
    known = [b for b in bounds if b is not None]
    if fn == "add":
        return sum(known)
    if fn in ("maximum", "minimum"):
        return max(known) if fn == "maximum" else min(known)
    if fn == "sub" and isinstance(xs[1], int):
        return known[0] - known[1]
    return None


@form("as_int")
def as_int(s: Any, op: Op, x: Any) -> Any:
    """Whole numbers, rounded towards zero."""
    if not getattr(x, "on_device", False):
        return s.hosted(op, [x])
    x = numbers(s, x, op)
    whole = x.data.trunc().long() if x.data.is_floating_point() else x.data.long()
    return replace(x, data=whole)


@form("reduce")
def reduce(s: Any, op: Op, x: Any) -> Any:
    """Fold one dimension."""
    if not getattr(x, "on_device", False):
        return s.hosted(op, [x])
    t, fn = numeric(op.operands[0].type), op.attrs["fn"]
    axis = _axis(op.attrs, t)
    if fn == "max" and isinstance(x, Dist) and t.dims[axis].kind == "vocab" and x.face == "raw" and isinstance(x.rows, Rows):
        return Live(s.lazy(1.0 / x.rows.mass(x.ids)), x.live)
    x = numbers(s, x, op)
    live = x.live
    a = x.data
    if axis == len(t.dims) - 1 and t.dims[axis].kind == "vocab":
        out = s.lazy(_folded(fn, a, -1))
        return Live(out, live, x.packed) if len(t.dims) > 1 else Num(out)
    if live is not None:
        shape = (*live.shape, *[1] * (a.ndim - 2))
        rest = {"max": -torch.inf, "min": torch.inf, "sum": 0, "mean": 0, "any": False, "count": False, "all": True, "prod": 1,
                "logsumexp": -torch.inf}[fn]
        if rest in (torch.inf, -torch.inf) and not a.is_floating_point():
            rest = torch.iinfo(a.dtype).max if rest > 0 else torch.iinfo(a.dtype).min
        a = torch.where(live.reshape(shape), a, rest)
    out = _folded(fn, a, 1)
    if fn == "mean" and live is not None:
        out = out * a.shape[1] / live.sum(1).reshape(-1, *[1] * (a.ndim - 2))
    most = x.size if fn == "count" else None
    return Num(out, most) if out.ndim == 1 else Live(out)


def _folded(fn: str, a: Tensor, axis: int) -> Tensor:
    if fn in ("max", "min"):
        return a.amax(axis) if fn == "max" else a.amin(axis)
    if fn == "count":
        return a.long().sum(axis)
    if fn == "logsumexp":
        return torch.logsumexp(a, axis)
    if fn == "mean" and not a.is_floating_point():
        a = a.double()
    folds: dict[str, Any] = {"sum": torch.sum, "any": torch.any, "all": torch.all, "mean": torch.mean, "prod": torch.prod}
    out: Tensor = folds[fn](a, axis)
    return out


@form("scan")
def scan(s: Any, op: Op, x: Any) -> Any:
    """Running folds; `leading`: how many of the first hold."""
    if not getattr(x, "on_device", False):
        return s.hosted(op, [x])
    x, fn = packed(numbers(s, x, op)), op.attrs["fn"]
    if fn == "leading":
        a = x.data if x.live is None else x.data & x.live
        return Num((torch.cumsum((~a).long(), 1) == 0).sum(1), x.size)
    out = torch.cummax(x.data, 1).values if fn == "cummax" else (torch.cumsum if fn == "cumsum" else torch.cumprod)(x.data, 1)
    return replace(x, data=out)


@form("gather")
def gather(s: Any, op: Op, v: Any, *ix: Any) -> Any:
    """v[i]; where a distribution or draws range over a part, a position names its member."""
    if len(ix) > 1:
        raise NotStatic("two indices at once", op)
    i = ix[0]
    away = getattr(i, "on_device", False)
    if isinstance(v, list):
        if away:
            raise NotStatic("which of a list is meant depends on data", op)
        return v[int(i)]
    if isinstance(v, np.ndarray):
        return _of_array(s, op, v, i) if away else s.hosted(op, [v, i])
    named = op.operands[1].type.elem in ("node", "position")
    if isinstance(v, Dist | Draws) and not away and np.ndim(i):
        ids = np.asarray(i, dtype=np.int64)
        _all_there(v, op)
        return v.pick(located(v.at, ids) if named else ids)
    if isinstance(v, Dist | Draws) and isinstance(i, Live) and isinstance(i.data, np.ndarray):
        _all_there(v, op)
        return v.pick(located(v.at, i.data) if named else i.data, i.live)
    if isinstance(v, Dist):
        raise NotStatic("which distributions are meant depends on data", op)
    if isinstance(v, Draws) and named and v.at is not None:
        raise NotStatic("draws over a part are found by a position that depends on data", op)
    return _of_vector(s, op, numbers(s, v, op), i)


def _all_there(v: Any, op: Op) -> None:
    if v.live is not None:
        raise NotStatic("elements of a vector whose length depends on data are counted off", op)


def _of_array(s: Any, op: Op, v: np.ndarray, i: Any) -> Any:
    """An entry of what the host knows, by an index that it does not."""
    table = s.constant(v)[None].expand(s.batch, -1)
    whole = v.dtype.kind in "iu" and v.size > 0
    index = i.data.long().clamp(0, len(v) - 1)
    if isinstance(i, Num):
        return Num(table.gather(1, index[:, None])[:, 0], int(v.max()) if whole else None)
    return Live(table.gather(1, index), i.live, i.packed)


def _of_vector(s: Any, op: Op, v: Live, i: Any) -> Any:
    """Elements of a vector by an index."""
    if not getattr(i, "on_device", False):
        _all_there(v, op)
        if np.ndim(i):
            return Live(picked(v.data, np.asarray(i, dtype=np.int64)))
        return Num(v.data[:, int(i)])
    if v.live is not None:
        v = packed(v)
    if isinstance(i, Num):
        return Num(v.data.gather(1, i.data.long().clamp(0, v.size - 1)[:, None])[:, 0])
    i = numbers(s, i, op)
    return Live(v.data.gather(1, i.data.clamp(0, v.size - 1)), i.live, i.packed)


@form("slice")
def cut(s: Any, op: Op, v: Any, *ends: Any) -> Any:
    """v[lo:hi]."""
    if not any(getattr(x, "on_device", False) for x in (v, *ends)):
        return s.hosted(op, [v, *ends])
    lo = ends[0] if op.attrs.get("has_lo") else 0
    if op.attrs.get("has_hi") or not isinstance(lo, int) or lo < 0:
        raise NotStatic("a slice whose ends depend on data", op)
    x = packed(numbers(s, v, op))
    return Live(x.data[:, lo:], None if x.live is None else x.live[:, lo:], x.packed)


@form("compact")
def compact(s: Any, op: Op, v: Any, c: Any) -> Any:
    """The elements at which a condition holds: all stay where they are, and fewer are there."""
    if not any(getattr(x, "on_device", False) for x in (v, c)):
        return s.hosted(op, [v, c])
    if isinstance(c, Num):
        live = c.data[:, None]
    else:
        mask = numbers(s, c, op)
        live = mask if isinstance(mask, Tensor) else mask.data if mask.live is None else mask.data & mask.live
        if live.ndim < 2:
            live = live.expand(s.batch, -1)
        dims = op.operands[1].type.dims
        if op.operands[0].type.elem == "position" and dims and dims[0].kind == "cells":
            at = numbers(s, v, op)     # the condition is over all cells: it is read at each
            if isinstance(at, Tensor):
                live = live if np.array_equal(v, np.arange(live.shape[1])) else live.gather(1, at[None].expand(s.batch, -1))
            else:
                live = live.gather(1, at.data.clamp(0, live.shape[1] - 1))
    if isinstance(v, Draws):
        return v.alive(both(v.live, live.expand(s.batch, _size(v))))
    if isinstance(v, Dist):
        return replace(v, live=both(v.live, live.expand(s.batch, v.size)))
    if isinstance(v, np.ndarray):
        return Live(v, live.expand(s.batch, len(v)))
    if not isinstance(v, Live):
        raise NotStatic(f"elements of a {type(v).__name__} at a condition", op)
    if v.live is not None and not isinstance(c, Num) and (c.live is not v.live if isinstance(c, Live) else True):
        raise NotStatic("conditions on other elements", op)
    return Live(v.data, both(v.live, live.expand(s.batch, v.size)))


def _size(v: Draws) -> int:
    return v.dist.size if v.dist is not None else int(v.tokens.shape[1])  # type: ignore[union-attr]  # one of the two is there


@form("take_first")
def take_first(s: Any, op: Op, x: Any, k: Any) -> Any:
    """The first k of a vector; of a condition over positions, the first k where it holds."""
    if not any(getattr(v, "on_device", False) for v in (x, k)):
        return s.hosted(op, [x, k])
    count = k.data[:, None] if isinstance(k, Num) else max(0, int(k))
    if op.operands[0].type.elem == "bool" and op.results[0].type.elem == "position":
        x = Live(np.arange(x.size), x.data if x.live is None else x.data & x.live)
    if isinstance(x, np.ndarray):
        x = Live(x)
    if not isinstance(x, Live):
        raise NotStatic("the first of several distributions or draws", op)
    live = torch.ones(s.batch, x.size, dtype=torch.bool, device=s.device) if x.live is None else x.live
    return Live(x.data, live & (live.long().cumsum(1) <= count), x.packed)


@form("len")
def length(s: Any, op: Op, x: Any) -> Any:
    """How many there are."""
    live = getattr(x, "live", None)
    if live is not None:
        return Num(live.sum(1), int(live.shape[1]))
    if isinstance(x, Live | Dist):
        return x.size
    return _size(x) if isinstance(x, Draws) else len(x)


@form("tile")
def tile(s: Any, op: Op, *xs: Any) -> Any:
    """Equal numbers, or the numbers from one to another, as many as data says."""
    if not any(getattr(x, "on_device", False) for x in xs):
        return s.hosted(op, xs)
    kind, (lo, n) = op.attrs["kind"], xs[:2]
    if kind not in ("iota", "tile") or not isinstance(n, Num) or n.most is None or getattr(lo, "on_device", False):
        raise NotStatic("how many numbers there are has no bound", op)
    start = int(lo) if kind == "iota" else 0
    places = s.constant(np.arange(start, max(start, n.most)))[None].expand(s.batch, -1)
    live = places < n.data[:, None]
    data = places if kind == "iota" else s.constant(lo).expand(s.batch, places.shape[1])
    return Live(data, live, packed=True)


# -- choosing
def keyed(x: Live) -> Tensor:
    """Sort keys float64[B, N], elements that are not there last."""
    keys = x.data.double()
    keys = torch.where(torch.isnan(keys), -torch.inf, keys)
    return keys if x.live is None else torch.where(x.live, keys, -torch.inf)


def order_of(x: Live, descending: bool) -> Tensor:
    """int64[B, N]: the places of the elements in the order of their keys, equal ones as they stand, the absent last."""
    keys = x.data.double()
    keys = -keys if descending else keys
    order = torch.sort(keys, dim=1, stable=True).indices      # what is no number comes last
    if x.live is not None:
        absent = (~x.live).gather(1, order)
        order = order.gather(1, torch.sort(absent, dim=1, stable=True).indices)
    return order


@form("first_max")
def first_max(s: Any, op: Op, x: Any) -> Live:
    """Which entry is the first of the largest."""
    x = numbers(s, x, op)
    first = order_of(x, True)[:, :1]
    return Live(s.constant(np.arange(x.size))[None] == first, x.live, x.packed)


@form("rank")
def rank(s: Any, op: Op, x: Any) -> Live:
    """The place of each entry, the largest 0; stable."""
    x = numbers(s, x, op)
    order = order_of(x, True)
    out = torch.zeros_like(order).scatter(1, order, s.constant(np.arange(x.size))[None].expand(s.batch, -1))
    return Live(out, x.live, x.packed)


@form("sort")
def sort(s: Any, op: Op, x: Any, *by: Any) -> Live:
    """The candidates in the order of their key, or a vector's own values."""
    if not any(getattr(v, "on_device", False) for v in (x, *by)):
        out: Live = s.hosted(op, [x, *by])
        return out
    if len(by) > 1 or isinstance(x, Dist | Draws):
        raise NotStatic("sorting by several keys", op)
    values = numbers(s, x, op)
    if isinstance(values, Tensor):
        values = Live(values[None].expand(s.batch, -1))
    key = numbers(s, by[0], op) if by else values
    order = order_of(Live(key.data, both(key.live, values.live)), bool(op.attrs.get("descending")))
    live = both(key.live, values.live)
    return Live(values.data.gather(1, order), None if live is None else live.gather(1, order), packed=True)


@form("arg")
def arg(s: Any, op: Op, x: Any, *by: Any) -> Any:
    """The element with the largest (or smallest) key; with one operand the best token of each distribution."""
    down = op.attrs["fn"] == "max"
    if not by:
        if isinstance(x, Dist):
            if isinstance(x.rows, Values) and x.rows.ones is not None and down:
                return Live(x.rows.ones, x.live)
            if isinstance(x.rows, Rows) and down and (x.face != "shaped" or x.rows.shaper.greedy):
                best = x.rows.points(x.ids) if x.face == "shaped" else x.rows.logits(x.ids).argmax(-1)
            else:
                best = vector(x).argmax(-1) if down else vector(x).argmin(-1)
            return Live(best, x.live) if x.ids.ndim else Num(best[:, 0])
        if not getattr(x, "on_device", False):
            return s.hosted(op, [x])
        x = packed(numbers(s, x, op))
        return Num(order_of(x, down)[:, 0])
    if len(by) > 1 or not getattr(by[0], "on_device", False):
        raise NotStatic("the best by several keys", op)
    key, values = numbers(s, by[0], op), numbers(s, x, op)
    data = values[None].expand(s.batch, -1) if isinstance(values, Tensor) else values.data
    live = both(key.live, None if isinstance(values, Tensor) else values.live)
    first = order_of(Live(key.data, live), down)[:, :1]
    if live is not None:
        s.fault(~live.any(1, keepdim=True))
    return Num(data.gather(1, first)[:, 0])


@form("request")
def request(s: Any, op: Op) -> Any:
    """A field of the request that is the same for all sequences."""
    field = op.attrs["field"]
    if field not in s.fields:
        raise NotStatic(f"the request's {field} differs between sequences", op)
    return s.fields[field]
