"""Numbers that a program computes from its parameters, as polynomials, and what follows from inequalities between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

INF = math.inf
Bound = int | float | Fraction
PLACE = " k"
"""The atom that stands for the place in a vector (no parameter has a space in its name)."""


@dataclass(frozen=True)
class Amount:
    """A polynomial over atoms (parameters, counters, numbers that nothing else is known of); its terms, without zeros."""

    terms: frozenset[tuple[tuple[str, ...], Fraction]]

    @staticmethod
    def of(x: Any) -> Amount:
        """A number, or an atom by its name."""
        if isinstance(x, str):
            return Amount(frozenset({((x,), Fraction(1))}))
        return Amount(frozenset({((), Fraction(x))} if x else ()))

    def __add__(self, other: Amount) -> Amount:
        total = dict(self.terms)
        for atoms, c in other.terms:
            total[atoms] = total.get(atoms, Fraction(0)) + c
        return Amount(frozenset((a, c) for a, c in total.items() if c))

    def __mul__(self, other: Amount) -> Amount:
        pairs = itertools.product(self.terms, other.terms)
        parts = [Amount(frozenset({(tuple(sorted((*a, *b))), c * d)})) for (a, c), (b, d) in pairs]
        return sum(parts, Amount.of(0))

    def __neg__(self) -> Amount:
        return Amount(frozenset((a, -c) for a, c in self.terms))

    def __sub__(self, other: Amount) -> Amount:
        return self + -other

    @property
    def number(self) -> Fraction | None:
        """The number that it is, if it has no atoms."""
        return next((c for _, c in self.terms), Fraction(0)) if all(not a for a, _ in self.terms) else None

    @property
    def atoms(self) -> set[str]:
        """The atoms that it reads."""
        return {x for a, _ in self.terms for x in a}

    @property
    def hidden(self) -> bool:
        """Whether it reads an atom that may be another number at each place of a vector, in a way that is not followed."""
        return any(a.startswith("@") for a in self.atoms)

    @property
    def known(self) -> bool:
        """Whether it reads parameters and the canvas's length alone: an unknown number has a name in one walk only."""
        return not any(a[0] in "?@" for a in self.atoms)

    @property
    def varies(self) -> bool:
        """Whether it may be another number at each place of a vector."""
        return self.hidden or PLACE in self.atoms

    def with_(self, atom: str, value: Amount) -> Amount:
        """The polynomial with a value in the place of an atom."""
        total = Amount.of(0)
        for atoms, c in self.terms:
            part = Amount.of(c)
            for x in atoms:
                part = part * (value if x == atom else Amount.of(x))
            total += part
        return total

    def over(self, other: Amount) -> Amount | None:
        """The quotient by a single term, where that divides every term."""
        if len(other.terms) != 1:
            return None
        ((atoms, c),) = other.terms
        out = []
        for a, d in self.terms:
            rest = list(a)
            for x in atoms:
                if x not in rest:
                    return None
                rest.remove(x)
            out.append((tuple(rest), d / c))
        return Amount(frozenset(out))


ZERO, ONE = Amount.of(0), Amount.of(1)


