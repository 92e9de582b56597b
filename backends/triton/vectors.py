"""Vectors of any kind: what is done to their elements is done to all of their tensors, and to static arrays among them.

The parts of a vector that have its elements (`along`) are tensors [B or 1, n, ...], or NumPy arrays [n, ...] where they are
static."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Context, Dist, Draws, Edit, Nodes, Path, Source, Vec, is_static


def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The lanes or elements of two masks of one shape, of which None is all."""
    return b if a is None else a if b is None or a is b else a & b


def live_of(x: Any) -> Tensor | None:
    """bool[B, n]: which elements of a value are there, None: all."""
    return getattr(x, "live", None)


def made(data: Tensor, live: Tensor | None) -> Any:
    """A vector of numbers, as a Vec where some are missing. data: [B, n, ...]; live: bool[B, n] or None."""
    return data if live is None else Vec(data, live)


def count_of(x: Any) -> int:
    """How many elements a vector has room for."""
    first = getattr(x, x.along[0]) if hasattr(x, "along") else x
    return int(first.shape[1]) if isinstance(first, Tensor) else len(first)


def flat(a: Any) -> Any:
    """[B, n] of a tensor [B, *shape], whose one element is a vector of one too; [n] of an array."""
    return np.reshape(a, -1) if isinstance(a, np.ndarray) else a.flatten(1) if a.ndim > 1 else a[:, None]


def beside(mask: Tensor, a: Tensor) -> Tensor:
    """A mask [B, ...] with axes of one behind, so that it goes with [B, ..., *rest]."""
    return mask.reshape(*mask.shape, *([1] * (a.ndim - mask.ndim)))


