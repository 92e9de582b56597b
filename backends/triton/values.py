"""Values of a decoding step: tensors whose axis 0 is the lane (one request each), or static values that are the same for all.

Static numbers are Python's, static arrays NumPy's (without an axis of lanes): they steer the control flow and fold into
constants. Everything else is a tensor [B, ...]. Where elements may be missing, `live` says which are there. `along` names the
parts of a vector that have its elements along their first axes (vectors.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar, cast

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from typing_extensions import TypeIs


class Shared:
    """What is the same for all lanes and no number: models, indexes."""


Static: TypeAlias = int | float | str | np.generic | np.ndarray
"""Numbers and texts that are the same for all lanes."""
Array: TypeAlias = Tensor | np.ndarray
Number: TypeAlias = Tensor | np.ndarray | np.generic | int | float
"""Numbers without missing elements: static, or of every lane."""


class OnDevice:
    """A value of the step that is no tensor and is not static: canvases, edits, memories, models."""


class Elements:
    """A vector. along: the names of the parts that have its elements along their first axes."""

    along: ClassVar[tuple[str, ...]]

    @property
    def first(self) -> Array:
        """The part that tells how many elements there are."""
        return getattr(self, self.along[0])

    def parts(self) -> dict[str, Array]:
        """What has its elements, by name."""
        parts = ((name, getattr(self, name)) for name in self.along)
        return {name: part for name, part in parts if isinstance(part, Tensor | np.ndarray)}


@dataclass(frozen=True)
class Context:
    """The committed tokens, or (parent) all but the last. length: int64[B], of all of them."""

    length: Tensor
    parent: bool = False


@dataclass(frozen=True)
class Vec(Elements):
    """Numbers, tokens or bools of which some are missing. data: [B, n, ...]; live: bool[B, n]."""

    data: Tensor
    live: Tensor
    along = ("data",)


@dataclass(frozen=True)
class Nodes(Elements):
    """Nodes of a tree. ids: int64[B, F]. within: the nodes that they are chosen from (NumPy int64[n], None: not known). live:
    bool[B, F], or None: all."""

    ids: Tensor
    within: np.ndarray | None = None
    live: Tensor | None = None
    along = ("ids",)


@dataclass(frozen=True)
class Noise:
    """A noise key: a site with its loop counters, or the stream `output` at an index (None: the row's own position)."""

    kind: str
    site: str
    counters: tuple[Number, ...] = ()
    index: Number | None = None


class Rows:
    """R distributions of every lane. scores: [B, R, V]: logits, or with `is_probs` probabilities. positions: int64[B, R], the
    index in the text of the token that would be drawn. nodes: the tree nodes (or canvas positions) that they are of: NumPy
    int64[R], Nodes or None. path: a function that gives int64[B, R, D], the tokens between the committed text and the row, -1
    padded; None: there are none. tree: the tree of `nodes`. before: int64[B], how many committed tokens stand before all rows,
    where that is not all of them or rows are of later positions. numbers: int64[B, R], which noise with an index of its own
    tells rows apart by; None: the nodes, where there are some. Views are computed when they are read."""

    def __init__(
        self,
        scores: Tensor,
        *,
        positions: Tensor | None = None,
        nodes: NodeSet | None = None,
        tree: Tree | None = None,
        is_probs: bool = False,
        path: Callable[[], Tensor] | None = None,
        allow: Tensor | None = None,
        before: Tensor | None = None,
        numbers: Tensor | None = None,
    ) -> None:
        self.scores, self.positions, self.nodes, self.tree, self.is_probs = scores, positions, nodes, tree, is_probs
        self.path, self.allow, self.before, self.numbers = path, allow, before, numbers
        self.faces: dict[str, Tensor] = {}
        self.empty: Tensor | None = None  # bool[B, R]: those that constraints leave without a token, once it was looked at

    @property
    def count(self) -> int:
        return int(self.scores.shape[1])

    @property
    def size(self) -> int:
        return int(self.scores.shape[2])


@dataclass(frozen=True)
class Dist(Elements):
    """An array of distributions: rows `index` (NumPy int64[*shape], or int64[B, *shape]) of `rows` in one view. at: what axis 0
    is (NumPy int64[n] or Nodes), where it is a part of a tree or canvas. live: bool[B, n] of axis 0."""

    rows: Rows
    index: Array
    face: str = "shaped"
    at: NodeSet | None = None
    live: Tensor | None = None
    along = ("index",)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.index.shape[1:]) if isinstance(self.index, Tensor) else tuple(self.index.shape)


