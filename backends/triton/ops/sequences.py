"""Vectors as sequences: indexing, slices, joining, lists, tiles, lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.ops.distributions import dist_of
from decgraph.backends.triton.ops.numbers import count_of, lined, live_of, made, packed, reordered, take, tokens_of
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Dist, Draws, Edit, Nodes, Path, Tree, Vec, is_static
from decgraph.ir.ops.common import numeric, spread


@step("len")
def length(s: Any, op: Any, x: Any) -> Any:
    """How many there are."""
    if isinstance(x, Path):
        s.sizes[op.result] = int(x.tokens.shape[1])
        return x.length
    if isinstance(x, Tree):
        s.sizes[op.result] = x.size
        return x.size if x.live is None else x.live.sum(1)
    if is_static(x):
        return s.hosted(op, [x])
    live = live_of(x)
    if live is None:
        return count_of(x)
    s.sizes[op.result] = count_of(x)
    return live.sum(1)


@step("gather")
def gather(s: Any, op: Any, v: Any, *ix: Any) -> Any:
    """v[i]; where v covers a part, the index is the member's node or position."""
    if is_static(v) and all(is_static(i) for i in ix):
        return s.hosted(op, [v, *ix])
    if isinstance(v, list):
        if is_static(ix[0]):
            return v[int(np.asarray(ix[0]))]
        out = v[-1]
        for n in range(len(v) - 2, -1, -1):
            out = s.join(s.lanes(ix[0]) == n, v[n], out)
        return out
    types = [numeric(o.type) for o in op.operands[1:]]
    if op.attrs.get("axis"):
        at = s.lanes(member(s, v.inner, ix[0], op))
        index = s.lanes(v.index if isinstance(v.index, Tensor) else s.constant(v.index)[None])
        index = index.gather(2, at[:, None].expand(-1, index.shape[1], -1))
        return replace(v, index=index, inner=Nodes(s.lanes(ix[0]), None, live_of(ix[0])))
    named = types[0].elem in ("node", "position")
    at, chosen = getattr(v, "at", None), ix[0]
    if named and at is not None:
        ix = (member(s, at, chosen, op), *ix[1:])
    elif live_of(v) is not None and not named:
        v = packed(s, v)
    inner = getattr(v, "inner", None)
    if len(ix) > 1:
        if inner is not None and types[1].elem == "position":
            ix = (ix[0], member(s, inner, ix[1], op), *ix[2:])
        want = max((t.dims for t in types), key=len)
        if all(is_static(i) for i in ix):
            wide = np.broadcast_arrays(
                *[np.asarray(spread(np.asarray(i), t.dims, want)) for i, t in zip(ix, types, strict=True)]
            )
            return pick(s, v, tuple(wide), op)
        places = [lined(s.tensor(i), t.dims, want) for i, t in zip(ix, types, strict=True)]
        shape = v.shape if isinstance(v, Dist | Draws) else tuple(s.tensor(v).shape[1:])
        out = pick_flat(s, v, places, shape[: len(ix)], op)
        return replace(out, inner=None) if inner is not None else out
    lives = live_of(chosen)
    if not is_static(v) and not count_of(v) and isinstance(v, Vec | Nodes | Tensor):
        v = _one_missing(s, v)
    index = ix[0] if named and at is not None else checked(s, v, chosen)
    out = pick(s, v, index, op)
    if not types[0].dims and isinstance(out, Dist | Draws) and inner is not None:
        return replace(out, at=inner, live=live_of(inner), inner=None)
    if not types[0].dims and isinstance(v, Vec) and v.inner is not None:
        return Vec(out, s.lanes(v.inner))
    if lives is not None and isinstance(out, Tensor):
        return Vec(out, lives)
    if lives is not None and isinstance(out, Nodes):
        return replace(out, live=lives)
    if lives is not None and isinstance(out, Dist | Draws):
        out = replace(out, live=lives)
    if named and isinstance(out, Dist | Draws) and types[0].dims:
        out = replace(out, at=chosen if isinstance(chosen, Nodes | np.ndarray) else Nodes(s.lanes(chosen), None, lives))
    return out


