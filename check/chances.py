"""Runs that are drawn at random in the place of an enumeration."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TypeVar

from decgraph.backends.exact.choices import Arrived, Choices, Point, runs

T = TypeVar("T")


class ByChance(Choices):
    """Choices at random, each of which can happen."""

    def __init__(self, seed: int) -> None:
        super().__init__(())
        self.random = random.Random(seed)

    def choose(self, weights: Sequence[Fraction | int], values: Sequence[T], label: str, kind: str = "chance") -> T:
        live = [(w, v) for w, v in zip(weights, values, strict=True) if w > 0 or kind == "adversary"]
        taken = self.random.randrange(len(live))
        if len(live) > 1 or kind == "adversary":
            self.points.append(Point(kind, tuple(w for w, _ in live), taken, label, live[taken][1]))
        return live[taken][1]


def attempts(one: Callable[[Choices], T], *, limit: int, sampled: int, merge: bool) -> Iterator[tuple[Choices, T | Arrived]]:
    """Every run with what it comes to, `limit` at most, or as many as `sampled` says, drawn at random."""
    if not sampled:
        yield from runs(one, limit, merge=merge)
        return
    for seed in range(sampled):
        choices = ByChance(seed)
        yield choices, one(choices)
        if not choices.points:  # there is no other run
            return


__all__ = ["ByChance", "attempts"]
