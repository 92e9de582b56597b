"""Intervals of numbers, and what the elementwise functions of the IR make of them.

An interval bounds every element of a value. Bools are the numbers 0 and 1, so that {false}, {true} and both are intervals as
well. Every function here is an over-approximation: what it answers holds each result that the exact numbers
(backends/exact/numbers.py) can have, with their conventions (0 * inf and 0 / 0 are no numbers, a / 0 is an infinity).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import floor

End = int | float | Fraction
INF = float("inf")
FINITE, INFINITE, ODD = 0, 1, 2


@dataclass(frozen=True)
class Interval:
    """Numbers from low to high, both included. An end at infinity says that nothing is known there; `kind` says what there is:
    finite numbers only (FINITE), infinite ones too (INFINITE), or also what is no number (ODD: inf - inf), which no comparison
    decides."""

    low: End
    high: End
    kind: int = FINITE

    @property
    def ordered(self) -> bool:
        """Whether comparisons of it mean what its ends say."""
        return self.kind < ODD

    @property
    def truths(self) -> tuple[bool, bool]:
        """Of a bool: whether it can be true, and whether it can be false."""
        return (self.high > 0 or not self.ordered, self.low < 1 or not self.ordered)


UNKNOWN = Interval(-INF, INF, ODD)
NONNEGATIVE = Interval(0, INF)
SHARE = Interval(0, 1)
BOTH, TRUE, FALSE = Interval(0, 1), Interval(1, 1), Interval(0, 0)


def interval(low: End, high: End, kind: int = FINITE) -> Interval:
    """An interval; numbers that lie between finite ends are finite."""
    return Interval(low, high, FINITE if kind == INFINITE and low > -INF and high < INF else kind)


def hull(*parts: Interval) -> Interval:
    """The smallest interval that holds all of `parts`."""
    return interval(min(p.low for p in parts), max(p.high for p in parts), max(p.kind for p in parts))


def whole(a: Interval) -> Interval:
    """Rounded towards zero. What is not finite has no such number (an error of the program)."""
    low, high = (x if abs(x) == INF else int(x) for x in (a.low, a.high))
    return Interval(low, high)


def _plus(x: End, y: End) -> End:
    """A sum of ends; the two are never opposite infinities."""
    return x if abs(x) == INF else y if abs(y) == INF else x + y


def _nil(a: Interval) -> bool:
    """Whether it holds 0."""
    return bool(a.low <= 0 <= a.high)


def _times(x: End, y: End) -> End:
    """A product of ends; where an end at infinity is only a bound, 0 times it is 0."""
    if x == 0 or y == 0:
        return 0
    if INF in (abs(x), abs(y)):
        return INF if (x > 0) == (y > 0) else -INF
    return x * y


def _add(a: Interval, b: Interval) -> Interval:
    if ODD in (a.kind, b.kind) or a.kind == b.kind == INFINITE:
        return UNKNOWN
    return interval(_plus(a.low, b.low), _plus(a.high, b.high), max(a.kind, b.kind))


def _neg(a: Interval) -> Interval:
    return Interval(-a.high, -a.low, a.kind)


def _mul(a: Interval, b: Interval) -> Interval:
    if ODD in (a.kind, b.kind) or (a.kind == INFINITE and _nil(b)) or (b.kind == INFINITE and _nil(a)):
        return UNKNOWN
    ends = [_times(x, y) for x, y in product((a.low, a.high), (b.low, b.high))]
    return interval(min(ends), max(ends), max(a.kind, b.kind))


def _div(a: Interval, b: Interval) -> Interval:
    if a.kind != FINITE or b.kind != FINITE or a.low < 0 or b.low < 0 or (_nil(a) and _nil(b)):
        return UNKNOWN
    if b.low == 0:  # a float may be -0.0, and then the quotient is the other infinity
        return UNKNOWN if _nil(a) else Interval(-INF, INF, INFINITE)
    low = 0 if a.low == 0 or abs(b.high) == INF else Fraction(a.low) / Fraction(b.high)
    high = 0 if a.high == 0 else INF if a.high == INF else Fraction(a.high) / Fraction(b.low)
    return interval(low, high, FINITE)


def _mod(a: Interval, b: Interval) -> Interval:
    if a.kind != FINITE or b.kind != FINITE or b.low < 0:
        return UNKNOWN  # of a divisor of 0 there is no remainder (an error of the program)
    return Interval(0, min(a.high, b.high) if a.low >= 0 else b.high)


def _minimum(a: Interval, b: Interval) -> Interval:
    if ODD in (a.kind, b.kind):
        return UNKNOWN
    return interval(min(a.low, b.low), min(a.high, b.high), max(a.kind, b.kind))


def _maximum(a: Interval, b: Interval) -> Interval:
    return _neg(_minimum(_neg(a), _neg(b)))


def _clamp(a: Interval, low: Interval, high: Interval) -> Interval:
    return _minimum(_maximum(a, low), high)


def _abs(a: Interval) -> Interval:
    one, other = (-x if x < 0 else x for x in (a.low, a.high))
    return interval(0 if a.low <= 0 <= a.high else min(one, other), max(one, other), a.kind)


def _relu(a: Interval) -> Interval:
    return _maximum(a, FALSE)


def _floor(a: Interval) -> Interval:
    low, high = (x if abs(x) == INF else floor(x) for x in (a.low, a.high))
    return Interval(low, high)


def _exp(a: Interval) -> Interval:
    return interval(0, 1 if a.high <= 0 else INF, a.kind) if a.ordered else UNKNOWN


def _log(a: Interval) -> Interval:
    if a.kind != FINITE or a.low < 0:
        return UNKNOWN
    return Interval(0 if a.low >= 1 else -INF, 0 if a.high <= 1 else INF, INFINITE if a.low == 0 else FINITE)


def _sqrt(a: Interval) -> Interval:
    return NONNEGATIVE if a.kind == FINITE and a.low >= 0 else UNKNOWN


def _pow(a: Interval, b: Interval) -> Interval:
    if a.low == a.high == 1 and b.kind == FINITE:
        return TRUE
    return NONNEGATIVE if a.kind == b.kind == FINITE and a.low > 0 else UNKNOWN


def _select(c: Interval, a: Interval, b: Interval) -> Interval:
    true, false = c.truths
    return hull(*([a] if true else []), *([b] if false else []))


def _and(a: Interval, b: Interval) -> Interval:
    return Interval(min(a.low, b.low), min(a.high, b.high))


def _or(a: Interval, b: Interval) -> Interval:
    return Interval(max(a.low, b.low), max(a.high, b.high))


def _answer(always: bool, never: bool) -> Interval:
    return TRUE if always else FALSE if never else BOTH


def _lt(a: Interval, b: Interval) -> Interval:
    return _answer(a.high < b.low, a.low >= b.high) if a.ordered and b.ordered else BOTH


def _le(a: Interval, b: Interval) -> Interval:
    return _answer(a.high <= b.low, a.low > b.high) if a.ordered and b.ordered else BOTH


def _eq(a: Interval, b: Interval) -> Interval:
    if not a.ordered or not b.ordered:
        return BOTH
    return _answer(a.low == a.high == b.low == b.high, a.high < b.low or b.high < a.low)


def _not(a: Interval) -> Interval:
    return Interval(1 - a.high, 1 - a.low)


_FUNCTIONS: dict[str, Callable[..., Interval]] = {
    "add": _add,
    "sub": lambda a, b: _add(a, _neg(b)),
    "mul": _mul,
    "weigh": _mul,
    "mix": _add,
    "contrast": lambda a, b: _add(a, _neg(b)) if b.kind == FINITE else UNKNOWN,
    "div": _div,
    "mod": _mod,
    "neg": _neg,
    "abs": _abs,
    "relu": _relu,
    "floor": _floor,
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "pow": _pow,
    "minimum": _minimum,
    "maximum": _maximum,
    "clamp": _clamp,
    "select": _select,
    "and": _and,
    "or": _or,
    "not": _not,
    "lt": _lt,
    "le": _le,
    "gt": lambda a, b: _lt(b, a),
    "ge": lambda a, b: _le(b, a),
    "eq": _eq,
    "ne": lambda a, b: _not(_eq(a, b)),
}


def mapped(fn: str, operands: Sequence[Interval]) -> Interval:
    """The results of an elementwise function."""
    return _FUNCTIONS[fn](*operands) if fn in _FUNCTIONS else UNKNOWN


def folded(fn: str, a: Interval, bools: bool, empty: bool) -> Interval:
    """The results of folding a dimension; `empty`: it may have no elements."""
    if fn in ("any", "all"):
        return Interval(0 if fn == "any" else a.low, 1 if fn == "all" else a.high)
    if fn == "count" or (fn == "sum" and bools):
        return NONNEGATIVE
    if fn in ("max", "min") and a.ordered:
        nothing = -INF if fn == "max" else INF
        return hull(a, Interval(nothing, nothing, INFINITE)) if empty else a
    if a.kind != FINITE:
        return UNKNOWN
    if fn == "sum":
        return Interval(0 if a.low >= 0 else -INF, 0 if a.high <= 0 else INF)
    if fn == "mean":
        return hull(a, FALSE)
    if fn == "prod" and a.low >= 0:
        return Interval(0, 1 if a.high <= 1 else INF)
    return UNKNOWN


def scanned(fn: str, a: Interval, bools: bool) -> Interval:
    """The results of a running fold."""
    if fn == "leading" or (fn == "cumsum" and bools):
        return NONNEGATIVE
    if a.kind != FINITE or fn not in ("cumsum", "cumprod", "cummax"):
        return UNKNOWN
    if fn == "cummax":
        return a
    if fn == "cumprod":
        return folded("prod", a, False, True)
    return Interval(a.low if a.low >= 0 else -INF, a.high if a.high <= 0 else INF)


def counted(low: Interval, high: Interval) -> Interval:
    """The whole numbers from `low` to below `high`; where there are none, any interval will do."""
    first, last = whole(low).low, whole(high).high - 1
    return Interval(first, max(first, last))


def widened(old: Interval, new: Interval, stops: Sequence[End]) -> Interval:
    """An interval that holds both, each end that moved put at the next of `stops` (sorted) or at infinity."""
    low, high = old.low, old.high
    if new.low < low:
        low = max((s for s in stops if s <= new.low), default=-INF)
    if new.high > high:
        high = min((s for s in stops if s >= new.high), default=INF)
    return Interval(low, high, max(old.kind, new.kind))
