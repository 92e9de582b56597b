"""Topologies: constant tree shapes. A shape is a list of levels; a level lists (parent in the level above, rank)."""

from __future__ import annotations

import heapq
import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

from decgraph.errors import DecError


@dataclass(frozen=True)
class Level:
    """One level: `parent[i]` is an index into the level above (the root alone above the first), `rank[i]` which child."""

    parent: tuple[int, ...]
    rank: tuple[int, ...]
    index: int
    width: int


@dataclass(frozen=True)
class Topology:
    """A tree shape. `width` is the most children (highest rank + 1) that any node has."""

    levels: tuple[Level, ...]
    name: str = ""

    @property
    def width(self) -> int:
        return max((level.width for level in self.levels), default=0)

    @property
    def size(self) -> int:
        return sum(len(level.parent) for level in self.levels)

    def __len__(self) -> int:
        return len(self.levels)

    def __getitem__(self, i: int) -> Level:
        return self.levels[i]

    def paths(self) -> list[list[int]]:
        """The ranks from the root to every node, level by level: what `Topology.of` reads."""
        out: list[list[int]] = []
        above: list[list[int]] = [[]]
        for level in self.levels:
            above = [[*above[parent], rank] for parent, rank in zip(level.parent, level.rank, strict=True)]
            out += above
        return out

    def narrow(self, most: int) -> Topology:
        """The nodes of ranks below `most`, and of their children those of such ranks, and so on."""
        return self if self.width <= most else from_paths([p for p in self.paths() if max(p) < most], "")

    @staticmethod
    def of(value: object) -> Topology:
        """A topology from its name ("medusa_63", "drafter_64"), a branching per level ("4x2x1"), or paths of ranks
        ([[0], [1], [0, 0]]). Raises DecError."""
        if isinstance(value, Topology):
            return value
        if isinstance(value, str):
            text = value.strip()
            if text.startswith("["):
                try:
                    return from_paths(json.loads(text), text)
                except ValueError as error:
                    raise DecError(
                        f"not a topology: {text!r} ({error})", hint="write paths of ranks: [[0], [1], [0, 0]]"
                    ) from None
            if text in PUBLISHED:
                return published(text)
            head, _, tail = text.rpartition("_")
            if head and tail.isdigit() and head in ACCEPTANCE:
                return likely(head, int(tail))
            parts = text.split("x")
            if all(p.isdigit() and 0 < int(p) <= 64 for p in parts):
                return regular([int(p) for p in parts], text)
            raise DecError(
                f"not a topology: {text!r}",
                hint=f"say a branching per level like 4x2x1, paths of ranks like "
                f"[[0], [1], [0, 0]], a published tree ({', '.join(PUBLISHED)}), or NAME_SIZE with a name of "
                f"{', '.join(ACCEPTANCE)}",
            )
        return from_paths(value, "")


# Trees that papers' code ships, as recorded from it (shared/golden): how many children each node has, level by level from the
# root on, the last ones none. Ranks are 0, 1, ... among siblings.
PUBLISHED: dict[str, str] = {
    # FasterDecoding/Medusa, medusa_choices.py: mc_sim_7b_63
    "medusa_63": "10 10 7 3 2 1 1 1 1 1 1 10 3 2 1 1 1 1 1 0 0 2 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 2",
    # SafeAILab/EAGLE, branch v1, choices.py: mc_sim_7b_63, which has 25 nodes there
    "eagle_25": "4 3 2 2 1 3 2 2 1 0 0 0 0 3 0 0 0 0 0 0 0 2",
    # Luowaterbi/TokenRecycling, tree template 2.2.2
    "recycling_80": "8 8 4 3 2 1 1 1 1 8 3 2 1 1 1 1 1 2 1 0 0 1 0 0 1 0 1 1 0 0 5 2 1 1 1 0 0 0 1 0 0 1 0 0 0 0 0 0 "
    "1 0 0 1 1 0 0 3 1 1 0 0 1 0 0 0 0 1 0 1 0 0 2 0 0 1",
    # Bestpay-inc/Falcon, models/choices.py: kmask2_8layer_tree, without the node that it lists twice
    "falcon_165": "20 10 2 2 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 10 2 2 1 0 0 0 0 0 0 2 0 1 0 1 10 2 1 0 0 0 0 0 0 0 2 1 1 1 1 2 "
    "0 1 1 10 2 1 0 0 0 0 0 0 0 1 0 1 1 0 0 1 0 1 1 0 1 1 9 2 1 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 1 1 1 9 2 1 0 0 0 0 0 0 1 0 0 "
    "1 0 0 1 1 1 1 1 1 1 0 8 2 1 0 0 0 0 0 0 1 1 1 1 1 1 1 1 1 1 1 1",
}

