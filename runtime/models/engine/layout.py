"""What a step of an engine is, and the layout of the caches that it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor, Tensor, Sequence[Tensor], Sequence[Tensor], Mapping[str, Tensor]], Tensor]

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class Layout:
    """The cache layout of a module: per layer the heads and the sizes of keys and values; its layers' types in order,
    the window of sliding ones, the width of its last states, their dtype and device."""

    shapes: tuple[tuple[int, int, int], ...]
    types: tuple[str, ...]
    window: int | None
    width: int
    dtype: torch.dtype
    device: torch.device

    def zeros(self, *shape: int) -> Tensor:
        """Zeros of this dtype on this device."""
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    @property
    def cell_bytes(self) -> int:
        """Bytes of one token in a cache: keys, values and its last state."""
        kept = sum(heads * (keys + values) for heads, keys, values in self.shapes)
        return int((kept + self.width) * self.dtype.itemsize)