def member(s: Any, at: Any, index: Any, op: Any) -> Any:
    """The place in a part (NumPy [n] or Nodes) of nodes or positions; a lane that asks for what is not there is the
    driver's."""
    if isinstance(at, np.ndarray) and is_static(index):
        where = {int(n): i for i, n in enumerate(at)}
        flat = [where.get(int(i), -1) for i in np.ravel(index)]
        if -1 in flat:
            raise NotSteppable("a row outside the part that was computed", op)
        return np.array(flat, dtype=np.int64).reshape(np.shape(index))
    ids, live = (at.ids, at.live) if isinstance(at, Nodes) else (s.constant(at)[None], None)
    want = s.tensor(index)
    flat = want.flatten(1) if want.ndim > 1 else want[:, None]
    if not ids.shape[1]:  # nothing is found in nothing
        ids, live = ids.new_full((ids.shape[0], 1), -(2**62)), None
    same = ids[:, None, :] == flat[..., None]
    if live is not None:
        same = same & live[:, None]
    missing = ~same.any(-1)
    lives = live_of(index)
    s.flag(missing if lives is None else missing & lives)
    return same.long().argmax(-1).reshape(int(same.shape[0]), *want.shape[1:])


def _one_missing(s: Any, v: Any) -> Any:
    """A vector of one missing element instead of an empty one, whose elements only a branch reads in which no lane is."""
    a = s.lanes(v)
    a, live = a.new_zeros((a.shape[0], 1, *a.shape[2:])), torch.zeros((s.frame.batch, 1), dtype=torch.bool, device=s.device)
    return Nodes(a, np.zeros(1, dtype=np.int64), live) if isinstance(v, Nodes) else Vec(a, live)


def checked(s: Any, v: Any, index: Any) -> Any:
    """An index by lane, below 0 from the end; what is outside marks a case of the driver's."""
    n, there = count_of(v), live_of(v)
    if is_static(index) and (there is None or np.all(np.asarray(index) >= 0)):
        at = np.where(np.asarray(index) < 0, np.asarray(index) + n, index)
        if not np.all((at >= 0) & (at < n)):
            if s.mask is None and there is None:
                raise NotSteppable(f"the index {index} of {n} elements", s.place)
            s.flag(torch.ones_like(s.done))  # a branch that no lane takes
        at = np.clip(at, 0, max(0, n - 1))
        if there is not None and n:
            s.flag(~there[:, s.constant(np.ravel(at))])
        return at
    i, live = s.tensor(index), live_of(index)
    if there is None:
        i = torch.where(i < 0, i + n, i)
    else:
        length = there.sum(1)
        i = torch.where(i < 0, i + length.reshape(-1, *([1] * (i.ndim - 1))), i)
    wrong = (i < 0) | (i >= n)
    if there is not None and n:
        at = i.clamp(0, n - 1).reshape(i.shape[0], -1)
        wrong = wrong | ~s.lanes(there).gather(1, at.expand(s.frame.batch, -1)).reshape(s.frame.batch, *i.shape[1:])
    s.flag(wrong if live is None else wrong & live)
    return i.clamp(0, max(0, n - 1))


def pick(s: Any, v: Any, index: Any, op: Any = None) -> Any:
    """Elements along the first axes of a value: by a static index (a number, an array, a tuple of arrays), or by a tensor with
    indices by lane, [B] or [B, *k]."""
    if isinstance(v, Dist):
        return replace(v, index=picked(s, v.index, index), at=None, live=None)
    if isinstance(v, Draws):
        row, rank = (
            None if a is None else a if isinstance(a, Tensor) else np.broadcast_to(a, v.shape) for a in (v.row, v.rank)
        )
        row, rank, race, nodes = (None if a is None else picked(s, a, index) for a in (row, rank, v.race, v.nodes))
        point = picked(s, v.point, index) if isinstance(v.point, Tensor) else v.point
        tokens = picked(s, v.tokens, index)
        return replace(v, tokens=tokens, row=row, rank=rank, race=race, point=point, at=None, live=None, nodes=nodes)
    if isinstance(v, Edit):
        live = None if v.live is None else picked(s, v.live, index)
        return Edit(picked(s, v.position, index), picked(s, v.token, index), None, live)
    if isinstance(v, Nodes):
        found, several = picked(s, v.ids, index), index.ndim > 1 if isinstance(index, Tensor) else np.ndim(index) > 0
        return Nodes(s.lanes(found), v.within) if several else found
    if isinstance(v, Vec):
        return picked(s, v.data, index)
    if isinstance(v, np.ndarray | Tensor):
        return picked(s, v, index)
    raise NotSteppable(f"elements of a {type(v).__name__.lower()}", op)


