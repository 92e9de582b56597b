"""Exact reals beyond the rationals: logarithms of rationals, and roots. Closed under what programs do with them.

`Log(r, d)` is log(r) / d, `Root(r, d)` is r ** (1 / d), with r a rational and d a positive integer. Sums of logs, rational
multiples, exponentials and comparisons stay exact; a sum of a log and a rational is rounded to 60 digits (`approximate`).
"""
from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from math import lcm
from typing import Any

DIGITS = 60
getcontext().prec = DIGITS


def _decimal(r: Fraction) -> Decimal:
    return Decimal(r.numerator) / Decimal(r.denominator)


class Log:
    """log(ratio) / den. The ratio may be a thunk: it is computed when the number is looked at. A ratio of 0 is -infinity."""

    __slots__ = ("_den", "_ratio")

    def __init__(self, ratio: Fraction | Callable[[], Fraction], den: int = 1) -> None:
        self._ratio, self._den = ratio, den

    @property
    def ratio(self) -> Fraction:
        if callable(self._ratio):
            self._ratio = self._ratio()
        return self._ratio

    @property
    def den(self) -> int:
        return self._den

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Log):
            if self._den == other._den == 1:
                return Log(lambda: self.ratio * other.ratio)
            d = lcm(self._den, other._den)
            return Log(lambda: self.ratio ** (d // self._den) * other.ratio ** (d // other._den), d)
        if other == 0:
            return self
        if isinstance(other, float):
            return other if self.ratio != 0 else -float("inf")
        if self.ratio == 0:
            return self
        return approximate(self) + other

    __radd__ = __add__

    def __neg__(self) -> Any:
        if self.ratio == 0:
            return float("inf")
        return Log(1 / self.ratio, self._den)

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Log):
            return approximate(self) * approximate(other)
        f = Fraction(other)
        if f == 0:
            return Fraction(0)
        if self.ratio == 0:
            return Log(Fraction(0)) if f > 0 else float("inf")
        r = self.ratio ** abs(f.numerator)
        return Log(r if f > 0 else 1 / r, self._den * f.denominator)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Log):
            return approximate(self) / approximate(other)
        return self * (1 / Fraction(other))

    def __rtruediv__(self, other: Any) -> Any:
        return Fraction(other) / approximate(self)

    def __pow__(self, other: Any) -> Any:
        return approximate(self) ** int(other)

    def _sign_against(self, other: Any) -> int:
        if isinstance(other, float) and other in (float("inf"), -float("inf")):
            if other > 0:
                return -1
            return 0 if self.ratio == 0 else 1
        if isinstance(other, Log):
            if self.ratio == 0 or other.ratio == 0:
                return (self.ratio > 0) - (other.ratio > 0)
            a, b = self.ratio ** other._den, other.ratio ** self._den
            return (a > b) - (a < b)
        if self.ratio == 0:
            return -1
        f = Fraction(other)
        if f == 0 or self.ratio == 1:
            value = (self.ratio > 1) - (self.ratio < 1) if f == 0 else (f < 0) - (f > 0)
            return int(value)
        d = approximate(self) - f
        return (d > 0) - (d < 0)

    def __lt__(self, other: Any) -> bool:
        return self._sign_against(other) < 0

    def __le__(self, other: Any) -> bool:
        return self._sign_against(other) <= 0

    def __gt__(self, other: Any) -> bool:
        return self._sign_against(other) > 0

    def __ge__(self, other: Any) -> bool:
        return self._sign_against(other) >= 0

    def __eq__(self, other: object) -> bool:
        return other is not None and not isinstance(other, str) and self._sign_against(other) == 0

    def __hash__(self) -> int:
        return hash((self.ratio, self._den))

    def __float__(self) -> float:
        return float(approximate(self)) if self.ratio != 0 else -float("inf")

    def __repr__(self) -> str:
        return f"log({self.ratio})" + (f"/{self._den}" if self._den != 1 else "")


