"""Intervals with decimal ends, rounded outwards: the real number that an operation means lies between them."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

Interval = tuple[Decimal, Decimal]
ZERO, ONE = Decimal(0), Decimal(1)
EVERYTHING: Interval = (Decimal("-Infinity"), Decimal("Infinity"))


@lru_cache(maxsize=16)
def contexts(digits: int) -> tuple[Context, Context]:
    """The contexts that round down and up at a number of digits; nothing traps, so that what overflows is infinite."""
    return tuple(
        Context(prec=digits, rounding=r, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])  # type: ignore[return-value]
        for r in (ROUND_FLOOR, ROUND_CEILING)
    )


def sound(lo: Decimal, hi: Decimal) -> Interval:
    """The interval, or everything where an end is no number."""
    return EVERYTHING if lo.is_nan() or hi.is_nan() else (lo, hi)


def rational(x: int | Fraction, digits: int) -> Interval:
    """Around a rational."""
    down, up = contexts(digits)
    n, d = Decimal(x.numerator), Decimal(x.denominator)
    return down.divide(n, d), up.divide(n, d)


def add(a: Interval, b: Interval, digits: int) -> Interval:
    """Around a sum."""
    down, up = contexts(digits)
    return sound(down.add(a[0], b[0]), up.add(a[1], b[1]))


def multiply(a: Interval, b: Interval, digits: int) -> Interval:
    """Around a product."""
    down, up = contexts(digits)
    if a[0] >= 0 and b[0] >= 0:
        return sound(down.multiply(a[0], b[0]), up.multiply(a[1], b[1]))
    pairs = [(x, y) for x in a for y in b]
    lows, highs = [down.multiply(x, y) for x, y in pairs], [up.multiply(x, y) for x, y in pairs]
    return EVERYTHING if any(x.is_nan() for x in lows + highs) else (min(lows), max(highs))


def inverse(a: Interval, digits: int) -> Interval:
    """Around 1 / x; everything where x may be 0."""
    if a[0] <= 0 <= a[1]:
        return EVERYTHING
    down, up = contexts(digits)
    return sound(down.divide(ONE, a[1]), up.divide(ONE, a[0]))


def whole_power(a: Interval, n: int, digits: int) -> Interval:
    """Around x ** n for a whole n."""
    if n < 0:
        return inverse(whole_power(a, -n, digits), digits)
    out: Interval = (ONE, ONE)
    while n:
        if n & 1:
            out = multiply(out, a, digits)
        a, n = multiply(a, a, digits), n >> 1
    return out


def log(a: Interval, digits: int) -> Interval:
    """Around log x; from minus infinity where x may be 0 or less. `Decimal.ln` is right to half a unit, so one unit more on
    each side is enough."""
    down, up = contexts(digits)
    if a[1] <= 0:
        return EVERYTHING
    return sound(down.next_minus(down.ln(a[0])) if a[0] > 0 else EVERYTHING[0], up.next_plus(up.ln(a[1])))


def exp(a: Interval, digits: int) -> Interval:
    """Around e ** x."""
    down, up = contexts(digits)
    low, high = down.exp(a[0]), up.exp(a[1])
    if low.is_infinite():  # too large to be written: at least it is large
        low = down.next_minus(low)
    return sound(max(ZERO, down.next_minus(low)), up.next_plus(high))


def power(a: Interval, e: Fraction, digits: int) -> Interval:
    """Around x ** e for positive x."""
    return exp(multiply(log(a, digits + 5), rational(e, digits + 5), digits + 5), digits)


@lru_cache(maxsize=4096)
def root(base: int, e: Fraction, digits: int) -> Interval:
    """Around base ** e for a positive whole base."""
    return power((Decimal(base), Decimal(base)), e, digits)
