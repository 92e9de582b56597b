"""Bugs of requests: constraints and shaping that reach some of the rows only, or the wrong path."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from decgraph.backends.exact.run import ExactMachine
from decgraph.check.mutant import Mutant
from decgraph.check.profile import Profile
from decgraph.runtime.request import Request


class Elsewhere(ExactMachine):
    """The rows of the target below the root, and those that the program shapes itself, come from another request or path."""

    def changed(self, request: Request) -> Any:
        return request

    def instead(self, path: tuple[Any, ...]) -> tuple[Any, ...]:
        return path

    def model_row(
        self, model: Any, scores: Any, path: tuple[Any, ...], node: int | None, allow: Any, position: int | None = None
    ) -> Any:
        below = len(path) > len(self.context()) if model is None else model is self.main and node
        if not below or self.parent is not None:
            return super().model_row(model, scores, path, node, allow, position)
        other = copy.copy(self)
        other.request = self.changed(self.request)
        return ExactMachine.model_row(other, model, scores, self.instead(path), node, allow, len(path))


class NoConstraints(Elsewhere):
    """Bans and the minimum length are forgotten at drafted nodes."""

    def changed(self, request: Request) -> Any:
        return replace(request, bans=frozenset(), min_length=0, allow=None)


class NoShaping(Elsewhere):
    """Top-k, top-p, min-p, penalties and biases are forgotten at drafted nodes."""

    def changed(self, request: Request) -> Any:
        return replace(request, top_k=None, top_p=None, min_p=None, bias={}, presence_penalty=0)


class RootPath(Elsewhere):
    """Penalties and the minimum length at a node count the root's path."""

    def instead(self, path: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.context()


def below(f: Profile) -> bool:
    """The target's rows below the root decide something."""
    return f.walks and f.causal and f.depth >= 1 and bool({"distribution", "tokens", "greedy"} & f.modes)


MUTANTS = (
    Mutant.of(
        NoConstraints, "constraints-at-the-root-only", below, "V = 2, one draft, a ban", "M20, M55", worlds=(7, 5), asks=True
    ),
    Mutant.of(
        NoShaping,
        "shaping-at-the-root-only",
        below,
        "V = 3, one draft, top-k",
        "M06, M21, M54; ar.md L5",
        worlds=(3, 9, 13, 11),
        asks=True,
    ),
    Mutant.of(
        RootPath, "shaping-of-the-root's-path", below, "V = 2, one draft, a penalty", "M51, M52", worlds=(11, 5), asks=True
    ),
)
