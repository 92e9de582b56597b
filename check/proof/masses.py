"""What is known of a number in a rule: where it is 0 because the evidence gives a token no mass, its sign, and more.

What is accepted by a coin with such a chance, or where such a number is above one that is not negative, has mass; so has what
is drawn from a row of such numbers. A number may be NaN where it is not known to be finite: no comparison of it is true, and a
coin of it ends the run.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from decgraph.ir.intervals import End

ANY: Hashable = "any token"
"""`nothing` of the number 0."""


@dataclass(frozen=True)
class Number:
    """A number, or each of a vector. nothing: the token without whose mass it is 0 or NaN (None: not known of any); under,
    never: the same, where it is at most 0, where it is -inf. low: it is not negative; above: it is positive; some: of a row,
    one is positive and none negative; share: it is at most 1 (each also of NaN); finite: so, and not NaN."""

    nothing: Hashable = None
    under: Hashable = None
    never: Hashable = None
    low: bool = False
    above: bool = False
    some: bool = False
    share: bool = False
    finite: bool = False

    @property
    def most(self) -> Hashable:
        """The token without whose mass it is at most 0."""
        return self.under if self.nothing is None else self.nothing


@dataclass(frozen=True)
class Above:
    """The condition that the evidence gives a token mass: to one, or to each of a row."""

    token: Hashable


def constant(x: int | Fraction) -> Number:
    """What is known of a constant."""
    return Number(ANY if x == 0 else None, low=x >= 0, above=x > 0, some=x > 0, share=x <= 1, finite=True)


def between(low: End, high: End, *, finite: bool) -> Number:
    """What is known of a number between two others. finite: whether it is known not to be NaN."""
    ends = -float("inf") < low and high < float("inf")
    return Number(low=low >= 0, above=low > 0, some=low > 0, share=high <= 1, finite=finite and ends)


def _both(a: Hashable, b: Hashable) -> Hashable:
    return a if b == ANY or a == b else b if a == ANY else None


def mapped(fn: str, xs: Sequence[Number], *, same: bool = False) -> Number:
    """What an elementwise function makes of numbers. same: both operands are one value."""
    x, y = xs[0], xs[-1]
    low, above, finite = x.low and y.low, x.above and y.above, x.finite and y.finite
    some, kept = x.some and y.above or y.some and x.above, _both(x.nothing, y.nothing)
    either = x.nothing if x.nothing is not None else y.nothing
    under, largest = _both(x.most, y.most), x.above or y.above
    match fn:
        case "mul" | "weigh":
            under = x.under if y.low else y.under if x.low else None
            return Number(either, under, None, low or same, above, some or same and x.some, low and x.share and y.share, finite)
        case "div":
            some, under = finite and x.some and y.above, x.under if y.above else None
            return Number(x.nothing, under, None, x.low and y.above, above and finite, some, False, finite and y.above)
        case "pow" if y.above:
            return Number(
                x.nothing, None, None, x.low, finite and x.above, finite and x.some, x.low and x.share, finite and x.low
            )
        case "add":
            never = x.never if y.finite else y.never if x.finite else None
            some = x.some and y.low or y.some and x.low
            return Number(kept, under, never, low, x.above and y.low or y.above and x.low, some, False, finite)
        case "sub":
            under, never = x.most if y.low else None, x.never if y.finite else None
            return Number(kept, under, never, share=x.share and y.low, finite=finite)
        case "minimum":
            kept = x.nothing if x.nothing is not None and y.low else y.nothing if x.low else kept
            under = x.most if x.most is not None else y.most
            return Number(kept, under, None, low, above, some, x.share or y.share, finite)
        case "maximum":
            kept = _both(x.most, y.most) if either is not None else None
            return Number(kept, under, None, x.low or y.low, largest, largest or x.some or y.some, x.share and y.share, finite)
        case "relu":
            return Number(x.most, None, None, True, x.above, x.some, x.share, x.finite)
        case "abs":
            return Number(x.nothing, None, None, True, x.above, x.some, x.low and x.share, x.finite)
        case "sqrt" if x.low:
            return Number(x.nothing, None, None, True, x.above, x.some, x.share, x.finite)
        case "log":
            return Number(never=x.nothing, finite=x.finite and x.above)
        case "exp":
            return Number(x.never, low=True, above=x.finite, some=x.finite)
    return Number()


def chosen(condition: object, x: Number, y: Number) -> Number:
    """`where(condition, x, y)`: where the condition says that a token has mass, x need not."""
    token = condition.token if isinstance(condition, Above) else None
    nothing = token if token is not None and y.nothing in (ANY, token) else _both(x.nothing, y.nothing)
    low, above, finite, share = ((getattr(x, w) and getattr(y, w)) for w in ("low", "above", "finite", "share"))
    return Number(nothing, _both(x.most, y.most), _both(x.never, y.never), low, above, above, share, finite)


def greater(big: Number, small: Number, *, or_equal: bool = False) -> Hashable:
    """The token that has mass where one number is greater than another; None where that is not known."""
    if big.most not in (None, ANY) and (small.above if or_equal else small.low):
        return big.most
    return big.never if big.never != ANY and (not or_equal or small.finite) else None


def folded(fn: str, row: Number) -> Number:
    """Of a row over the vocabulary the largest number, or the sum."""
    if fn not in ("max", "sum"):
        return Number()
    above = row.some or row.above
    return Number(low=row.low, above=above, some=above, share=fn == "max" and row.share, finite=row.finite)


def divided(row: Number) -> Number:
    """`normalize` of a row: it is left as zeros where its sum is not positive."""
    return Number(row.nothing, None, None, row.low, False, row.some and row.finite, row.low, row.finite)


__all__ = ["ANY", "Above", "Number", "between", "chosen", "constant", "divided", "folded", "greater", "mapped"]
