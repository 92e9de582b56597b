"""Distributions, and the tokens drawn from them. A draw carries its distribution; both are computed only when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import SupportsInt, TypeVar

import numpy as np

from decgraph.ir.data.numbers import Number
from decgraph.ir.opdef import OpError


@dataclass(frozen=True)
class NoiseKey:
    """Which noise: a site with its loop counters, or the `output` stream at an index (None: the row's own position)."""

    site: str
    counters: tuple[int, ...]
    kind: str = "race"
    index: int | np.ndarray | Sequence[int] | None = None


T = TypeVar("T")
Ints = int | np.ndarray | Sequence[int]
"""One whole number, or an array of them."""


@dataclass(frozen=True)
class Soft:
    """What a cell or an edge of a tree holds in place of a token: an embedding, in coordinates (`model.embed`). Such a cell
    counts as masked."""

    value: tuple[Fraction | float, ...]

    def __int__(self) -> int:
        raise OpError("a soft node has no token", hint="read the nodes that have one; a model may be called at all of them")


class Row:
    """One distribution over a vocabulary. Its faces are computed when they are first read: "raw" has constraints applied,
    "shaped" also the request's shaping, "logits" the scores before a softmax. Each is an array [vocab] of float64, or of
    objects (rationals) in the exact checker.

    `position` is the index of the token that would be drawn from it; `node` is the tree node (or canvas position) at which it
    was evaluated; `path` the tokens before it. `origin` says what a row is computed from besides its path: rows of one origin
    after equal paths are equal, by which the exact checker merges runs. None: that cannot be said.
    """

    __slots__ = ("_compute", "_faces", "position", "node", "path", "label", "origin")

    def __init__(
        self,
        compute: Callable[[str], np.ndarray],
        *,
        position: int | None = None,
        node: int | None = None,
        path: Sequence[Symbol] | None = None,
        label: str = "",
        origin: tuple[object, ...] | None = None,
    ) -> None:
        self._compute = compute
        self._faces: dict[str, np.ndarray] = {}
        self.position, self.node, self.path, self.label, self.origin = position, node, path, label, origin

    def face(self, name: str) -> np.ndarray:
        if name not in self._faces:
            self._faces[name] = self._compute(name)
        return self._faces[name]


def value_row(vector: np.ndarray, like: Row | None = None) -> Row:
    """A distribution given by its probabilities [vocab]: all its faces are the same."""
    return Row(
        lambda face: vector,
        position=like.position if like else None,
        node=like.node if like else None,
        path=like.path if like else None,
    )


class Draw:
    """One drawn token: an edge. `law` is the distribution from which it was drawn, given its earlier siblings; its score is
    read from the row `source`. The token may be undecided until `resolve` is called (the exact checker branches there)."""

    __slots__ = ("_token", "_resolve", "law", "law_face", "source", "race", "group", "rank", "point", "tag")

    def __init__(
        self,
        token: int | None,
        law: Row,
        law_face: str = "shaped",
        *,
        source: Row | None = None,
        resolve: Callable[[], int] | None = None,
        race: Number | None = None,
        group: int = 0,
        rank: int = 0,
        point: bool = False,
        tag: str = "",
    ) -> None:
        self._token, self._resolve = token, resolve
        self.law, self.law_face, self.source = law, law_face, source or law
        self.race, self.group, self.rank, self.point, self.tag = race, group, rank, point, tag

    @property
    def token(self) -> int:
        if self._token is None:
            assert self._resolve is not None
            self._token = int(self._resolve())
        return self._token

    @property
    def known(self) -> bool:
        """Whether the token has been read."""
        return self._token is not None

    def law_vector(self) -> np.ndarray:
        return self.law.face(self.law_face)

    def __repr__(self) -> str:
        return f"Draw({self._token if self.known else '?'})"


class Dist:
    """An array of `Row`. Where axis 0 ranges over some nodes or positions only, `at` lists them; `inner` does so for axis 1
    (positions, of canvases in a tree)."""

    __slots__ = ("rows", "face", "at", "inner")

    def __init__(
        self, rows: np.ndarray, face: str = "shaped", at: np.ndarray | None = None, inner: np.ndarray | None = None
    ) -> None:
        self.rows, self.face, self.at, self.inner = rows, face, at, inner

    @staticmethod
    def of(rows: Iterable[Row], face: str = "shaped", at: np.ndarray | None = None) -> Dist:
        return Dist(box(list(rows)), face, at)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    def vector(self, row: Row | None = None) -> np.ndarray:
        """Probabilities: [*dims, V] (or of one row)."""
        if row is not None:
            return row.face(self.face)
        if self.rows.shape == ():
            return self.row.face(self.face)
        vectors = [r.face(self.face) for r in self.rows.ravel()]
        if not vectors:
            return np.zeros(self.rows.shape + (0,))
        return np.stack(vectors).reshape(self.rows.shape + vectors[0].shape)

    @property
    def row(self) -> Row:
        """The one distribution of an array without axes."""
        return self.row_at(())

    def row_at(self, index: tuple[int, ...]) -> Row:
        """The distribution at an index that names every axis."""
        row: Row = self.rows.item(index)
        return row

    def seen(self, face: str) -> Dist:
        return Dist(self.rows, face, self.at, self.inner)

    def take(self, index: Ints) -> Dist:
        """Rows at `index` of axis 0; where axis 0 is a part, `index` names nodes or positions."""
        rows = self.rows[locate(self.at, index)]
        at, inner = (np.asarray(index), self.inner) if np.ndim(index) else (self.inner, None)
        return Dist(rows if isinstance(rows, np.ndarray) else box0(rows), self.face, at, inner)

    def pick(self, where: Ints | slice, at: np.ndarray | None = None) -> Dist:
        """Elements along axis 0, by their places; `at` [how many are picked]: what they are."""
        return Dist(self.rows[where], self.face, at, self.inner)


class Draws:
    """An array of draws (axis order: where drawn, then rank). `at`, `inner`: see `Dist`."""

    __slots__ = ("items", "at", "chain", "inner")

    def __init__(
        self, items: np.ndarray, at: np.ndarray | None = None, chain: bool = False, inner: np.ndarray | None = None
    ) -> None:
        self.items, self.at, self.chain, self.inner = items, at, chain, inner

    def take(self, index: Ints) -> Draws:
        """Draws at `index` of axis 0; where axis 0 is a part, `index` names nodes or positions."""
        items = self.items[locate(self.at, index)]
        if not np.ndim(index):
            return Draws(items if isinstance(items, np.ndarray) else box0(items), self.inner)
        return Draws(items, np.asarray(index), inner=self.inner)

    def pick(self, where: Ints | slice, at: np.ndarray | None = None) -> Draws:
        """Elements along axis 0, by their places; `at` [how many are picked]: what they are."""
        return Draws(self.items[where], at, self.chain, self.inner)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.items.shape

    def tokens(self) -> np.ndarray | int:
        """Token ids, int64 [*dims]: reads every draw. -1 where a distribution had no further token."""
        out = np.array([-1 if d is None else d.token for d in self.items.ravel()], dtype=np.int64).reshape(self.items.shape)
        return out if out.shape else int(out)

    @property
    def draw(self) -> Draw:
        """The one draw of an array without axes."""
        draw: Draw = self.items.item()
        return draw

    def flat(self) -> list[Draw]:
        return list(self.items.ravel())


class Path:
    """Tokens below a node: what a verification accepted and emitted, or what a sub-run produced."""

    __slots__ = ("tokens", "node", "depth", "emitted", "base")

    def __init__(
        self, tokens: Sequence[Symbol], node: int = 0, depth: int = 0, emitted: Symbol | None = None, base: int = 0
    ) -> None:
        self.tokens, self.node, self.depth, self.emitted, self.base = list(tokens), node, depth, emitted, base


Symbol = int | Draw | Soft
"""What stands at one place of a text: a token, a draw that may not have been read, or an embedding."""


def box(items: Sequence[object]) -> np.ndarray:
    """An object array [len(items)] that holds `items` (NumPy must not look inside them)."""
    out = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        out[i] = item
    return out


def box0(item: object) -> np.ndarray:
    """A scalar object array that holds `item`."""
    out = np.empty((), dtype=object)
    out[()] = item
    return out


def locate(at: np.ndarray | None, index: Ints) -> Ints:
    """Where the nodes or positions `index` stand along axis 0 of a part that holds those of `at` [rows], in their shape; of
    the whole (None), at themselves. Raises LookupError for what the part does not hold."""
    if at is None:
        return index
    where = {int(n): i for i, n in enumerate(at)}
    try:
        if isinstance(index, int) or np.ndim(index) == 0:
            return where[int(np.asarray(index))]
        return np.array([where[int(n)] for n in np.ravel(index)], dtype=np.int64).reshape(np.shape(index))
    except KeyError as miss:
        raise LookupError(f"row {miss.args[0]} is outside the part that was computed") from None


def token_of(x: Draws | Draw | SupportsInt) -> int:
    """The token id of a draw, of a 0-D array of draws, or of an int."""
    if isinstance(x, Draws):
        return int(x.tokens())
    if isinstance(x, Draw):
        return x.token
    return int(x)


def tokens_of(x: T) -> T | np.ndarray | int:
    """Token ids [*dims] of draws, or what is not a draw as it is."""
    if isinstance(x, Draws):
        return x.tokens()
    if isinstance(x, Draw):
        return x.token
    return x


def resolve_path(path: Iterable[Symbol]) -> tuple[int, ...]:
    """A path with every draw read."""
    return tuple([x if type(x) is int else x.token if isinstance(x, Draw) else int(x) for x in path])
