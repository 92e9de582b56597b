"""Products of states with a model's matrices: which kernel computes them, and the copies of matrices that it reads.

On a CPU a product of several rows reads a copy of its matrix packed for oneDNN, and one row does where that is the fastest on
this processor (packs.py has the figures, one_row.py measures). On other devices, and where there is no memory for copies,
matrices are read as they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from decgraph.runtime.models.packs import for_one_row, packable, room, size, streamed, version
from decgraph.runtime.models.reordering import reordered


class Product:
    """y = x W' + b for states x [n, in], with a matrix W [out, in] as the model has it, or several whose outputs stand side by
    side (they are not joined where they are a caller's)."""

    def __init__(self, *weights: Tensor, biases: tuple[Tensor | None, ...] = ()) -> None:
        self.weights, self.biases = weights, biases or (None,) * len(weights)
        self.copies: Copies | None = None
        self._packed: list[Tensor] | None = None
        self._one = False  # whether one row reads the packed copy

    @property
    def matrix(self) -> Tensor:
        """The matrix [out, in], where it is one."""
        (whole,) = self.weights
        return whole

    def __call__(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """[n, out]; with `added` [n, out], the sum of both."""
        if self.copies is not None and (self._one or len(x) > 1):
            y = self._by_copies(x)
            return y if added is None else y.add_(added)
        if len(self.weights) > 1:
            y = torch.cat([F.linear(x, w, b) for w, b in zip(self.weights, self.biases, strict=True)], -1)
            return y if added is None else y.add_(added)
        weight, bias = self.weights[0], self.biases[0]
        if added is None:
            return F.linear(x, weight, bias)
        return torch.addmm(added if bias is None else added + bias, x, weight.t())

    def _by_copies(self, x: Tensor) -> Tensor:
        if self._packed is None:
            assert self.copies is not None
            self._packed = [reordered(w) for w in self.weights]
            self.copies.bytes += size(self.weights)
        product = torch.ops.mkldnn._linear_pointwise.default
        made = [product(x, w, b, "none", [], "") for w, b in zip(self._packed, self.biases, strict=True)]
        return made[0] if len(made) == 1 else torch.cat(made, -1)

    def drop(self) -> None:
        """Forget the copies: the matrix has changed."""
        self._packed = None


class Copies:
    """The packed copies of a decoder's matrices, each made when a product first reads it. bytes: what they take."""

    def __init__(self, products: Iterable[Product], weights: Iterable[Tensor]) -> None:
        self.bytes = 0
        packed = [p for p in products if all(map(packable, p.weights))]
        matrices = [w for p in packed for w in p.weights]
        self._products: Sequence[Product] = packed if room(size(matrices)) else []
        self._weights = [w for w in weights if not w.is_inference()]
        self._version = version(self._weights)
        often = streamed(matrices)
        for product in self._products:
            product.copies = self
            product._one = all(for_one_row(w, streamed=often) for w in product.weights)

    def fresh(self) -> None:
        """Drop the copies where a weight was changed in place. Called before each forward."""
        if self._weights and (now := version(self._weights)) != self._version:
            self._version, self.bytes = now, 0
            for product in self._products:
                product.drop()
