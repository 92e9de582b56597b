"""Algebra on rows: functions of a generic token, for every vocabulary. Sums over the vocabulary are linear functionals.

A scalar is a Laurent polynomial in symbols: a dictionary from monomials, sorted pairs (symbol, power), to coefficients. A row
is a linear combination of atoms with scalars as coefficients. The atoms `P` (what is owed) and `Q` (the distribution that a
child states) sum to one; `relu` of a row is an atom r of its own with r >= 0, whose sum is a symbol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from decgraph.check.proof.matching import NoRule

Monomial = tuple[tuple[str, int], ...]
Scalar = Mapping[Monomial, Fraction]
SymbolicRow = Mapping[str, Scalar]
ONE: Scalar = {(): Fraction(1)}
P: SymbolicRow = {"P": ONE}
Q: SymbolicRow = {"Q": ONE}
ZERO: Scalar = {}


def times(a: Scalar, b: Scalar) -> Scalar:
    """The product of two scalars."""
    out: dict[Monomial, Fraction] = {}
    for m, x in a.items():
        for n, y in b.items():
            powers = dict(m)
            for symbol, e in n:
                powers[symbol] = powers.get(symbol, 0) + e
            key = tuple(sorted((symbol, e) for symbol, e in powers.items() if e))
            out[key] = out.get(key, Fraction(0)) + x * y
    return {m: x for m, x in out.items() if x}


def plus(a: Scalar, b: Scalar, sign: int = 1) -> Scalar:
    """a + b, or with sign -1 a - b."""
    out = dict(a)
    for m, x in b.items():
        out[m] = out.get(m, Fraction(0)) + sign * x
    return {m: x for m, x in out.items() if x}


def inverse(a: Scalar) -> Scalar:
    """One over a single term. Raises NoRule for a sum of several."""
    if len(a) != 1:
        raise NoRule("division by a sum of several terms")
    ((m, x),) = a.items()
    return {tuple((symbol, -e) for symbol, e in m): 1 / x}


def added(a: SymbolicRow, b: SymbolicRow, sign: int = 1) -> SymbolicRow:
    """a + b token by token, or with sign -1 a - b."""
    out = {atom: plus(a.get(atom, ZERO), b.get(atom, ZERO), sign) for atom in (*a, *(x for x in b if x not in a))}
    return {atom: s for atom, s in out.items() if s}


def scaled(row: SymbolicRow, s: Scalar) -> SymbolicRow:
    """A row times a scalar."""
    return {atom: product for atom, x in row.items() if (product := times(x, s))}


def negative(row: SymbolicRow) -> bool:
    """Whether a row may be negative somewhere, as far as signs of single terms tell."""
    return any(min(s.values()) < 0 for s in row.values())


@dataclass
class RowNames:
    """Names for `relu` rows."""

    names: dict[tuple[object, ...], str] = field(default_factory=dict)

    def relu(self, row: SymbolicRow) -> SymbolicRow:
        if not negative(row):
            return row
        key = tuple(sorted((atom, tuple(sorted(s.items()))) for atom, s in row.items()))
        return {self.names.setdefault(key, f"r{len(self.names)}"): ONE}

    def minimum(self, a: SymbolicRow, b: SymbolicRow) -> SymbolicRow:
        """min(a, b) = a - relu(a - b)."""
        return added(a, self.relu(added(a, b, -1)), -1)

    def total(self, row: SymbolicRow) -> Scalar:
        """The sum over the vocabulary."""
        out: Scalar = {}
        for atom, s in row.items():
            out = plus(out, s if atom in ("P", "Q") else times(s, {((f"sum {atom}", 1),): Fraction(1)}))
        return out

    def normalized(self, row: SymbolicRow) -> SymbolicRow:
        """The row divided by its sum. Raises NoRule where it may be negative: such a row is left as zeros."""
        if negative(row):
            raise NoRule("a row is normalized that may be negative")
        return scaled(row, inverse(self.total(row)))


def where_zero(row: SymbolicRow, symbol: str) -> SymbolicRow:
    """The row where a sum is 0: its `relu` row is 0 there too. Raises NoRule where the sum is a factor of something."""
    if any(s == symbol for x in row.values() for m in x for s, _ in m):
        raise NoRule(f"{symbol} is a factor where it is 0")
    return {atom: x for atom, x in row.items() if f"sum {atom}" != symbol}
