"""Matrices in FP8 with a scale a row, and products with them: `torch._scaled_mm`, of states that get a scale a token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.decoder.shape import UnknownToDecoder
from decgraph.runtime.native.formats import QuantizedBlocks

FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class ScaledRows(QuantizedBlocks):
    """A matrix whose row n is data[n] times scale[n]. data: float8_e4m3fn [outputs, inputs]. scale: float32[outputs]. bound:
    states count as at most so large, where that is not 0."""

    scale: Tensor
    bound: float

    def __post_init__(self) -> None:
        if self.data.dtype != FP8 or self.data.shape != self.shape or self.scale.shape != self.shape[:1]:
            raise UnknownToDecoder(f"a matrix {list(self.data.shape)} in FP8 has scales {list(self.scale.shape)}")

    def reals(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """The matrix's rows float32[n, inputs]."""
        return self.data.float()[rows] * self.scale[rows, None]


class ScaledProduct(Product):
    """y = x W' + b of matrices in FP8 and states that are rounded to FP8, each row by its largest number; see `Product`."""

    def __init__(self, *matrices: Tensor | QuantizedBlocks, biases: tuple[Tensor | None, ...] = ()) -> None:
        super().__init__(biases=biases or (None,) * len(matrices))
        self.matrices, self._scaled = matrices, [m for m in matrices if isinstance(m, ScaledRows)]
        if len(self._scaled) < len(matrices):
            raise UnknownToDecoder("of matrices of one input some are in FP8")

    def by_torch(self) -> Product:
        """It is by torch's operations."""
        return self

    def dequantised(self) -> list[Tensor]:
        """The matrices [out, in] in float32 that the product is with."""
        return [m.reals() for m in self._scaled]

    def __call__(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """[n, out]; with `added` [n, out], the sum of both."""
        top = torch.finfo(FP8).max
        most = x.abs().amax(-1, keepdim=True).float()
        if self._scaled[0].bound:
            most = most.clamp(max=self._scaled[0].bound)
        scale = most.clamp(min=1e-12) / top
        rounded = (x.float() / scale).clamp(-top, top).to(FP8)
        parts = []
        for matrix, bias in zip(self._scaled, self.biases, strict=True):
            y = torch._scaled_mm(rounded, matrix.data.t(), scale, matrix.scale[None], out_dtype=torch.bfloat16).to(x.dtype)
            parts.append(y if bias is None else y + bias)
        y = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        return y if added is None else y + added
