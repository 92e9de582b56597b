"""The best tree of a given size: Sequoia's dynamic programme over measured acceptances.

`p[d][r]` is how often verification that has come to a node at depth d (0: the root) goes on to its child of rank r. A tree's
worth is how many drafts a verification accepts on average: the sum over its nodes of the product of p along the path from the
root. Chen et al., Sequoia: Scalable, Robust, and Hardware-aware Speculative Decoding, 2024, take p by rank alone; here it
may also depend on the depth, as heads' guesses fade with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

Path = tuple[int, ...]
Table = Sequence[Sequence[float]]


def worth(paths: Iterable[Path], p: Table) -> float:
    """How many drafts of a tree, given by its paths of ranks, are accepted on average."""
    total = 0.0
    for path in paths:
        reached = 1.0
        for depth, rank in enumerate(path):
            reached *= p[depth][rank] if depth < len(p) and rank < len(p[depth]) else 0.0
        total += reached
    return total


@dataclass(frozen=True)
class Best:
    """Answers for all sizes up to a most, for one depth limit: `worths[n]` of the best tree of n drafts (nan: none has n
    useful ones), `paths(n)` its paths. Nodes that are never reached are in no answer."""

    worths: np.ndarray
    _splits: list[list[np.ndarray]]

    def paths(self, size: int) -> list[Path]:
        """The best tree of a size as paths of ranks, parents before children. Raises ValueError where there is none."""
        if not 0 <= size < len(self.worths) or not np.isfinite(self.worths[size]):
            raise ValueError(f"no tree of {size} useful drafts")
        out: list[Path] = []
        waiting: list[tuple[Path, int, int, int]] = [((), 0, 0, size)]  # the children of a path's end from a rank on
        while waiting:
            above, depth, rank, left = waiting.pop()
            if not left:
                continue
            first = int(self._splits[depth][rank][left])  # drafts in the subtree of this child, itself included
            child = (*above, rank)
            out.append(child)
            waiting.append((child, depth + 1, 0, first - 1))
            waiting.append((above, depth, rank + 1, left - first))
        return sorted(out, key=lambda path: (len(path), path))


def best(p: Table, most: int, depth: int | None = None) -> Best:
    """The best trees of 1 to `most` drafts that are at most `depth` deep.

    Ranks are used from 0 on without holes, since siblings are tested in the order they were drawn in. Time grows with
    depth x ranks x most^2.
    """
    deep = min(len(p), depth if depth is not None else len(p))
    splits: list[list[np.ndarray]] = [[] for _ in range(deep)]
    none = np.full(most + 1, -np.inf)
    none[0] = 0.0
    below = none  # the children of a node at the depth limit: there are none
    for level in reversed(range(deep)):
        # subtree[j]: the best subtree of j drafts whose top is a child at this level, its top counted as reached
        subtree = np.full(most + 1, -np.inf)
        subtree[1:] = 1.0 + below[:-1]
        after = none
        splits[level] = [np.zeros(0, dtype=np.int64)] * len(p[level])
        for rank in reversed(range(len(p[level]))):
            chance = float(p[level][rank])
            here, split = none.copy(), np.zeros(most + 1, dtype=np.int64)
            gain = np.where(np.isfinite(subtree), chance * subtree, -np.inf) if chance > 0 else np.full(most + 1, -np.inf)
            for n in range(1, most + 1):
                options = gain[1 : n + 1] + after[n - 1 :: -1][:n]
                choice = int(options.argmax())
                if options[choice] > here[n]:
                    here[n], split[n] = options[choice], choice + 1
            after, splits[level][rank] = here, split
        below = after
    worths = np.where(np.isfinite(below), below, np.nan)
    return Best(worths, splits)
