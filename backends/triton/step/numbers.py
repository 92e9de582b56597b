"""Implementations of ops over vectors and numbers on the device: arithmetic, indexing, joining, choosing. Stable, as on the
host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.ops.vectors import _MAPS, _folded
from decgraph.backends.triton.step.evaluate import NotCapturable, device, is_static
from decgraph.backends.triton.step.machine import take
from decgraph.backends.triton.step.values import Context, DeviceDist, DeviceDraws, DevicePath, Nodes
from decgraph.ir.ops.common import align, numeric
from decgraph.ir.ops.vectors import _axis


def tensor(s: Any, x: Any, op: Any = None) -> Tensor:
    """A value as a tensor [B or 1, *dims]."""
    if isinstance(x, DeviceDist):
        out: Tensor = s.vector(x)
        return out
    if isinstance(x, DeviceDraws):
        return x.tokens
    if isinstance(x, Nodes):
        return x.ids
    if isinstance(x, Tensor):
        return x
    if isinstance(x, Context | DevicePath) or not is_static(x):
        raise NotCapturable(f"a {type(x).__name__.lower()} as numbers", op)
    made: Tensor = s.constant(np.asarray(x)[None])
    return made


def flat_draws(s: Any, x: DeviceDraws) -> DeviceDraws:
    """Draws as one vector [n]."""

    def flat(a: Any) -> Any:
        return None if a is None else a.reshape(-1) if isinstance(a, np.ndarray) else a.flatten(1) if a.ndim > 1 else a[:, None]

    row = x.row if x.row is None or isinstance(x.row, Tensor) else np.broadcast_to(x.row, x.shape)
    return replace(x, tokens=flat(x.tokens), row=flat(row), rank=flat(x.rank), race=flat(x.race), at=None)


@device("map")
def elementwise(s: Any, op: Any, *xs: Any) -> Any:
    """An elementwise function."""
    if all(is_static(x) for x in xs):
        return s.hosted(op, xs)
    types = [numeric(v.type) for v in op.operands]
    want = max((t.dims for t in types), key=len, default=())
    values = [lined(tensor(s, x, op), t.dims, want) for x, t in zip(xs, types, strict=True)]
    return _MAPS[op.attrs["fn"]](*values)


def lined(a: Tensor, have: tuple[Any, ...], want: tuple[Any, ...]) -> Tensor:
    """A tensor [B or 1, *have] with axes of one put in, so that it lines up with [B, *want]."""
    if len(have) == len(want) or a.ndim == 1 + len(want):
        return a
    axes = align(have, want) or tuple(range(len(have)))
    shape = [int(a.shape[0])] + [1] * len(want)
    for i, axis in enumerate(axes):
        shape[1 + axis] = int(a.shape[1 + i])
    return a.reshape(shape)


@device("reduce")
def reduce(s: Any, op: Any, x: Any) -> Any:
    """Fold one dimension."""
    if is_static(x):
        return s.hosted(op, [x])
    return _folded(op.attrs["fn"], tensor(s, x, op), 1 + _axis(op.attrs, numeric(op.operands[0].type)))


@device("len")
def length(s: Any, op: Any, x: Any) -> Any:
    """How many there are, which is static."""
    if isinstance(x, Nodes):
        return x.count
    if isinstance(x, DeviceDist | DeviceDraws):
        return x.shape[0]
    if isinstance(x, DevicePath):
        return x.length.long()
    return int(x.shape[1]) if isinstance(x, Tensor) else s.hosted(op, [x])


@device("gather")
def gather(s: Any, op: Any, v: Any, *ix: Any) -> Any:
    """v[i]; where v covers a part, the index is the member's node."""
    if is_static(v) and all(is_static(i) for i in ix):
        return s.hosted(op, [v, *ix])
    types = [numeric(o.type) for o in op.operands[1:]]
    named = types[0].elem in ("node", "position") and len(types) == 1
    at = getattr(v, "at", None)
    if named and at is not None:
        if isinstance(at, Nodes) or not is_static(ix[0]):
            raise NotCapturable("a member of a part of data-dependent nodes", op)
        ix = (np.array([int(np.flatnonzero(at == i)[-1]) for i in np.ravel(ix[0])]).reshape(np.shape(ix[0])),)
    if len(ix) > 1:
        want = max((t.dims for t in types), key=len)
        if all(is_static(i) for i in ix):
            wide = np.broadcast_arrays(
                *[np.asarray(_host_lined(np.asarray(i), t.dims, want)) for i, t in zip(ix, types, strict=True)]
            )
            return pick(s, v, tuple(wide), op)
        raise NotCapturable("several data-dependent indices", op)
    return pick(s, v, checked(s, v, ix[0]), op)