class Root:
    """ratio ** (1 / den), positive."""

    __slots__ = ("den", "ratio")

    def __init__(self, ratio: Fraction, den: int) -> None:
        self.ratio, self.den = ratio, den

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Root):
            d = lcm(self.den, other.den)
            return Root(self.ratio ** (d // self.den) * other.ratio ** (d // other.den), d)
        f = Fraction(other)
        return Root(f ** self.den * self.ratio, self.den) if f > 0 else approximate(self) * f

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self * (1 / Fraction(other)) if not isinstance(other, Root) else self * Root(1 / other.ratio, other.den)

    def __add__(self, other: Any) -> Any:
        return approximate(self) + (approximate(other) if isinstance(other, Log | Root) else other)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return -approximate(self)

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return other - approximate(self)

    def _sign_against(self, other: Any) -> int:
        if isinstance(other, float):
            return -1 if other > 0 else 1
        if isinstance(other, Root):
            a, b = self.ratio ** other.den, other.ratio ** self.den
        else:
            f = Fraction(other)
            if f <= 0:
                return 1 if self.ratio > 0 or f < 0 else 0
            a, b = self.ratio, f ** self.den
        return (a > b) - (a < b)

    def __lt__(self, other: Any) -> bool:
        return self._sign_against(other) < 0

    def __le__(self, other: Any) -> bool:
        return self._sign_against(other) <= 0

    def __gt__(self, other: Any) -> bool:
        return self._sign_against(other) > 0

    def __ge__(self, other: Any) -> bool:
        return self._sign_against(other) >= 0

    def __eq__(self, other: object) -> bool:
        return other is not None and self._sign_against(other) == 0

    def __hash__(self) -> int:
        return hash((self.ratio, self.den))

    def __float__(self) -> float:
        return float(approximate(self))

    def __repr__(self) -> str:
        return f"({self.ratio})^(1/{self.den})"


def approximate(x: Any) -> Fraction:
    """A rational within 10 ** -50 of an exact real."""
    with localcontext() as c:
        c.prec = DIGITS
        if isinstance(x, Log):
            if x.ratio == 0:
                raise ValueError("log of 0 has no rational near it")
            top = Decimal(x.ratio.numerator).ln() - Decimal(x.ratio.denominator).ln()
            return Fraction(top / x.den)
        if isinstance(x, Root):
            if x.ratio == 0:
                return Fraction(0)
            return Fraction(((Decimal(x.ratio.numerator).ln() - Decimal(x.ratio.denominator).ln()) / x.den).exp())
    return Fraction(x)


def exp(x: Any) -> Any:
    """e ** x: of a Log a rational or a root, of a rational a rational within 10 ** -50."""
    if isinstance(x, Log):
        return x.ratio if x.den == 1 else Root(x.ratio, x.den)
    if isinstance(x, float):
        return Fraction(0) if x < 0 else float("inf")
    if x == 0:
        return Fraction(1)
    with localcontext() as c:
        c.prec = DIGITS
        return Fraction(_decimal(Fraction(x)).exp())


def log(x: Any) -> Any:
    """log x, exact."""
    if isinstance(x, Root):
        return Log(x.ratio, x.den)
    if isinstance(x, Log | float):
        return Log(approximate(x))
    return Log(Fraction(x))


def power(a: Any, b: Any) -> Any:
    """a ** b for rational b: exact, as a root where it must be."""
    f = Fraction(b)
    if f.denominator == 1:
        return Fraction(a) ** f.numerator if not isinstance(a, Root) else Root(a.ratio ** f.numerator, a.den)
    if a == 0:
        return Fraction(0)
    if isinstance(a, Log):
        a = approximate(a)
    base = a.ratio if isinstance(a, Root) else Fraction(a)
    den = (a.den if isinstance(a, Root) else 1) * f.denominator
    return Root(base ** f.numerator, den)
