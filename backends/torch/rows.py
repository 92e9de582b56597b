"""Rows of scores with their place, as a model call returns them, and the views computed from them when they are read.

A view is computed for all rows of a call at once, as one float tensor [R, V]; greedy shaping is kept as one token per row and
becomes a tensor only where arithmetic needs one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch import shaping
from decgraph.backends.torch.prefixes import Prefixes, alone
from decgraph.backends.torch.transfer import picked
from decgraph.runtime.request import Request
from decgraph.runtime.shaping import no_numbers, nothing_left

Ids = np.ndarray
Where = int | np.integer | slice | np.ndarray | tuple[int | np.ndarray, ...] | None
"""An index of NumPy's: of one element, of some, of several axes, or None for an axis of one."""


W = TypeVar("W", bound=Where)


class Tokens:
    """What stands for tokens where it indexes a distribution: draws (draws.py)."""

    __slots__ = ()

    @property
    def tokens(self) -> Ids:
        """int64[*shape]"""
        raise NotImplementedError


class Draw(Protocol):
    """Tokens that were drawn."""

    def prob(self, seen: str = "raw") -> np.ndarray | float: ...


class Nodes(Protocol):
    """A tree, as rows at its nodes see it."""

    @property
    def depth(self) -> Ids: ...

    def path_nodes(self, node: int) -> list[int]: ...

    def draw(self, node: int) -> Draw: ...


class Rows:
    """R distributions over one vocabulary.

    scores: Tensor [R, V], logits (-inf: impossible). positions, nodes: int64[R] or None, the index of the token that
    would be drawn, and the tree node or canvas position. path: a function from a row to the tokens before it. tree: the tree
    that `nodes` are of, where it is one of tokens; its depths are then added to `positions` (int64[R], or [1] for all rows)
    when those are read. stated: the scores are the program's own, which may be NaN, infinite, or -inf throughout.
    """

    __slots__ = (
        "_adjusted",
        "_faces",
        "_kept",
        "_points",
        "_positions",
        "allow",
        "banned",
        "dead",
        "label",
        "nodes",
        "path",
        "request",
        "scores",
        "stated",
        "tree",
        "undefined",
    )

    def __init__(
        self,
        scores: Tensor,
        request: Request,
        *,
        positions: Ids | None = None,
        nodes: Ids | None = None,
        path: Callable[[int], Sequence[int]] | None = None,
        allow: np.ndarray | Tensor | None = None,
        label: str = "",
        tree: Nodes | None = None,
        stated: bool = False,
    ) -> None:
        self.scores, self.request, self.allow, self.label, self.stated = scores, request, allow, label, stated
        self._positions, self.nodes, self.path, self.tree = positions, nodes, path, tree
        self.dead: np.ndarray | None = None  # bool[R], set where constraints leave some row without a token
        self.banned: np.ndarray | None = None  # bool[R], set where the request's processors do
        self.undefined: np.ndarray | None = None  # bool[R], set where a score of the program's is NaN or inf
        self._faces: dict[str, Tensor] = {}
        self._points: Ids | None = None
        self._kept: Tensor | None = None
        self._adjusted: Tensor | None = None

    @property
    def positions(self) -> Ids | None:
        """int64[R]: the index of the token that would be drawn from each row."""
        if self.tree is None or self._positions is None or self.nodes is None:
            return self._positions
        depths: Ids = self.tree.depth[self.nodes]
        places: Ids = self._positions + depths
        return places

    @positions.setter
    def positions(self, value: Ids | None) -> None:
        self._positions = value

    @property
    def count(self) -> int:
        return int(self.scores.shape[0])

    @property
    def size(self) -> int:
        return int(self.scores.shape[1])

    def path_of(self, i: int) -> tuple[int, ...]:
        """The tokens before a row."""
        assert self.path is not None, "rows that are shaped know the text before them"
        return tuple(self.path(i))

    def text_of(self, i: int) -> tuple[Prefixes, int]:
        """The text before a row: prefixes, and which of them it is."""
        if isinstance(self.path, Prefixes):
            return self.path, i
        return alone(self.path_of(i), self.request.begins), 0

    def constrained(self) -> Tensor:
        """The logits where the request and the author allow the token, -inf elsewhere."""
        if self._kept is None:
            self._kept = shaping.constrained(self.scores, self)
        return self._kept

    def adjusted(self) -> Tensor:
        """The constrained logits after the request's processors, penalties and bias."""
        if self._adjusted is None:
            kept, request = self.constrained(), self.request
            self._adjusted = shaping.adjusted(kept, self) if request.processors or request.penalised else kept
        return self._adjusted

    def require_mass(self, index: Where, face: str) -> None:
        """Called with the rows that are read, and in which view. Raises DecError where the request leaves one of them without a
        token, or where its scores are no numbers; a row that is never read (after a draft that the request forbids) may be
        empty."""
        if self.undefined is None and self.dead is None and self.banned is None:
            return
        if self.undefined is not None and bool(np.any(self.undefined[index])):
            raise no_numbers()
        empty = self.empty(face)
        if empty is not None and bool(np.any(empty[index])):
            raise nothing_left()

    def empty(self, face: str) -> np.ndarray | None:
        """bool[R], the rows without a token in a view that was computed; None where each has one."""
        if face != "shaped" or self.banned is None:
            return self.dead
        return self.banned if self.dead is None else self.banned | self.dead

    def points(self, face: str) -> Ids | None:
        """The one token with mass in each row, int64[R], where a view is one-hot by construction: the greedy shaped view."""
        if face != "shaped" or not self.request.greedy:
            return None
        if self._points is None:
            self._points = shaping.first_argmax(self.adjusted())
        return self._points

    def face(self, name: str) -> Tensor:
        """Probabilities [R, V] (or for "logits" the constrained scores)."""
        if name not in self._faces:
            self._faces[name] = self._compute(name)
        return self._faces[name]

    def _compute(self, name: str) -> Tensor:
        if name == "logits":
            return self.constrained()
        if name == "raw":
            return shaping.softmax(self.constrained())
        points = self.points(name)
        if points is not None:
            return shaping.onehot(points, self.size, self.scores)
        return shaping.shaped(self)


