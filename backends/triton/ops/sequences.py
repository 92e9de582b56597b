"""Vectors as sequences: indexing, slices, joining, lists, tiles, lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.ops.distributions import dist_of
from decgraph.backends.triton.ops.numbers import lined
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Array, Dist, Draws, Nodes, Operand, Path, Vec, is_static
from decgraph.backends.triton.vectors import beside, both, count_of, flat, lifted, live_of, mapped, spare, vec_of
from decgraph.ir.ops.common import numeric, spread
from decgraph.ir.types import Type
from decgraph.ir.values import Op, Value


@step("len", folded=True)
def length(s: Step, op: Op, x: Operand) -> Operand:
    """How many there are."""
    if isinstance(x, Path):
        return x.length
    live = live_of(x)
    if live is None:
        return count_of(x)
    s.sizes[op.result] = count_of(x)
    return live.sum(1)


@step("gather", folded=True)
def gather(s: Step, op: Op, v: Operand, *indexes: Operand) -> Operand:
    """v[i]; where v covers a part, the index is the member's node or position."""
    ix = list(indexes)
    if isinstance(v, list):
        if is_static(ix[0]):
            return v[int(np.asarray(ix[0]))]
        out = v[-1]
        for n in range(len(v) - 2, -1, -1):  # an iteration's number is a tensor where its body is recorded
            out = s.join(s.lanes(ix[0]) == n, v[n], out)
        return out
    types = [numeric(o.type) for o in op.operands[1:]]
    chosen, at = ix[0], v.at if isinstance(v, Dist | Draws) else None
    if op.attrs.get("axis"):
        raise NotSteppable("elements of every row of a matrix", op)
    named, place = types[0].elem in ("node", "position"), None
    if named and at is not None:
        ix[0] = place = member(s, at, chosen, op)
    elif live_of(v) is not None and not named:
        v = s.packed(v)
    if len(ix) > 1:
        return entries(s, v, ix, types)
    if not is_static(v) and not count_of(v):
        raise NotSteppable("an element of an empty vector", op)
    out = s.pick(v, place if place is not None else checked(s, v, chosen))
    live = live_of(chosen)
    if isinstance(out, Tensor):
        return vec_of(out, live)
    if live is not None and isinstance(out, Nodes | Dist | Draws):
        out = replace(out, live=live)
    if named and isinstance(out, Dist | Draws) and types[0].dims:
        out = replace(out, at=chosen if isinstance(chosen, np.ndarray) else s.nodes_of(chosen))
    return out


def member(s: Step, at: Operand, index: Operand, op: Op) -> Array:
    """The place in a part (NumPy [n] or Nodes) of nodes or positions; a lane that reads what is not there is the driver's."""
    ids, live, want = s.tensor(at), live_of(at), s.tensor(index)
    if not ids.shape[1]:
        raise NotSteppable("an element of nothing", op)
    same = ids[:, None, :] == flat(want)[..., None]
    same = same if live is None else same & live[:, None]
    s.flag(both(~same.any(-1), live_of(index)))
    return same.long().argmax(-1).reshape(int(same.shape[0]), *want.shape[1:])


def checked(s: Step, v: Operand, index: Operand) -> Array:
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
    i = s.tensor(index)
    i = torch.where(i < 0, i + (n if there is None else beside(there.sum(1), i)), i)
    inside = i.clamp(0, max(0, n - 1))
    wrong = i != inside
    if there is not None and n:
        wrong = wrong | ~s.take(there, inside)
    s.flag(both(wrong, live_of(index)))
    return inside


def entries(s: Step, v: Operand, ix: Sequence[Operand], types: Sequence[Type]) -> Operand:
    """Elements along the first axes of a value, by several indices that go together. types: of the indices."""
    want = max((t.dims for t in types), key=len)
    if all(is_static(i) for i in ix):
        at: Sequence[Array] = np.broadcast_arrays(
            *[np.asarray(spread(np.asarray(i), t.dims, want)) for i, t in zip(ix, types, strict=True)]
        )
    else:
        at = [lined(s.tensor(i), t.dims, want) for i, t in zip(ix, types, strict=True)]
    sizes = (v.shape if isinstance(v, Dist | Draws) else tuple(s.tensor(v).shape[1:]))[: len(ix)]
    place, wrong = at[0], (at[0] < 0) | (at[0] >= sizes[0])
    for i, n in zip(at[1:], sizes[1:], strict=True):
        place, wrong = place * n + i, wrong | (i < 0) | (i >= n)
    if isinstance(wrong, Tensor) and isinstance(place, Tensor):
        s.flag(wrong)
        place = place.clamp(0, max(0, int(np.prod(sizes)) - 1))
    elif np.any(wrong):
        raise NotSteppable("an element outside of a matrix", s.place)

    def joined(a: Array) -> Array:
        return a.reshape(-1, *a.shape[len(ix) :]) if isinstance(a, np.ndarray) else a.flatten(1, len(ix))

    return s.pick(mapped(v, joined), place)