def pick_flat(s: Any, v: Any, places: Sequence[Tensor], sizes: Sequence[int], op: Any) -> Any:
    """Elements by several indices int64[B or 1, *k] that go together, along the first axes, whose sizes are given."""
    flat = places[0]
    for i, n in zip(places[1:], sizes[1:], strict=True):
        flat = flat * n + i
    total = int(np.prod(sizes))
    wrong = (flat < 0) | (flat >= total)
    for i, n in zip(places, sizes, strict=True):
        wrong = wrong | (i < 0) | (i >= n)
    s.flag(wrong)
    flat = flat.clamp(0, total - 1)
    k = len(sizes)

    def joined(a: Any) -> Any:
        if a is None or not isinstance(a, np.ndarray | Tensor):
            return a
        return a.reshape(total, *a.shape[k:]) if isinstance(a, np.ndarray) else a.flatten(1, k)

    if isinstance(v, Dist):
        return replace(v, index=picked(s, joined(v.index), flat), at=None, live=None)
    if isinstance(v, Draws):
        row, rank = (
            None if a is None else a if isinstance(a, Tensor) else np.broadcast_to(a, v.shape) for a in (v.row, v.rank)
        )
        row, rank, race, nodes = (None if a is None else picked(s, joined(a), flat) for a in (row, rank, v.race, v.nodes))
        point = picked(s, joined(v.point), flat) if isinstance(v.point, Tensor) else v.point
        tokens = picked(s, joined(v.tokens), flat)
        v = replace(v, at=None, live=None, inner=None)
        return replace(v, tokens=tokens, row=row, rank=rank, race=race, point=point, nodes=nodes)
    return picked(s, joined(s.tensor(v)), flat)


def picked(s: Any, a: Any, index: Any) -> Any:
    """`pick` of a static array [d, ...], or of a tensor [B, d, ...]."""
    if isinstance(index, Draws | Nodes | Vec):
        index = s.tensor(index).clamp(min=0)
    if isinstance(a, np.ndarray):
        return s.constant(a)[index] if isinstance(index, Tensor) else np.asarray(a[index])
    if isinstance(index, Tensor):
        flat = index.flatten(1) if index.ndim > 1 else index[:, None]
        got = take(s, a, flat.long())
        return got.reshape(int(got.shape[0]), *index.shape[1:], *a.shape[2:])
    if isinstance(index, tuple):
        places = np.ravel_multi_index(tuple(np.asarray(i) for i in index), tuple(int(n) for n in a.shape[1 : 1 + len(index)]))
        return take(s, a.flatten(1, len(index)), np.asarray(places))
    return take(s, a, np.asarray(index))


@step("slice")
def cut(s: Any, op: Any, v: Any, *ends: Any) -> Any:
    """v[lo:hi] of the first dimension."""
    if is_static(v) and all(is_static(e) for e in ends):
        return s.hosted(op, [v, *ends])
    path = v if isinstance(v, Path) else None
    v = packed(s, tokens_of(s, v))
    n, live = count_of(v), live_of(v)
    lo = ends[0] if op.attrs.get("has_lo") else 0
    hi = ends[-1] if op.attrs.get("has_hi") else None
    if live is None and is_static(lo) and (hi is None or is_static(hi)):
        return reordered(s, v, np.arange(n)[slice(int(lo), None if hi is None else int(hi))], None)
    length = s.constant(np.array([n])) if live is None else live.sum(1)
    first, last = (_end(s, e, length) for e in (lo, length if hi is None else hi))
    most = n
    if hi is not None and is_static(hi) and is_static(lo) and (int(hi) >= 0) == (int(lo) >= 0):
        most = max(0, min(n, int(hi) - int(lo)))
    at = first[:, None] + s.steps(most)
    out = reordered(s, v, s.lanes(at.clamp(max=max(0, n - 1))) if n else at[:, :0], s.lanes(at < last[:, None]))
    return Path(out.data, out.live.sum(1)) if path is not None else out


def _end(s: Any, e: Any, length: Tensor) -> Tensor:
    """int64[B or 1]: the place of an end of a slice, as Python's."""
    a = s.tensor(e).long()
    a = torch.where(a < 0, a + length, a)
    return torch.minimum(a.clamp(min=0), length)