# Assumed acceptance of the rank-r guess at depth d (d, r from 0), from which a shape of a given size is the likeliest tree.
# Round numbers of ours, and no published tree: heads fade with depth, a table of successors and a drafter do not, and all fall
# off by rank.
ACCEPTANCE: dict[str, tuple[Fraction, Fraction, Fraction]] = {
    # first guess at depth 0, factor per depth, factor per rank
    "heads": (Fraction(6, 10), Fraction(85, 100), Fraction(35, 100)),
    "table": (Fraction(5, 10), Fraction(1), Fraction(45, 100)),
    "drafter": (Fraction(7, 10), Fraction(1), Fraction(35, 100)),
}
DEEPEST = {"heads": 5, "table": 6, "drafter": 12}


@cache
def published(name: str) -> Topology:
    """A tree of PUBLISHED."""
    paths: list[tuple[int, ...]] = [()]
    for node, children in enumerate(PUBLISHED[name].split()):
        paths += [(*paths[node], rank) for rank in range(int(children))]
    return from_paths(paths[1:], name)


def from_paths(paths: Any, name: str) -> Topology:  # Any: what a caller or a file says
    """A topology from paths of ranks; parents must be there. Raises DecError."""
    try:
        wanted = sorted({tuple(int(r) for r in p) for p in paths}, key=lambda p: (len(p), p))
    except (TypeError, ValueError):
        raise DecError("a topology is a list of paths of ranks: [[0], [1], [0, 0]]") from None
    if any(r < 0 or r > 255 for p in wanted for r in p) or any(not p for p in wanted) or len(wanted) > 4096:
        raise DecError("a topology's paths hold ranks from 0 to 255, none is empty, and there are at most 4096")
    above: dict[tuple[int, ...], int] = {(): 0}
    levels = []
    for d in range(1, max((len(p) for p in wanted), default=0) + 1):
        here = [p for p in wanted if len(p) == d]
        for p in here:
            if p[:-1] not in above:
                raise DecError(f"the topology has {list(p)} but not its parent {list(p[:-1])}")
        levels.append(
            Level(tuple(above[p[:-1]] for p in here), tuple(p[-1] for p in here), d - 1, max(p[-1] for p in here) + 1)
        )
        above = {p: i for i, p in enumerate(here)}
    return Topology(tuple(levels), name)


def regular(branching: list[int], name: str = "") -> Topology:
    """Every node of level d has branching[d] children. Raises DecError for more than 4096 nodes."""
    size, total = 1, 0
    for b in branching:
        size *= b
        total += size
    if total > 4096:
        raise DecError(f"the topology {name} has {total} nodes; at most 4096")
    paths: list[tuple[int, ...]] = [()]
    out: list[tuple[int, ...]] = []
    for b in branching:
        paths = [(*p, r) for p in paths for r in range(b)]
        out += paths
    return from_paths(out, name)


@lru_cache(maxsize=64)
def likely(kind: str, size: int) -> Topology:
    """The `size` nodes most likely to be accepted under the assumed acceptances of `kind`. Raises DecError for a size that
    is not in 1 to 1024."""
    if not 1 <= size <= 1024:
        raise DecError(f"a topology has 1 to 1024 nodes, not {size}")
    first, depth, rank = ACCEPTANCE[kind]
    heap: list[tuple[Fraction, int, tuple[int, ...]]] = [(-first, 0, (0,))]
    chosen: list[tuple[int, ...]] = []
    serial = 0
    while heap and len(chosen) < size:
        score, _, path = heapq.heappop(heap)
        chosen.append(path)
        serial += 1
        heapq.heappush(heap, (score * rank, serial, (*path[:-1], path[-1] + 1)))
        if len(path) < DEEPEST[kind]:
            serial += 1
            heapq.heappush(heap, (score * first * depth ** len(path), serial, (*path, 0)))
    return from_paths(chosen, f"{kind}_{size}")