@step("slice", folded=True)
def cut(s: Step, op: Op, v: Operand, *ends: Operand) -> Operand:
    """v[lo:hi] of the first dimension."""
    if isinstance(v, Path):
        raise NotSteppable("a part of an accepted path", op)
    v = s.packed(s.tokens_of(v))
    n, live = count_of(v), live_of(v)
    lo = ends[0] if op.attrs.get("has_lo") else 0
    hi = ends[-1] if op.attrs.get("has_hi") else None
    if live is None and is_static(lo) and (hi is None or is_static(hi)):
        return s.reordered(v, np.arange(n)[slice(int(lo), None if hi is None else int(hi))], None)
    length = s.constant(np.array([n])) if live is None else live.sum(1)
    first, last = _end(s, lo, length), length if hi is None else _end(s, hi, length)
    most = n
    if hi is not None and is_static(hi) and is_static(lo) and (int(hi) >= 0) == (int(lo) >= 0):
        most = max(0, min(n, int(hi) - int(lo)))
    elif hi is not None and is_static(hi) and is_static(lo) and int(hi) < 0:
        most = max(0, n + int(hi) - int(lo))
    elif hi is not None and len(ends) == 2:
        most = min(n, _apart(s, op.operands[1], op.operands[2], n))
    at = first[:, None] + s.steps(most)
    out = s.reordered(v, s.lanes(at.clamp(max=max(0, n - 1))) if n else at[:, :0], s.lanes(at < last[:, None]))
    return out


def _apart(s: Step, lo: Value, hi: Value, most: int) -> int:
    """How far behind `lo` an end `lo + k` of a part is; `most` for another one."""
    made = s.makers.get(hi)
    if made is None or made.opcode != "map" or made.attrs["fn"] != "add" or lo not in made.operands:
        return most
    k = s.env.get(made.operands[1 - made.operands.index(lo)])
    return max(0, int(k)) if isinstance(k, int | np.integer) else most


def _end(s: Step, e: Operand, length: Tensor) -> Tensor:
    """int64[B or 1]: the place of an end of a slice, as Python's."""
    if is_static(e):
        return (length + int(e)).clamp(min=0) if int(e) < 0 else torch.minimum(s.tensor(int(e)), length)
    a = s.tensor(e).long()
    return torch.minimum(torch.where(a < 0, a + length, a).clamp(min=0), length)


@step("list", folded=True)
def listing(s: Step, op: Op, *items: Operand) -> Operand:
    """[a, b, c]: a vector where the items stack."""
    if op.results[0].type.elem == "list":
        return list(items)
    return stacked(s, items, op)


def stacked(s: Step, items: Sequence[Operand], op: Op) -> Operand:
    """Values of one shape as one vector."""
    if not all(isinstance(x, Dist | Draws) for x in items) and any(live_of(x) is not None for x in items):
        raise NotSteppable("vectors of different lengths in a list", op)
    return joined(s, [lifted(x) if isinstance(x, Dist | Draws) else s.lanes(x)[:, None] for x in items])


def joined(s: Step, parts: Sequence[Operand]) -> Operand:
    """Vectors one behind the other; missing elements stay missing."""
    draws, dists = [p for p in parts if isinstance(p, Draws)], [p for p in parts if isinstance(p, Dist)]
    if len(draws) == len(parts):
        return s.one_draws(draws)
    if len(dists) == len(parts):
        return one_dist(s, dists)
    return vec_of(s.cat([s.lanes(p) for p in parts]), s.lives_of(parts))


def one_dist(s: Step, parts: Sequence[Dist]) -> Dist:
    """Distributions one behind the other along axis 0."""
    first, live = parts[0], s.lives_of(parts)
    if all(p.rows is first.rows and p.face == first.face for p in parts):
        return replace(first, index=s.cat([p.index for p in parts]), at=None, live=live)
    return replace(dist_of(s, s.cat([s.vector(p) for p in parts])), live=live)


