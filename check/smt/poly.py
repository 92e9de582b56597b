"""Polynomials over numbered symbols with rational coefficients, in a normal form: equal ones are equal as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from math import gcd

Monomial = tuple[tuple[int, int], ...]
"""(symbol, exponent) pairs, the newest symbol first. Python's order of these tuples is the lexicographic monomial order."""
Number = int | Fraction


class Poly:
    """A polynomial: monomials with their coefficients, none of them zero. Immutable and hashable."""

    __slots__ = ("terms", "__dict__")

    def __init__(self, terms: Mapping[Monomial, Number]) -> None:
        self.terms = terms

    @staticmethod
    def of(value: Number) -> Poly:
        """A constant."""
        return Poly({(): value}) if value else ZERO

    @staticmethod
    def symbol(i: int) -> Poly:
        return Poly({((i, 1),): 1})

    @cached_property
    def key(self) -> frozenset[tuple[Monomial, Number]]:
        return frozenset(self.terms.items())

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and (self is other or self.terms == other.terms)

    @property
    def constant(self) -> Number | None:
        """The number that it is, if it has no symbols."""
        if not self.terms:
            return 0
        return self.terms[()] if len(self.terms) == 1 and () in self.terms else None

    @cached_property
    def symbols(self) -> frozenset[int]:
        return frozenset(s for m in self.terms for s, _ in m)

    @cached_property
    def degree(self) -> int:
        return max((sum(e for _, e in m) for m in self.terms), default=0)

    def __add__(self, other: Poly) -> Poly:
        if not other.terms:
            return self
        out = dict(self.terms)
        for m, c in other.terms.items():
            total = out.get(m, 0) + c
            if total:
                out[m] = total
            else:
                out.pop(m, None)
        return Poly(out)

    def __neg__(self) -> Poly:
        return Poly({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Poly) -> Poly:
        return self + (-other)

    def __mul__(self, other: Poly) -> Poly:
        out: dict[Monomial, Number] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                k = times(m, n)
                out[k] = out.get(k, 0) + c * d
        return Poly({m: c for m, c in out.items() if c})

    def scaled(self, c: Number) -> Poly:
        return Poly({m: k * c for m, k in self.terms.items()}) if c else ZERO

    def __pow__(self, n: int) -> Poly:
        out = ONE
        for _ in range(n):
            out = out * self
        return out

    def divided(self, by: Poly) -> Poly | None:
        """The quotient where `by` divides it exactly."""
        if not self.terms:
            return self
        if self.degree < by.degree or not by.symbols <= self.symbols:
            return None
        lead = max(by.terms)
        head = by.terms[lead]
        rest, out = self, {}
        while rest.terms:
            top = max(rest.terms)
            m = over(top, lead)
            if m is None:
                return None
            c = Fraction(rest.terms[top]) / head
            out[m] = c if c.denominator != 1 else c.numerator
            rest = rest - by * Poly({m: out[m]})
        return Poly(out)

    @cached_property
    def content(self) -> Fraction:
        """The positive rational c for which the polynomial is c times one with whole coefficients without a common factor."""
        top, bottom = 0, 1
        for c in self.terms.values():
            f = Fraction(c)
            top = gcd(top, f.numerator)
            bottom = bottom * f.denominator // gcd(bottom, f.denominator)
        return Fraction(top, bottom) if top else Fraction(1)

    @cached_property
    def primitive(self) -> Poly:
        """Itself divided by its content: the form in which facts are remembered."""
        c = self.content
        if c == 1:
            return self
        return Poly({m: int(k / c) for m, k in ((m, Fraction(k)) for m, k in self.terms.items())})

    def monomial_factor(self) -> Monomial:
        """The largest monomial that divides every term."""
        terms = iter(self.terms)
        common = dict(next(terms, ()))
        for m in terms:
            exps = dict(m)
            common = {s: min(e, exps[s]) for s, e in common.items() if s in exps}
            if not common:
                break
        return tuple(sorted(common.items(), reverse=True))

    def substituted(self, values: Mapping[int, Poly]) -> Poly:
        """With polynomials in the place of symbols."""
        if not values.keys() & self.symbols:
            return self
        out = ZERO
        for m, c in self.terms.items():
            part = Poly({tuple((s, e) for s, e in m if s not in values): c})
            for s, e in m:
                if s in values:
                    part = part * values[s] ** e
            out = out + part
        return out

    def value(self, at: Mapping[int, Fraction]) -> Fraction:
        """Its value at rational values of its symbols."""
        total = Fraction(0)
        for m, c in self.terms.items():
            x = Fraction(c)
            for s, e in m:
                x *= at[s] ** e
            total += x
        return total

    def __iter__(self) -> Iterator[tuple[Monomial, Number]]:
        return iter(self.terms.items())

    def __repr__(self) -> str:
        return " + ".join(f"{c}" + "".join(f"*s{s}" + (f"^{e}" if e > 1 else "") for s, e in m) for m, c in self) or "0"


def times(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials."""
    if not a or not b:
        return a or b
    exps = dict(a)
    for s, e in b:
        exps[s] = exps.get(s, 0) + e
    return tuple(sorted(exps.items(), reverse=True))


def over(a: Monomial, b: Monomial) -> Monomial | None:
    """The quotient of two monomials, where it is one."""
    exps = dict(a)
    for s, e in b:
        left = exps.get(s, 0) - e
        if left < 0:
            return None
        if left:
            exps[s] = left
        else:
            exps.pop(s)
    return tuple(sorted(exps.items(), reverse=True))


ZERO = Poly({})
ONE = Poly({(): 1})

__all__ = ["Monomial", "Number", "ONE", "Poly", "ZERO", "over", "times"]