@step("list")
def listing(s: Any, op: Any, *items: Any) -> Any:
    """[a, b, c]: a vector where the items stack."""
    if all(is_static(x) for x in items):
        return s.hosted(op, items)
    if op.results[0].type.elem == "list":
        return list(items)
    return stacked(s, items, op)


def stacked(s: Any, items: Sequence[Any], op: Any) -> Any:
    """Values of one shape as one vector."""
    if any(isinstance(x, Edit) for x in items):
        return edits(s, list(items))
    if all(isinstance(x, Dist) for x in items):
        return one_dist(s, [replace(x, index=_row(x.index), live=None, at=None) for x in items])
    if all(isinstance(x, Draws) for x in items):
        return one_draws(s, [lifted(x) for x in items])
    lives = [live_of(x) for x in items]
    if any(x is not None for x in lives):
        raise NotSteppable("vectors of different lengths in a list", op)
    values = [s.lanes(x) for x in items]
    kind = values[0].dtype
    for v in values:
        kind = torch.promote_types(kind, v.dtype)
    return torch.stack([v.to(kind) for v in values], 1)


def edits(s: Any, items: list[Any]) -> Edit:
    """Single edits, or none, as a vector."""
    some = [e for e in items if e is not None]
    if not some:
        raise NotSteppable("edits of which there are none", s.place)
    every = [some[0] if e is None else e for e in items]
    lives = [
        torch.zeros_like(s.done) if e is None else torch.ones_like(s.done) if e.live is None else s.lanes(e.live) for e in items
    ]
    return Edit(
        torch.stack([e.position for e in every], 1), torch.stack([e.token for e in every], 1), None, torch.stack(lives, 1)
    )


def _row(index: Any) -> Any:
    return index[:, None] if isinstance(index, Tensor) else np.asarray(index)[None]


def lifted(x: Draws) -> Draws:
    """Draws with an axis of one in front."""

    def up(a: Any) -> Any:
        return None if a is None else a[:, None] if isinstance(a, Tensor) else np.asarray(np.broadcast_to(a, x.shape))[None]

    point = up(x.point) if isinstance(x.point, Tensor) else x.point
    return replace(
        x, tokens=x.tokens[:, None], row=up(x.row), rank=up(x.rank), race=up(x.race), point=point, at=None, live=None,
        nodes=up(x.nodes),
    )  # fmt: skip


def one_dist(s: Any, parts: Sequence[Dist]) -> Dist:
    """Distributions one behind the other along axis 0."""
    first = parts[0]
    if all(p.rows is first.rows and p.face == first.face for p in parts):
        if all(isinstance(p.index, np.ndarray) for p in parts):
            return replace(first, index=np.concatenate([p.index for p in parts]), at=None, live=None)
        index = torch.cat(
            [s.lanes(p.index) if isinstance(p.index, Tensor) else s.lanes(s.constant(p.index)[None]) for p in parts], 1
        )
        return replace(first, index=index, at=None, live=None)
    kind = torch.promote_types(s.vector(first).dtype, s.vector(parts[-1]).dtype)
    return dist_of(s, torch.cat([s.lanes(s.vector(p)).to(kind) for p in parts], 1))


def one_draws(s: Any, parts: Sequence[Draws]) -> Draws:
    """Draws one behind the other along axis 0, each with its law."""
    laws: list[Any] = []
    rows, ranks, points = [], [], []
    some_rank = any(p.rank is not None for p in parts)
    some_race = all(p.race is not None for p in parts)
    for p in parts:
        base = sum(law.rows.count for law in laws)
        known = p.laws and any(p.laws == q.laws for q in parts[:1]) and tuple(laws[: len(p.laws)]) == p.laws
        if known:
            base = 0
        else:
            laws += list(p.laws)
        shape = p.shape
        if p.row is None:
            rows.append(np.full(shape, -1))
        elif isinstance(p.row, Tensor):
            rows.append(torch.where(p.row < 0, -1, p.row + base))
        else:
            row = np.broadcast_to(p.row, shape)
            rows.append(np.where(row < 0, -1, row + base))
        ranks.append(
            np.zeros(shape, dtype=np.int64)
            if p.rank is None
            else p.rank
            if isinstance(p.rank, Tensor)
            else np.broadcast_to(p.rank, shape)
        )
        points.append(p.point)

    def cat(values: Sequence[Any]) -> Any:
        if all(isinstance(v, np.ndarray) for v in values):
            return np.concatenate(values)
        return torch.cat([s.lanes(v) if isinstance(v, Tensor) else s.lanes(s.constant(v)[None]) for v in values], 1)

    if all(isinstance(p, bool) for p in points) and len(set(points)) == 1:
        point: Any = points[0]
    else:
        full = [
            p if isinstance(p, Tensor) else torch.full(d.tokens.shape, p, device=d.tokens.device)
            for p, d in zip(points, parts, strict=True)
        ]
        point = torch.cat(full, 1)
    lives = [live_of(p) for p in parts]
    live = None
    if any(x is not None for x in lives):
        live = torch.cat(
            [
                torch.ones(p.tokens.shape[:2], dtype=torch.bool, device=p.tokens.device) if x is None else x
                for x, p in zip(lives, parts, strict=True)
            ],
            1,
        )
    return Draws(
        torch.cat([s.lanes(p.tokens) for p in parts], 1), tuple(laws), cat(rows), cat(ranks) if some_rank else None, point,
        torch.cat([s.lanes(p.race) for p in parts], 1) if some_race else None, live=live,
        nodes=torch.cat([s.lanes(p.nodes) for p in parts], 1) if all(p.nodes is not None for p in parts) else None,
    )  # fmt: skip


