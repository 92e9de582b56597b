"""Products of states with matrices as they lie in a file: float32, or blocks of GGUF."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.native import library, threads

FORMATS = {
    "F32": (0, 1, 4),
    "Q8_0": (1, 32, 34),
    "Q4_0": (2, 32, 18),
    "Q4_1": (3, 32, 20),
    "Q4_K": (4, 256, 144),
    "Q6_K": (5, 256, 210),
}
"""By name: the library's number, and how many numbers and bytes a block has."""
Activations = Literal["int16", "float32", "int8"]
DOTS: dict[Activations, int] = {"float32": 0, "int16": 16, "int8": 8}
MANY = 64
"""From so many rows on a matrix is made float32 part by part, for torch's product."""
PART = 1 << 20  # numbers


class Matrix(ctypes.Structure):
    """See native.cpp."""

    _fields_ = [("data", ctypes.c_void_p), ("bias", ctypes.c_void_p)] + [
        (n, ctypes.c_int64) for n in ("n", "k", "format", "dot")
    ]


class Parts(ctypes.Structure):
    """`Product` of native.cpp."""

    _fields_ = [(n, ctypes.c_int64) for n in ("parts", "n", "k")] + [("part", Matrix * 3)]


@dataclass(frozen=True)
class Blocks:
    """A matrix [outputs, inputs] in blocks of `format`: data uint8[outputs, bytes of a row], mapped or not, aligned or not."""

    data: Tensor
    format: str
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        if self.format not in FORMATS or self.format == "F32":
            raise DecError(f"there is no product with blocks of {self.format}")
        _, numbers, size = FORMATS[self.format]
        outputs, inputs = self.shape
        d = self.data
        if (
            inputs % numbers
            or d.dtype != torch.uint8
            or not d.is_contiguous()
            or d.numel() != outputs * (inputs // numbers) * size
        ):
            raise DecError(f"{d.numel()} bytes of {d.dtype} are no matrix {list(self.shape)} of {self.format}")


class NativeProduct(Product):
    """y = x W' + b for states x [n, in], by runtime/native; see `Product`.

    matrices: at most three float32 [out, in] or blocks, of the same `in`. activations: what blocks are multiplied with.
    "int16" (for up to six rows; float32 for more) differs from the float32 product by 1e-5 of the greatest output, "int8" by
    3e-3. Raises DecError where the library is not there or a matrix is not such."""

    def __init__(
        self, *matrices: Tensor | Blocks, biases: tuple[Tensor | None, ...] = (), activations: Activations = "int16"
    ) -> None:
        found = library()
        if found is None:
            raise DecError("the library of runtime/native is not there")
        super().__init__(*(m for m in matrices if isinstance(m, Tensor)), biases=biases or (None,) * len(matrices))
        self.matrices: Sequence[Tensor | Blocks] = matrices
        self.activations = activations
        self._call = found.native_product
        inputs = int(matrices[0].shape[1])
        self.parts = Parts(len(matrices), sum(int(m.shape[0]) for m in matrices), inputs)
        if len(matrices) > 3 or any(m.shape[1] != inputs for m in matrices):
            raise DecError("a product has at most three matrices, of the same inputs")
        for n, (matrix, bias) in enumerate(zip(matrices, self.biases, strict=True)):
            data = matrix.data if isinstance(matrix, Blocks) else matrix
            for tensor in (data,) if bias is None else (data, bias):
                if (
                    tensor.device.type != "cpu"
                    or not tensor.is_contiguous()
                    or tensor.dtype not in (torch.float32, torch.uint8)
                ):
                    raise DecError("matrices are float32 or blocks on the CPU, as they lie in a file")
            form = FORMATS[matrix.format][0] if isinstance(matrix, Blocks) else 0
            at = None if bias is None else bias.data_ptr()
            self.parts.part[n] = Matrix(data.data_ptr(), at, matrix.shape[0], inputs, form, DOTS[activations])
        self._at = ctypes.addressof(self.parts)

    def __call__(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """[n, out]; with `added` [n, out], the sum of both."""
        if len(x) >= MANY:
            return self._by_torch(x, added)
        x = x.contiguous()
        if added is None:
            y = x.new_empty(len(x), self.parts.n)
        else:
            y = added.clone(memory_format=torch.contiguous_format)
        self._call(self._at, x.data_ptr(), len(x), added is not None, y.data_ptr(), threads())
        return y

    def _by_torch(self, x: Tensor, added: Tensor | None) -> Tensor:
        y = x.new_empty(len(x), self.parts.n)
        at = 0
        for n, (matrix, bias) in enumerate(zip(self.matrices, self.biases, strict=True)):
            outputs = int(matrix.shape[0])
            step = outputs if isinstance(matrix, Tensor) else max(1, PART // self.parts.k)
            for first in range(0, outputs, step):
                last = min(outputs, first + step)
                weight = matrix if isinstance(matrix, Tensor) else self._reals(n, first, last)
                y[:, at + first : at + last] = F.linear(x, weight, None if bias is None else bias[first:last])
            at += outputs
        return y if added is None else y.add_(added)

    def _reals(self, part: int, first: int, last: int) -> Tensor:
        made = torch.empty(last - first, self.parts.k)
        at = self._at + Parts.part.offset + part * ctypes.sizeof(Matrix)
        found = library()
        assert found is not None
        found.native_reals(at, first, last, made.data_ptr())
        return made

    def dequantised(self) -> list[Tensor]:
        """The matrices [out, in] in float32 that the product is with."""
        return [m if isinstance(m, Tensor) else self._reals(n, 0, m.shape[0]) for n, m in enumerate(self.matrices)]
