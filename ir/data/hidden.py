"""Hidden states as values: rows of a model's states, how similar they are, and their mean.

A value is an array with a row for each place and the state along its last dimension. The states of models whose rows are hashes
or tables are one object each, whose similarity is a number drawn from both: 1 where they are equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from decgraph.ir.types import Type

_ALIKE = (Fraction(-1), Fraction(0), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(15, 16), Fraction(1))


def states_value(rows: Sequence[object], shape: tuple[int, ...]) -> np.ndarray:
    """States as an array [*shape, width], or [*shape, 1] of states that are no numbers."""
    if rows and not isinstance(rows[0], str | tuple):
        made = np.stack([_numbers(row) for row in rows])
        return made.reshape(*shape, made.shape[-1])
    out = np.empty(len(rows), dtype=object)
    for i, row in enumerate(rows):
        out[i] = row
    return out.reshape(*shape, 1)


def joint(t: Type) -> bool:
    """Whether what a head gives of states of this type is a function of all of them: of those of a canvas's cells."""
    return bool(t.dims) and t.dims[0].kind in ("cells", "part")


def similarity(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The cosine of the angle between states [..., width], row by row: float64[...], or fractions of that shape."""
    if not (_symbols(a) or _symbols(b)):
        a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
        size = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
        return np.asarray((a * b).sum(-1) / np.maximum(size, 1e-30))
    a, b = np.broadcast_arrays(a[..., 0], b[..., 0])
    out = np.empty(a.shape, dtype=object)
    for i in np.ndindex(a.shape):
        out[i] = (
            Fraction(1) if a[i] == b[i] else _ALIKE[int(_digest("alike", *sorted(map(repr, (a[i], b[i])))), 16) % len(_ALIKE)]
        )
    return out


def mean(states: np.ndarray) -> np.ndarray:
    """The mean of states [k, width]; of none a zero, which is like no state."""
    if not len(states):
        return np.zeros(1)
    if not _symbols(states):
        return np.asarray(states.mean(0))
    return states_value([_digest("mean", *map(repr, states[:, 0]))], ())


def _symbols(states: np.ndarray) -> bool:
    """Whether states are objects to compare, and not numbers."""
    return states.dtype == object and states.size > 0 and isinstance(states.flat[0], str | tuple)


def _numbers(row: object) -> np.ndarray:
    """A state as float64[width]; that of an engine is a tensor."""
    double = getattr(row, "double", None)
    return np.asarray(row if double is None else double().cpu(), dtype=np.float64)


def _digest(*parts: str) -> str:
    """A hash of `parts`: sixteen hexadecimal digits."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
