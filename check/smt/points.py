"""Rational assignments to try: distributions with small denominators, with zeros, ties and one-hot ones among them.

A point that meets all facts of a case shows without a solver that the case is possible; one at which two distributions differ
is a counterexample to read.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from decgraph.check.smt.poly import Poly

if TYPE_CHECKING:
    from decgraph.check.smt.field import Fact, Field


class Point:
    """One assignment: a distribution for every row, computed when it is first read; other symbols follow from these."""

    def __init__(self, field: Field, number: int, given: dict[Any, tuple[Fraction, ...]] | None = None) -> None:
        self.field, self.number = field, number
        self.rows: dict[Any, tuple[Fraction, ...]] = dict(given or {})
        self.known: dict[int, Fraction] = {}
        self.signs: dict[Poly, int] = {}

    def row(self, key: Any) -> tuple[Fraction, ...]:
        """The distribution of a row."""
        if key not in self.rows:
            self.rows[key] = self._made(key)
        return self.rows[key]

    def _made(self, key: Any) -> tuple[Fraction, ...]:
        size, n = self.field.size, self.number
        model, path = key
        r = random.Random(f"{n} {path}")  # rows of other models after the same path: equal in every fifth point
        if n % 5:
            r = random.Random(f"{n} {model} {path}")
        low, high = ((1, 4), (0, 2), (0, 3), (1, 9), (0, 1))[n % 7 % 5]
        weights = [r.randint(low, high) for _ in range(size)]
        if not any(weights):
            weights[r.randrange(size)] = 1
        return tuple(Fraction(w, sum(weights)) for w in weights)

    def __getitem__(self, symbol: int) -> Fraction:
        if symbol not in self.known:
            of = self.field.relus.get(symbol)
            if of is not None:
                self.known[symbol] = max(Fraction(0), of.value(self))  # type: ignore[arg-type]
            else:
                key, v = self.field.places[symbol]
                self.known[symbol] = self.row(key)[v]
        return self.known[symbol]

    def value(self, p: Poly) -> Fraction:
        return p.value(self)  # type: ignore[arg-type]

    def meets(self, facts: Sequence[Fact]) -> bool:
        """Whether every fact holds here."""
        for p, strict in facts:
            sign = self.signs.get(p)
            if sign is None:
                x = self.value(p)
                sign = self.signs[p] = (x > 0) - (x < 0)
            if sign < strict:
                return False
        return True

    def size(self) -> tuple[int, int]:
        """How hard it is to read: the largest denominator of rows that were read, and the sum of all."""
        dens = [x.denominator for row in self.rows.values() for x in row]
        return (max(dens, default=1), sum(dens))


__all__ = ["Point"]