@step("concat")
def concat(s: Any, op: Any, a: Any, b: Any) -> Any:
    """a ++ b along the first dimension; single values count as vectors of one."""
    if is_static(a) and is_static(b):
        return s.hosted(op, [a, b])
    want = op.results[0].type
    if want.elem == "list":
        return [*(a if isinstance(a, list) else [a]), *(b if isinstance(b, list) else [b])]
    parts: list[Any] = []
    out: Any
    for x, v in zip((a, b), op.operands, strict=True):
        if isinstance(x, list) and not x or isinstance(x, np.ndarray) and x.ndim and not len(x):
            continue
        x = tokens_of(s, x)
        if want.elem == "draw" and isinstance(x, Draws):
            parts.append(x if x.shape else lifted(x))
        elif want.elem == "dist" and isinstance(x, Dist):
            parts.append(x if x.shape else replace(x, index=_row(x.index)))
        else:
            single = (
                not v.type.dims
                and v.type.elem not in ("path", "node")
                or v.type.elem == "node"
                and v.type.of[0] != "ctx"
                and not v.type.dims
            )
            parts.append(made(s.lanes(x)[:, None], None) if single else x)
    if len(parts) == 1:
        out = parts[0]
    elif want.elem == "draw" and all(isinstance(p, Draws) for p in parts):
        out = one_draws(s, [packed(s, p) for p in parts]) if parts[0].live is None else _joined(s, parts)
    elif want.elem == "dist" and all(isinstance(p, Dist) for p in parts):
        out = one_dist(s, parts)
    else:
        out = _joined(s, parts)
    return _as_path(s, out) if want.elem == "path" else out


def _as_path(s: Any, x: Any) -> Any:
    x = packed(s, x)
    tokens, live = s.lanes(x), live_of(x)
    return Path(tokens, torch.full_like(tokens[:, 0], int(tokens.shape[1])) if live is None else live.sum(1))


def _joined(s: Any, parts: Sequence[Any]) -> Any:
    """Numbers one behind the other; missing elements stay missing."""
    if any(isinstance(p, Draws) and (p.laws or p.live is not None) for p in parts) and all(isinstance(p, Draws) for p in parts):
        return one_draws(s, parts)
    values = [s.lanes(p) for p in parts]
    kind = values[0].dtype
    for v in values:
        kind = torch.promote_types(kind, v.dtype)
    data, lives = torch.cat([v.to(kind) for v in values], 1), [live_of(p) for p in parts]
    if all(x is None for x in lives):
        return data
    full = [
        torch.ones(v.shape[:2], dtype=torch.bool, device=v.device) if x is None else x
        for v, x in zip(values, lives, strict=True)
    ]
    return Vec(data, torch.cat(full, 1))


