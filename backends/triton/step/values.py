"""Values of a step on the device. Every tensor has the sequence as axis 0; NumPy arrays are the same for all sequences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

Ids = np.ndarray


@dataclass(frozen=True)
class Context:
    """The committed tokens, or all but the last of them. length: int32[B]."""

    length: Tensor
    parent: bool = False
    on_device = True


@dataclass(frozen=True)
class Nodes:
    """Data-dependent nodes. ids: int64[B, F]. within: the nodes that they were chosen from, NumPy int64[n], or None."""

    ids: Tensor
    within: Any = None
    on_device = True

    @property
    def count(self) -> int:
        return int(self.ids.shape[1])


@dataclass(frozen=True)
class DeviceNoise:
    """A noise key: a site with its loop counters (a tensor int32[B] for the iteration), or the stream `output`, at the
    row's own position or at an index [B, ...]."""

    kind: str
    site: str
    counters: tuple[Any, ...] = ()
    index: Any = None
    on_device = True


class DeviceRows:
    """R distributions of every sequence. scores: [B, R, V], logits, or probabilities where `given`. positions: int64[B, R],
    the index of the token that would be drawn. nodes: the nodes of `tree` that they are of (NumPy int64[R] or Nodes), else
    None. Views are computed when they are read."""

    def __init__(
        self, scores: Tensor, *, positions: Tensor | None = None, nodes: Any = None, tree: Any = None, given: bool = False
    ) -> None:
        self.scores, self.positions, self.nodes, self.tree, self.given = scores, positions, nodes, tree, given
        self.faces: dict[Any, Tensor] = {}

    @property
    def count(self) -> int:
        return int(self.scores.shape[1])

    @property
    def size(self) -> int:
        return int(self.scores.shape[2])


@dataclass(frozen=True)
class DeviceDist:
    """An array of distributions: rows `index` (NumPy int64[*shape], or a tensor int64[B, *shape]) of `rows` in one view. at:
    the nodes of axis 0, where it is a part of a tree (NumPy int64[n] or Nodes)."""

    rows: DeviceRows
    index: Any
    face: str = "shaped"
    at: Any = None
    on_device = True

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.index.shape[1:]) if isinstance(self.index, Tensor) else tuple(self.index.shape)


@dataclass(frozen=True)
class DeviceDraws:
    """Tokens int64[B, *shape], and the law of each. rows, row (NumPy int64[*shape] or a tensor [B, *shape]), face: the row
    and view each was drawn from (rows None: none). rank (as row) and members int64[B, R, k], by row: for draws without
    replacement the law is the row without the earlier members. point: whether the laws are one-hot. race: race keys float[B,
    *shape]."""

    tokens: Tensor
    rows: DeviceRows | None = None
    row: Any = None
    face: str = "shaped"
    rank: Any = None
    members: Tensor | None = None
    point: bool = False
    race: Tensor | None = None
    at: Any = None
    on_device = True

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tokens.shape[1:])


@dataclass(frozen=True)
class Growth:
    """One growth of a tree: `draws` (of shape [n]) became the nodes `first` .. `first + n - 1`, as growth ids. above: nodes
    that include their parents (NumPy int64[n], or Nodes)."""

    draws: DeviceDraws
    first: int
    count: int
    above: Any


@dataclass
class LogProbs:
    """Cumulative log-probabilities of a tree's first nodes, float64[B, N']; more are added when they are read. A tree that grew
    has its own."""

    known: Tensor


@dataclass(frozen=True)
class DeviceTree:
    """Node 0 is the root; ids are growth order.

    token: int64[B, N], the root's -1. parent: NumPy int64[N] where it is static, else int64[B, N]; depth as well. height: an
    upper bound of the depth. epoch: the number of commits in the step before the tree was begun. origin: None, or after a
    data-dependent selection the growth ids of the nodes, int64[B, N]. uid: NumPy, by growth id: the key of the nodes' cache
    slots; the root's is -1. logprob: of the first nodes. until: where the driver's tree ends (ir/places.py).
    """

    base: Context
    token: Tensor
    parent: Any
    depth: Any
    uid: Any
    height: int = 0
    epoch: int = 0
    origin: Tensor | None = None
    growths: tuple[Growth, ...] = ()
    columns: dict[str, Tensor] = field(default_factory=dict)
    logprob: LogProbs | None = None
    until: tuple[str, ...] = ()
    new: Any = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    frontier: Any = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    on_device = True

    @property
    def size(self) -> int:
        """Nodes, the root among them."""
        return int(self.token.shape[1])

    @property
    def fixed(self) -> bool:
        """Whether its structure is static."""
        return not isinstance(self.parent, Tensor)

    def ancestors(self, nodes: Ids) -> Ids:
        """The nodes and all above them but the root, in order; for a tree of fixed structure."""
        needed: set[int] = set()
        for node in nodes.tolist():
            while node and node not in needed:
                needed.add(node)
                node = int(self.parent[node])
        return np.array(sorted(needed), dtype=np.int64)

    def hangs_from(self, nodes: Ids) -> list[Any]:
        """The possible parents of the growths of some nodes: arrays of ids, or Nodes."""
        return [g.above for g in self.growths if ((nodes >= g.first) & (nodes < g.first + g.count)).any()]

    def leaves(self) -> Ids:
        """The nodes without children, of a tree of fixed structure."""
        inner = np.zeros(self.size, dtype=bool)
        inner[self.parent[1:]] = True
        return np.flatnonzero(~inner)


@dataclass(frozen=True)
class DevicePath:
    """The accepted path of a verification. nodes: int64[B, D], the accepted nodes from the root's child on (-1 after them);
    count: int32[B], how many; tokens: int64[B, D + 1], theirs and then the emitted one; length: int32[B], the number of tokens.
    tree: the verified one; node: int64[B], the last accepted."""

    tree: DeviceTree
    nodes: Tensor
    count: Tensor
    tokens: Tensor
    length: Tensor
    node: Tensor
    on_device = True
