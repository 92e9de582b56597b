"""Enumerating what a program may do: chance with rational probabilities, and an adversary. A program is run again and again,
each time down another branch; a choice exists only once something looks at it."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any


class TooMany(Exception):
    """More runs than allowed: the check gives up, undecided."""


@dataclass(frozen=True)
class Point:
    """One choice on the way of a run: what was open, and what was taken. `kind` is "chance" or "adversary"."""

    kind: str
    weights: tuple[Fraction, ...]
    taken: int
    label: str
    value: Any


class Choices:
    """The choices of one run: those of a given prefix, then always the first."""

    def __init__(self, prefix: tuple[int, ...]) -> None:
        self.prefix = prefix
        self.points: list[Point] = []

    def choose(self, weights: list[Fraction], values: list[Any], label: str, kind: str = "chance") -> Any:
        """One of `values`, by their weights (which sum to 1; zero weights are never taken)."""
        live = [(w, v) for w, v in zip(weights, values, strict=True) if kind == "adversary" or w > 0]
        if len(live) == 1 and kind == "chance":
            return live[0][1]
        at = len(self.points)
        taken = self.prefix[at] if at < len(self.prefix) else 0
        self.points.append(Point(kind, tuple(w for w, _ in live), taken, label, live[taken][1]))
        return live[taken][1]

    def weight(self) -> Fraction:
        """The probability of this run's chances."""
        out = Fraction(1)
        for p in self.points:
            if p.kind == "chance":
                out *= p.weights[p.taken]
        return out


def runs(program: Callable[[Choices], Any], limit: int) -> Iterator[tuple[Choices, Any]]:
    """Every run of a program with what it returned, depth first. Raises TooMany beyond `limit` runs."""
    prefix: tuple[int, ...] | None = ()
    count = 0
    while prefix is not None:
        count += 1
        if count > limit:
            raise TooMany(f"more than {limit} runs")
        choices = Choices(prefix)
        value = program(choices)
        yield choices, value
        path = [p.taken for p in choices.points]
        while path and path[-1] + 1 >= len(choices.points[len(path) - 1].weights):
            path.pop()
        prefix = None if not path else (*path[:-1], path[-1] + 1)
