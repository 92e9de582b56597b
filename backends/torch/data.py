"""Values of a running program, as the host reads them.

An operand or a result is an `object` where any kind of value may arrive: distributions, draws, trees, canvases, memories,
arrays, tensors, numbers, or lists of these. The type rule of the op (ir/ops) says which of them can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard, TypeVar

import numpy as np
from torch import Tensor

from decgraph.backends.torch.draws import Mixed, TorchDraws
from decgraph.backends.torch.prefixes import Context
from decgraph.backends.torch.rows import TorchDist
from decgraph.backends.torch.transfer import fetched
from decgraph.backends.torch.trees import TorchPath

T = TypeVar("T")
Vector = TorchDist | TorchDraws | Mixed | Tensor | np.ndarray | Sequence[object]
"""Elements in a row: what does not stack is a list."""


def host(value: object) -> object:
    """A value as the NumPy meanings take it: draws as their tokens, distributions as their probabilities, tensors on the
    host, a scalar as a Python number."""
    if isinstance(value, TorchDraws | Mixed):
        return int(value.tokens) if value.tokens.ndim == 0 else value.tokens
    if isinstance(value, TorchDist):
        return fetched(value.vector())
    if isinstance(value, Context):
        return value.ids()
    return fetched(value) if isinstance(value, Tensor) else value


def array(value: object) -> np.ndarray:
    """A value as an array on the host, of shape () for a scalar."""
    return np.asarray(host(value))


def dimensions(value: object) -> int:
    """How many dimensions a value has, as `np.ndim`: 0 for a number, a token or an object."""
    return value.ndim if isinstance(value, np.ndarray | Tensor) else np.asarray(value).ndim


def every(items: Sequence[object], kind: type[T]) -> TypeGuard[Sequence[T]]:
    """Whether all of these are of one kind."""
    return all(isinstance(x, kind) for x in items)


def whole(value: object) -> int:
    """A whole number, a token or a draw as an int."""
    return int(value) if isinstance(value, int) else int(array(value))


def real(value: object) -> float:
    """A number as a float."""
    return float(value) if isinstance(value, int | float) else float(array(value))


def ids_of(x: object) -> tuple[int, ...]:
    """Token ids of a vector, a path or a context."""
    if isinstance(x, Context):
        return x.ids()
    if isinstance(x, TorchPath):
        return x.tokens
    if isinstance(x, list):
        return tuple(t for part in x for t in ids_of(part))
    if isinstance(x, TorchDraws | Mixed):
        return tuple(x.tokens.reshape(-1).tolist())
    ids = np.ravel(np.asarray(x))
    if ids.dtype != object:  # as objects they are with places that have no token
        ids = ids.astype(np.int64, copy=False)
    return tuple(ids.tolist())
