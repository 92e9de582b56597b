"""One run of a symbolic program: what was drawn and how comparisons were decided, with the facts that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from decgraph.check.smt.field import Fact, Field
from decgraph.check.smt.poly import Poly
from decgraph.check.smt.ratio import Ratio
from decgraph.errors import DecError


@dataclass(frozen=True)
class Fork:
    """A place where runs part: a draw with its weights (facts[i]: that the i-th is possible), or the sign of a polynomial."""

    kind: str
    label: str
    weights: tuple[Any, ...]
    facts: tuple[Fact | None, ...]
    taken: int
    value: Any


class Trail:
    """The forks of one run: those of a given prefix, then always the first. Answers comparisons of symbolic numbers."""

    known = None  # runs in equal states are not merged: their paths' facts differ
    new = False

    def __init__(self, field: Field) -> None:
        self.field = field
        self.start(())

    def start(self, prefix: tuple[int, ...]) -> None:
        self.prefix = prefix
        self.forks: list[Fork] = []
        self.facts: tuple[Fact, ...] = ()

    def _fork(self, kind: str, label: str, weights: list[Any], facts: list[Fact | None], values: list[Any]) -> Any:
        at = len(self.forks)
        taken = self.prefix[at] if at < len(self.prefix) else 0
        self.forks.append(Fork(kind, label, tuple(weights), tuple(facts), taken, values[taken]))
        fact = facts[taken]
        if fact is not None and fact not in self.facts:
            self.facts = (*self.facts, fact)
        return values[taken]

    def number(self, value: Any) -> Ratio:
        """A number as a symbolic one."""
        if isinstance(value, Ratio):
            return value
        return Ratio(self, Poly.of(Fraction(value)))

    # -- queries of numbers
    def positive(self, p: Poly) -> bool:
        """Whether p > 0: known, or a fork."""
        outside, inside = self.field.parted(p)
        return all(self._positive(q) for q in (*outside, inside))

    def _positive(self, p: Poly) -> bool:
        c = p.constant
        if c is not None:
            return c > 0
        p = p.primitive
        yes, no = (p, True), (-p, False)
        if yes in self.facts or self.field.possible(self.facts, no, deep=False) is False:
            return True
        if no in self.facts or self.field.possible(self.facts, yes, deep=False) is False:
            return False
        return bool(self._fork("sign", "", [], [yes, no], [True, False]))

    def relu(self, p: Poly) -> Poly:
        """The positive part of p: itself or 0 where that is so for all distributions, else a symbol: the same one in every
        run, whatever its facts say, so that sums over runs cancel."""
        outside, inside = self.field.parted(p)
        out = self._relu(inside)
        for q in outside:
            out = out * q
        return out

    def _relu(self, p: Poly) -> Poly:
        c = p.constant
        if c is not None:
            return Poly.of(max(c, 0))
        if self.field.never_negative(p):
            return p
        if self.field.never_negative(-p):
            return Poly({})
        return self.field.relu(p.primitive).scaled(p.content)

    # -- chance
    def choose(self, weights: list[Any], values: list[Any], label: str, kind: str = "chance") -> Any:
        """One of `values` by symbolic weights that sum to 1. What the facts of this run alone exclude is tried all the same:
        its weight is 0 here, but sums over runs cancel only if it is in them."""
        live = []
        for w, v in zip(weights, values, strict=True):
            r = self.number(w)
            if r.constant == 1:
                return v
            fact = (r.num.primitive, True)
            if (-fact[0], False) not in self.facts and self.field.possible((), fact, deep=False) is not False:
                live.append((r, v, fact if r.constant is None else None))
        if not live:
            raise Impossible
        return self._fork(kind, label, [w for w, _, _ in live], [f for _, _, f in live], [v for _, v, _ in live])


class Impossible(Exception):
    """A case that no distribution is in: nothing can be drawn."""


def explore(trail: Trail, program: Callable[[], Any]) -> Iterator[tuple[list[Fork], Any]]:
    """Every run of a program with what it returned, depth first."""
    prefix: tuple[int, ...] | None = ()
    while prefix is not None:
        trail.field.left()
        trail.start(prefix)
        try:
            value = program()
        except Impossible:
            value = None
        except DecError:
            if trail.field.possible(trail.facts) is not False:
                raise
            value = None  # the facts of this run exclude each other: it happens with probability 0
        yield trail.forks, value
        path = [f.taken for f in trail.forks]
        while path and path[-1] + 1 >= len(trail.forks[len(path) - 1].facts):
            path.pop()
        prefix = (*path[:-1], path[-1] + 1) if path else None


__all__ = ["Fork", "Impossible", "Trail", "explore"]
