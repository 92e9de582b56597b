"""Beta variables over rationals: a run knows of one what its coins and comparisons have told, and no more.

A coin with the variable's probability makes its parameters grow (a Polya urn), a comparison with a number cuts the interval in
which it lies in two. Both have exact probabilities where the parameters are whole numbers: the distribution function of
Beta(a, b) is a polynomial then. A number in an interval equals any other with probability 0.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb, floor, inf
from typing import NoReturn, TypeAlias, Union

from decgraph.backends.exact.world import Unlikely, World

ZERO, ONE = Fraction(0), Fraction(1)
Other: TypeAlias = Union[Fraction, int, "Affine"]
"""What a number that depends on a Beta variable is computed with: also an exact real or an infinity, which computes as a
fraction does."""


def cumulative(a: Fraction, b: Fraction, x: Fraction) -> Fraction:
    """The probability that Beta(a, b) is at most x, for whole numbers a and b. Raises Unlikely for others."""
    if x <= 0 or x >= 1:
        return ZERO if x <= 0 else ONE
    if a.denominator != 1 or b.denominator != 1 or a < 1 or b < 1:
        raise Unlikely(f"beta({a}, {b}) is compared with a number, and only whole parameters have exact probabilities")
    m, n = int(a), int(a + b) - 1
    return sum((comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(m, n + 1)), ZERO)


class BetaVariable:
    """A Beta(a, b) variable of one run, known to lie in low..high."""

    def __init__(self, a: Fraction, b: Fraction, world: World, name: str) -> None:
        self.a, self.b, self.world, self.name = a, b, world, name
        self.low: Fraction = ZERO
        self.high: Fraction = ONE

    def below(self, x: Fraction) -> bool:
        """Whether it is less than a number: a choice where that is open."""
        if x <= self.low or x >= self.high:
            return bool(x >= self.high)
        first, at, last = (cumulative(self.a, self.b, v) for v in (self.low, x, self.high))
        share = (at - first) / (last - first)
        less = self.world.choices.choose([share, 1 - share], [True, False], f"{self.name} < {x}")
        self.low, self.high = (self.low, x) if less else (x, self.high)
        return bool(less)

    def mean(self) -> Fraction:
        """Its expectation, by what is known."""
        out = self.a / (self.a + self.b)
        if (self.low, self.high) == (ZERO, ONE):
            return out
        inside = lambda a: cumulative(a, self.b, self.high) - cumulative(a, self.b, self.low)
        return out * inside(self.a + 1) / inside(self.a)

    def coin(self, name: str, *, reverse: bool = False) -> bool:
        """A coin that shows True with its value as the probability, or with one minus it."""
        p = self.mean()
        hit = bool(self.world.choices.choose([p, 1 - p], [True, False], name))
        self.a, self.b = (self.a + 1, self.b) if hit else (self.a, self.b + 1)
        return hit != reverse


class Affine:
    """shift + slope * a Beta variable, slope not 0. Numbers of two variables, and products, raise Unlikely: their
    comparisons have no interval."""

    __slots__ = ("shift", "slope", "variable")

    def __init__(self, variable: BetaVariable, slope: Fraction = ONE, shift: Fraction | int = ZERO) -> None:
        self.variable, self.slope, self.shift = variable, slope, shift

    def scaled(self, slope: Fraction | int, shift: Fraction | int) -> Fraction | int | Affine:
        """shift + slope * self."""
        if slope == 0:
            return shift
        return Affine(self.variable, self.slope * slope, self.shift * slope + shift)

    def beyond(self, other: Other) -> bool:
        """Whether it is more than another number."""
        if isinstance(other, float) and abs(other) == inf:
            return other < 0
        if isinstance(other, Affine):
            apart = self - other
            return apart.beyond(ZERO) if isinstance(apart, Affine) else bool(apart > 0)
        x = (other - self.shift) / self.slope
        return self.variable.below(x) == (self.slope < 0)

    def whole(self) -> int:
        """The largest whole number below it."""
        ends = [self.shift + self.slope * v for v in (self.variable.low, self.variable.high)]
        n = min(ends) // 1
        while self.beyond(Fraction(n + 1)) if n + 1 < max(ends) else False:
            n += 1
        return int(n)

    def coin(self, name: str) -> bool:
        """A coin with this probability. Raises Unlikely where it is not the variable or one minus it."""
        if not (self.slope == 1 and self.shift == 0 or self.slope == -1 and self.shift == 1):
            raise Unlikely(f"{name} has a probability that is computed from a Beta variable")
        return self.variable.coin(name, reverse=self.slope < 0)

    def __add__(self, other: Other) -> Other:
        if isinstance(other, float):
            return other
        if not isinstance(other, Affine):
            return self.scaled(1, other)
        if other.variable is not self.variable:
            raise Unlikely("two Beta variables stand in one number")
        slope, shift = self.slope + other.slope, self.shift + other.shift
        return shift if slope == 0 else Affine(self.variable, slope, shift)

    __radd__ = __add__

    def __neg__(self) -> Other:
        return self.scaled(-1, 0)

    def __sub__(self, other: Other) -> Other:
        return self + (-other)

    def __rsub__(self, other: Other) -> Other:
        return -self + other

    def __mul__(self, other: Other) -> Other:
        if isinstance(other, Affine):
            raise Unlikely("a Beta variable is multiplied with one")
        return self.scaled(other, 0)

    __rmul__ = __mul__

    def __truediv__(self, other: Other) -> Other:
        if isinstance(other, Affine):
            raise Unlikely("a number is divided by a Beta variable")
        return self.scaled(1 / Fraction(other) if isinstance(other, int) else 1 / other, 0)

    def __rtruediv__(self, other: Other) -> NoReturn:
        raise Unlikely("a number is divided by a Beta variable")

    def __pow__(self, other: Other) -> NoReturn:
        raise Unlikely("a power of a Beta variable")

    __rpow__ = __pow__

    def __mod__(self, other: Other) -> Other:
        return self - floor(self / other) * other

    def __abs__(self) -> Other:
        return self if self.beyond(ZERO) else -self

    def __floor__(self) -> int:
        return self.whole()

    def __int__(self) -> int:
        return self.whole() if self.beyond(ZERO) else -floor(-self)

    def __bool__(self) -> bool:
        return True  # 0 has no probability

    def __gt__(self, other: Other) -> bool:
        return self.beyond(other)

    def __ge__(self, other: Other) -> bool:
        return self == other or self.beyond(other)

    def __lt__(self, other: Other) -> bool:
        return not self >= other

    def __le__(self, other: Other) -> bool:
        return not self > other

    def __eq__(self, other: object) -> bool:
        """Of one form; else with probability 0."""
        return isinstance(other, Affine) and (self.variable, self.slope, self.shift) == (
            other.variable,
            other.slope,
            other.shift,
        )

    __hash__ = None  # type: ignore[assignment]

    def __float__(self) -> float:
        raise Unlikely("a Beta variable is read as a number")

    def __repr__(self) -> str:
        return f"{self.shift} + {self.slope} * {self.variable.name}"


__all__ = ["Affine", "BetaVariable", "cumulative"]