@step("tile")
def tile(s: Any, op: Any, *xs: Any) -> Any:
    """A value repeated, whole numbers in a row, or zeros."""
    if all(is_static(x) for x in xs):
        return s.hosted(op, xs)
    kind = op.attrs["kind"]
    if kind == "zeros":
        return zeros(s, op, *xs)
    if kind == "iota":
        lo, hi = (0, xs[0]) if len(xs) == 1 else xs
        most = room(s, op, hi)
        at = s.tensor(lo)[:, None] + s.steps(most)
        return Vec(s.lanes(at), s.lanes(at < s.tensor(hi)[:, None]))
    value, n = xs
    most = int(n) if is_static(n) else room(s, op, n)
    if isinstance(value, Dist | Draws) and value.shape == ():
        out = stacked(s, [value] * most, op)
    else:
        a = s.lanes(value)
        out = a[:, None].expand(-1, most, *a.shape[1:])
    return out if is_static(n) else reordered(s, out, np.arange(most), s.steps(most) < s.lanes(n)[:, None])


def zeros(s: Any, op: Any, *sizes: Any) -> Any:
    """Zeros over given sizes, of which the first may depend on data."""
    given = iter(enumerate(sizes))
    shape: list[int] = []
    for d in op.attrs["dims"]:
        k, n = (0, s.vocab_size) if d.kind == "vocab" else next(given)
        if shape and not is_static(n):
            raise NotSteppable("zeros of which a further size depends on data", op)
        shape.append(
            max(0, int(n))
            if is_static(n)
            else min(most for most in (s.most(op.operands[k]), s.frame.capacity) if most is not None)
        )
    elem = {"int": torch.int64, "token": torch.int64, "bool": torch.bool}.get(op.attrs.get("elem", "real"), torch.float64)
    out = torch.zeros((s.frame.batch, *shape), dtype=elem, device=s.device)
    return out if is_static(sizes[0]) else Vec(out, s.steps(shape[0]) < s.lanes(sizes[0])[:, None])


def room(s: Any, op: Any, n: Any) -> int:
    """The most elements of a vector whose length depends on data."""
    known = [op.attrs.get("bound"), op.result.type.dims[0].bound if op.result.type.dims else None, s.most(op.operands[-1])]
    sizes = [int(k) for k in known if k is not None]
    return max(0, min(sizes)) if sizes else int(s.frame.capacity)  # no vector of tokens is longer than the text


@step("scatter")
def scatter(s: Any, op: Any, v: Any, x: Any, *ix: Any) -> Any:
    """v with v[i] set to x, or added to; of equal indices the last wins."""
    if is_static(v) and is_static(x) and all(is_static(i) for i in ix):
        return s.hosted(op, [v, x, *ix])
    if isinstance(v, list):
        out = list(v)
        if is_static(ix[0]):
            out[int(np.asarray(ix[0]))] = x
            return out
        return [s.join(s.lanes(ix[0]) == n, x, old) for n, old in enumerate(out)]
    types = [o.type for o in op.operands[2:]]
    if len(ix) != 1 or types[0].elem == "bool":
        raise NotSteppable("places set by several indices or by conditions", op)
    b, keep = s.frame.batch, live_of(v)
    base, values = s.lanes(v), s.tensor(x)
    if base.is_floating_point() < values.is_floating_point():
        base = base.to(values.dtype)
    index, live = s.lanes(ix[0]), live_of(ix[0])
    index = index if index.ndim > 1 else index[:, None]
    rest, n = tuple(int(k) for k in base.shape[2:]), int(index.shape[1])
    if values.ndim == 1 + len(rest):
        values = values[:, None]
    values = values.expand(b, n, *rest).reshape(b, n, -1).to(base.dtype)
    wide = base.reshape(b, int(base.shape[1]), -1)
    spare = torch.cat([wide, wide[:, :1] if wide.shape[1] else wide.new_zeros((b, 1, wide.shape[2]))], 1)
    index = index if live is None else torch.where(live, index, int(base.shape[1]))
    s.flag((index < 0) | (index > int(base.shape[1]) - (live is None)))
    index = index.clamp(0, int(base.shape[1]))
    where = index[..., None].expand(-1, -1, int(wide.shape[2]))
    if op.attrs["mode"] == "sum":
        out = spare.scatter_add(1, where, values)
    else:  # all writes to one place get the value of the last, so that the order of writing does not matter
        same = index[:, :, None] == index[:, None, :]
        last = torch.where(same, s.steps(n), -1).amax(2)
        out = spare.scatter(1, where, values.gather(1, last[..., None].expand(-1, -1, int(values.shape[2]))))
    out = out[:, :-1].reshape(b, int(base.shape[1]), *rest)
    if isinstance(v, Dist) and op.results[0].type.elem == "dist":
        return replace(dist_of(s, out), at=v.at)
    return made(out, keep)