@dataclass(frozen=True, eq=False)
class RowSource:
    """Rows that draws were drawn from, in a view. members: int64[B, R, k], the tokens that were drawn from each row without
    replacement, in order: the j-th was drawn from the row without those before it."""

    rows: Rows
    face: str
    members: Tensor | None = None

    def same(self, other: RowSource) -> bool:
        """Whether draws of both were drawn from the same distributions."""
        return self.rows is other.rows and self.face == other.face and self.members is other.members


@dataclass(frozen=True)
class Draws(Elements):
    """Tokens int64[B, *shape], -1 where there was none to draw, and the row that each was drawn from: row (NumPy int64[*shape]
    or int64[B, *shape]), counted through all rows of `sources`; -1 for tokens of no row. rank (as row): how many were drawn
    from the row before, without replacement. point: whether the distributions are one-hot on the tokens: True, False, or
    bool[B, *shape]. race: race keys. at, live: as for Dist. nodes: int64[B, *shape], the nodes that a rule is offered
    them of: siblings may have the same token."""

    tokens: Tensor
    sources: tuple[RowSource, ...] = ()
    row: Array | None = None
    rank: Array | None = None
    point: Tensor | bool = False
    race: Tensor | None = None
    at: NodeSet | None = None
    live: Tensor | None = None
    nodes: Tensor | None = None
    along = ("tokens", "row", "rank", "point", "race", "nodes")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tokens.shape[1:])


@dataclass(frozen=True)
class Growth:
    """One growth of a tree: the nodes first .. first + count - 1, and their tokens int64[B, count]. above: nodes that include
    their parents (NumPy int64[n] or Nodes). levels: how many levels it can add."""

    first: int
    count: int
    above: NodeSet
    tokens: Tensor
    levels: int = 1


ROOT = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class Tree(Elements):
    """Node 0 is the root; ids are growth order. Nodes that are not there in a lane are dead (live), and keep their numbers.

    token: int64[B, N], the root's -1. parent, depth: NumPy int64[N] where static, else int64[B, N]. uid: NumPy int64[N] or
    int64[B, N]: the key of the nodes' slots, unique in a step; the root's is -1. edges: the draws of the nodes 1 .. N - 1.
    height: the most that the depth can be. most: the most children that a node can have. growths: what the
    nodes were grown by. pruned: whether data has chosen what is left of it. epoch: commits in the step before it was begun.
    until: where a driver's tree ends. ended: whether nodes stand under tokens that end the text, bool[B, n] of the root and of
    each growth; empty where `until` does not ask, or where data decides what a node stands under.
    """

    base: Context
    token: Tensor
    parent: Array
    depth: Array
    uid: Array
    edges: Draws | None = None
    live: Tensor | None = None
    height: int = 0
    most: int = 0
    epoch: int = 0
    pruned: bool = False
    growths: tuple[Growth, ...] = ()
    columns: dict[str, Tensor] = field(default_factory=dict)
    until: tuple[str, ...] = ()
    ended: tuple[Tensor, ...] = ()
    new: NodeSet = field(default_factory=ROOT.copy)
    frontier: NodeSet = field(default_factory=ROOT.copy)
    grown: frozenset[int] = frozenset()
    along = ("token",)

    @property
    def size(self) -> int:
        """Nodes, the root and dead ones among them."""
        return int(self.token.shape[1])

    @property
    def fixed(self) -> bool:
        """Whether its structure is static."""
        return not isinstance(self.parent, Tensor)


