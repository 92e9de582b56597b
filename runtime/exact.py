"""Small exact arithmetic on tuples of fractions, shared by shaping and the exact models."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from math import isqrt

import numpy as np

from decgraph.errors import DecError

Weights = tuple[Fraction, ...]
_LARGEST = 64  # numerators and denominators of exponents above this are somebody's float, not somebody's fraction


def masked(weights: Weights, kept: np.ndarray | None) -> Weights:
    """The weights where `kept` (bool[V], None for everywhere), zero elsewhere; not normalised."""
    if kept is None:
        return weights
    return tuple(w if keep else Fraction(0) for w, keep in zip(weights, kept.tolist(), strict=True))


def only(weights: Weights, tokens: Collection[int]) -> Weights:
    """The weights of `tokens`, zero elsewhere; not normalised."""
    chosen = set(tokens)
    return tuple(w if v in chosen else Fraction(0) for v, w in enumerate(weights))


def rational(value: int | float | Fraction, name: str) -> Fraction:
    """The fraction meant by a number: 0.9 is 9/10. Raises DecError for a float that is no short decimal."""
    if not isinstance(value, float):
        return Fraction(value)
    short = Fraction(str(value))
    if short.denominator > 10**6:
        raise DecError(f"{name} {value!r} is not a short decimal; give it as a Fraction for exact arithmetic")
    return short


def power(base: Fraction, exponent: Fraction, name: str) -> Fraction:
    """base ** exponent, for a base >= 0 and an exponent > 0. Raises DecError where it is irrational."""
    a, b = exponent.numerator, exponent.denominator
    if base in (0, 1):
        return base
    if max(a, b) <= _LARGEST:
        top, bottom = root(base.numerator**a, b), root(base.denominator**a, b)
        if top is not None and bottom is not None:
            return Fraction(top, bottom)
    raise DecError(
        f"{name}: ({base}) ** ({exponent}) is not a short fraction, so exact arithmetic cannot follow it",
        hint="use 0, 1 or 1/2, or tables of weights that are perfect powers",
    )


def root(n: int, k: int) -> int | None:
    """The whole k-th root of n >= 0, or None if n is not a perfect k-th power."""
    if k == 1 or n < 2:
        return n
    if k == 2:
        r = isqrt(n)
        return r if r * r == n else None
    low, high = 1, 1 << -(-n.bit_length() // k)
    while low < high:  # the largest r with r**k <= n
        mid = (low + high + 1) // 2
        low, high = (mid, high) if mid**k <= n else (low, mid - 1)
    return low if low**k == n else None
