"""Arithmetic, folds and scans over numbers, and what a vector with missing elements is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.ops.vectors import _MAPS, _folded
from decgraph.backends.triton.evaluate import joins, step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Context, Dist, Draws, Edit, Nodes, Path, Vec, is_static
from decgraph.ir.ops.common import align, numeric
from decgraph.ir.ops.vectors import _axis


def live_of(x: Any) -> Tensor | None:
    """bool[B, n]: which elements of a value are there, None: all."""
    if isinstance(x, Path):
        return None
    return getattr(x, "live", None) if not isinstance(x, Tensor | np.ndarray) else None


def made(data: Tensor, live: Tensor | None) -> Any:
    """A vector of numbers, as a Vec where some are missing. data: [B, n, ...]; live: bool[B, n] or None."""
    return data if live is None else Vec(data, live)


def count_of(x: Any) -> int:
    """How many elements a vector has room for."""
    if isinstance(x, Nodes):
        return int(x.ids.shape[1])
    if isinstance(x, Edit):
        return int(x.position.shape[1])
    if isinstance(x, Dist | Draws):
        return x.shape[0]
    if isinstance(x, Vec):
        return int(x.data.shape[1])
    return int(x.shape[1]) if isinstance(x, Tensor) else len(x)


def tokens_of(s: Any, x: Any) -> Any:
    """A path as a vector of its tokens, a context as that of the text; other values as they are."""
    if isinstance(x, Path):
        n = int(x.tokens.shape[1])
        return Vec(x.tokens, s.steps(n) < x.length[:, None])
    if isinstance(x, Context):
        return Vec(s.tokens, s.steps(int(s.tokens.shape[1])) < (x.length - int(x.parent))[:, None])
    return x


@step("map")
def elementwise(s: Any, op: Any, *xs: Any) -> Any:
    """An elementwise function."""
    if any(x is None for x in xs):
        return s.hosted(op, xs)
    if all(is_static(x) for x in xs):
        return s.hosted(op, xs)
    fn = op.attrs["fn"]
    if fn == "select" and any(isinstance(x, Draws) for x in xs[1:]) and op.result.type.elem == "draw":
        raise NotSteppable("draws that are selected element by element", op)
    types = [numeric(v.type) for v in op.operands]
    if fn in ("eq", "ne") and any(t.elem in ("path", "text", "astate", "edit", "list") for t in types):
        same = equal(s, *xs)
        return same if fn == "eq" else ~same
    want = max((t.dims for t in types), key=len, default=())
    xs = tuple(packed(s, x) if _ragged(xs) else x for x in xs)
    values = [lined(s.tensor(x), t.dims, want) for x, t in zip(xs, types, strict=True)]
    lead = {int(v.shape[1]) for v in values if v.ndim > 1} - {1}
    if len(lead) > 1:  # what stands behind the shorter one's room is missing in the other
        values = [v[:, : min(lead)] if v.ndim > 1 and v.shape[1] > 1 else v for v in values]
        n = min(lead)
        xs = tuple(x if live_of(x) is None else Vec(s.tensor(x)[:, :n], x.live[:, :n]) for x in xs)
    every = [
        live_of(x) for x, t in zip(xs, types, strict=True) if t.dims and t.dims[:1] == want[:1] or len(t.dims) == len(want)
    ]
    lives: list[Tensor] = [x for x in every if x is not None]
    if fn == "floor":
        values = [v.double() if not v.is_floating_point() else v for v in values]
    if fn == "select":
        values = [values[0], *_alike(values[1], values[2])]
    if fn in ("minimum", "maximum", "clamp"):
        values = list(_alike(*values))
    if fn == "mod" and not values[1].is_floating_point():  # a lane that is not here may divide by 0
        values = [values[0], torch.where(values[1] == 0, 1, values[1])]
    out = _MAPS[fn](*values)
    if not want:
        s.bounds_of(op, fn)
    if len(lives) > 1:
        same_count(s, lives[0], lives[1])
    return made(out, None if not lives else lives[0] if all(x is lives[0] for x in lives) else lives[0] & lives[1])


def same_count(s: Any, a: Tensor | None, b: Tensor | None) -> None:
    """Called for two vectors that go together: a lane in which they have different lengths is an error, which is the
    driver's. a, b: bool[B, n]."""
    if a is not None and b is not None and a is not b:
        s.flag(a.sum(1) != b.sum(1))


