"""A real number as a quotient of polynomials in atoms. Its arithmetic is exact; its sign comes from intervals.

Two numbers of the same form are equal. Others are told apart by intervals of up to 400 digits; where these do not separate,
shares are taken apart (`unfolded`), after which the same number often has the same form. What is left raises
NotSeparated: nothing is ever rounded to an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from math import inf, isinf, isnan, nan
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from decgraph.runtime.reals import intervals
from decgraph.runtime.reals.limits import DIGITS, SPENT, NotSeparated, raised
from decgraph.runtime.reals.polynomials import (
    Atom,
    Monomial,
    Polynomial,
    around,
    divided,
    plus,
    primitive,
    raise_to,
    scaled,
    times,
    to_power,
)

CONSTANT: Polynomial = {(): Fraction(1)}

Number: TypeAlias = "int | Fraction | float | Real"
"""An exact number, or a float: an infinity, and what was computed with one."""


class Share(NamedTuple):
    """A token's share of weights that are not all rational."""

    weights: tuple[Number, ...]
    token: int


class LogAtom(NamedTuple):
    of: Number


class Exp(NamedTuple):
    of: Real


class Power(NamedTuple):
    of: Real
    exponent: Fraction


class Divisor:
    """A polynomial of several terms that numbers are divided by; made once."""

    __slots__ = ("__weakref__", "cache", "poly")

    def __init__(self, poly: Polynomial) -> None:
        self.poly = poly
        self.cache: dict[int, intervals.Interval] = {}

    def around(self, digits: int) -> intervals.Interval:
        if digits not in self.cache:
            self.cache[digits] = around(self.poly, digits, atom_around)
        return self.cache[digits]


_factors: WeakValueDictionary[frozenset[tuple[Monomial, Fraction]], Divisor] = WeakValueDictionary()


def factor(poly: Polynomial) -> Divisor:
    """The factor of a polynomial."""
    key = frozenset(poly.items())
    found = _factors.get(key)
    if found is None:
        found = _factors[key] = Divisor(poly)
    return found


def plain(x: object) -> int | Fraction | None:
    """A whole number or fraction as such; None for anything else."""
    if isinstance(x, int | Fraction):
        return x
    if isinstance(x, np.integer):
        return int(x)
    if isinstance(x, float) and not (isinf(x) or isnan(x)):
        return Fraction(x)
    return None


TAKEN_APART: list[Callable[[Number], Number]] = []
"""What takes a number's shares apart, to see whether it is 0; functions.py, whose functions of numbers it needs, enters it."""


