"""Products of states with a model's matrices: which kernel computes them, and the copies of matrices that it reads.

On a CPU a product of several rows reads a copy of its matrix packed for oneDNN, and one row does where that is the fastest on
this processor (packs.py has the figures, one_row.py measures). On other devices, and where there is no memory for copies,
matrices are read as they lie.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Sequence
from pathlib import Path

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
        self._packed: Tensor | None = None
        self._bias: Tensor | None = None
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
            self._packed = self._pack()
        return torch.ops.mkldnn._linear_pointwise.default(x, self._packed, self._bias, "none", [], "")

    def _pack(self) -> Tensor:
        assert self.copies is not None
        whole = self.weights[0] if len(self.weights) == 1 else torch.cat(self.weights)
        some = [b for b in self.biases if b is not None]
        self._bias = torch.cat(some) if len(some) > 1 else some[0] if some else None
        packed = reordered(whole)
        self.copies.bytes += size(self.weights)
        if self.copies.mapped:
            for w in self.weights:
                self.copies.forget(w)
        return packed

    def drop(self) -> None:
        """Forget the copies: the matrix has changed."""
        self._packed = None


class Copies:
    """The packed copies of a decoder's matrices, each made when a product first reads it. bytes: what they take. mapped: the
    matrices are those of a file, whose pages may leave memory once they were copied."""

    def __init__(self, products: Iterable[Product], weights: Iterable[Tensor], *, mapped: bool = False) -> None:
        self.bytes, self.mapped = 0, mapped and hasattr(mmap, "MADV_DONTNEED")
        self._regions: list[tuple[int, int]] | None = None
        packed = [p for p in products if all(map(packable, p.weights))]
        matrices = [w for p in packed for w in p.weights]
        self._products: Sequence[Product] = packed if room(size(matrices)) else []
        self._weights = [w for w in weights if not w.is_inference()]
        self._version = version(self._weights)
        often = streamed(matrices)
        for product in self._products:
            product.copies = self
            product._one = all(for_one_row(w, streamed=often) for w in product.weights)

    def forget(self, tensor: Tensor) -> None:
        """Lets the pages of a mapped tensor leave memory: they are read from the file again where they are wanted. Nothing
        where it does not lie in a mapped file of weights."""
        if self._regions is None:
            self._regions = _mapped_files()
        first, last = tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()
        if any(low <= first and last <= high for low, high in self._regions):
            page = mmap.PAGESIZE
            first, last = -(-first // page) * page, last // page * page
            if last > first:
                ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED)

    def fresh(self) -> None:
        """Drop the copies where a weight was changed in place. Called before each forward."""
        if self._weights and (now := version(self._weights)) != self._version:
            self._version, self.bytes = now, 0
            for product in self._products:
                product.drop()


def _mapped_files() -> list[tuple[int, int]]:
    """The addresses at which safetensors files are mapped for reading (Linux)."""
    found = []
    try:
        for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.endswith(".safetensors"):
                low, _, high = line.split()[0].partition("-")
                found.append((int(low, 16), int(high, 16)))
    except OSError:
        pass
    return found
