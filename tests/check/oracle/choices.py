"""Every outcome of a run, one after the other: a run asks, and is run again until all answers were given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from oracle.values import Stuck


class TooMany(Exception):
    """There is more to enumerate than the budget allows."""


class Choices:
    """The answers of one run: those of `path` first, then the first possible one each time."""

    def __init__(self, path: list[int]) -> None:
        self.path, self.open, self.prob = path, [], Fraction(1)
        self.asked = 0
        self.open: list[int] = []

    def of(self, weights: list[Any]) -> int:
        """The number of one of the outcomes that have weight; all of them are taken in turn."""
        able = [i for i, w in enumerate(weights) if w]
        if not able:
            raise Stuck("a choice without outcomes")
        if len(able) == 1:
            return able[0]
        if self.asked == len(self.path):
            self.path.append(0)
        at = self.path[self.asked]
        if self.asked == len(self.open):
            self.open.append(len(able))
        self.asked += 1
        self.prob *= weights[able[at]]
        return able[at]


def every(run: Callable[[Choices], Any], spend: Callable[[], None]) -> Iterator[tuple[Fraction, Any]]:
    """(probability, result) of every run."""
    path: list[int] = []
    while True:
        spend()
        made = Choices(path)
        result = run(made)
        yield made.prob, result
        path = path[: made.asked]
        while path and path[-1] + 1 == made.open[len(path) - 1]:
            path.pop()
        if not path:
            return
        path[-1] += 1


class Output:
    """The noise that specifications read (`as output`), by place. What was read of it is remembered with the row.

    Two rows at one place read one exponential race: token v arrives at time E_v / p_v. `certain`: whether laws are wanted, or
    only what is possible."""

    def __init__(self, seen: dict[Any, list[tuple[Any, int]]], laws: bool) -> None:
        self.seen, self.laws = {k: list(v) for k, v in seen.items()}, laws

    def read(self, place: Any, row: tuple[Fraction, ...], choices: Choices) -> int:
        """The token at a place under a row."""
        known = self.seen.setdefault(place, [])
        for other, token in known:
            if other == row:
                return token
        weights: list[Any]
        if not known:
            weights = list(row)
        elif not self.laws:
            weights = [int(w > 0 and possible([*known, (row, v)])) for v, w in enumerate(row)]
        elif len(known) == 1:
            other, token = known[0]
            weights = [joint(other, token, row, v) / other[token] if w > 0 else Fraction(0) for v, w in enumerate(row)]
        elif sum(w > 0 for w in row) == 1:
            weights = list(row)
        else:
            raise Stuck("three rows read the same noise")
        token = choices.of(weights)
        known.append((row, token))
        return token


def possible(read: list[tuple[tuple[Fraction, ...], int]]) -> bool:
    """Whether races can have these winners: E_v / E_w >= p_v / p_w for every winner w of p, with room to spare."""
    winners = sorted({w for _, w in read})
    best = {(w, v): Fraction(0) for w in winners for v in winners}
    for row, w in read:
        for v in winners:
            if v != w:
                best[w, v] = max(best[w, v], row[v] / row[w])
    for m in winners:  # the largest product along a path; a cycle that reaches 1 leaves no room
        for a in winners:
            for b in winners:
                best[a, b] = max(best[a, b], best[a, m] * best[m, b])
    return all(best[w, w] < 1 for w in winners)


def joint(p: tuple[Fraction, ...], a: int, r: tuple[Fraction, ...], b: int) -> Fraction:
    """The probability that a race is won by `a` under p and by `b` under r."""
    vocab = range(len(p))
    if a == b:
        return 1 / sum(max(p[v] / p[a], r[v] / r[a]) for v in vocab)
    low = p[b] / p[a]  # E_b / E_a is at least this
    if r[a] == 0:
        high = None
    else:
        high = r[b] / r[a]
        if high <= low:
            return Fraction(0)
    others = [v for v in vocab if v not in (a, b) and (p[v] or r[v])]
    cuts = sorted({c for v in others if r[v] for c in [p[v] / p[a] * r[b] / r[v]] if c > low and (high is None or c < high)})
    total, edges = Fraction(0), [low, *cuts, high]
    for left, right in zip(edges, edges[1:], strict=False):
        inside = left + 1 if right is None else (left + right) / 2
        constant, slope = Fraction(1), Fraction(1)
        for v in others:  # E_v is at least max(E_a p_v / p_a, E_b r_v / r_b)
            if p[v] / p[a] >= inside * r[v] / r[b]:
                constant += p[v] / p[a]
            else:
                slope += r[v] / r[b]
        total += (1 / (constant + slope * left) - (0 if right is None else 1 / (constant + slope * right))) / slope
    return total