def _ragged(xs: Any) -> bool:
    """Whether elements have to be lined up anew: two vectors of which others are missing."""
    return len({id(live_of(x)) for x in xs if live_of(x) is not None}) > 1


def _alike(*values: Tensor) -> list[Tensor]:
    kind = values[0].dtype
    for v in values[1:]:
        kind = torch.promote_types(kind, v.dtype)
    return [v.to(kind) for v in values]


def equal(s: Any, a: Any, b: Any) -> Tensor:
    """bool[B]: whether two texts have the same tokens, or two edits are the same."""
    if isinstance(a, Edit) and isinstance(b, Edit):
        same = (a.position == b.position) & (a.token == b.token)
        for live in (a.live, b.live):
            same = same if live is None else same & live
        return same
    a, b = (tokens_of(s, x) for x in (a, b))
    x, y = s.lanes(a), s.lanes(b)
    n = max(int(x.shape[1]), int(y.shape[1]))
    here = []
    for v, given in ((x, a), (y, b)):
        live = live_of(given)
        live = torch.ones_like(v, dtype=torch.bool) if live is None else live
        v = torch.where(live, v, -1)
        here.append(torch.cat([v, v.new_full((v.shape[0], n - int(v.shape[1])), -1)], 1))
    return (here[0] == here[1]).all(1)


def lined(a: Tensor, have: tuple[Any, ...], want: tuple[Any, ...]) -> Tensor:
    """A tensor [B or 1, *have] with axes of one put in, so that it lines up with [B, *want]."""
    if len(have) == len(want) or a.ndim == 1 + len(want):
        return a
    axes = align(have, want) or tuple(range(len(have)))
    shape = [int(a.shape[0])] + [1] * len(want)
    for i, axis in enumerate(axes):
        shape[1 + axis] = int(a.shape[1 + i])
    return a.reshape(shape)


NEUTRAL = {"sum": 0, "any": False, "all": True, "count": 0, "prod": 1, "mean": 0}


@step("reduce")
def reduce(s: Any, op: Any, x: Any) -> Any:
    """Fold one dimension."""
    if is_static(x):
        return s.hosted(op, [x])
    fn, a, live = op.attrs["fn"], s.tensor(x), live_of(x)
    if a.dtype == torch.bool and op.result.type.elem == "int" and fn != "count":
        a = a.long()
    axis = 1 + _axis(op.attrs, numeric(op.operands[0].type))
    if isinstance(x, Vec) and x.inner is not None and axis == 2:
        flat = Vec(a.flatten(0, 1), x.inner[:, None].expand(a.shape[:3]).flatten(0, 1))
        return Vec(folded(fn, flat).unflatten(0, a.shape[:2]), x.live)
    a = a.double() if fn == "mean" and not a.is_floating_point() else a
    if live is None or axis != 1:
        return made(_folded(fn, a, axis), live if axis != 1 else None)
    return folded(fn, Vec(a, live))


def folded(fn: str, x: Vec) -> Tensor:
    """A fold of the elements [B, n, ...] that are there."""
    a, live = x.data, x.live
    mask = live.reshape(*live.shape, *([1] * (a.ndim - 2)))
    if fn == "mean":
        return torch.where(mask, a.double(), 0).sum(1) / mask.sum(1)
    if fn in NEUTRAL:
        return _folded(fn, torch.where(mask, a, torch.tensor(NEUTRAL[fn], dtype=a.dtype, device=a.device)), 1)
    least = -torch.inf if a.is_floating_point() else -(2**62)
    if fn in ("max", "logsumexp"):
        return _folded(fn, torch.where(mask, a, least), 1)
    return _folded(fn, torch.where(mask, a, -least), 1)


