"""Heads that read the target's features (EAGLE): the semantics of such a call, for every numeric kind of model.

A slot j pairs the feature of position j-1 with the token at j and returns a feature of position j, from which
the target's read-out scores the token j+1. Features are the target's where the given memory covers the
position, and the head's own after it: the same path has different scores before and after it is committed,
because it is a function of (the target's memory at the root's parent, the path).

A position that was evicted from the memory has no slot. Slot 0 exists only when the memory is empty
(a prompt of one token); its feature is the absence of one.

EAGLE: Li, Wei, Zhang and Zhang, EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty, 2024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from decgraph.errors import DecError
from decgraph.runtime.models.interface import (
    Cell,
    Memory,
    Model,
    OfTarget,
    Path,
    Row,
    Scores,
    SoftCell,
    check_family,
    check_path,
    first_computed,
)


class Features(OfTarget[Model]):
    """A features model of `target`. A subclass implements `_feature`, the newest slot's from all so far."""

    def __init__(self, target: Model, name: str) -> None:
        self.kind = "features"
        self.name, self.target = name, target
        self.vocab, self.context = target.vocab, target.context
        self.layers, self.exact, self.family = target.layers, target.exact, target.family

    def _feature(self, pairs: Sequence[tuple[Row, int | SoftCell]]) -> Row:
        """The feature at the last of `pairs` (feature or None, token), which attends to all of them."""
        raise NotImplementedError

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        """Scores of the token after each path. `memory` is the target's memory at the root's parent; left out,
        it is the target's memory of everything but the path's last token."""
        return [self.target.read_out(self._own(path, memory)[len(path) - 1]) for path in paths]

    def states(self, path: Path, memory: Memory) -> dict[int, Row]:
        """The features that it predicts at the positions that the memory does not cover."""
        return self._own(path, memory)

    def read_state(self, state: np.ndarray) -> Scores:
        return self.target.read_state(state)

    def _own(self, path: Path, memory: Memory | None) -> dict[int, Row]:
        path = check_path(self, path)
        past = self.target.memory(path[:-1]) if memory is None else memory
        check_family(self, past)
        own: dict[int, Row] = {}
        for j in range(first_computed(path, past), len(path)):
            own[j] = self.feature(path[: j + 1], past, own)
        return own

    def feature(self, path: Sequence[Cell], memory: Memory, features: Mapping[int, Row]) -> Row:
        """The head's own feature at the end of a path, from the target's features in `memory` and from its `features` after
        the root, by position. Raises DecError if the memory lost the feature that the root's slot reads."""
        path = check_path(self, path)
        check_known(self, memory, known := first_computed(path, memory))
        pairs: list[tuple[Row, int | SoftCell]] = [] if known else [(None, path[0])]
        pairs += [(memory.features[j - 1], path[j]) for j in range(1, known + 1) if j - 1 in memory.features]
        pairs += [(features[j - 1], path[j]) for j in range(known + 1, len(path))]
        return self._feature(pairs)


def check_known(model: Model, memory: Memory, known: int) -> None:
    """Raises DecError if the memory lost the feature that the root's slot reads."""
    if known and known - 1 not in memory.features:
        raise DecError(f"{model.name!r} needs the target's feature of position {known - 1}, which was evicted")


def states_at(model: Model, paths: Sequence[Path], memory: Memory | None) -> list[Row]:
    """The states at the ends of paths: those that leave a trunk, or of which a head on features makes its scores."""
    if model.kind == "features":
        return [model.states(path, memory)[len(path) - 1] for path in paths]
    return model.hidden_states(list(paths), memory)
