"""Matrices in blocks of GGUF, in which a few numbers share a scale, and what numbers they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.native import FORMATS

PART = 1 << 20
"""Numbers that are made of blocks at once."""


@dataclass(frozen=True)
class QuantizedBlocks:
    """A matrix [outputs, inputs] in blocks of `format`: data uint8, its bytes, mapped or not, aligned or not."""

    data: Tensor
    format: str
    shape: tuple[int, int]
    multiplied: ClassVar[Callable[..., object] | None] = None
    """What makes the product with matrices of this kind, where it is one of their own."""

    def __post_init__(self) -> None:
        _, numbers, size = FORMATS.get(self.format, (0, 0, 0))
        if not numbers:
            raise DecError(f"there is no product with blocks of {self.format}")
        count = self.shape[0] * (self.shape[1] // numbers) * size
        if self.shape[1] % numbers or self.data.dtype != torch.uint8 or self.data.numel() != count:
            raise DecError(f"{self.data.numel()} bytes are no matrix {list(self.shape)} of {self.format}")

    def __len__(self) -> int:
        return self.shape[0]

    def reals(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """The matrix's rows float32[n, inputs], by torch."""
        parts = self.data.view(self.shape[0], -1)[rows].split(max(1, PART // self.shape[1]))
        return torch.cat([reals(part, self.format) for part in parts])


def reals(data: Tensor, form: str) -> Tensor:
    """Blocks uint8[n, bytes] of a format in float32 [n, numbers], by torch: number for number those of the library."""
    _, numbers, size = FORMATS[form]
    if numbers == 1:
        return data.clone().view(torch.float16 if form == "F16" else torch.bfloat16).float()
    b = data.reshape(len(data), -1, size)

    def half(at: int) -> Tensor:
        return b[..., at : at + 2].contiguous().view(torch.float16).float()

    def nibbles(at: int, count: int) -> Tensor:
        part = b[..., at : at + count].unflatten(-1, (-1, min(count, 32)))
        return torch.stack([part & 15, part >> 4], -2).flatten(-3)  # of each 16 or 32 bytes the low ones, then the high ones

    match form:
        case "Q8_0":
            made = half(0) * b[..., 2:].contiguous().view(torch.int8)
        case "Q4_0":
            made = half(0) * (nibbles(2, 16).float() - 8)
        case "Q4_1":
            made = half(0) * nibbles(4, 16) + half(2)
        case "Q5_0":
            made = half(0) * ((nibbles(6, 16) | _bits(b[..., 2:6]) << 4).float() - 16)
        case "Q5_1":
            made = half(0) * (nibbles(8, 16) | _bits(b[..., 4:8]) << 4) + half(2)
        case "Q4_K" | "Q5_K":
            s = b[..., 4:16].unflatten(-1, (3, 4))
            low, high = s[..., :2, :] & 63, s[..., :2, :] >> 6 << 4
            steps, offsets = (
                torch.cat([low[..., n, :], (s[..., 2, :] >> 4 * n & 15) | high[..., n, :]], -1).float() for n in range(2)
            )
            levels = nibbles(16 if form == "Q4_K" else 48, 128).unflatten(-1, (8, 32))
            if form == "Q5_K":
                levels = levels | (b[..., None, 16:48] >> torch.arange(8, device=b.device)[:, None] & 1) << 4
            made = (half(0) * steps)[..., None] * levels - (half(2) * offsets)[..., None]
        case _:  # Q6_K
            low = nibbles(0, 128).unflatten(-1, (2, 2, 2, 32))
            low = torch.stack([low[..., 0, 0, :], low[..., 1, 0, :], low[..., 0, 1, :], low[..., 1, 1, :]], -2).flatten(-2)
            twos = 2 * torch.arange(4, device=b.device)[:, None]
            top = (b[..., 128:192].unflatten(-1, (2, 1, 32)) >> twos & 3).flatten(-2)
            levels = (low | top << 4).flatten(-2).float() - 32
            steps = b[..., 192:208].contiguous().view(torch.int8).float()
            made = (half(208) * steps)[..., None] * levels.unflatten(-1, (16, 16))
    return made.reshape(len(data), -1)


def _bits(data: Tensor) -> Tensor:
    """The bits of bytes uint8[..., n], lowest first: uint8[..., 8 n]."""
    return (data[..., None] >> torch.arange(8, dtype=torch.uint8, device=data.device) & 1).flatten(-2)
