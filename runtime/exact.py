"""Exact arithmetic on tuples of weights (fractions, and reals where a power is none), for shaping."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from decgraph.runtime.reals.real import Number

Weights: TypeAlias = "tuple[Number, ...]"


def masked(weights: Weights, kept: np.ndarray | None) -> Weights:
    """The weights where `kept` (bool[V], None for everywhere), zero elsewhere; not normalised."""
    if kept is None:
        return weights
    return tuple(w if keep else Fraction(0) for w, keep in zip(weights, kept.tolist(), strict=True))


def only(weights: Weights, tokens: Collection[int]) -> Weights:
    """The weights of `tokens`, zero elsewhere; not normalised."""
    chosen = set(tokens)
    return tuple(w if v in chosen else Fraction(0) for v, w in enumerate(weights))


def rational(value: int | float | Fraction) -> Fraction:
    """The fraction meant by a number: 0.9 is 9/10."""
    return Fraction(str(value)) if isinstance(value, float) else Fraction(value)


def power(base: Number, exponent: Fraction) -> Number:
    """base ** exponent, for a base >= 0 and an exponent > 0: a fraction where it is one, else a real."""
    from decgraph.runtime.reals import functions

    return base if base in (0, 1) else functions.power(base, exponent)


def factor(amount: Fraction) -> Number:
    """What a weight is multiplied by where `amount` is added to its logit."""
    from decgraph.runtime.reals import functions

    return functions.exp(amount)


def normal(weights: Weights) -> Weights:
    """The weights divided by their sum, which is not 0."""
    from decgraph.runtime.reals import functions

    return tuple(functions.shares(weights))