def checked(s: Any, v: Any, index: Any) -> Any:
    """An index by sequence with what is outside marked as a case of the driver's, which says so or ends a draft there."""
    if not isinstance(index, Tensor) or not isinstance(v, Tensor | np.ndarray):
        return index
    n = int(v.shape[0] if isinstance(v, np.ndarray) else v.shape[1])
    s.flag((index < 0) | (index >= n))
    return index.clamp(0, max(0, n - 1))


def _host_lined(a: np.ndarray, have: tuple[Any, ...], want: tuple[Any, ...]) -> np.ndarray:
    from decgraph.ir.ops.common import spread

    out: np.ndarray = spread(a, have, want)
    return out


def pick(s: Any, v: Any, index: Any, op: Any = None) -> Any:
    """Elements along the first axes of a value: by a static index (a number, an array, a tuple of arrays), or by a tensor with
    indices by sequence, [B] or [B, *k]."""
    if isinstance(v, DeviceDist):
        return replace(v, index=picked(s, v.index, index), at=None)
    if isinstance(v, DeviceDraws):
        tokens = picked(s, v.tokens, index)
        row = v.row if v.row is None or isinstance(v.row, Tensor) else np.broadcast_to(v.row, v.shape)
        row, rank, race = (None if a is None else picked(s, a, index) for a in (row, v.rank, v.race))
        return replace(v, tokens=tokens, row=row, rank=rank, race=race, at=None)
    if isinstance(v, Nodes):
        got = picked(s, v.ids, index)
        return Nodes(got, v.within)
    if isinstance(v, np.ndarray):
        return picked(s, v, index)
    if isinstance(v, Tensor):
        return picked(s, v, index)
    raise NotCapturable(f"elements of a {type(v).__name__.lower()}", op)


def picked(s: Any, a: Any, index: Any) -> Any:
    """`pick` of a static array [d, ...], or of a tensor [B, d, ...]."""
    if isinstance(index, DeviceDraws):
        index = index.tokens.clamp(min=0)
    if isinstance(index, Nodes):
        index = index.ids
    if isinstance(index, Tensor):
        if isinstance(a, np.ndarray):
            return s.constant(a)[index]
    else:
        _inside(index, a.shape if isinstance(a, np.ndarray) else a.shape[1:])
    if isinstance(a, np.ndarray):
        return np.asarray(a[index])
    if isinstance(index, Tensor):
        flat = index.flatten(1) if index.ndim > 1 else index[:, None]
        got = take(s, a, flat.long())
        return got.reshape(int(got.shape[0]), *index.shape[1:], *a.shape[2:])
    if isinstance(index, tuple):
        places = np.ravel_multi_index(tuple(np.asarray(i) for i in index), tuple(int(n) for n in a.shape[1 : 1 + len(index)]))
        return take(s, a.flatten(1, len(index)), np.asarray(places))
    return take(s, a, np.asarray(index))


def _inside(index: Any, sizes: Sequence[int]) -> None:
    """Raises NotCapturable for a static index that is outside: the driver says so in the program's words."""
    for i, n in zip(index if isinstance(index, tuple) else (index,), sizes, strict=False):
        places = np.asarray(i)
        if places.size and (places.min() < 0 or places.max() >= n):
            raise NotCapturable(f"the index {int(places.max())} of {n} elements")


@device("slice")
def cut(s: Any, op: Any, v: Any, *ends: Any) -> Any:
    """v[lo:hi] of the first dimension, by static bounds."""
    if not all(is_static(e) for e in ends):
        raise NotCapturable("a slice of data-dependent length", op)
    if is_static(v):
        return s.hosted(op, [v, *ends])
    where = slice(int(ends[0]) if op.attrs.get("has_lo") else None, int(ends[-1]) if op.attrs.get("has_hi") else None)
    n = v.count if isinstance(v, Nodes) else v.shape[0] if isinstance(v, DeviceDist | DeviceDraws) else int(v.shape[1])
    return pick(s, v, np.arange(n)[where], op)


@device("list")
def listing(s: Any, op: Any, *items: Any) -> Any:
    """[a, b, c]: a vector where the items stack."""
    if all(is_static(x) for x in items):
        return s.hosted(op, items)
    if op.results[0].type.elem == "list":
        return list(items)
    values = [tensor(s, x, op) for x in items]
    return torch.stack([v.expand(s.frame.batch, *v.shape[1:]) for v in values], 1)