@step("concat", folded=True)
def concat(s: Step, op: Op, a: Operand, b: Operand) -> Operand:
    """a ++ b along the first dimension; single values count as vectors of one."""
    want = op.results[0].type
    if want.elem in ("list", "path"):
        raise NotSteppable(f"a {want.elem} that is made of others", op)
    parts: list[Operand] = []
    for x, v in zip((a, b), op.operands, strict=True):
        if isinstance(x, list) and not x or isinstance(x, np.ndarray) and x.ndim and not len(x):
            continue
        x = s.tokens_of(x)
        if want.elem == "draw" and isinstance(x, Draws) or want.elem == "dist" and isinstance(x, Dist):
            parts.append(x if x.shape else lifted(x))
        else:
            several = v.type.dims or v.type.elem == "path" or v.type.elem == "node" and v.type.of[0] == "ctx"
            parts.append(x if several else s.lanes(x)[:, None])
    out = parts[0] if len(parts) == 1 else joined(s, parts)
    return out


@step("tile", folded=True)
def tile(s: Step, op: Op, *xs: Operand) -> Operand:
    """A value repeated, whole numbers in a row, or zeros."""
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
    return out if is_static(n) else s.reordered(out, np.arange(most), s.steps(most) < s.lanes(n)[:, None])


def zeros(s: Step, op: Op, *sizes: Operand) -> Operand:
    """Zeros over given sizes, of which the first may depend on data."""
    given = iter(enumerate(sizes))
    shape: list[int] = []
    for d in op.attrs["dims"]:
        k, n = (0, s.vocab_size) if d.kind == "vocab" else next(given)
        if shape and not is_static(n):
            raise NotSteppable("zeros of which a further size depends on data", op)
        most = s.most(op.operands[k]) if not is_static(n) else max(0, int(n))
        shape.append(s.text_size if most is None else most if is_static(n) else min(most, s.text_size))
    elem = {"int": torch.int64, "token": torch.int64, "bool": torch.bool}.get(op.attrs.get("elem", "real"), torch.float64)
    out = torch.zeros((s.frame.batch, *shape), dtype=elem, device=s.device)
    return out if is_static(sizes[0]) else Vec(out, s.steps(shape[0]) < s.lanes(sizes[0])[:, None])


def room(s: Step, op: Op, n: Operand) -> int:
    """The most elements of a vector whose length depends on data."""
    known = [op.attrs.get("bound"), op.result.type.dims[0].bound if op.result.type.dims else None, s.most(op.operands[-1])]
    sizes = [int(k) for k in known if k is not None]
    return max(0, min(sizes)) if sizes else s.text_size  # no vector of tokens is longer than the text


@step("scatter", folded=True)
def scatter(s: Step, op: Op, v: Operand, x: Operand, *ix: Operand) -> Operand:
    """v with v[i] set to x, or added to; of equal indices the last wins."""
    if isinstance(v, list):
        raise NotSteppable("an element of a list that is set", op)
    types = [o.type for o in op.operands[2:]]
    if len(ix) != 1 or types[0].elem == "bool":
        raise NotSteppable("places set by several indices or by conditions", op)
    base, values, live = s.lanes(v), s.tensor(x), live_of(ix[0])
    if base.is_floating_point() < values.is_floating_point():
        base = base.to(values.dtype)
    index, size, rest = flat(s.lanes(ix[0])), int(base.shape[1]), base.shape[2:]
    n = int(index.shape[1])
    values = (values[:, None] if values.ndim == base.ndim - 1 else values).expand(s.frame.batch, n, *rest).to(base.dtype)
    index = index if live is None else torch.where(live, index, size)
    s.flag((index < 0) | (index > size - (live is None)))
    index = index.clamp(0, size)
    where = beside(index, base).expand(-1, -1, *rest)
    if op.attrs["mode"] == "sum":
        out = spare(base).scatter_add(1, where, values)[:, :-1]
    else:  # all writes to one place get the value of the last, so that the order of writing does not matter
        same = index[:, :, None] == index[:, None, :]
        out = spare(base).scatter(1, where, s.take(values, torch.where(same, s.steps(n), -1).amax(2)))[:, :-1]
    if isinstance(v, Dist) and op.results[0].type.elem == "dist":
        return replace(dist_of(s, out), at=v.at)
    return vec_of(out, live_of(v))
