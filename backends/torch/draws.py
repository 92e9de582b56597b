"""Draws: token ids with the distribution each was drawn from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from decgraph.backends.torch import shaping
from decgraph.backends.torch.rows import (
    Ids,
    Rows,
    Tokens,
    TorchDist,
    TorchVectors,
    Where,
    ids_on,
    locate,
    on_one_device,
    picked_places,
)
from decgraph.backends.torch.transfer import picked
from decgraph.runtime.request import Request


class Drawn(Tokens):
    """Base of single draws and vectors of draws: they compare by their tokens, as integers do."""

    __slots__ = ()
    __hash__ = object.__hash__
    __array_ufunc__ = None  # NumPy leaves `array == draws` to __eq__ here

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tokens.shape

    def pick(self, where: Where, at: Ids | None = None) -> TorchDraws | Mixed:
        """Elements by a NumPy index."""
        raise NotImplementedError

    def take(self, index: Where) -> TorchDraws | Mixed:
        """The draws at nodes or positions."""
        return self.pick(index)

    def __eq__(self, other: object) -> np.ndarray:  # type: ignore[override]  # elementwise, as NumPy's
        return self.tokens == (other.tokens if isinstance(other, Drawn) else other)

    def __ne__(self, other: object) -> np.ndarray:  # type: ignore[override]
        return self.tokens != (other.tokens if isinstance(other, Drawn) else other)

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[TorchDraws | Mixed]:
        return map(self.pick, range(len(self.tokens)))

    def __getitem__(self, index: Where) -> TorchDraws | Mixed:
        """The draws at nodes or positions."""
        return self.take(index)


class TorchDraws(Drawn):
    """Tokens int64[*shape] (-1: no mass was left to draw from), all drawn from rows of one call.

    rows, row int64[*shape], face: the distribution and view each was drawn from. rank, group int64[*shape] and members
    int64[G, k]: for draws without replacement, whose distribution is the row without the earlier members. point: they are
    one-hot; `rows` then only has the score (None: there is none). race float64[*shape]: race keys. ids int64[*shape]: the nodes
    that verification offers them as.
    """

    __slots__ = ("tokens", "rows", "row", "face", "rank", "group", "members", "point", "race", "at", "tag", "ids", "inner")

    def __init__(
        self,
        tokens: Ids,
        rows: Rows | None = None,
        row: Ids | None = None,
        face: str = "shaped",
        *,
        rank: Ids | None = None,
        group: Ids | None = None,
        members: Ids | None = None,
        point: bool = False,
        race: Ids | None = None,
        at: Ids | None = None,
        tag: str = "",
        ids: Ids | None = None,
        inner: Ids | None = None,
    ) -> None:
        self.tokens, self.rows, self.row, self.face = tokens, rows, row, face  # type: ignore[misc]  # a slot
        self.rank, self.group, self.members, self.point = rank, group, members, point
        self.race, self.at, self.tag, self.ids, self.inner = race, at, tag, ids, inner

    def pick(self, where: Where, at: Ids | None = None) -> TorchDraws:
        inner = self.inner
        if inner is not None:
            at, inner = picked_places(where, at, inner)
        return TorchDraws(
            np.asarray(self.tokens[where]),
            self.rows,
            None if self.row is None else np.asarray(self.row[where]),
            self.face,
            rank=None if self.rank is None else np.asarray(self.rank[where]),
            group=None if self.group is None else np.asarray(self.group[where]),
            members=self.members,
            point=self.point,
            race=None if self.race is None else np.asarray(self.race[where]),
            at=at,
            tag=self.tag,
            ids=None if self.ids is None else np.asarray(self.ids[where]),
            inner=inner,
        )

    def take(self, index: Where) -> TorchDraws:
        """Draws at `index` of axis 0; where axis 0 is a part, `index` names nodes or positions."""
        return self.pick(locate(self.at, index), at if (at := np.asarray(index)).ndim else None)

    def ravel(self) -> TorchDraws:
        """All draws in one row."""
        if self.tokens.ndim == 1:
            return self
        columns = []
        for a in (self.row, self.rank, self.group, self.race):
            columns.append(None if a is None else a.reshape(-1))
        row, rank, group, race = columns
        return TorchDraws(self.tokens.reshape(-1), self.rows, row, self.face, rank=rank, group=group, members=self.members,
                          point=self.point, race=race, tag=self.tag)  # fmt: skip

    def nodes(self) -> Ids | None:
        """The node (or position) each was drawn at, int64[*shape], where it has one."""
        if self.rows is None or self.rows.nodes is None or self.row is None:
            return None
        nodes: Ids = self.rows.nodes[self.row]
        return nodes

    def prob(self, seen: str = "raw") -> Ids:
        """The probability of each token in the raw (or another) view of the row it was drawn from, float64[*shape]; 1 for
        tokens of no row."""
        if self.rows is None or self.row is None:
            return np.where(self.tokens >= 0, 1.0, 0.0)
        face = self.face if self.point else seen
        table = self.rows.face(face)
        self.rows.require_mass(self.row, face)
        got = picked(table, self.row, np.maximum(self.tokens, 0))
        return np.where(self.tokens >= 0, got, 0.0)

    def law_prob(self, request: Request, size: int) -> Ids:
        """The probability of each token under its distribution, float64[*shape]; 0 where no mass was left to draw from."""
        if self.point or self.rows is None or self.row is None:
            return np.where(self.tokens >= 0, 1.0, 0.0)
        if self.rank is None or not self.rank.any():
            return self.prob(self.face)
        got = self.law(request, size).probability(np.maximum(self.tokens, 0))
        return np.where(self.tokens >= 0, got, 0.0)

    def law(self, request: Request, size: int) -> TorchDist:
        """The distribution of each draw, [*shape]."""
        flat = np.arange(self.tokens.size).reshape(self.tokens.shape)
        if self.point or self.rows is None or self.row is None:
            return TorchDist(TorchVectors(None, request, ones=self.tokens.reshape(-1), size=size), flat)
        if self.rank is None or not self.rank.any():
            return TorchDist(self.rows, self.row, self.face, self.at, self.inner)
        assert self.group is not None and self.members is not None
        table = self.rows.face(self.face)
        self.rows.require_mass(self.row, self.face)
        q = table[ids_on(self.row.reshape(-1), table.device)]  # a copy
        for i, (g, r) in enumerate(zip(self.group.reshape(-1), self.rank.reshape(-1))):
            q[i, ids_on(self.members[g, :r], q.device)] = 0
        later = ids_on(np.flatnonzero(self.rank.reshape(-1)), q.device)  # the first is drawn from the row itself
        q[later] /= shaping.total(q[later])
        return TorchDist(TorchVectors(q, request, like=self.rows, index=self.row.reshape(-1)), flat)


class Mixed(Drawn):
    """A vector of draws from different places: scalar Draws side by side (children in a tree grown several times)."""

    __slots__ = ("items",)

    def __init__(self, items: list[TorchDraws]) -> None:
        self.items = items

    @property
    def tokens(self) -> Ids:
        return np.array([int(d.tokens) for d in self.items], dtype=np.int64)

    @property
    def at(self) -> None:
        return None

    @property
    def race(self) -> Ids:
        return np.array([-np.inf if d.race is None else float(d.race) for d in self.items])

    def pick(self, where: Where, at: Ids | None = None) -> TorchDraws | Mixed:
        if isinstance(where, (int, np.integer)) or (isinstance(where, np.ndarray) and where.ndim == 0):
            return self.items[int(where)]
        if isinstance(where, slice):
            return Mixed(self.items[where])
        return Mixed([self.items[int(i)] for i in np.ravel(np.asarray(where))])

    def ravel(self) -> Mixed:
        return self

    def nodes(self) -> Ids | None:
        found = [d.nodes() for d in self.items]
        return None if any(n is None for n in found) else np.array([int(n) for n in found if n is not None])

    def prob(self, seen: str = "raw") -> Ids:
        return np.array([float(d.prob(seen)) for d in self.items])

    def law_prob(self, request: Request, size: int) -> Ids:
        return np.array([float(d.law_prob(request, size)) for d in self.items])

    def law(self, request: Request, size: int) -> TorchDist:
        vectors = [d.law(request, size).vector() for d in self.items]
        return TorchDist.all(TorchVectors(torch.stack(on_one_device(vectors)), request))


def joined(parts: Sequence[TorchDraws | Mixed]) -> Mixed:
    """Vectors of draws one after the other."""
    items: list[TorchDraws] = []
    for part in parts:
        if isinstance(part, Mixed):
            items += part.items
        else:
            flat = part.ravel() if part.shape else None
            items += [part] if flat is None else [flat.pick(i) for i in range(flat.shape[0])]
    return Mixed(items)


def points(tokens: Ids, *, tag: str = "") -> TorchDraws:
    """Draws of given tokens, int64[*shape]: their distributions are one-hot and they have no rows."""
    return TorchDraws(np.asarray(tokens, dtype=np.int64), point=True, tag=tag)


Draws = TorchDraws | Mixed