@dataclass(frozen=True)
class Path:
    """The accepted path of a tree. tokens: int64[B, D], the first `length` int64[B] count. count: how many of them are accepted
    drafts; nodes: int64[B, D'], the accepted nodes from the root's child on, -1 behind them; node: int64[B], the last accepted.
    emitted: int64[B], the token that was emitted, -1: none."""

    tokens: Tensor
    length: Tensor
    count: Tensor
    nodes: Tensor
    node: Tensor
    tree: Tree
    emitted: Tensor


@dataclass(frozen=True)
class Edit(OnDevice):
    """To decide a cell of a canvas. position, token: int64[B]."""

    position: Tensor
    token: Tensor


@dataclass(frozen=True)
class Canvas(OnDevice):
    """Cells after a text. base: int64[B], the tokens before them. cells: int64[B, N], tokens, -1 where undecided. size, room:
    int64[B], how many cells there are, and may be."""

    base: Tensor
    cells: Tensor
    size: Tensor
    room: Tensor

    @property
    def most(self) -> int:
        """N."""
        return int(self.cells.shape[1])


class Spans(list[Vec]):
    """Parts of a canvas, of which some lanes have fewer. live: bool[B, n]."""

    live: Tensor


NodeSet: TypeAlias = np.ndarray | Nodes
"""Nodes or positions as a vector: NumPy int64[n] where they are static."""
Vector: TypeAlias = Tensor | np.ndarray | Vec | Nodes | Dist | Draws
"""What has elements along an axis."""
Numbers: TypeAlias = Static | Tensor | Vec
"""Numbers of which some may be missing."""
Operand: TypeAlias = (
    Static | Vector | Context | Noise | Tree | Path | OnDevice | Shared | frozenset[int] | Sequence["Operand"] | None
)
"""Any value of a step."""
X = TypeVar("X")
TENSORS = (Tensor, Context, Vec, Nodes, Noise, Rows, Dist, Draws, Tree, Path, OnDevice)


def is_static(value: object) -> TypeIs[Static]:
    """Whether a value is the same for all lanes: numbers, arrays of NumPy, texts, and lists of these."""
    if isinstance(value, list | tuple):
        return all(is_static(v) for v in value)
    return not isinstance(value, TENSORS)


def flattened(value: object, tensors: list[Tensor]) -> tuple[Hashable, ...]:
    """What a value is but for its tensors, which are appended; two values with equal results have the same structure.
    Tensors of any shape."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return ("tensor", tuple(value.shape), value.dtype)
    if isinstance(value, np.ndarray):
        return ("array", value.shape, value.dtype.str, value.tobytes())
    if isinstance(value, Spans):
        tensors.append(value.live)
    if isinstance(value, list | tuple):
        return (type(value).__name__, *[flattened(v, tensors) for v in value])
    if isinstance(value, dict):
        return ("dict", *[(k, flattened(v, tensors)) for k, v in value.items()])
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value), *[flattened(getattr(value, f.name), tensors) for f in fields(value)])
    if isinstance(value, int | float | str | bool | bytes | frozenset) or value is None:
        return (type(value).__name__, value)
    return ("object", id(value))


def rebuilt(value: X, tensors: Iterator[Tensor]) -> X:
    """The same value with other tensors of the same shapes, taken from an iterator in the order of `flattened`."""
    if isinstance(value, Tensor):
        return cast(X, next(tensors))
    if isinstance(value, Spans):
        live, spans = next(tensors), Spans(rebuilt(v, tensors) for v in value)
        spans.live = live
        return cast(X, spans)
    if isinstance(value, list | tuple):
        return type(value)(rebuilt(v, tensors) for v in value)
    if isinstance(value, dict):
        return cast(X, {k: rebuilt(v, tensors) for k, v in value.items()})
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: rebuilt(getattr(value, f.name), tensors) for f in fields(value)})
    return value
