"""Numbers of exact programs: rationals, reals beyond them (runtime/reals), and logs that are computed when read.

A score is usually the log of a rational, often of a draw's probability that must not be read before the program reads
it: `Log` is lazy for this. Everything else beyond the rationals is a `Real`. Infinities and NaN are floats, and behave as in
the reference; nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from math import floor, inf, isinf, isnan, lcm, nan
from typing import TypeAlias, cast

import numpy as np

from decgraph.ir.opdef import OpError
from decgraph.runtime.reals import functions
from decgraph.runtime.reals.limits import NotSeparated, bounded, raised
from decgraph.runtime.reals.real import Number, Real, plain

ExactNumber: TypeAlias = "Number | Log"
"""A number of a checked program. Numbers of another sort, such as a symbol, compute as they like."""
SMALL = 24  # exponents up to this stay in the ratio of a log; beyond, logs are sums of logs of primes


def real(x: object) -> Fraction:
    """A finite number as a Fraction, or as a Real, which computes as one. Raises OpError for an infinity or NaN."""
    if type(x) is Fraction or type(x) is Real:
        return cast(Fraction, x)
    if isinstance(x, Log):
        return real(x.value)
    if isinstance(x, float | np.floating) and not np.isfinite(x):
        raise OpError(f"{x} stands where a finite number is needed", "0 / 0 and inf - inf are NaN")
    if not isinstance(x, int | float | Fraction | np.generic):  # a number of another sort, such as a symbol
        return cast(Fraction, x)
    return Fraction(x.item() if isinstance(x, np.generic) else x)


class Log:
    """log(ratio) / den. The ratio may be a thunk: it is computed when the number is read. A ratio of 0 is -infinity."""

    __slots__ = ("_den", "_ratio", "_value")

    def __init__(self, ratio: Number | Callable[[], Number], den: int = 1) -> None:
        self._ratio, self._den = ratio, den
        self._value: Number | None = None

    @property
    def ratio(self) -> Number:
        if callable(self._ratio):
            self._ratio = self._ratio()
        return self._ratio

    @property
    def known(self) -> Number | None:
        """The ratio where it has been computed, else None."""
        return None if callable(self._ratio) else self._ratio

    @property
    def den(self) -> int:
        return self._den

    @property
    def value(self) -> Number:
        """The same number as a Fraction, a Real or -infinity."""
        if self._value is None:
            r = self.ratio
            if r < 0:
                self._value = nan
            else:
                self._value = functions.log(r) * Fraction(1, self._den) if r != 0 else -inf
        return self._value

    def __add__(self, other: ExactNumber) -> ExactNumber:
        if isinstance(other, Log):
            d = lcm(self._den, other._den)
            if d == 1:
                if callable(self._ratio) or callable(other._ratio):
                    return Log(lambda: self.ratio * other.ratio)
                return Log(_product(self._ratio, other._ratio))
            if d <= SMALL:
                return Log(lambda: self.ratio ** (d // self._den) * other.ratio ** (d // other._den), d)
            return add(self.value, other.value)
        if isinstance(other, int | Fraction) and other == 0:
            return self
        return add(self.value, other)

    __radd__ = __add__

    def __neg__(self) -> ExactNumber:
        if self.ratio == 0:
            return inf
        return Log(1 / self.ratio, self._den)

    def __sub__(self, other: ExactNumber) -> ExactNumber:
        return self + (-other)

    def __rsub__(self, other: ExactNumber) -> ExactNumber:
        return (-self) + other

    def __mul__(self, other: ExactNumber) -> ExactNumber:
        f = plain(other)
        if f is None:
            return multiply(self.value, other.value if isinstance(other, Log) else other)
        if self.ratio == 0:
            return nan if f == 0 else Log(Fraction(0)) if f > 0 else inf
        if f == 0:
            return Fraction(0)
        if max(abs(f.numerator), self._den * f.denominator) > SMALL:
            return self.value * f
        r = self.ratio ** abs(f.numerator)
        return Log(r if f > 0 else 1 / r, self._den * f.denominator)

    __rmul__ = __mul__

    def __truediv__(self, other: ExactNumber) -> ExactNumber:
        if isinstance(other, Log):
            return divide(self.value, other.value)
        f = plain(other)
        return self * (1 / Fraction(f)) if f else divide(self.value, other)

    def __rtruediv__(self, other: ExactNumber) -> ExactNumber:
        return divide(other, self.value)

    def __pow__(self, other: ExactNumber) -> ExactNumber:
        return power(self.value, other)

    def __abs__(self) -> ExactNumber:
        return -self if self < 0 else self

    def __bool__(self) -> bool:
        return bool(self.ratio != 1)

    def __floor__(self) -> int:
        return int(floor(self.value))

    def __int__(self) -> int:
        return int(real(self))

    def _against(self, other: object) -> int | None:
        """The sign of the difference to another number; None for NaN."""
        if isinstance(other, float) and not np.isfinite(other):
            return None if isnan(other) else -1 if other > 0 else int(self.ratio != 0)
        if isinstance(other, Log):
            a, b = self.ratio, other.ratio
            if a == 0 or b == 0:
                return int(a > 0) - int(b > 0)
            if self._den != other._den:
                if isinstance(a, Real | float) or isinstance(b, Real | float) or max(self._den, other._den) > SMALL:
                    return _sign(self.value, other.value)
                a, b = raised(a, other._den), raised(b, self._den)
            return int(a > b) - int(a < b)
        x = other if isinstance(other, Real) else plain(other)
        if x is None:
            return None
        if self.ratio == 0:
            return -1
        if not isinstance(x, Real) and x == 0:
            return int(self.ratio > 1) - int(self.ratio < 1)
        return _sign(self.value, x)

    def __lt__(self, other: ExactNumber) -> bool:
        sign = self._against(other)
        return sign is not None and sign < 0

    def __gt__(self, other: ExactNumber) -> bool:
        sign = self._against(other)
        return sign is not None and sign > 0

    def __le__(self, other: ExactNumber) -> bool:
        sign = self._against(other)
        return sign is not None and sign <= 0

    def __ge__(self, other: ExactNumber) -> bool:
        sign = self._against(other)
        return sign is not None and sign >= 0

    def __eq__(self, other: object) -> bool:
        return self._against(other) == 0

    def __hash__(self) -> int:
        return hash("real")  # equal numbers may have different forms

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        return f"log({self.ratio})" + (f"/{self._den}" if self._den != 1 else "")


def signature(distribution: Iterable[ExactNumber]) -> tuple[Hashable, ...]:
    """The key by which numbers are compared where runs are merged: their representation. Equal numbers of different
    representations differ."""
    return tuple(x.key if isinstance(x, Real) else x for x in distribution)


def _product(a: Number, b: Number) -> Number:
    out = a * b
    return bounded(out) if type(out) is Fraction else out


def _sign(a: ExactNumber, b: ExactNumber) -> int:
    return int(a > b) - int(a < b)


def add(a: ExactNumber, b: ExactNumber) -> ExactNumber:
    """a + b; infinity less infinity is NaN."""
    if type(a) is Fraction and type(b) is Fraction:
        return bounded(a + b)
    if isinstance(a, float) or isinstance(b, float):
        a, b = (x.value if isinstance(x, Log) else x for x in (a, b))
        if isinstance(a, float) and isinstance(b, float):
            return a + b
        return a if isinstance(a, float) else b
    out = a + b
    return bounded(out) if type(out) is Fraction else out


def multiply(a: ExactNumber, b: ExactNumber) -> ExactNumber:
    """a * b; 0 times infinity is NaN, as in the reference."""
    if type(a) is Fraction and type(b) is Fraction:
        return bounded(a * b)
    if isinstance(a, float) or isinstance(b, float):
        a, b = (x.value if isinstance(x, Log) else x for x in (a, b))
        if a != a or b != b or a == 0 or b == 0:
            return nan
        return inf if (a > 0) == (b > 0) else -inf
    out = a * b
    return bounded(out) if type(out) is Fraction or type(out) is int else out


def weigh(a: ExactNumber, b: ExactNumber) -> ExactNumber:
    """a * b, where 0 times anything is 0."""
    if any(type(x) in (int, Fraction) and x == 0 for x in (a, b)):
        return Fraction(0)
    out = multiply(a, b)
    return Fraction(0) if out != out and (a == 0 or b == 0) else out


def mix(a: ExactNumber, b: ExactNumber) -> ExactNumber:
    """a + b, where minus infinity on either side stays."""
    out = add(a, b)
    return -inf if out != out and (a == -inf or b == -inf) else out


def contrast(a: ExactNumber, b: ExactNumber) -> ExactNumber:
    """a - b, where minus infinity on either side stays."""
    if isinstance(b, float | Log) and b == -inf:
        return -inf
    out = add(a, -b)
    return -inf if out != out and a == -inf else out


def divide(a: ExactNumber, b: ExactNumber) -> ExactNumber:
    """a / b; by 0 an infinity, 0 / 0 NaN."""
    if type(a) is Fraction and type(b) is Fraction and b:
        return a / b
    if isinstance(b, Log):
        b = b.value
    if isinstance(a, Log) and isinstance(b, float | Real):
        a = a.value
    if b != b or a != a:
        return nan
    if isinstance(b, float):
        return nan if isinstance(a, float) else Fraction(0)
    if b == 0:
        return nan if a == 0 else inf if a > 0 else -inf
    if isinstance(a, float):
        return a if b > 0 else -a
    return Fraction(a, b) if isinstance(a, int) and isinstance(b, int) else a / b


def remainder(a: ExactNumber, b: ExactNumber) -> ExactNumber:
    """a - b * floor(a / b)."""
    if b == 0:
        raise OpError("the remainder of a division by 0")
    a, b = (x.value if isinstance(x, Log) else x for x in (a, b))
    if a != a or b != b or isinstance(a, float):
        return nan
    if isinstance(b, float):
        return a if (a < 0) != (b > 0) or a == 0 else b
    return a % b


def rounded_down(a: ExactNumber) -> int:
    """The largest whole number that is not larger."""
    if isinstance(a, Log):
        a = a.value
    if isinstance(a, float) and (isnan(a) or isinf(a)):
        raise OpError(f"{a} has no whole part")
    return int(floor(a))


def exp(x: ExactNumber) -> ExactNumber:
    """e ** x."""
    if isinstance(x, Log):
        return x.ratio if x.den == 1 else power(x.ratio, Fraction(1, x.den))
    if isinstance(x, float):
        return x if x != x or x > 0 else Fraction(0)
    return functions.exp(x)


def log(x: ExactNumber) -> ExactNumber:
    """log x; of 0 minus infinity, of a negative number NaN."""
    if isinstance(x, Log):
        x = x.value
    if isinstance(x, float):
        return x if x > 0 else nan
    if x < 0:
        return nan
    return Log(x if isinstance(x, Real) else Fraction(x))


def power(a: ExactNumber, b: ExactNumber) -> ExactNumber:
    """a ** b; NaN where the reference has NaN."""
    a, b = (x.value if isinstance(x, Log) else x for x in (a, b))
    if b == 0 or a == 1:
        return Fraction(1)
    if a != a or b != b:
        return nan
    if isinstance(b, float):
        size = -a if a < 0 else a
        return Fraction(1) if size == 1 else inf if (size > 1) == (b > 0) else Fraction(0)
    whole = not isinstance(b, Real) and Fraction(b).denominator == 1
    if isinstance(a, float):
        if b < 0:
            return Fraction(0)
        return -inf if a < 0 and whole and b % 2 else inf
    if a == 0:
        return Fraction(0) if b > 0 else inf
    if whole:
        n = int(b)
        return functions.power(a, Fraction(n)) if isinstance(a, Real) else raised(a, n)
    if a < 0:
        return nan
    return functions.exp(functions.log(a) * b) if isinstance(b, Real) else functions.power(a, Fraction(b))


def root(a: ExactNumber) -> ExactNumber:
    """The square root; of a negative number NaN."""
    return nan if a < 0 else power(a, Fraction(1, 2))


def shares(weights: Sequence[ExactNumber]) -> list[Fraction]:
    """Weights divided by their sum; all NaN where one of them is NaN, or where the sum is 0 or infinite."""
    undefined = any(isinstance(w, float) for w in weights) or all(w == 0 for w in weights)
    found = [nan] * len(weights) if undefined else functions.shares([real(w) for w in weights])
    return cast(list[Fraction], found)


__all__ = [
    "Log",
    "NotSeparated",
    "Real",
    "add",
    "contrast",
    "divide",
    "exp",
    "log",
    "mix",
    "multiply",
    "power",
    "real",
    "remainder",
    "root",
    "rounded_down",
    "shares",
    "signature",
]
