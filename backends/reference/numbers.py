"""Vectors of the machine's numbers: float64, or the exact checker's objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decgraph.backends.reference.protocols import Machine
from decgraph.ir.data.numbers import Number, objects
from decgraph.ir.machine import Datum, Vector
from decgraph.ir.ops.common import array
from decgraph.ir.types import Type
from decgraph.ir.values import Op


def number(x: object) -> float:
    """A number of a program as Python's."""
    return float(np.asarray(x, dtype=np.float64))


def reals(m: Machine, values: Sequence[Number]) -> np.ndarray:
    """Numbers as the machine's vector [n]: float64, or object where they are exact."""
    return objects(values) if m.num.exact else np.array(values, dtype=np.float64)


def vector(m: Machine, probs: Vector) -> np.ndarray:
    """Probabilities as the machine's vector [n]: float64, or object where they are exact."""
    return objects(list(probs)) if m.num.exact else np.asarray(probs, dtype=np.float64)


def column(m: Machine, values: list[Datum], type: Type) -> np.ndarray:
    """An author's column over all n nodes of a tree: [n], or [n, ...] of values that are arrays. A node that never set it
    has zero."""
    zero = next((np.zeros_like(array(m, v)) for v in values if v is not None), 0)
    filled = [zero if v is None else array(m, v) for v in values]
    if type.elem == "astate":
        return objects(values)
    if m.num.exact and type.elem in ("real", "prob"):
        return objects([x.item() if isinstance(x, np.ndarray) and x.shape == () else x for x in filled])
    return np.array(filled)


def no_mass(m: Machine, op: Op, weights: np.ndarray) -> np.ndarray:
    """The result of `normalize` of zeros, in the shape of `weights`: they stay zeros, and drawing from them is an error
    (randomness.py), since a residual without mass is reached with probability 0."""
    return np.zeros_like(weights)