class Real:
    """num / product of factors ** their exponents. Made by `make`, which gives a Fraction where it is one."""

    __slots__ = ("__weakref__", "_bounds", "_key", "_sign", "den", "num")

    def __init__(self, num: Polynomial, den: dict[Divisor, int]) -> None:
        self.num, self.den = num, den
        self._sign: int | None = None
        self._key: Hashable = None
        self._bounds: dict[int, intervals.Interval] = {}

    @property
    def key(self) -> Hashable:
        """Equal for numbers of the same form."""
        if self._key is None:
            self._key = frozenset(self.num.items()), frozenset(self.den.items())
        return self._key

    # -- arithmetic
    def __add__(self, other: Number) -> Number:
        if isinstance(other, float) and not np.isfinite(other):
            return other
        if isinstance(other, Real):
            SPENT[0] += len(self.num) + len(other.num)
            if self.den == other.den:
                return make(plus(self.num, other.num), self.den)
            den = {f: max(self.den.get(f, 0), other.den.get(f, 0)) for f in {*self.den, *other.den}}
            return make(plus(_over(self, den), _over(other, den)), den)
        x = plain(other)
        if x is None:
            return NotImplemented
        if x == 0:
            return self
        if any(n < 0 for n in self.den.values()):
            return self + Real({(): Fraction(x)}, {})
        top: Polynomial = {(): Fraction(x)}
        for f, n in self.den.items():
            top = times(top, to_power(f.poly, n))
        return make(plus(self.num, top), self.den)

    __radd__ = __add__

    def __neg__(self) -> Real:
        out = Real(scaled(self.num, Fraction(-1)), self.den)
        out._sign = None if self._sign is None else -self._sign
        return out

    def __sub__(self, other: Number) -> Number:
        if self is other:
            return Fraction(0)
        return self + (-other)

    def __rsub__(self, other: Number) -> Number:
        return (-self) + other

    def __mul__(self, other: Number) -> Number:
        if isinstance(other, Real):
            SPENT[0] += len(self.num) * len(other.num)
            den = dict(self.den)
            for f, n in other.den.items():
                den[f] = den.get(f, 0) + n
            return make(times(self.num, other.num), den)
        if isinstance(other, float) and not np.isfinite(other):
            return other * self.sign() if self.sign() else nan
        x = plain(other)
        if x is None:
            return NotImplemented
        return Real(scaled(self.num, Fraction(x)), self.den) if x else Fraction(0)

    __rmul__ = __mul__

    def inverse(self) -> Number:
        """1 / x; raises ZeroDivisionError for a number that is 0."""
        if self.sign() == 0:
            raise ZeroDivisionError("division by zero")
        number, mono, rest = primitive(self.num) if len(self.num) > 1 else (*_single(self.num), CONSTANT)
        more, down = raise_to(mono, -1)
        den = {f: -n for f, n in self.den.items()}
        if len(rest) > 1:
            f = factor(rest)
            den[f] = den.get(f, 0) + 1
        out = make({down: more / number}, den)
        if isinstance(out, Real):
            out._sign = self._sign
        return out

    def __truediv__(self, other: Number) -> Number:
        if isinstance(other, Real):
            return Fraction(1) if self is other and self.sign() else self * other.inverse()
        if isinstance(other, float) and not np.isfinite(other):
            return Fraction(0) if isinf(other) else nan
        x = plain(other)
        if x is None:
            return NotImplemented
        return self * (1 / Fraction(x))

    def __rtruediv__(self, other: Number) -> Number:
        return self.inverse() * other

    def __pow__(self, n: Number) -> Number:
        if not isinstance(n, int):
            return NotImplemented
        if n < 0:
            return self.inverse() ** -n
        return make(to_power(self.num, n), {f: k * n for f, k in self.den.items()})

    def __abs__(self) -> Real:
        return -self if self.sign() < 0 else self

    # -- value
    def around(self, digits: int) -> intervals.Interval:
        """An interval around it."""
        if digits not in self._bounds:
            SPENT[0] += (len(self.num) + sum(len(f.poly) for f in self.den)) * digits // DIGITS[0]
            out = around(self.num, digits, atom_around)
            for f, n in self.den.items():
                out = intervals.multiply(out, intervals.whole_power(f.around(digits), -n, digits), digits)
            self._bounds[digits] = out
        return self._bounds[digits]

    def sign(self, what: Callable[[], str] | None = None) -> int:
        """-1, 0 or 1. `what` makes the words for a number whose sign cannot be told."""
        if self._sign is None:
            self._sign = self._find_sign(what)
        return self._sign

    def _find_sign(self, what: Callable[[], str] | None) -> int:
        for digits in DIGITS:
            lo, hi = self.around(digits)
            if lo > 0 or hi < 0:
                return 1 if lo > 0 else -1
            if digits == DIGITS[1]:
                try:
                    if not isinstance(zero := TAKEN_APART[0](self), Real) and zero == 0:
                        return 0
                except NotSeparated:
                    pass
        raise NotSeparated(what() if what else f"{self!r} cannot be told from 0 with {DIGITS[-1]} digits")

    def _against(self, other: object) -> int | None:
        """The sign of the difference to another number; None for other objects."""
        if isinstance(other, float) and not np.isfinite(other):
            return None if isnan(other) else -1 if other > 0 else 1
        x = other if isinstance(other, Real) else plain(other)
        if x is None:
            return None
        if isinstance(x, Real):
            if self is x or self.num == x.num and self.den == x.den:
                return 0
        elif x == 0:
            return self.sign()
        (lo, hi), (low, high) = self.around(DIGITS[0]), interval_of(x, DIGITS[0])
        if lo > high or hi < low:
            return 1 if lo > high else -1
        d = self - x
        if not isinstance(d, Real):
            return (d > 0) - (d < 0)
        return d.sign(lambda: f"{self!r} and {other!r} cannot be told apart with {DIGITS[-1]} digits")

    def __eq__(self, other: object) -> bool:
        return self._against(other) == 0 if _number(other) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return (self._against(other) or 0) < 0 if _number(other) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return (self._against(other) or 0) > 0 if _number(other) else NotImplemented

    def __le__(self, other: object) -> bool:
        return (1 if (sign := self._against(other)) is None else sign) <= 0 if _number(other) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return (-1 if (sign := self._against(other)) is None else sign) >= 0 if _number(other) else NotImplemented

    def __hash__(self) -> int:
        return hash("real")  # equal numbers may have different forms

    def __bool__(self) -> bool:
        return self.sign() != 0

    def __float__(self) -> float:
        lo, hi = self.around(DIGITS[0])
        return float(lo) if not hi.is_finite() else float((lo + hi) / 2) if lo.is_finite() else -inf

    def __floor__(self) -> int:
        for digits in DIGITS:
            lo, hi = self.around(digits)
            # The sizes first: a difference of numbers beyond the decimal module's range is an error there.
            if lo.is_finite() and hi.is_finite() and max(lo.adjusted(), hi.adjusted()) < digits and hi - lo < 1:
                low, high = (int(x.to_integral_value(rounding=ROUND_FLOOR)) for x in (lo, hi))
                if low == high:
                    return low
                if digits >= DIGITS[1]:
                    return high if self >= high else low
        raise NotSeparated(f"{self!r} cannot be rounded down")

    def __int__(self) -> int:
        return -(-self).__floor__() if self < 0 else self.__floor__()

    def __floordiv__(self, other: Number) -> int:
        q = self / other
        return q.__floor__()

    def __rfloordiv__(self, other: Number) -> int:
        return (other / self).__floor__()

    def __mod__(self, other: Number) -> Number:
        return self - other * (self // other)

    def __rmod__(self, other: Number) -> Number:
        return other - self * (other // self)

    def __str__(self) -> str:
        lo, hi = self.around(DIGITS[0])
        return f"{(lo + hi) / 2:.10f}" if lo.is_finite() and hi.is_finite() and abs(hi) < Decimal(10) ** 12 else repr(self)

    def __repr__(self) -> str:
        if len(self.num) + sum(len(f.poly) for f in self.den) > 8:
            return f"about {float(self):.12g}"
        top = _text(self.num)
        parts = [f"({_text(f.poly)})" + (f"^{n}" if n != 1 else "") for f, n in self.den.items()]
        return f"({top}) / {' '.join(parts)}" if parts else top


def _number(x: object) -> bool:
    return isinstance(x, Real | float) or plain(x) is not None


def _text(p: Polynomial) -> str:
    terms = []
    for m, c in p.items():
        what = " ".join(repr(a) + (f"^({e})" if e != 1 else "") for a, e in m)
        terms.append(what if c == 1 and what else f"{c} {what}".strip())
    return " + ".join(terms)


def _single(p: Polynomial) -> tuple[Fraction, Monomial]:
    ((m, c),) = p.items()
    return c, m


def _over(x: Real, den: dict[Divisor, int]) -> Polynomial:
    """The numerator of x over a multiple of its denominator."""
    out = x.num
    for f, n in den.items():
        k = n - x.den.get(f, 0)
        if k:
            out = times(out, to_power(f.poly, k))
    return out


def make(num: Polynomial, den: dict[Divisor, int]) -> Number:
    """The number num / den, cancelled where that is easy, as a Fraction where it is one."""
    if not num:
        return Fraction(0)
    out = {f: n for f, n in den.items() if n}
    for f in [f for f, n in out.items() if n > 0]:
        while out.get(f, 0) > 0:
            q = divided(num, f.poly)
            if q is None:
                break
            num, out[f] = q, out[f] - 1
    out = {f: n for f, n in out.items() if n}
    if not out and len(num) == 1 and () in num:
        return num[()]
    return Real(num, out)


def atom_around(a: Atom, e: int | Fraction, digits: int) -> intervals.Interval:
    """An interval around a power of an atom."""
    found = a.cache.get((e, digits))
    if found is None:
        if isinstance(a.parts, int):
            found = intervals.root(a.parts, Fraction(e), digits)
        elif a.kind == "e":
            found = intervals.exp(intervals.rational(e, digits + 20), digits)
        else:
            found = intervals.whole_power(worth(a, digits), int(e), digits)
        a.cache[e, digits] = found
    return found


def worth(a: Atom, digits: int) -> intervals.Interval:
    """An interval around an atom that is built from other numbers."""
    found = a.cache.get(digits)
    if found is None:
        more = digits + 10
        match a.parts:
            case Share(weights, token):
                total = intervals.rational(Fraction(0), more)
                for w in weights:
                    total = intervals.add(total, interval_of(w, more), more)
                found = intervals.multiply(interval_of(weights[token], more), intervals.inverse(total, more), digits)
            case LogAtom(of):
                found = intervals.log(interval_of(of, more), digits)
            case Exp(of):
                found = intervals.exp(interval_of(of, more + 20), digits)
            case Power(of, exponent):
                found = intervals.power(interval_of(of, more), exponent, digits)
            case _:
                raise TypeError(f"{a!r} is built from no other numbers")
        a.cache[digits] = found
    return found


def interval_of(x: Number, digits: int) -> intervals.Interval:
    """An interval around a number."""
    return x.around(digits) if isinstance(x, Real) else intervals.rational(plain(x) or Fraction(x), digits)


__all__ = ["CONSTANT", "TAKEN_APART", "Divisor", "Real", "atom_around", "interval_of", "factor", "make", "plain", "raised"]
