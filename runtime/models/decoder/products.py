"""Products of states with a model's matrices, as they lie in memory or in a file. On a CPU runtime/native computes them where
its library is (runtime/native/products.py); these are torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from decgraph.runtime.native.formats import QuantizedBlocks


class Product:
    """y = x W' + b for states x [n, in], with a matrix W [out, in] as the model has it, or several whose outputs stand side by
    side (they are not joined where they are a caller's, or mapped)."""

    def __init__(self, *weights: Tensor, biases: tuple[Tensor | None, ...] = ()) -> None:
        self.weights, self.biases = weights, biases or (None,) * len(weights)
        self.matrices: tuple[Tensor | QuantizedBlocks, ...] = weights  # what is multiplied with

    @property
    def shape(self) -> tuple[int, int]:
        """How many outputs and inputs there are."""
        return sum(map(len, self.matrices)), int(self.matrices[0].shape[1])

    @property
    def matrix(self) -> Tensor:
        """The matrix [out, in], where it is one."""
        (whole,) = self.weights
        return whole

    def rows(self, ids: Tensor) -> Tensor:
        """The rows [n, in] of the one matrix by their numbers int64[n]: those of a table of embeddings."""
        return F.embedding(ids, self.matrix)

    def dequantised(self) -> list[Tensor]:
        """The matrices [out, in] in full precision that the product is with."""
        return list(self.weights)

    def __call__(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """[n, out]; with `added` [n, out], the sum of both."""
        count = len(self.weights)
        if count > 1:
            y = torch.cat([F.linear(x, w, b) for w, b in zip(self.weights, self.biases, strict=True)], -1)
            return y if added is None else y.add_(added)
        weight, bias = self.weights[0], self.biases[0]
        if added is None:
            return F.linear(x, weight, bias)
        return torch.addmm(added if bias is None else added + bias, x, weight.t())