@step("scan")
def scan(s: Any, op: Any, x: Any) -> Any:
    """Running folds along the last dimension."""
    if is_static(x):
        return s.hosted(op, [x])
    x = packed(s, x)
    a, fn, live = s.tensor(x), op.attrs["fn"], live_of(x)
    if fn == "leading":
        return (a if live is None else a & live).long().cumprod(-1).sum(-1)
    if fn == "cummax":
        return made(torch.cummax(a, -1).values, live)
    return made((torch.cumsum if fn == "cumsum" else torch.cumprod)(a, -1), live)


@step("maxpool")
def maxpool(s: Any, op: Any, x: Any, width: Any) -> Any:
    """The largest of each value and its neighbours."""
    if is_static(x) and is_static(width):
        return s.hosted(op, [x, width])
    if not is_static(width):
        raise NotSteppable("neighbours whose number depends on data", op)
    x, width = packed(s, x), max(1, int(width))
    a, live, half = s.tensor(x), live_of(x), (width - 1) // 2
    a = a if a.is_floating_point() else a.double()
    a = a if live is None else torch.where(live, a, -torch.inf)
    wide = torch.nn.functional.pad(a, (half, width - 1 - half), value=-torch.inf)
    return made(wide.unfold(1, width, 1).amax(-1), live)


@step("as_int")
def whole(s: Any, op: Any, x: Any) -> Any:
    """A number rounded towards zero."""
    if is_static(x):
        return s.hosted(op, [x])
    if not op.result.type.dims:
        s.bounds_of(op, "floor")
    a = s.tensor(x)
    return made((a.trunc() if a.is_floating_point() else a).long(), live_of(x))


@step("contains")
def contains(s: Any, op: Any, x: Any, xs: Any) -> Any:
    """Whether numbers are among others."""
    if is_static(x) and is_static(xs):
        return s.hosted(op, [x, xs])
    if isinstance(xs, set | frozenset):
        xs = np.array(sorted(xs), dtype=np.int64)
    xs = tokens_of(s, xs)
    a, among, live = s.tensor(x), s.tensor(xs).flatten(1), live_of(xs)
    found = a[..., None] == among.reshape(among.shape[0], *([1] * (a.ndim - 1)), -1)
    if live is not None:
        found = found & live.reshape(live.shape[0], *([1] * (a.ndim - 1)), -1)
    return made(found.any(-1), live_of(x))


# -- missing elements
def picked_along(a: Any, order: Tensor) -> Tensor:
    """[B, n, ...] at int64[B, n'] of axis 1."""
    b = max(int(a.shape[0]), int(order.shape[0]))
    wide = order.reshape(*order.shape, *([1] * (a.ndim - 2))).expand(b, -1, *a.shape[2:])
    return a.expand(b, *a.shape[1:]).gather(1, wide)


def reordered(s: Any, x: Any, order: Any, live: Tensor | None) -> Any:
    """A vector (numbers, nodes, draws, distributions) with other elements along its first axis: order NumPy int64[n] or
    int64[B,
    n]; live: which of them are there."""

    def along(a: Any) -> Any:
        if a is None:
            return None
        if isinstance(a, np.ndarray) and isinstance(order, np.ndarray):
            return a[order]
        a = s.constant(a)[None] if isinstance(a, np.ndarray) else a
        return a.index_select(1, s.constant(order)) if isinstance(order, np.ndarray) else picked_along(a, order)

    if isinstance(x, Nodes):
        return Nodes(s.lanes(along(x.ids)), x.within, live)
    if isinstance(x, Edit):
        return Edit(along(x.position), along(x.token), None, live)
    if isinstance(x, Draws):
        row, rank = (
            None if a is None else a if isinstance(a, Tensor) else np.broadcast_to(a, x.shape) for a in (x.row, x.rank)
        )
        at = x.at
        if at is not None:
            at = along(at) if isinstance(at, np.ndarray) and isinstance(order, np.ndarray) else _moved(s, at, order, live)
        return replace(
            x, tokens=along(x.tokens), row=along(row), rank=along(rank), race=along(x.race), live=live, at=at,
            nodes=along(x.nodes), point=along(x.point) if isinstance(x.point, Tensor) else x.point,
        )  # fmt: skip
    if isinstance(x, Dist):
        at = x.at if x.at is not None else np.arange(x.shape[0])
        at = along(at) if isinstance(at, np.ndarray) and isinstance(order, np.ndarray) else _moved(s, at, order, live)
        return replace(x, index=along(x.index), live=live, at=at)
    return (
        made(along(s.tensor(x) if not isinstance(x, np.ndarray) else x), live)
        if not (isinstance(x, np.ndarray) and isinstance(order, np.ndarray) and live is None)
        else along(x)
    )


