"""The symbols of a proof and what is known of them: entries of distributions, and positive parts of polynomials in these.

Every symbol is at least 0. The last entry of a distribution is 1 less the others, so that the normal form of polynomials knows
that distributions sum to 1. The positive part of a polynomial n is a symbol r of its own with r >= 0, r >= n and r (r - n) = 0:
min, max and the clamped acceptance are polynomials in such symbols, and most proofs need no case distinction at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from decgraph.check.smt.points import Point
from decgraph.check.smt.poly import ONE, Poly
from decgraph.check.smt.solver import satisfiable

Fact = tuple[Poly, bool]
"""(p, strict): p > 0 where strict, else p >= 0."""
POINTS = 70


class OutOfTime(Exception):
    """The time of an obligation is used up."""


class Field:
    """Symbols, with the queries about polynomials in them."""

    def __init__(self, size: int, seconds: float = 60.0) -> None:
        self.size = size
        self.names: list[str] = []
        self.rows: dict[Any, tuple[Poly, ...]] = {}
        self.places: dict[int, tuple[Any, int]] = {}
        self.relus: dict[int, Poly] = {}
        self._symbol_of: dict[Poly, int] = {}
        self.points = [Point(self, i) for i in range(POINTS)]
        self._possible: dict[tuple[frozenset[Fact], bool], bool | None] = {}
        self._nonnegative: dict[Poly, bool] = {}
        self.patience = 0.3  # seconds for a question while distributions are added up; the last query has longer
        self.queries = 0
        self.deadline = time.monotonic() + seconds

    # -- symbols
    def _new(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1

    def row(self, model: str, path: tuple[int, ...]) -> tuple[Poly, ...]:
        """The distribution of a model after a path: any distribution."""
        key = (model, path)
        if key not in self.rows:
            made = []
            for v in range(self.size - 1):
                s = self._new(f"{model}({v} | {' '.join(map(str, path))})")
                self.places[s] = (key, v)
                made.append(Poly.symbol(s))
            last = ONE
            for p in made:
                last = last - p
            self.rows[key] = (*made, last)
        return self.rows[key]

    def relu(self, p: Poly) -> Poly:
        """The positive part of a primitive polynomial: a symbol, or p more than that of -p where that has one already."""
        if -p in self._symbol_of:
            return Poly.symbol(self._symbol_of[-p]) + p
        if p not in self._symbol_of:
            s = self._symbol_of[p] = self._new(f"relu{len(self.relus)}")
            self.relus[s] = p
        return Poly.symbol(self._symbol_of[p])

    def closure(self, polys: Sequence[Poly]) -> list[int]:
        """All symbols that polynomials speak of, through the definitions of positive parts."""
        todo = {s for p in polys for s in p.symbols}
        out: set[int] = set()
        while todo:
            s = todo.pop()
            out.add(s)
            if s in self.relus:
                todo |= self.relus[s].symbols - out
        return sorted(out)

    # -- questions
    def left(self) -> float:
        """Seconds that are left. Raises OutOfTime where there are none."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise OutOfTime
        return left

    def possible(self, facts: Sequence[Fact], *more: Fact, deep: bool = True) -> bool | None:
        """Whether some distributions meet all facts; None where that is not known. Without `deep` only what is quick."""
        every: list[Fact] = []
        for p, strict in (*facts, *more):
            c = p.constant
            if c is None:
                every.append((p.primitive, strict))
            elif c < 0 or (strict and c == 0):
                return False
        key = frozenset(every)
        for asked in ((key, True), (key, deep)):
            if asked in self._possible and (self._possible[asked] is not None or self.patience < 1):
                return self._possible[asked]
        found: bool | None
        if any((-p, True) in key or (strict and (-p, False) in key) for p, strict in every):
            found = False
        elif any(point.meets(every[::-1]) for point in self.points):
            found = True
        else:
            self.queries += 1
            found = satisfiable(self, every, min(self.left(), self.patience), deep)
        self._possible[key, deep or found is not None] = found
        return found

    def implies(self, facts: Sequence[Fact], p: Poly, strict: bool = False) -> bool:
        """Whether p >= 0 (p > 0) follows from the facts, as far as that is found out."""
        return self.possible(facts, (-p, not strict)) is False

    def never_negative(self, p: Poly) -> bool:
        """Whether p >= 0 for all distributions, as far as that is quickly found out. Such polynomials are remembered."""
        p = p.primitive
        if p not in self._nonnegative:
            self._nonnegative[p] = self.possible((), (-p, True), deep=False) is False
        return self._nonnegative[p]

    def parted(self, p: Poly) -> tuple[list[Poly], Poly]:
        """p as a product of polynomials that are never negative, its symbols among them, and of the rest."""
        outside = [Poly.symbol(s) for s, e in p.monomial_factor() for _ in range(e)]
        if outside:
            quotient = p.divided(Poly({p.monomial_factor(): 1}))
            assert quotient is not None
            p = quotient
        for f, yes in self._nonnegative.items():
            while yes and len(f.terms) > 1 and p.constant is None and f.symbols <= p.symbols:
                quotient = p.divided(f)
                if quotient is None:
                    break
                outside.append(f)
                p = quotient
        return outside, p

    def decided(self, facts: Sequence[Fact], symbols: Sequence[int], equal: dict[int, Poly]) -> dict[int, Poly]:
        """Symbols that facts decide, with what they are: 0, or the polynomial whose positive part they stand for."""
        out: dict[int, Poly] = {}
        for s in symbols:
            n = self.relus[s].substituted(equal) if s in self.relus else None
            inside = self.parted(n)[1] if n is not None else None
            if n is not None and inside is not None and self.never_negative(inside):
                out[s] = n
                continue
            if inside is not None and self.never_negative(-inside):
                out[s] = Poly({})
                continue
            if self.possible(facts, (Poly.symbol(s), True), deep=False) is False:
                out[s] = Poly({})
            elif n is not None and self.possible(facts, (-n, True), deep=False) is False:
                out[s] = n
        return out

    def equalities(self, facts: Sequence[Fact]) -> dict[int, Poly]:
        """Symbols that the facts make equal to others: a sum that is never negative and here not positive is 0."""
        out: dict[int, Poly] = {}
        for p, strict in facts:
            if strict or p.degree != 1 or not self.never_negative(-p):
                continue
            p = p.substituted(out)
            s = max(p.symbols, default=None)
            if s is not None:
                value = (p - Poly.symbol(s).scaled(p.terms[((s, 1),)])).scaled(-1 / Fraction(p.terms[((s, 1),)]))
                out = {t: q.substituted({s: value}) for t, q in out.items()} | {s: value}
        return out

    def zero(self, p: Poly, facts: Sequence[Fact], splits: int = 6) -> bool | Point | None:
        """True where p = 0 wherever the facts hold, a point where it is not, or None for unknown."""
        if not p.terms or not self.squares(p).terms:
            return True
        shown = self.showing(p, facts)
        if shown is not None:
            return shown
        if self.possible(facts) is False:
            return True
        rest = self.reduced(p, facts)
        if not rest.terms:
            return True
        if self.possible(facts, (rest, True), deep=False) is False and self.possible(facts, (-rest, True), deep=False) is False:
            return True
        split = next((s for s in sorted(rest.symbols, reverse=True) if s in self.relus), None)
        if split is None or splits == 0:
            both = [self.possible(facts, (q, True)) for q in (rest, -rest)]
            return True if both == [False, False] else None
        n = self.relus[split]
        for side in ((n, True), (-n, False)):
            found = self.zero(rest, (*facts, side), splits - 1)
            if found is not True:
                return found
        return True

    def reduced(self, p: Poly, facts: Sequence[Fact]) -> Poly:
        """p with every symbol that the facts decide replaced."""
        equal = self.equalities(facts)
        p = p.substituted(equal)
        while True:
            decided = self.decided(facts, sorted(p.symbols), equal)
            if not decided:
                return self.squares(p)
            p = p.substituted(decided)

    def showing(self, p: Poly, facts: Sequence[Fact], readable: bool = False) -> Point | None:
        """A point at which p is not 0 though the facts hold; where it is to be `readable`, the easiest one."""
        good = (x for x in self.points if x.meets(facts) and x.value(p) != 0)
        return min(good, key=Point.size, default=None) if readable else next(good, None)

    def squares(self, p: Poly) -> Poly:
        """p with r * r replaced by r * n for every positive part r of n."""
        while True:
            found = next(((m, s) for m in p.terms for s, e in m if e > 1 and s in self.relus), None)
            if found is None:
                return p
            m, s = found
            c = p.terms[m]
            lower = tuple((t, e if t != s else e - 1) for t, e in m)
            p = p - Poly({m: c}) + Poly({lower: c}) * self.relus[s]


__all__ = ["Fact", "Field", "OutOfTime"]
