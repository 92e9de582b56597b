"""Numbers that a program computes from its parameters, as polynomials, and what follows from inequalities between them."""

from __future__ import annotations

import itertools
import math
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
    def text(self) -> str:
        """The polynomial as text, the same for the same one."""
        return "+".join("*".join((str(c), *atoms)) for atoms, c in sorted(self.terms))

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
    """What is known of atoms: ranges, which are whole numbers, and polynomials that are not below 0 (`facts`). A range holds
    everywhere; a fact may have been met under a condition, and is forgotten with it (`back`)."""

    ranges: dict[str, tuple[Bound, Bound]] = field(default_factory=lambda: {PLACE: (0, INF)})
    reals: set[str] = field(default_factory=set)
    facts: list[Amount] = field(default_factory=list)
    made: dict[Any, Amount] = field(default_factory=dict)

    def mark(self) -> list[Amount]:
        """What is known here, for `back`."""
        return list(self.facts)

    def back(self, mark: list[Amount]) -> None:
        """Forget what became known since `mark`."""
        self.facts = list(mark)

    def atom(self, low: Bound = -INF, high: Bound = INF, *, real: bool = False, name: str = "", key: Any = None) -> Amount:
        """A number of which no more than a range is known. The same one for the same key, also in another walk, where the key's
        amounts are the same numbers there."""
        if key is not None and key in self.made:
            return self.made[key]
        parts = [x for x in key or () if isinstance(x, Amount)]
        if key is not None and all(isinstance(x, str | Amount) for x in key) and all(x.known for x in parts):
            name = f"({' '.join(x if isinstance(x, str) else x.text for x in key)})"
        name = name or f"{'@' if any(x.varies for x in parts) else '?'}{len(self.ranges)}"
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
        """Whether x >= least follows from the ranges and from at most three of the facts."""
        return self._follows(x - Amount.of(least), 3)

    def _follows(self, x: Amount, deep: int) -> bool:
        if self.low(x) >= 0:
            return True
        low = {(a, c > 0) for a, c in x.terms if a and self.low(Amount(frozenset({(a, c)}))) < 0}
        close = [f for f in self.facts if any((a, c > 0) in low for a, c in f.terms)] if deep else []
        return any(self._follows(x - f, deep - 1) for f in close)  # each leaves less of what may be small

    def above(self, x: Amount) -> bool:
        """Whether x > 0 follows."""
        return self.at_least(x, 1) if self.whole(x) else self.low(x) > 0

    def compared(self, a: Amount, b: Amount) -> bool | None:
        """Whether a >= b, where that follows."""
        return True if self.at_least(a - b) else False if self.above(b - a) else None

    def largest(self, a: Amount, b: Amount) -> Amount | None:
        """The larger of two, where that is known."""
        return a if self.at_least(a - b) else b if self.at_least(b - a) else None

    def least(self, a: Amount, b: Amount) -> Amount | None:
        """The smaller of two, where that is known."""
        return a if self.at_least(b - a) else b if self.at_least(a - b) else None

    def quotient(self, a: Amount, b: Amount) -> Amount | None:
        """a / b, for b that is above 0, or a number."""
        if b.number is not None:
            return a * Amount.of(1 / b.number) if b.number else None
        if not self.above(b):
            return None
        if (found := a.over(b)) is not None:
            return found
        made = self.atom(real=True, key=("/", a, b))
        self.facts += [f for holds, f in ((a, made), (b - a, ONE - made)) if self.at_least(holds)]
        return made

    def rounded(self, x: Amount) -> Amount:
        """x rounded towards zero."""
        if self.whole(x):
            return x
        low, high = self.low(x), -self.low(-x)
        ends = (math.floor(low), INF if high == INF else math.floor(high)) if low >= 0 else (-INF, INF)
        made = self.atom(*ends, key=("int", x))
        if self.at_least(x):
            self.facts += [made, x - made]
        return made

    def remainder(self, a: Amount, b: Amount) -> Amount | None:
        """a modulo b, of whole numbers, where neither is negative."""
        ratio = self.quotient(a, b) if self.at_least(a) and self.at_least(b, 1) else None
        return None if ratio is None else a - b * self.rounded(ratio)

    def extreme(self, kind: str, a: Amount, b: Amount) -> Amount:
        """The larger or the smaller of two (`max`, `min`)."""
        found = self.largest(a, b) if kind == "max" else self.least(a, b)
        if found is None:
            found = self.atom(real=not (self.whole(a) and self.whole(b)), key=(kind, a, b))
            self.facts += [found - x if kind == "max" else x - found for x in (a, b)]
        return found


def _times(a: Bound, b: Bound) -> Bound:
    return 0 if a == 0 or b == 0 else a * b