@device("concat")
def concat(s: Any, op: Any, a: Any, b: Any) -> Any:
    """a ++ b along the first dimension; single values count as vectors of one."""
    if is_static(a) and is_static(b):
        return s.hosted(op, [a, b])
    if op.results[0].type.elem in ("list", "path"):
        raise NotCapturable("lists and paths joined", op)
    values = [tensor(s, x, op) for x in (a, b)]
    most = max(v.ndim for v in values)
    values = [v if v.ndim == most else v[:, None] for v in values]
    return torch.cat([v.expand(s.frame.batch, *v.shape[1:]) for v in values], 1)


@device("arg")
def arg(s: Any, op: Any, x: Any, *by: Any) -> Any:
    """The element with the largest (or smallest) key; with one operand the best token of each distribution."""
    if is_static(x) and all(is_static(k) for k in by):
        return s.hosted(op, [x, *by])
    down = op.attrs["fn"] == "max"
    if by:
        raise NotCapturable("a choice by several keys", op)
    if isinstance(x, DeviceDist) and down:
        ones = s.points(x.rows, x.face)
        if ones is not None:
            return picked(s, ones, x.index)
    a = tensor(s, x, op)
    return a.argmax(-1) if down else a.argmin(-1)


@device("select.top")
def top(s: Any, op: Any, x: Any, k: Any, *by: Any) -> Any:
    """The k candidates with the largest keys, best first (or in their own order)."""
    if is_static(x) and all(is_static(b) for b in by):
        return s.hosted(op, [x, k, *by])
    if not is_static(k) or len(by) > 1:
        raise NotCapturable("a choice of a data-dependent number, or by several keys", op)
    flat = flat_draws(s, x) if isinstance(x, DeviceDraws) else x
    n = (
        flat.count
        if isinstance(flat, Nodes)
        else flat.shape[0]
        if isinstance(flat, DeviceDraws)
        else len(flat)
        if isinstance(flat, np.ndarray)
        else int(flat.shape[1])
    )
    keys = tensor(s, by[0] if by else x, op)
    keys = keys.flatten(1) if keys.ndim > 1 else keys[:, None]
    if int(keys.shape[1]) != n:
        raise NotCapturable("keys over more than the candidates", op)
    chosen = order(keys)[:, : max(0, int(k))]
    if op.attrs.get("order", "best") == "kept":
        chosen = chosen.sort(1).values
    if isinstance(flat, np.ndarray):
        return Nodes(s.constant(flat)[chosen], flat) if op.operands[0].type.elem == "node" else s.constant(flat)[chosen]
    return pick(s, flat, chosen, op)


def order(keys: Tensor) -> Tensor:
    """int64[B, n]: indices by key, the largest first, of equals the first first; NaN comes last."""
    return torch.sort(
        torch.where(torch.isnan(keys), -torch.inf, keys) if keys.is_floating_point() else keys,
        dim=1,
        descending=True,
        stable=True,
    ).indices


@device("scatter")
def scatter(s: Any, op: Any, v: Any, x: Any, *ix: Any) -> Any:
    """v with v[i] set to x; of equal indices the last wins."""
    if is_static(v) and is_static(x) and all(is_static(i) for i in ix):
        return s.hosted(op, [v, x, *ix])
    index = tensor(s, ix[0], op) if len(ix) == 1 else None
    if index is None or op.attrs["mode"] != "last" or index.dtype == torch.bool:
        raise NotCapturable("places set by several indices or by conditions, or added to", op)
    b = s.frame.batch
    base, values = (tensor(s, a, op) for a in (v, x))
    index = (index if index.ndim > 1 else index[:, None]).expand(b, -1)
    rest = tuple(int(n) for n in base.shape[2:])
    n = int(index.shape[1])
    if values.ndim == 1 + len(rest):
        values = values[:, None]
    values = values.expand(b, n, *rest).reshape(b, n, -1)
    # All writes to one index get the value of the last, so that the order of writing does not matter.
    same = index[:, :, None] == index[:, None, :]
    last = torch.where(same, s.steps(n), -1).amax(2)
    values = values.gather(1, last[..., None].expand(-1, -1, int(values.shape[2])))
    wide = base.expand(b, *base.shape[1:]).reshape(b, int(base.shape[1]), -1)
    where = index[..., None].expand(-1, -1, int(wide.shape[2]))
    return wide.scatter(1, where.long(), values.to(wide.dtype)).reshape(b, int(base.shape[1]), *rest)
