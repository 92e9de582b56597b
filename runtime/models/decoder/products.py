"""Products of states with a model's matrices, as they lie in memory or in a file. On a CPU runtime/native computes them where
its library is (runtime/native/products.py); these are torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from decgraph.runtime.native.formats import QuantizedBlocks


class Product:
    """y = x W' + b for states x [n, in], with a matrix W [out, in] as the model has it, or several whose outputs stand side by
    side (they are not joined where they are a caller's, or mapped). owners: a module's parameters that have the same memory."""

    owners: tuple[Tensor, ...] = ()
    by_native = True
    """Whether native code may take its place on a CPU."""

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

    def by_torch(self) -> Product:
        """The same product by torch's operations, which graphs record."""
        return Product(*self.dequantised(), biases=self.biases)

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

    def side_by_side(self) -> Product:
        """The product with one matrix [sum n_i, in], of which the matrices of a caller's module become views: one launch in the
        place of several, and no more memory. For good as it is where somebody else has their memory: a graph of it may be
        captured."""
        if len(self.owners) < 2 or len(self.owners) != len(self.weights):
            return self
        whole = adjacent(self.owners)
        if whole is None:
            if any(p.grad is not None or _others(p) for p in self.owners):
                self.owners = ()
                return self
            whole = laid_together(self.owners)
            if whole.is_cuda:
                torch.cuda.empty_cache()  # of the old places no join to come can use one
        some = [b for b in self.biases if b is not None]
        made = Product(whole, biases=(torch.cat(some) if some else None,))
        if type(self) is Product:  # native code points to where the numbers were, and keeps them
            for weight, owner in zip(self.weights, self.owners, strict=True):
                weight.data = owner.data
            self.weights, self.matrices, self.biases = made.weights, made.matrices, made.biases
        return made


MOVED: MutableMapping[Tensor, tuple[int, int]] = WeakIdKeyDictionary()
"""The addresses of parameters that were laid together, and those that they had before."""


def laid_together(parts: Sequence[Tensor]) -> Tensor:
    """The matrix [sum n_i, in] of matrices [n_i, in], which become views of it."""
    whole, first = torch.cat([p.detach() for p in parts]), 0
    for p in parts:
        before = p.data_ptr()
        p.data = whole[first : first + len(p)]
        MOVED[p], first = (p.data_ptr(), before), first + len(p)
    return whole


def adjacent(parts: Sequence[Tensor]) -> Tensor | None:
    """The matrix [sum n_i, in] that matrices [n_i, in] are parts of, where they follow each other in memory."""
    first = parts[0]
    storage, at = first.untyped_storage().data_ptr(), first.storage_offset()
    for part in parts:
        if part.untyped_storage().data_ptr() != storage or part.storage_offset() != at or not part.is_contiguous():
            return None
        at += part.numel()
    return first.detach().as_strided((sum(map(len, parts)), first.shape[1]), first.stride(), first.storage_offset())


def _others(p: Tensor) -> bool:
    """Whether the memory of a parameter [n, in] is more than it, or somebody has a tensor of it but the parameter and the
    product: a flat buffer of parameters, a state_dict that was kept."""
    storage = p.untyped_storage()
    alone = type(p) is nn.Parameter and not p.is_inference() and p.is_contiguous() and storage.nbytes() == p.nbytes
    return not alone or torch._C._storage_Use_Count(storage._cdata) > 3  # and `storage`