def alike(values: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of any shapes, in a dtype that holds all of them."""
    kind = values[0].dtype
    for v in values[1:]:
        kind = torch.promote_types(kind, v.dtype)
    return [v.to(kind) for v in values]


def fitted(a: Tensor, n: int, fill: Any = 0) -> Tensor:
    """[B, m, ...] with n elements: cut, or with more of one value."""
    m = int(a.shape[1])
    return a[:, :n] if m >= n else torch.cat([a, a.new_full((a.shape[0], n - m, *a.shape[2:]), fill)], 1)


def spare(a: Tensor) -> Tensor:
    """[B, n + 1, ...]: a tensor [B, n, ...] with one more element, for what is written nowhere."""
    return torch.cat([a, a[:, :1]], 1) if a.shape[1] else a.new_zeros((a.shape[0], 1, *a.shape[2:]))


def filled(a: Tensor, live: Tensor | None, down: bool = True) -> Tensor:
    """Numbers [B, n, ...] with less than any number (or, where not down, more) for those that are missing; bools as numbers.
    live: bool[B, n], or None: all."""
    a = a.to(torch.int8) if a.dtype == torch.bool else a
    most = torch.inf if a.is_floating_point() else 2 if a.dtype == torch.int8 else 2**62
    return a if live is None else torch.where(beside(live, a), a, -most if down else most)


def mapped(x: Any, f: Callable[[Any], Any]) -> Any:
    """A vector with f of everything that has its elements; of one with missing elements (Vec) the numbers alone."""
    if isinstance(x, Vec):
        return f(x.data)
    if not hasattr(x, "along"):
        return f(x if isinstance(x, Tensor) else np.asarray(x))
    parts = {name: getattr(x, name) for name in x.along}
    return replace(x, **{name: f(a) for name, a in parts.items() if isinstance(a, Tensor | np.ndarray)})


def flat_draws(x: Draws) -> Draws:
    """Draws as one vector [n]; of those without replacement, the ones that were not drawn are missing."""
    out, live = mapped(x, flat), x.live
    if live is not None and len(x.shape) > 1:
        live = live[..., None].expand(-1, -1, count_of(out) // max(1, x.shape[0])).flatten(1)
    live = live if x.rank is None else both(live, out.tokens >= 0)
    return replace(out, live=live, at=x.at if len(x.shape) == 1 else None)


def lifted(x: Any) -> Any:
    """A value as a vector of one."""
    out = mapped(x, lambda a: a[None] if isinstance(a, np.ndarray) else a[:, None])
    return replace(out, at=None, live=None) if isinstance(x, Dist | Draws) else out


def within_of(nodes: Any, size: int) -> np.ndarray:
    """NumPy int64[n]: what nodes of any form are among, in a tree of a size."""
    found = nodes.within if isinstance(nodes, Nodes) else np.ravel(nodes) if isinstance(nodes, int | np.ndarray) else None
    return np.arange(size) if found is None else np.asarray(found)


class Vectors:
    """What a step's state does with vectors: all that needs its lanes and constants (state.py)."""

    def lives(self: Any, x: Any) -> Tensor:
        """bool[B, n]: which elements of a vector are there."""
        live = live_of(x)
        return self.lanes(np.ones(count_of(x), dtype=bool) if live is None else live)

    def lives_of(self: Any, parts: Sequence[Any]) -> Tensor | None:
        """bool[B, n]: which elements are there of vectors one behind the other, None: all."""
        return None if all(live_of(x) is None for x in parts) else torch.cat([self.lives(x) for x in parts], 1)

    def places(self: Any, ps: Any) -> tuple[Tensor, Tensor]:
        """Nodes or positions as int64[B, n], and bool[B, n], which of them are there."""
        nodes = self.nodes_of(ps)
        return nodes.ids, self.lives(nodes)

    def cat(self: Any, parts: Sequence[Any]) -> Any:
        """Arrays or tensors one behind the other along the axis of elements; an array where all are."""
        if all(isinstance(a, np.ndarray) for a in parts):
            return np.concatenate(parts)
        return self.lanes(parts[0]) if len(parts) == 1 else torch.cat(alike([self.lanes(a) for a in parts]), 1)

    def take(self: Any, values: Any, index: Any) -> Any:
        """values[b, index[b]]: elements of a tensor [B or 1, n, ...] or an array [n, ...] at an index, NumPy int64[*shape],
        int64[B or 1, *shape], or nodes."""
        index = index.ids if isinstance(index, Nodes) else index
        if isinstance(index, Tensor):
            values = self.tensor(values)
            rows, rest = max(int(values.shape[0]), int(index.shape[0])), values.shape[2:]
            at = flat(index)
            wide = at.reshape(*at.shape, *([1] * len(rest))).expand(rows, -1, *rest)
            return values.expand(rows, *values.shape[1:]).gather(1, wide).reshape(rows, *index.shape[1:], *rest)
        index = np.asarray(index)
        if isinstance(values, np.ndarray):
            return np.asarray(values[index])
        if index.ndim == 0:
            return values.select(1, int(index))
        at = index.ravel()
        whole = len(at) == values.shape[1] and bool((at == np.arange(len(at))).all())
        out = values if whole else values.index_select(1, self.constant(at))
        return out if index.ndim == 1 else out.unflatten(1, index.shape)

    def either(self: Any, lanes: Tensor, a: Any, b: Any, fill: Any = 0) -> Tensor:
        """[B, ...]: a in the lanes bool[B] and b in the others, with a value behind the shorter one."""
        x, y = alike([self.lanes(a), self.lanes(b)])
        if x.ndim > 1:
            n = max(int(x.shape[1]), int(y.shape[1]))
            x, y = fitted(x, n, fill), fitted(y, n, fill)
        if x.shape[2:] != y.shape[2:]:
            raise NotSteppable("values of different shapes in two branches", self.place)
        return torch.where(beside(lanes, x), x, y)

    def either_live(self: Any, lanes: Tensor, a: Any, b: Any) -> Tensor | None:
        """bool[B, n]: which elements are there of one of two vectors, None: all."""
        whole = live_of(a) is None and live_of(b) is None and count_of(a) == count_of(b)
        return None if whole else self.either(lanes, self.lives(a), self.lives(b))

    def moved(self: Any, x: Any, f: Callable[[Any], Any], live: Tensor | None) -> Any:
        """A vector whose elements are put elsewhere along its first axis, as f does it with one tensor or array. live:
        bool[B, n], which are there then."""
        out = mapped(x, f)
        if isinstance(x, Dist | Draws):
            at = np.arange(x.shape[0]) if x.at is None and isinstance(x, Dist) else x.at
            if at is not None:
                there = f(at) if isinstance(at, np.ndarray) else None
                at = there if isinstance(there, np.ndarray) else self.moved(self.nodes_of(at), f, live)
            return replace(out, live=live, at=at)
        if isinstance(x, Nodes):
            return Nodes(self.lanes(out.ids), x.within, live)
        if isinstance(x, Edit):
            return replace(out, value=None, live=live)
        return out if live is None else Vec(self.tensor(out), live)

    def reordered(self: Any, x: Any, order: Any, live: Tensor | None) -> Any:
        """A vector with other elements along its first axis: order NumPy int64[n] or int64[B, n]; live: which are there."""
        return self.moved(x, lambda a: self.take(a, order), live)

    def first_of(self: Any, x: Any, n: int) -> Any:
        """The first n elements of a vector."""
        if count_of(x) == n:
            return x
        live = live_of(x)
        return self.moved(x, lambda a: a[:n] if isinstance(a, np.ndarray) else a[:, :n], None if live is None else live[:, :n])

    def packed(self: Any, x: Any) -> Any:
        """A vector whose missing elements are all behind the others."""
        live = live_of(x)
        if live is None or id(live) in self.leading:
            return x
        order = torch.sort((~live).to(torch.uint8), dim=1, stable=True).indices
        return self.reordered(x, order, self.leads(live.gather(1, order)))

    def leads(self: Any, live: Tensor) -> Tensor:
        """Note that the elements that are there, live bool[B, n], stand before all others, so that nobody sorts them again."""
        self.leading[id(live)] = live
        return live

    def together(self: Any, *xs: Any) -> list[Any]:
        """Vectors that go together element by element: packed, where not the same elements are missing in all of them, and as
        long as the shortest: what stands behind its room is missing in the others. A lane in which they have different lengths
        is an error, which is the driver's."""
        known = [live for x in xs if (live := live_of(x)) is not None]
        for live in known[1:]:
            self.same_count(known[0], live)
        if known and len({id(live_of(x)) for x in xs}) > 1:
            xs = tuple(self.packed(x) for x in xs)
        n = min(count_of(x) for x in xs)
        return [self.first_of(x, n) for x in xs]

    def same_count(self: Any, a: Tensor | None, b: Tensor | None) -> None:
        """Called for two vectors that go together: a lane in which they have different lengths is an error, which is the
        driver's. a, b: bool[B, n]."""
        if a is not None and b is not None and a is not b:
            self.flag(a.sum(1) != b.sum(1))

    def pick(self: Any, x: Any, index: Any) -> Any:
        """Elements along the first axis of a vector, all of which are taken to be there: NumPy int64[*k], or by lane
        int64[B, *k]. Of nodes and numbers one element is a number."""
        if not (hasattr(x, "along") or isinstance(x, Tensor | np.ndarray)):
            raise NotSteppable(f"elements of a {type(x).__name__.lower()}", self.place)
        out = mapped(x, lambda a: self.take(a, index))
        if isinstance(x, Dist | Draws):
            return replace(out, at=None, live=None)
        if isinstance(x, Edit):
            return replace(out, value=None, live=None if x.live is None else self.take(x.live, index))
        if isinstance(x, Nodes):
            return Nodes(self.lanes(out.ids), x.within) if out.ids.ndim > 1 else out.ids
        return out

    def nodes_of(self: Any, x: Any, within: Any = None) -> Nodes:
        """Nodes of any form as a vector of them. within: what they are chosen from, where x does not say so itself."""
        if isinstance(x, Nodes):
            return replace(x, within=within) if x.within is None and within is not None else x
        static = is_static(x)
        return Nodes(flat(self.lanes(x).long()), np.ravel(np.asarray(x, dtype=np.int64)) if static else within, live_of(x))

    def nodes_or_static(self: Any, x: Any, within: Any = None) -> Any:
        """Nodes of any form as a vector: NumPy int64[n] where they are static."""
        return np.ravel(np.asarray(x, dtype=np.int64)) if is_static(x) else self.nodes_of(x, within)

    def one_draws(self: Any, parts: Sequence[Draws]) -> Draws:
        """Draws one behind the other along axis 0, each with the row that it was drawn from."""
        sources: list[Source] = []
        rows, ranks, points = [], [], [p.point for p in parts]
        for p in parts:
            base = sum(source.rows.count for source in sources)
            if p.sources and len(sources) >= len(p.sources) and all(a.same(b) for a, b in zip(p.sources, sources)):
                base = 0
            else:
                sources += p.sources
            row = np.full(p.shape, -1) if p.row is None else p.row
            where: Any = torch.where if isinstance(row, Tensor) else np.where
            rows.append(where(row < 0, -1, row + base) if base else row)
            ranks.append(np.zeros(p.shape, dtype=np.int64) if p.rank is None else p.rank)
        if any(isinstance(p, Tensor) for p in points) or len(set(points)) > 1:
            points = [
                self.cat([p if isinstance(p, Tensor) else np.full(x.shape, p) for p, x in zip(points, parts, strict=True)])
            ]
        return Draws(
            self.cat([p.tokens for p in parts]),
            tuple(sources),
            self.cat(rows),
            self.cat(ranks) if any(p.rank is not None for p in parts) else None,
            points[0] if not isinstance(points[0], np.ndarray) else self.lanes(points[0]),
            self.cat([p.race for p in parts]) if all(p.race is not None for p in parts) else None,
            live=self.lives_of(parts),
            nodes=self.cat([p.nodes for p in parts]) if all(p.nodes is not None for p in parts) else None,
        )

    def tokens_of(self: Any, x: Any) -> Any:
        """A path as a vector of its tokens, a context as that of the text; other values as they are."""
        if isinstance(x, Path):
            return Vec(x.tokens, self.steps(int(x.tokens.shape[1])) < x.length[:, None])
        if isinstance(x, Context):
            return Vec(self.tokens, self.steps(int(self.tokens.shape[1])) < (x.length - int(x.parent))[:, None])
        return x
