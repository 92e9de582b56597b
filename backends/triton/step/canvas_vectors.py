"""Vectors of data-dependent length on the device: every op returns what it would return for the present elements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.ops.vectors import _MAPS
from decgraph.backends.triton.step.canvas_rows import CanvasRows, tokens_of, vector
from decgraph.backends.triton.step.canvas_step import form
from decgraph.backends.triton.step.canvas_values import CanvasDist, CanvasDraws, Edit, Live, Num, both, picked
from decgraph.backends.triton.step.canvases import located
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.ir.ops.common import align, numeric
from decgraph.ir.ops.vectors import _axis
from decgraph.ir.values import Op


def packed(x: Live) -> Live:
    """The same elements [B, N], present ones first."""
    if x.live is None or x.packed:
        return x
    order = torch.sort(~x.live, dim=1, stable=True).indices
    data = x.data if isinstance(x.data, Tensor) else None
    if data is None or data.ndim != 2:
        raise NotCapturable("only numbers are packed")
    return Live(data.gather(1, order), x.live.gather(1, order), packed=True)


def numbers(s: Any, x: Any, op: Op) -> Any:
    """A value in arithmetic: a Live, a Num, or for a static value a tensor without the axis of sequences."""
    if isinstance(x, CanvasDist):
        data = vector(x)
        return Live(data if x.ids.ndim else data[:, 0], x.live)
    if isinstance(x, CanvasDraws):
        return Live(tokens_of(x, s.stream), x.live)
    if isinstance(x, Live):
        return x if isinstance(x.data, Tensor) else replace(x, data=s.constant(x.data)[None].expand(s.batch, -1))
    if isinstance(x, Num):
        return x
    if isinstance(x, bool | int | float | np.generic | np.ndarray):
        return s.constant(x)
    raise NotCapturable(f"arithmetic on a {type(x).__name__}", op)


@form("map")
def elementwise(s: Any, op: Op, *xs: Any) -> Any:
    """An elementwise function."""
    fn = op.attrs["fn"]
    if not any(getattr(x, "on_device", False) for x in xs):
        return s.hosted(op, xs)
    if any(isinstance(x, Edit) for x in xs):
        raise NotCapturable("edits are compared on the host", op)
    values = [numbers(s, x, op) for x in xs]
    types = [numeric(v.type) for v in op.operands]
    want = max((t.dims for t in types), key=len)
    lives = [v for v in values if isinstance(v, Live) and (v.live is not None or v.data.ndim == 2)]
    live, keep = None, False
    if lives:
        aligned = all(v.live is lives[0].live and v.size == lives[0].size for v in lives)
        if not aligned:  # elements are matched by their index among the present ones
            lined = {id(v): packed(v) for v in lives}
            size = min(v.size for v in lined.values())
            for v in lined.values():
                live = both(live, None if v.live is None else v.live[:, :size])
            values = [Live(lined[id(v)].data[:, :size], live) if id(v) in lined else v for v in values]
            keep = True
        else:
            live, keep = lives[0].live, all(v.packed for v in lives)
    tensors = [_spread(v.data, t.dims, want) if isinstance(v, Live | Num) else v for v, t in zip(values, types, strict=True)]
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
    """An upper bound of a sum or a choice of counts."""
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
    if (
        fn == "max"
        and isinstance(x, CanvasDist)
        and t.dims[axis].kind == "vocab"
        and x.face == "raw"
        and isinstance(x.rows, CanvasRows)
    ):
        return Live(s.lazy(1.0 / x.rows.mass(x.ids)), x.live)
    x = numbers(s, x, op)
    live = x.live
    a = x.data
    if axis == len(t.dims) - 1 and t.dims[axis].kind == "vocab":
        out = s.lazy(_folded(fn, a, -1))
        return Live(out, live, x.packed) if len(t.dims) > 1 else Num(out)
    if live is not None:
        shape = (*live.shape, *[1] * (a.ndim - 2))
        rest = {
            "max": -torch.inf,
            "min": torch.inf,
            "sum": 0,
            "mean": 0,
            "any": False,
            "count": False,
            "all": True,
            "prod": 1,
            "logsumexp": -torch.inf,
        }[fn]
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
    """v[i]; where a distribution or draws cover a part, the index is the member's position."""
    if len(ix) > 1:
        raise NotCapturable("two indices at once", op)
    i = ix[0]
    away = getattr(i, "on_device", False)
    if isinstance(v, list):
        if away:
            raise NotCapturable("an index into a list depends on data", op)
        return v[int(i)]
    if isinstance(v, np.ndarray):
        return _of_array(s, op, v, i) if away else s.hosted(op, [v, i])
    named = op.operands[1].type.elem in ("node", "position")
    if isinstance(v, CanvasDist | CanvasDraws) and not away and np.ndim(i):
        return _picked(v, np.asarray(i, dtype=np.int64), None, named, op)
    if isinstance(v, CanvasDist | CanvasDraws) and isinstance(i, Live) and isinstance(i.data, np.ndarray):
        return _picked(v, i.data, i.live, named, op)
    if isinstance(v, CanvasDist):
        raise NotCapturable("an index of distributions depends on data", op)
    if isinstance(v, CanvasDraws) and named and v.at is not None:
        i = _placed(s, op, v, i)
    return _of_vector(s, op, numbers(s, v, op), i)