def _moved(s: Any, at: Any, order: Any, live: Tensor | None) -> Any:
    ids = at.ids if isinstance(at, Nodes) else s.tensor(at)
    within = at.within if isinstance(at, Nodes) else at if isinstance(at, np.ndarray) else None
    picked = ids[:, s.constant(order)] if isinstance(order, np.ndarray) else picked_along(ids, order)
    return Nodes(s.lanes(picked), within, live)


def packed(s: Any, x: Any) -> Any:
    """A vector whose missing elements are all behind the others."""
    live = live_of(x)
    if live is None:
        return x
    order = torch.sort((~live).to(torch.uint8), dim=1, stable=True).indices
    return reordered(s, x, order, live.gather(1, order))


@joins(Vec)
def join_vectors(s: Any, lanes: Tensor, a: Any, b: Any) -> Any:
    """Vectors of different lengths, or with missing elements. lanes: bool[B]."""
    data, lives = [], []
    n = max(count_of(x) if not is_static(x) else len(x) for x in (a, b))
    for x in (a, b):
        v, live = s.lanes(x), live_of(x)
        live = torch.ones(v.shape[:2], dtype=torch.bool, device=v.device) if live is None else live.expand(v.shape[0], -1)
        more = n - int(v.shape[1])
        data.append(torch.cat([v, v.new_zeros((v.shape[0], more, *v.shape[2:]))], 1) if more else v)
        lives.append(torch.cat([live, live.new_zeros((live.shape[0], more))], 1) if more else live)
    x, y = _alike(*data)
    if x.shape[2:] != y.shape[2:]:
        raise NotSteppable("values of different shapes in two branches", s.place)
    wide = lanes.reshape(-1, *([1] * (x.ndim - 1)))
    return Vec(torch.where(wide, x, y), torch.where(lanes[:, None], *lives))


def take(s: Any, values: Tensor, index: Any) -> Tensor:
    """values[b, index[b]]: rows of a tensor [B or 1, R, ...] at an index, NumPy int64[*shape] or int64[B or 1, *shape]."""
    if isinstance(index, Tensor):
        b = max(int(values.shape[0]), int(index.shape[0]))
        flat = index.flatten(1) if index.ndim > 1 else index[:, None]
        rest = values.shape[2:]
        wide = flat.reshape(*flat.shape, *([1] * len(rest))).expand(b, -1, *rest)
        out = values.expand(b, *values.shape[1:]).gather(1, wide)
        return out.reshape(b, *index.shape[1:], *rest)
    index = np.asarray(index)
    if index.ndim == 0:
        return values.select(1, int(index))
    flat_at = index.ravel()
    n = int(values.shape[1])
    if len(flat_at) == n and bool((flat_at == np.arange(n)).all()):
        out = values
    else:
        out = values.index_select(1, s.constant(flat_at))
    return out if index.ndim == 1 else out.unflatten(1, index.shape)


def places(s: Any, ps: Any) -> tuple[Tensor, Tensor]:
    """Positions as int64[B, n], and bool[B, n], which of them are there."""
    ids, live = s.lanes(ps).long(), live_of(ps)
    ids = ids if ids.ndim > 1 else ids[:, None]
    return ids, torch.ones_like(ids, dtype=torch.bool) if live is None else s.lanes(live)
