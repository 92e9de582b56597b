"""Vectors of any kind: what is done to their elements is done to all of their tensors, and to static arrays among them.

The parts of a vector that have its elements (`along`) are tensors [B or 1, n, ...], or NumPy arrays [n, ...] where they are
static."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace
from typing import TypeVar, cast, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import (
    Array,
    Context,
    Dist,
    Draws,
    Elements,
    Nodes,
    NodeSet,
    Numbers,
    Operand,
    Path,
    RowSource,
    Spans,
    Tree,
    Vec,
    is_static,
)  # fmt: skip
from decgraph.ir.values import Op

X = TypeVar("X", bound=Operand)
D = TypeVar("D", Dist, Draws)
E = TypeVar("E", Dist, Draws, Nodes)


@overload
def both(a: Tensor, b: Tensor | None) -> Tensor: ...
@overload
def both(a: Tensor | None, b: Tensor) -> Tensor: ...
@overload
def both(a: Tensor | None, b: Tensor | None) -> Tensor | None: ...
def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """The lanes or elements of two masks of one shape, of which None is all."""
    return b if a is None else a if b is None or a is b else a & b


def live_of(x: Operand) -> Tensor | None:
    """bool[B, n]: which elements of a value are there, None: all."""
    return x.live if isinstance(x, Vec | Nodes | Dist | Draws | Tree | Spans) else None


def vec_of(data: Tensor, live: Tensor | None) -> Tensor | Vec:
    """A vector of numbers, as a Vec where some are missing. data: [B, n, ...]; live: bool[B, n] or None."""
    return data if live is None else Vec(data, live)


def count_of(x: Operand) -> int:
    """How many elements a vector has room for."""
    first = x.first if isinstance(x, Elements) else x
    return int(first.shape[1]) if isinstance(first, Tensor) else len(cast(Sequence[Operand], first))


@overload
def flat(a: np.ndarray) -> np.ndarray: ...
@overload
def flat(a: Tensor) -> Tensor: ...
def flat(a: Array) -> Array:
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


def put_at(buffer: Tensor, at: Tensor, values: Tensor) -> None:
    """Write values [B, n] into a buffer [B, N] at places int64[B, n], in place: a compiler would copy the whole buffer for a
    `scatter_`."""
    buffer.index_put_((torch.arange(len(buffer), device=buffer.device)[:, None], at), values)


def with_at(a: Tensor, at: Tensor, values: Tensor) -> Tensor:
    """A tensor [B, N] with values [B, n] at places int64[B, n]: what `scatter` gives, which compilers leave as a call."""
    return a.index_put((torch.arange(len(a), device=a.device)[:, None], at), values)


def order_of(keys: Tensor, down: bool = False) -> Tensor:
    """int64[B, n]: the places of keys [B, n], the least first (down: the largest), equal ones in their order. Few keys are
    compared with each other, which a compiler fuses with what makes them; a sort is several launches."""
    n = int(keys.shape[1])
    if not 0 < n <= COMPARED:
        return torch.sort(keys, dim=1, descending=down, stable=True).indices
    own, other, place = keys[:, :, None], keys[:, None], torch.arange(n, device=keys.device)
    before = (other > own if down else other < own) | ((other == own) & (place < place[:, None]))
    return with_at(torch.empty_like(keys, dtype=torch.int64), before.sum(2), place.expand(len(keys), -1))


COMPARED = 128
"""Keys that are compared with each other, at most."""


def fitted(a: Tensor, n: int, fill: float = 0) -> Tensor:
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


@overload
def mapped(x: E, f: Callable[[Array], Array]) -> E: ...
@overload
def mapped(x: Numbers, f: Callable[[Array], Array]) -> Array: ...
@overload
def mapped(x: Operand, f: Callable[[Array], Array]) -> Operand: ...
def mapped(x: Operand, f: Callable[[Array], Array]) -> Operand:
    """A vector with f of everything that has its elements; of one with missing elements (Vec) the numbers alone."""
    if isinstance(x, Vec):
        return f(x.data)
    if not isinstance(x, Nodes | Dist | Draws | Tree):
        return f(x if isinstance(x, Tensor) else np.asarray(x))
    return replace(x, **{name: f(a) for name, a in x.parts().items()})


def flat_draws(x: Draws) -> Draws:
    """Draws as one vector [n]; of those without replacement, the ones that were not drawn are missing."""
    out, live = mapped(x, lambda a: flat(a)), x.live
    if live is not None and len(x.shape) > 1:
        live = live[..., None].expand(-1, -1, count_of(out) // max(1, x.shape[0])).flatten(1)
    live = live if x.rank is None else both(live, out.tokens >= 0)
    return replace(out, live=live, at=x.at if len(x.shape) == 1 else None)


@overload
def lifted(x: E) -> E: ...
@overload
def lifted(x: Numbers) -> Array: ...
@overload
def lifted(x: Operand) -> Operand: ...
def lifted(x: Operand) -> Operand:
    """A value as a vector of one."""
    out = mapped(x, lambda a: a[None] if isinstance(a, np.ndarray) else a[:, None])
    return replace(out, at=None, live=None) if isinstance(out, Dist | Draws) else out


def within_of(nodes: NodeSet | int | None, size: int) -> np.ndarray:
    """NumPy int64[n]: what nodes of any form are among, in a tree of a size."""
    found = nodes.within if isinstance(nodes, Nodes) else np.ravel(nodes) if isinstance(nodes, int | np.ndarray) else None
    return np.arange(size) if found is None else np.asarray(found)


class Vectors:
    """Lanes, constants, and what is done to vectors with them. mask: bool[B], the lanes that are here, or None: all."""

    tokens: Tensor
    """int64[B, T]: the committed text (state.py)."""

    def __init__(self, batch: int, device: torch.device) -> None:
        self.batch, self.device = batch, device
        self.done = torch.ones(batch, dtype=torch.bool, device=device)
        """The lanes that are at their end, or without a request."""
        self.lost = torch.zeros_like(self.done)
        """The lanes with a case that only the driver handles."""
        self.mask: Tensor | None = None
        self.leading: dict[int, Tensor] = {}
        """Masks of this iteration whose elements that are there are known to stand before the others, by id."""
        self.place: Op | None = None
        """The op that is being evaluated, for the listing."""
        self._constants: dict[Hashable, Tensor] = {}

    def over(self) -> Tensor:
        """bool[B]: the lanes that are over and do not change."""
        return self.done | self.lost

    def active(self) -> Tensor:
        """bool[B]: the lanes in which effects happen now. An iteration goes on to its end where a commit in it ended the text:
        states are written there and calls count, and only commits do nothing more."""
        return ~self.over() if self.mask is None else self.mask & ~self.lost

    def vector(self, q: Dist) -> Tensor:
        """Probabilities [B, *shape, V] (state.py)."""
        raise NotImplementedError

    def buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros that last."""
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def constant(self, value: ArrayLike, dtype: torch.dtype | None = None) -> Tensor:
        """A static value as a tensor, created once and used by later steps."""
        a = np.ascontiguousarray(value).reshape(np.shape(value))
        key = (a.tobytes(), a.shape, a.dtype.str, dtype)
        if key not in self._constants:
            self._constants[key] = torch.from_numpy(a.copy()).to(device=self.device, dtype=dtype)
        return self._constants[key]

    def constants(self) -> Collection[Tensor]:
        """The tensors that `constant` has created, [*dims] each."""
        return self._constants.values()

    def steps(self, n: int) -> Tensor:
        """int64[n]: 0 .. n - 1."""
        return self.constant(np.arange(n))

    def tensor(self, x: Operand) -> Tensor:
        """A value as numbers, [B or 1, *dims]. Raises NotSteppable for what is none."""
        if isinstance(x, Tensor):
            return x
        if isinstance(x, Vec):
            return x.data
        if isinstance(x, Dist):
            return self.vector(x)
        if isinstance(x, Draws):
            return x.tokens
        if isinstance(x, Nodes):
            return x.ids
        if not is_static(x) or isinstance(x, str) or x is None:
            raise NotSteppable(f"a {type(x).__name__.lower()} as numbers", self.place)
        return self.constant(np.asarray(x))[None]

    def lanes(self, x: Operand) -> Tensor:
        """A value as numbers of every lane, [B, *dims]."""
        a = self.tensor(x)
        return a if a.shape[0] == self.batch else a.expand(self.batch, *a.shape[1:])

    def flag(self, wrong: Tensor) -> None:
        """Mark lanes (bool[B, ...]) with a case that only the driver handles: it runs them again."""
        wrong = wrong.flatten(1).any(-1) if wrong.ndim > 1 else wrong
        self.lost.logical_or_(wrong & self.active())

    def lives(self, x: Operand) -> Tensor:
        """bool[B, n]: which elements of a vector are there."""
        live = live_of(x)
        return self.lanes(np.ones(count_of(x), dtype=bool) if live is None else live)

    def lives_of(self, parts: Sequence[Operand]) -> Tensor | None:
        """bool[B, n]: which elements are there of vectors one behind the other, None: all."""
        return None if all(live_of(x) is None for x in parts) else torch.cat([self.lives(x) for x in parts], 1)

    def places(self, ps: Operand) -> tuple[Tensor, Tensor]:
        """Nodes or positions as int64[B, n], and bool[B, n], which of them are there."""
        nodes = self.nodes_of(ps)
        return nodes.ids, self.lives(nodes)

    @overload
    def cat(self, parts: Sequence[np.ndarray]) -> np.ndarray: ...
    @overload
    def cat(self, parts: Sequence[Tensor]) -> Tensor: ...
    @overload
    def cat(self, parts: Sequence[Array]) -> Array: ...
    def cat(self, parts: Sequence[Array]) -> Array:
        """Arrays or tensors one behind the other along the axis of elements; an array where all are."""
        arrays = [a for a in parts if isinstance(a, np.ndarray)]
        if len(arrays) == len(parts):
            return np.concatenate(arrays)
        return self.lanes(parts[0]) if len(parts) == 1 else torch.cat(alike([self.lanes(a) for a in parts]), 1)

    @overload
    def take(self, values: Tensor, index: NodeSet | Tensor | int) -> Tensor: ...
    @overload
    def take(self, values: Array, index: Tensor | Nodes) -> Tensor: ...
    @overload
    def take(self, values: np.ndarray, index: np.ndarray | int) -> np.ndarray: ...
    @overload
    def take(self, values: Array, index: NodeSet | Tensor | int) -> Array: ...
    def take(self, values: Array, index: NodeSet | Tensor | int) -> Array:
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

    def either(self, lanes: Tensor, a: Operand, b: Operand, fill: float = 0) -> Tensor:
        """[B, ...]: a in the lanes bool[B] and b in the others, with a value behind the shorter one."""
        x, y = alike([self.lanes(a), self.lanes(b)])
        if x.ndim > 1:
            n = max(int(x.shape[1]), int(y.shape[1]))
            x, y = fitted(x, n, fill), fitted(y, n, fill)
        if x.shape[2:] != y.shape[2:]:
            raise NotSteppable("values of different shapes in two branches", self.place)
        return torch.where(beside(lanes, x), x, y)

    def either_live(self, lanes: Tensor, a: Operand, b: Operand) -> Tensor | None:
        """bool[B, n]: which elements are there of one of two vectors, None: all."""
        whole = live_of(a) is None and live_of(b) is None and count_of(a) == count_of(b)
        return None if whole else self.either(lanes, self.lives(a), self.lives(b))

    @overload
    def moved(self, x: E, f: Callable[[Array], Array], live: Tensor | None) -> E: ...
    @overload
    def moved(self, x: Numbers, f: Callable[[Array], Array], live: Tensor | None) -> Array | Vec: ...
    @overload
    def moved(self, x: Operand, f: Callable[[Array], Array], live: Tensor | None) -> Operand: ...
    def moved(self, x: Operand, f: Callable[[Array], Array], live: Tensor | None) -> Operand:
        """A vector whose elements are put elsewhere along its first axis, as f does it with one tensor or array. live:
        bool[B, n], which are there then."""
        out = mapped(x, f)
        if isinstance(out, Dist | Draws):
            at = np.arange(out.shape[0]) if out.at is None and isinstance(out, Dist) else out.at
            if at is not None:
                there = f(at) if isinstance(at, np.ndarray) else None
                at = there if isinstance(there, np.ndarray) else self.moved(self.nodes_of(at), f, live)
            return replace(out, live=live, at=at)
        if isinstance(out, Nodes):
            return Nodes(self.lanes(out.ids), out.within, live)
        return out if live is None else Vec(self.tensor(out), live)

    @overload
    def reordered(self, x: E, order: Array, live: Tensor | None) -> E: ...
    @overload
    def reordered(self, x: Numbers, order: Array, live: Tensor | None) -> Array | Vec: ...
    @overload
    def reordered(self, x: Operand, order: Array, live: Tensor | None) -> Operand: ...
    def reordered(self, x: Operand, order: Array, live: Tensor | None) -> Operand:
        """A vector with other elements along its first axis: order NumPy int64[n] or int64[B, n]; live: which are there."""
        return self.moved(x, lambda a: self.take(a, order), live)

    def first_of(self, x: X, n: int) -> X:
        """The first n elements of a vector."""
        if count_of(x) == n:
            return x
        live = live_of(x)
        live = None if live is None else live[:, :n]
        return cast(X, self.moved(x, lambda a: a[:n] if isinstance(a, np.ndarray) else a[:, :n], live))

    def packed(self, x: X) -> X:
        """A vector whose missing elements are all behind the others."""
        live = live_of(x)
        if live is None or id(live) in self.leading:
            return x
        order = order_of((~live).to(torch.uint8))
        return cast(X, self.reordered(x, order, self.leads(live.gather(1, order))))

    def leads(self, live: Tensor) -> Tensor:
        """Note that the elements that are there, live bool[B, n], stand before all others, so that nobody sorts them again."""
        self.leading[id(live)] = live
        return live

    def together(self, *xs: X) -> list[X]:
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

    def same_count(self, a: Tensor | None, b: Tensor | None) -> None:
        """Called for two vectors that go together: a lane in which they have different lengths is an error, which is the
        driver's. a, b: bool[B, n]."""
        if a is not None and b is not None and a is not b:
            self.flag(a.sum(1) != b.sum(1))

    @overload
    def pick(self, x: D, index: Array) -> D: ...
    @overload
    def pick(self, x: Numbers | Nodes, index: Array) -> Array | Nodes: ...
    @overload
    def pick(self, x: Operand, index: Array) -> Operand: ...
    def pick(self, x: Operand, index: Array) -> Operand:
        """Elements along the first axis of a vector, all of which are taken to be there: NumPy int64[*k], or by lane
        int64[B, *k]. Of nodes and numbers one element is a number."""
        if not isinstance(x, Elements | Tensor | np.ndarray):
            raise NotSteppable(f"elements of a {type(x).__name__.lower()}", self.place)
        out = mapped(x, lambda a: self.take(a, index))
        if isinstance(out, Dist | Draws):
            return replace(out, at=None, live=None)
        if isinstance(out, Nodes):
            return Nodes(self.lanes(out.ids), out.within) if out.ids.ndim > 1 else out.ids
        return out

    def nodes_of(self, x: Operand, within: np.ndarray | None = None) -> Nodes:
        """Nodes of any form as a vector of them, int[B, N]. within: what they are chosen from, where x does not say it."""
        if isinstance(x, Nodes):
            return replace(x, within=within) if x.within is None and within is not None else x
        static = is_static(x)
        return Nodes(flat(self.lanes(x).long()), np.ravel(np.asarray(x, dtype=np.int64)) if static else within, live_of(x))

    def nodes_or_static(self, x: Operand, within: np.ndarray | None = None) -> NodeSet:
        """Nodes of any form as a vector: NumPy int64[n] where they are static."""
        return np.ravel(np.asarray(x, dtype=np.int64)) if is_static(x) else self.nodes_of(x, within)

    def one_draws(self, parts: Sequence[Draws], put: Callable[[Sequence[Array]], Array] | None = None) -> Draws:
        """Draws one behind the other along axis 0 (or as `put` puts tensors and arrays together), each with the row that it was
        drawn from."""
        put = put or self.cat
        sources: list[RowSource] = []
        rows, ranks, points = [], [], [p.point for p in parts]
        for p in parts:
            base = sum(source.rows.count for source in sources)
            if p.sources and len(sources) >= len(p.sources) and all(a.same(b) for a, b in zip(p.sources, sources)):
                base = 0
            else:
                sources += p.sources
            row = np.full(p.shape, -1) if p.row is None else p.row
            if base:
                row = torch.where(row < 0, -1, row + base) if isinstance(row, Tensor) else np.where(row < 0, -1, row + base)
            rows.append(row)
            ranks.append(np.zeros(p.shape, dtype=np.int64) if p.rank is None else p.rank)
        if any(isinstance(p, Tensor) for p in points) or len(set(points)) > 1:
            points = [put([p if isinstance(p, Tensor) else np.full(x.shape, p) for p, x in zip(points, parts, strict=True)])]
        return Draws(
            self.tensor(put([p.tokens for p in parts])),
            tuple(sources),
            put(rows),
            put(ranks) if any(p.rank is not None for p in parts) else None,
            points[0] if not isinstance(points[0], np.ndarray) else self.lanes(points[0]),
            self.tensor(put(races)) if len(races := [p.race for p in parts if p.race is not None]) == len(parts) else None,
            live=self.lives_of(parts),
            nodes=self.tensor(put(nodes))
            if len(nodes := [p.nodes for p in parts if p.nodes is not None]) == len(parts)
            else None,
        )

    @overload
    def tokens_of(self, x: Path | Context) -> Vec: ...
    @overload
    def tokens_of(self, x: X) -> X | Vec: ...
    def tokens_of(self, x: Operand) -> Operand:
        """A path as a vector of its tokens, a context as that of the text; other values as they are."""
        if isinstance(x, Path):
            return Vec(x.tokens, self.steps(int(x.tokens.shape[1])) < x.length[:, None])
        if isinstance(x, Context):
            return Vec(self.tokens, self.steps(int(self.tokens.shape[1])) < (x.length - int(x.parent))[:, None])
        return x