class TorchVectors(Rows):
    """Rows given by their probabilities: every view is the same. Places may be inherited."""

    __slots__ = ("probs", "ones")

    def __init__(
        self,
        probs: Tensor | None,
        request: Request,
        *,
        like: Rows | None = None,
        index: Ids | None = None,
        ones: Ids | None = None,
        size: int = 0,
    ) -> None:
        # `ones`: the token of each row, for one-hot rows (probs is then computed when read)
        super().__init__(probs if probs is not None else torch.empty(0, size), request)
        self.probs, self.ones = probs, ones
        if like is not None and index is not None:
            self.positions = None if like.positions is None else like.positions[index]
            self.nodes = None if like.nodes is None else like.nodes[index]

    @property
    def count(self) -> int:
        return len(self.ones) if self.ones is not None else int(self.scores.shape[0])

    def points(self, face: str) -> Ids | None:
        return self.ones

    def face(self, name: str) -> Tensor:
        if self.probs is None:
            assert self.ones is not None
            self.probs = shaping.onehot(self.ones, self.size, self.scores)
        return self.probs


NONE: Mapping[str, object] = MappingProxyType({})


class OverVocabulary:
    """Lazy numbers over the vocabulary; arithmetic and torch's functions accept them as a tensor.

    Generated drivers write `torch.relu(p - q)`: of one-hot distributions that is a few entries (Sparse), of others a tensor.
    """

    __slots__ = ()
    __array_ufunc__ = None  # NumPy leaves `array * p` to __rmul__

    def dense(self) -> Tensor:
        """The numbers as a tensor [..., V]."""
        raise NotImplementedError

    @classmethod
    def __torch_function__(
        cls, fn: Callable[..., Tensor], types: object, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> Sparse | Tensor:
        return torch_function(fn, args, kwargs or {})

    def __add__(self, other: object) -> Sparse | Tensor:
        return torch_function(torch.add, (self, other))

    def __sub__(self, other: object) -> Sparse | Tensor:
        return torch_function(torch.sub, (self, other))

    def __mul__(self, other: object) -> Sparse | Tensor:
        return torch_function(torch.mul, (self, other))

    def __truediv__(self, other: object) -> Sparse | Tensor:
        return torch_function(torch.true_divide, (self, other))

    def __radd__(self, other: object) -> Sparse | Tensor:
        return torch_function(torch.add, (other, self))

    def __rsub__(self, other: object) -> Sparse | Tensor:
        return torch_function(torch.sub, (other, self))

    def __rmul__(self, other: object) -> Sparse | Tensor:
        return torch_function(torch.mul, (other, self))

    def __rtruediv__(self, other: object) -> Sparse | Tensor:
        return torch_function(torch.true_divide, (other, self))


def on_one_device(values: Sequence[Tensor]) -> list[Tensor]:
    """Tensors [...] on the device of one of them: a distribution of no model (`uniform(vocab)`, an index's), and of one that
    computes on the host, is on the CPU."""
    device = next((v.device for v in values if v.device.type != "cpu"), None)
    return list(values) if device is None else [v.to(device) for v in values]


def torch_function(fn: Callable[..., Tensor], args: Sequence[object], kwargs: Mapping[str, object] = NONE) -> Sparse | Tensor:
    """A function of torch on values over the vocabulary, [..., V] each."""
    if fn in (torch.sub, torch.relu):
        few = [Sparse.of(x) for x in args]
        if few[0] is not None and few[-1] is not None:
            return few[0].sub(few[1]) if fn is torch.sub and few[1] is not None else few[0].relu()
    values = [x.dense() if isinstance(x, OverVocabulary) else torch.as_tensor(x) for x in args]
    return fn(*on_one_device(values), **kwargs)


class TorchDist(OverVocabulary):
    """An array of distributions: rows `index` (int64[*shape]) of `rows`, in one view. `at` has the node ids or positions of
    axis 0 where it is a part, `inner` those of axis 1 (positions, of canvases in a tree)."""

    __slots__ = ("rows", "index", "face", "at", "inner")

    def __init__(self, rows: Rows, index: Ids, face: str = "shaped", at: Ids | None = None, inner: Ids | None = None) -> None:
        self.rows, self.index, self.face, self.at, self.inner = rows, index, face, at, inner

    @staticmethod
    def all(rows: Rows, at: Ids | None = None, face: str = "shaped") -> TorchDist:
        return TorchDist(rows, np.arange(rows.count), face, at)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.index.shape

    def __len__(self) -> int:
        return self.index.shape[0]

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[TorchDist]:
        return (self.pick(i) for i in range(len(self)))

    def __getitem__(self, index: Tokens | Where) -> TorchDist | np.ndarray | float:
        """p[x]: the probability of a token that was drawn, for each distribution; p[n]: the distributions at nodes or
        positions."""
        if isinstance(index, Tokens):
            return self.probability(np.asarray(index.tokens))
        return self.take(index) if self.index.ndim else self.probability(np.asarray(index))

    def probability(self, tokens: np.ndarray) -> np.ndarray | float:
        """p[x] for one token, or for as many as there are distributions: float64 on the host (NumPy's, so that a quotient by
        zero is an infinity). tokens: int64, a scalar or of the shape of `index`."""
        if self.index.ndim == 0 and tokens.ndim == 0:
            ones = self.rows.points(self.face)
            if ones is not None:
                self.rows.require_mass(self.index, self.face)
                size = self.rows.size
                if not -size <= int(tokens) < size:
                    raise IndexError(f"index {int(tokens)} is out of bounds for dimension 0 with size {size}")
                return np.float64(int(ones[int(self.index)]) == int(tokens) % size)
            table = self.rows.face(self.face)
            self.rows.require_mass(self.index, self.face)
            return np.float64(picked(table, self.index, tokens))
        rows, tokens = np.broadcast_arrays(np.arange(self.index.size).reshape(self.shape), tokens)
        return entries(self, rows.reshape(-1), tokens.reshape(-1)).reshape(rows.shape)[()]

    @property
    def raw(self) -> TorchDist:
        """Before temperature and truncation."""
        return self.seen("raw")

    @property
    def shaped(self) -> TorchDist:
        """After them: the distribution that is drawn from."""
        return self.seen("shaped")

    @property
    def logits(self) -> TorchDist:
        return self.seen("logits")

    def dense(self) -> Tensor:
        return self.vector()

    def vector(self) -> Tensor:
        """Probabilities [*shape, V] on the device."""
        table = self.rows.face(self.face)
        self.rows.require_mass(self.index, self.face)
        return take(table, self.index)

    def points(self) -> Ids | None:
        """The token of each distribution, int64[*shape], where all are one-hot by construction."""
        ones = self.rows.points(self.face)
        if ones is None:
            return None
        self.rows.require_mass(self.index, self.face)
        certain: Ids = ones[self.index]
        return certain

    def seen(self, face: str) -> TorchDist:
        return TorchDist(self.rows, self.index, face, self.at, self.inner)

    def pick(self, where: Where, at: Ids | None = None) -> TorchDist:
        """Elements along axis 0 (an int, a slice, or int64 indices), or of several axes (a tuple)."""
        inner = self.inner
        if inner is not None:
            at, inner = picked_places(where, at, inner)
        return TorchDist(self.rows, np.asarray(self.index[where]), self.face, at, inner)

    def take(self, index: Where) -> TorchDist:
        """Rows at `index` of axis 0; where axis 0 is a part, `index` names nodes or positions."""
        if self.at is None and isinstance(index, int):
            return self.pick(index)
        return self.pick(locate(self.at, index), at if (at := np.asarray(index)).ndim else None)


class Sparse(OverVocabulary):
    """Numbers over the vocabulary that are zero but for a few tokens: the result of arithmetic on one-hot distributions, such
    as the residual of a greedy verification. They need no vector."""

    __slots__ = ("entries", "size", "like")

    def __init__(self, entries: dict[int, float], size: int, like: Tensor) -> None:
        self.entries = entries
        self.size, self.like = size, like

    @staticmethod
    def of(x: object) -> Sparse | None:
        """A single one-hot distribution as sparse numbers; None for anything else."""
        if isinstance(x, Sparse):
            return x
        if not isinstance(x, TorchDist) or x.index.ndim:
            return None
        ones = x.rows.points(x.face)
        x.rows.require_mass(x.index, x.face)
        return None if ones is None else Sparse({int(ones[int(x.index)]): 1.0}, x.rows.size, x.rows.scores)

    def sub(self, other: Sparse) -> Sparse:
        tokens = {*self.entries, *other.entries}
        return Sparse({t: self.entries.get(t, 0.0) - other.entries.get(t, 0.0) for t in tokens}, self.size, self.like)

    def relu(self) -> Sparse:
        return Sparse({t: v for t, v in self.entries.items() if v > 0}, self.size, self.like)

    def dense(self) -> Tensor:
        """The same numbers as a tensor [V]."""
        out = torch.zeros(self.size, dtype=self.like.dtype, device=self.like.device)
        for token, value in self.entries.items():
            out[token] = value
        return out


def take(values: Tensor, index: Ids) -> Tensor:
    """values[index] along axis 0, without a copy for one row or for all rows in order."""
    n = int(values.shape[0])
    if index.ndim == 0:
        return values[int(index)]
    if index.ndim == 1 and len(index) == n and (n <= 1 or bool((index == np.arange(n)).all())):
        return values
    return values[ids_on(index, values.device)]


def empty(size: int) -> Tensor:
    """Rows of no distribution."""
    return torch.empty(0, size)


def ids_on(ids: Ids, device: torch.device) -> Tensor:
    """int64 ids on a device: a copy, since NumPy's may be views that cannot be written to."""
    return torch.from_numpy(np.array(ids, dtype=np.int64)).to(device)


def picked_places(where: Where, at: Ids | None, inner: Ids) -> tuple[Ids | None, Ids | None]:
    """(at, inner) after indexing: a single element of axis 0 keeps the places of axis 1, two indices keep neither."""
    if isinstance(where, tuple):
        return at, None
    return (inner, None) if isinstance(where, int | np.integer) else (at, inner)


def locate(at: Ids | None, index: W) -> W | int | Ids:
    """Indices along axis 0 of the nodes or positions `index` in a part with `at` (None: the whole, so `index` itself). Raises
    LookupError for one that is not in the part."""
    if at is None:
        return index
    wanted = np.asarray(index)
    hit = wanted[..., None] == at
    if not bool(hit.any(-1).all()):
        missing = wanted[~hit.any(-1)].ravel()[0] if wanted.ndim else wanted
        raise LookupError(f"row {int(missing)} is outside the part that was computed")
    if wanted.size == 0:
        return wanted.astype(np.int64)  # an empty part is indexed with nothing
    where = at.shape[0] - 1 - hit[..., ::-1].argmax(-1)
    return int(where) if wanted.ndim == 0 else where


def entries(p: TorchDist | Tensor, flat_rows: np.ndarray, flat_tokens: np.ndarray) -> np.ndarray:
    """float64[n]: the entries of tokens int64[n] in the flattened rows int64[n] of a distribution or a tensor [..., V], on the
    host."""
    if isinstance(p, TorchDist):
        index = p.index.reshape(-1)[flat_rows]
        ones = p.rows.points(p.face)
        if ones is not None:
            p.rows.require_mass(index, p.face)
            return (ones[index] == flat_tokens).astype(np.float64)
        table = p.rows.face(p.face)
        p.rows.require_mass(index, p.face)
    else:
        table, index = p.reshape(-1, p.shape[-1]), flat_rows
    return picked(table, index, flat_tokens).astype(np.float64)
