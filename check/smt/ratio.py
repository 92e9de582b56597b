"""Symbolic numbers: quotients of polynomials whose denominators are known to be positive where they are used.

Comparing two asks the trail of the run, which follows one answer after the other; arithmetic stays symbolic.
"""

from __future__ import annotations

from fractions import Fraction
from numbers import Rational
from typing import TYPE_CHECKING, Any

import numpy as np

from decgraph.check.smt.poly import ONE, ZERO, Number, Poly

if TYPE_CHECKING:
    from decgraph.check.smt.trail import Trail

Factors = dict[Poly, int]


class Ratio:
    """num / product of den. Immutable. `trail` decides comparisons."""

    __slots__ = ("trail", "num", "den")

    def __init__(self, trail: Trail, num: Poly, den: Factors | None = None) -> None:
        self.trail = trail
        self.num, self.den = cancelled(num, den or {})

    def of(self, other: Any) -> Ratio | None:
        """Another number as one of these; None for what is not finite or no number."""
        if isinstance(other, Ratio):
            return other
        if isinstance(other, np.generic):
            other = other.item()
        if isinstance(other, bool | int):
            return Ratio(self.trail, Poly.of(int(other)))
        if isinstance(other, Rational):
            return Ratio(self.trail, Poly.of(Fraction(other)))
        if isinstance(other, float) and np.isfinite(other):
            return Ratio(self.trail, Poly.of(Fraction(other)))
        return None

    @property
    def constant(self) -> Number | None:
        """The rational number that it is, if it is one."""
        return self.num.constant if not self.den else None

    def __add__(self, other: Any) -> Any:
        o = self.of(other)
        if o is None:
            return other if isinstance(other, float) else NotImplemented
        if self.den == o.den:
            return Ratio(self.trail, self.num + o.num, self.den)
        den = {f: max(self.den.get(f, 0), o.den.get(f, 0)) for f in {**self.den, **o.den}}
        return Ratio(self.trail, lifted(self.num, self.den, den) + lifted(o.num, o.den, den), den)

    __radd__ = __add__

    def __neg__(self) -> Ratio:
        return Ratio(self.trail, -self.num, self.den)

    def __sub__(self, other: Any) -> Any:
        o = self.of(other)
        return NotImplemented if o is None and not isinstance(other, float) else -other if o is None else self + (-o)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __mul__(self, other: Any) -> Any:
        o = self.of(other)
        if o is None:
            return NotImplemented
        den = dict(self.den)
        for f, e in o.den.items():
            den[f] = den.get(f, 0) + e
        return Ratio(self.trail, self.num * o.num, den)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        """As the exact checker divides: by 0 it is infinite, or 0 where the number above is 0."""
        o = self.of(other)
        if o is None:
            return NotImplemented
        if not self.trail.positive(o.num):
            if self.trail.positive(-o.num):
                return (-self) / (-o)
            return float("inf") if self.trail.positive(self.num) else Fraction(0)
        c, factors = factored(o.num)
        num, den = self.num.scaled(1 / Fraction(c)), dict(self.den)
        for f, e in o.den.items():
            if den.get(f, 0) >= e:
                den[f] -= e
            else:
                num = num * f ** (e - den.pop(f, 0))
        for f, e in factors.items():
            den[f] = den.get(f, 0) + e
        return Ratio(self.trail, num, {f: e for f, e in den.items() if e})

    def __rtruediv__(self, other: Any) -> Any:
        o = self.of(other)
        return NotImplemented if o is None else o / self

    def relu(self) -> Ratio:
        """Its positive part."""
        return Ratio(self.trail, self.trail.relu(self.num), self.den)

    def minus(self, other: Any) -> Poly | None:
        """A polynomial with the sign of the difference."""
        o = self.of(other)
        return None if o is None else (self - o).num

    def __lt__(self, other: Any) -> bool:
        d = self.minus(other)
        return bool(other > 0) if d is None else self.trail.positive(-d)

    def __gt__(self, other: Any) -> bool:
        d = self.minus(other)
        return bool(other < 0) if d is None else self.trail.positive(d)

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        d = self.minus(other)
        return d is not None and (not d.terms or not (self.trail.positive(d) or self.trail.positive(-d)))

    def __hash__(self) -> int:
        return hash((self.num, frozenset(self.den.items())))

    def same(self, other: Any) -> bool:
        """Whether the two are one and the same rational function; makes no query."""
        d = self.minus(other)
        return d is not None and not d.terms

    def __bool__(self) -> bool:
        return self != 0

    def __abs__(self) -> Ratio:
        size: Ratio = self.relu() + (-self).relu()
        return size

    def __repr__(self) -> str:
        return f"({self.num!r})" + "".join(f"/({f!r})" + (f"^{e}" if e > 1 else "") for f, e in self.den.items())


def factored(p: Poly) -> tuple[Number, Factors]:
    """A polynomial as a positive number and factors: its symbols that divide it, and the primitive rest."""
    c = p.content
    rest = p.primitive
    factors: Factors = {}
    for s, e in rest.monomial_factor():
        factors[Poly.symbol(s)] = e
        quotient = rest.divided(Poly.symbol(s) ** e)
        assert quotient is not None
        rest = quotient
    if rest.constant is not None:
        return c * Fraction(rest.constant), factors
    factors[rest] = 1
    return c, factors


def lifted(num: Poly, have: Factors, want: Factors) -> Poly:
    """A numerator over the denominator `want`."""
    for f, e in want.items():
        num = num * f ** (e - have.get(f, 0)) if e > have.get(f, 0) else num
    return num


def cancelled(num: Poly, den: Factors) -> tuple[Poly, Factors]:
    """A quotient without the factors that divide its numerator."""
    if not num.terms:
        return ZERO, {}
    out: Factors = {}
    for f, e in den.items():
        while e:
            quotient = num.divided(f)
            if quotient is None:
                break
            num, e = quotient, e - 1
        if e:
            out[f] = e
    return num, out


__all__ = ["Factors", "ONE", "Ratio", "factored", "lifted"]