def _picked(v: Any, ids: np.ndarray, live: Tensor | None, named: bool, op: Op) -> Any:
    """Members of a part by their positions, or elements by their indices, with a mask of those present."""
    if not named or v.at is None:
        _all_there(v, op)
        return v.pick(ids, live, ids if named else None)
    where = located(v.at, ids)
    return v.pick(where, both(live, None if v.live is None else picked(v.live, where)), ids)


def _placed(s: Any, op: Op, v: CanvasDraws, i: Any) -> Any:
    """Indices into the draws of a part, of positions that depend on data. A position outside of the part is a fault."""
    if v.live is not None:
        raise NotCapturable("draws over a part of data-dependent length are indexed by a data-dependent position", op)
    assert v.at is not None
    table = np.full(s.length, -1, dtype=np.int64)
    table[v.at] = np.arange(len(v.at))
    found = _of_array(s, op, table, i)
    outside = (found.data < 0).reshape(s.batch, -1)
    s.fault(outside if getattr(found, "live", None) is None else outside & found.live)
    return replace(found, data=found.data.clamp_min(0))


def _all_there(v: Any, op: Op) -> None:
    if v.live is not None:
        raise NotCapturable("elements of a vector of data-dependent length are indexed by number", op)


def _of_array(s: Any, op: Op, v: np.ndarray, i: Any) -> Any:
    """An entry of a static array, by a data-dependent index."""
    table = s.constant(v)[None].expand(s.batch, -1)
    whole = v.dtype.kind in "iu" and v.size > 0
    index = i.data.long().clamp(0, len(v) - 1)
    if isinstance(i, Num):
        return Num(table.gather(1, index[:, None])[:, 0], int(v.max()) if whole else None)
    return Live(table.gather(1, index), i.live, i.packed)


def _of_vector(s: Any, op: Op, v: Live, i: Any) -> Any:
    """Elements of a vector by an index."""
    if not getattr(i, "on_device", False):
        if np.ndim(i):
            _all_there(v, op)
            return Live(picked(v.data, np.asarray(i, dtype=np.int64)))
        v, i = packed(v), int(i)
        if not 0 <= i < v.size:
            raise NotCapturable("a negative index, or one past the end", op)
        if v.live is not None:
            s.fault(~v.live[:, i : i + 1])
        return Num(v.data[:, i])
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
        raise NotCapturable("a slice whose ends depend on data", op)
    x = packed(numbers(s, v, op))
    return Live(x.data[:, lo:], None if x.live is None else x.live[:, lo:], x.packed)


def size_of(v: CanvasDraws) -> int:
    """How many draws there are at most."""
    return v.dist.size if v.dist is not None else int(v.tokens.shape[1])  # type: ignore[union-attr]  # one of the two is there


@form("len")
def length(s: Any, op: Op, x: Any) -> Any:
    """How many there are."""
    live = getattr(x, "live", None)
    if live is not None:
        return Num(live.sum(1), int(live.shape[1]))
    if isinstance(x, Live | CanvasDist):
        return x.size
    return size_of(x) if isinstance(x, CanvasDraws) else len(x)


@form("tile")
def tile(s: Any, op: Op, *xs: Any) -> Any:
    """Equal numbers, or a range of numbers, of data-dependent length."""
    if not any(getattr(x, "on_device", False) for x in xs):
        return s.hosted(op, xs)
    kind, (lo, n) = op.attrs["kind"], xs[:2]
    if kind not in ("iota", "tile") or not isinstance(n, Num) or n.most is None or getattr(lo, "on_device", False):
        raise NotCapturable("the number of elements has no bound", op)
    start = int(lo) if kind == "iota" else 0
    places = s.constant(np.arange(start, max(start, n.most)))[None].expand(s.batch, -1)
    live = places < n.data[:, None]
    data = places if kind == "iota" else s.constant(lo).expand(s.batch, places.shape[1])
    return Live(data, live, packed=True)


@form("request")
def request(s: Any, op: Op) -> Any:
    """A field of the request that is the same for all sequences."""
    field = op.attrs["field"]
    if field not in s.fields:
        raise NotCapturable(f"the request's {field} differs between sequences", op)
    return s.fields[field]
