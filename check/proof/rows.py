"""Algebra on rows: functions of a generic token, for every vocabulary. Sums over the vocabulary are linear functionals.

A scalar is a Laurent polynomial in symbols: a dictionary from monomials, sorted pairs (symbol, power), to coefficients. Symbols
are sums of atoms, which are not negative, and shares, parameters between 0 and 1. A row is a linear combination of atoms with
scalars as coefficients. The atoms `P` (what is owed) and `Q` (the distribution that a child states) sum to one; `relu` of a row
is an atom r of its own with r >= 0, whose sum is a symbol. An atom with tests before it, `t0 P`, is P where the test holds of a
token, and 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import prod

from decgraph.check.proof.matching import NoRule

Monomial = tuple[tuple[str, int], ...]
Scalar = Mapping[Monomial, Fraction]
SymbolicRow = Mapping[str, Scalar]
ONE: Scalar = {(): Fraction(1)}
P: SymbolicRow = {"P": ONE}
Q: SymbolicRow = {"Q": ONE}
ZERO: Scalar = {}
SHARE = "share "
"""How symbols of numbers between 0 and 1 begin."""


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


def below(s: Scalar) -> bool:
    """Whether a scalar may be negative: it is linear in each power of a share, so it is least where each is 0 or 1."""
    powers = sorted({(symbol, e) for m in s for symbol, e in m if symbol.startswith(SHARE)})
    for corner in product((0, 1), repeat=len(powers)):
        value = dict(zip(powers, corner, strict=True))
        left: dict[Monomial, Fraction] = {}
        for m, x in s.items():
            rest = tuple(part for part in m if part not in value)
            left[rest] = left.get(rest, Fraction(0)) + x * prod(value[part] for part in m if part in value)
        if any(x < 0 for x in left.values()):
            return True
    return False


def where(row: SymbolicRow, test: str) -> SymbolicRow:
    """The row where a test holds, and 0 elsewhere."""
    out: SymbolicRow = {}
    for atom, s in row.items():
        *tests, base = atom.split(" ")
        out = added(out, {" ".join((*sorted({*tests, test}), base)): s})
    return out


@dataclass
class RowNames:
    """Names for `relu` rows."""

    names: dict[tuple[object, ...], str] = field(default_factory=dict)
    rows: dict[str, SymbolicRow] = field(default_factory=dict)
    """By `relu` atom the row that it is of."""

    def relu(self, row: SymbolicRow) -> SymbolicRow:
        if not self.negative(row):
            return row
        opposite = scaled(row, {(): Fraction(-1)})
        if not self.negative(opposite):
            return {}
        if (known := self.names.get(_key(opposite))) is not None:  # relu(x) = relu(-x) + x
            return added({known: ONE}, row)
        name = self.names.setdefault(_key(row), f"r{len(self.names)}")
        self.rows[name] = row
        return {name: ONE}

    def test(self, how: str, row: SymbolicRow, bound: Scalar) -> str:
        """The name of a test of a row's numbers against a bound."""
        return self.names.setdefault((how, _key(row), tuple(sorted(bound.items()))), f"t{len(self.names)}")

    def negative(self, row: SymbolicRow) -> bool:
        """Whether a row may be negative somewhere: by coefficients, in whichever way its relu(x) are written."""
        atoms = sorted({base for base in (atom.split(" ")[-1] for atom in row) if base in self.rows})
        return all(
            _negative(self._written(row, dict(zip(atoms, ways, strict=True)))) for ways in product((0, 1, 2), repeat=len(atoms))
        )

    def _written(self, row: SymbolicRow, ways: Mapping[str, int]) -> SymbolicRow:
        """The row with each atom r = relu(x) as it is (0), as relu(-x) + x (1), or as y - min(y, z), where x = y - z and
        neither is negative (2): three ways to say it with terms that are not."""
        out: SymbolicRow = {}
        for atom, s in row.items():
            *tests, base = atom.split(" ")
            part: SymbolicRow = {base: ONE}
            if ways.get(base) == 1:
                part = added({f"-{base}": ONE}, self.rows[base])
            elif ways.get(base) == 2:
                more = {a: x for a, x in self.rows[base].items() if not below(x)}
                less = scaled({a: x for a, x in self.rows[base].items() if a not in more}, {(): Fraction(-1)})
                part = part if any(map(below, less.values())) else added(more, {f"min-{base}": ONE}, -1)
            for test in tests:
                part = where(part, test)
            out = added(out, scaled(part, s))
        return out

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
        if self.negative(row):
            raise NoRule("a row is normalized that may be negative")
        return scaled(row, inverse(self.total(row)))


def _key(row: SymbolicRow) -> tuple[object, ...]:
    return tuple(sorted((atom, tuple(sorted(s.items()))) for atom, s in row.items()))


def _negative(row: SymbolicRow) -> bool:
    """Whether a coefficient of an atom may be negative in some case of the tests."""
    parts = [(atom.split(" ")[-1], frozenset(atom.split(" ")[:-1]), s) for atom, s in row.items()]
    tests = sorted(frozenset[str]().union(*(needed for _, needed, _ in parts)))
    for holds in product((False, True), repeat=len(tests)):
        true = {test for test, yes in zip(tests, holds, strict=True) if yes}
        sums: dict[str, Scalar] = {}
        for base, needed, s in parts:
            if needed <= true:
                sums[base] = plus(sums.get(base, ZERO), s)
        if any(below(s) for s in sums.values()):
            return True
    return False


def where_zero(row: SymbolicRow, symbol: str) -> SymbolicRow:
    """The row where a sum is 0: its `relu` row is 0 there too. Raises NoRule where the sum is a factor of something."""
    if any(s == symbol for x in row.values() for m in x for s, _ in m):
        raise NoRule(f"{symbol} is a factor where it is 0")
    return {atom: x for atom, x in row.items() if f"sum {atom}" != symbol}