@dataclass
class Known:
    """What is known of atoms: ranges, which are whole numbers, and polynomials that are not below 0 (`facts`)."""

    ranges: dict[str, tuple[Bound, Bound]] = field(default_factory=lambda: {PLACE: (0, INF)})
    reals: set[str] = field(default_factory=set)
    facts: list[Amount] = field(default_factory=list)
    made: dict[Any, Amount] = field(default_factory=dict)

    def mark(self) -> tuple[list[Amount], dict[Any, Amount]]:
        """What is known here, for `back`: numbers that were met under a further condition have ranges that hold there alone."""
        return list(self.facts), dict(self.made)

    def back(self, mark: tuple[list[Amount], dict[Any, Amount]]) -> None:
        """Forget what became known since `mark`."""
        self.facts, self.made = list(mark[0]), dict(mark[1])

    def atom(self, low: Bound = -INF, high: Bound = INF, *, real: bool = False, name: str = "", key: Any = None) -> Amount:
        """A number of which no more than a range is known; the same one for the same key."""
        if key is not None and key in self.made:
            return self.made[key]
        each = any(isinstance(x, Amount) and x.varies for x in key or ())
        name = name or f"{'@' if each else '?'}{len(self.ranges)}"
        self.ranges[name] = (low, high)
        if real:
            self.reals.add(name)
        made = Amount.of(name)
        if key is not None:
            self.made[key] = made
        return made

    def whole(self, x: Amount) -> bool:
        """Whether it is a whole number."""
        return all(c.denominator == 1 and not self.reals & set(a) for a, c in x.terms)

    def low(self, x: Amount) -> Bound:
        """A number that it is not below, by the ranges of its atoms."""
        total: Bound = 0
        for atoms, c in x.terms:
            ends: tuple[Bound, Bound] = (1, 1)
            for a in atoms:
                products = [_times(e, f) for e in ends for f in self.ranges[a]]
                ends = min(products), max(products)
            total += min(_times(c, e) for e in ends)
        return total

    def at_least(self, x: Amount, least: Bound = 0) -> bool:
        """Whether x >= least follows from the ranges and from at most two of the facts."""
        x = x - Amount.of(least)
        if self.low(x) >= 0:
            return True
        close = [f for f in self.facts if f.atoms & x.atoms]
        if any(self.low(x - f) >= 0 for f in close):
            return True
        return any(self.low(x - f - g) >= 0 for f in close for g in self.facts)

    def above(self, x: Amount) -> bool:
        """Whether x > 0 follows."""
        return self.at_least(x, 1) if self.whole(x) else self.low(x) > 0

    def compared(self, a: Amount, b: Amount) -> bool | None:
        """Whether a >= b, where that follows."""
        return True if self.at_least(a - b) else False if self.above(b - a) else None

    def largest(self, xs: Iterable[Amount]) -> Amount | None:
        """The one of several that none of the others exceeds, where that is known."""
        every = list(xs)
        return next((x for x in every if all(self.at_least(x - y) for y in every)), None)

    def least(self, xs: Iterable[Amount]) -> Amount | None:
        """The one of several that exceeds none of the others, where that is known."""
        found = self.largest([-x for x in xs])
        return None if found is None else -found

    def quotient(self, a: Amount, b: Amount) -> Amount | None:
        """a / b, for b that is not 0."""
        if b.number is not None:
            return a * Amount.of(1 / b.number) if b.number else None
        if not self.above(b):
            return None
        if (found := a.over(b)) is not None:
            return found
        if not self.at_least(a):
            return self.atom(real=True, key=("/", a, b))
        top, bottom = -self.low(-a), self.low(b)
        high = Fraction(top) / Fraction(bottom) if top < INF and bottom > 0 else INF
        return self.atom(0, min(high, 1) if self.at_least(b - a) else high, real=True, key=("/", a, b))

    def rounded(self, x: Amount) -> Amount:
        """x rounded towards zero. Of a quotient of whole numbers the same atom as `remainder` reads."""
        if self.whole(x):
            return x
        if x.number is not None:
            return Amount.of(math.trunc(x.number))
        low, high = self.low(x), -self.low(-x)
        if low > -1 and high < 1:
            return ZERO
        if low < 0:
            return self.atom(key=("int", x))
        found = self.atom(math.floor(low), high if high == INF else math.floor(high), key=("int", x))
        self.facts.append(x - found)
        return found

    def remainder(self, a: Amount, b: Amount) -> Amount:
        """a modulo b, of whole numbers."""
        if b.number == 1:
            return ZERO
        if a.number is not None and b.number:
            return Amount.of(a.number % b.number)
        if self.at_least(a) and self.at_least(b, 1):
            if self.at_least(b - a, 1):
                return a
            ratio = self.quotient(a, b)
            if ratio is not None:
                return a - b * self.rounded(ratio)
        return self.atom(0 if self.at_least(b, 1) else -INF, key=("mod", a, b))


def _times(a: Bound, b: Bound) -> Bound:
    return 0 if a == 0 or b == 0 else a * b
