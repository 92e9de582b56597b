"""The layout of a matrix that oneDNN's product reads."""

from __future__ import annotations

import torch
from torch import Tensor

_ROWS = 8  # what matrices are reordered for: 8 is as good as the exact number from 1 to 512 rows


def reordered(matrix: Tensor) -> Tensor:
    """A matrix [n, m] (m inputs) in the layout that oneDNN's product reads."""
    made: Tensor = torch.ops.mkldnn._reorder_linear_weight(matrix.detach().contiguous(), _ROWS)
    return made
