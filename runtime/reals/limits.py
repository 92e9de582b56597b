"""How far exact numbers are followed, and the exception that says where they were given up."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar

from decgraph.ir.values import Loc

R = TypeVar("R", bound=int | Fraction)

BITS = 200_000  # of a numerator or denominator
TERMS = 2_000  # of a polynomial
DEPTH = 30  # of powers of sums of powers of sums
DIGITS = (25, 50, 100, 200, 400)
SPENT = [0]
"""How much has been computed with reals, in products of terms: what a run takes, on whatever machine it is."""


class NotSeparated(Exception):
    """The exact numbers needed here cannot be told apart, or grow too large: the check gives up, undecided.

    `what` says what was compared or computed, `place` the line of the program, set later (`at`).
    """

    def __init__(self, what: str, place: str = "") -> None:
        self.what, self.place = what, place
        super().__init__(f"{place}: {what}" if place else what)

    def at(self, place: Loc | str) -> NotSeparated:
        """The same with its line; the first line named is kept."""
        if not self.place and (isinstance(place, str) or place.line):
            self.__init__(self.what, str(place))  # type: ignore[misc]
        return self


def bounded(x: R) -> R:
    """The int or fraction itself, if it is not too long to be worked with."""
    if x.numerator.bit_length() > BITS or x.denominator.bit_length() > BITS:
        raise NotSeparated(f"an exact number of more than {BITS} bits is too long to follow")
    return x


def raised(x: int | Fraction, n: int) -> Fraction:
    """x ** n of a rational that is not 0 where n < 0, if it is not too long."""
    size = max(x.numerator.bit_length(), x.denominator.bit_length())
    if abs(x) != 1 and x != 0 and (size - 1) * abs(n) > BITS:
        raise NotSeparated(f"the power of an exact number to the {short(n)} is too long to follow")
    return Fraction(x) ** n if abs(x) != 1 and x != 0 else Fraction((1 if n % 2 == 0 else x) if x != 0 else int(n == 0))


def short(n: int) -> str:
    """A whole number for a message."""
    return str(n) if n.bit_length() < 100 else f"power of about 2^{n.bit_length()}"
