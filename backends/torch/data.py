"""Values of a running program, as the host reads them.

An operand or a result is an `object` where any kind of value may arrive: distributions, draws, trees, canvases, memories,
arrays, tensors, numbers, or lists of these. The type rule of the op (ir/ops) says which of them can.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from decgraph.backends.torch.draws import Mixed, TorchDraws
from decgraph.backends.torch.prefixes import Context
from decgraph.backends.torch.rows import TorchDist
from decgraph.backends.torch.transfer import fetched


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


def whole(value: object) -> int:
    """A whole number, a token or a draw as an int."""
    return int(value) if isinstance(value, int) else int(array(value))


def real(value: object) -> float:
    """A number as a float."""
    return float(value) if isinstance(value, int | float) else float(array(value))
