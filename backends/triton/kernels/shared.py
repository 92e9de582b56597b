"""What the kernels share: sizes, devices, counters and pages."""

from __future__ import annotations

import torch
from torch import Tensor

INTERPRETED = 3
"""Programs where there is no device: few, since the interpreter runs them one after the other."""
PAGE = 64
"""Slots of a page of keys and values."""


def power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def about(device: torch.device) -> tuple[int, int]:
    """Multiprocessors of a device, and its architecture (90 for capability 9.0)."""
    if device.type != "cuda":
        return INTERPRETED, 90
    properties = torch.cuda.get_device_properties(device)
    return int(properties.multi_processor_count), 10 * int(properties.major) + int(properties.minor)


_COUNTERS: dict[tuple[str, int, int], Tensor] = {}


def counters(name: str, device: torch.device, n: int) -> Tensor:
    """int32[>= n], all zero: how many programs of a kernel are done with their share of something. The last one sets its
    counter back to zero, so that no launch has to clear them; they belong to one stream, whose launches follow one another."""
    if device.type != "cuda":
        return torch.zeros(n, dtype=torch.int32, device=device)
    key = (name, device.index or 0, torch.cuda.current_stream(device).cuda_stream)
    made = _COUNTERS.get(key)
    if made is None or len(made) < n:
        made = _COUNTERS[key] = torch.zeros(max(power(n), 1024), dtype=torch.int32, device=device)
    return made


def rows_of(pages: Tensor, slots: Tensor) -> Tensor:
    """The rows int64[B, T] of a pool of pages where the slots int64[B, T] of lanes are. pages: int32[B, N]."""
    return pages.gather(1, slots // PAGE).long() * PAGE + slots % PAGE


def by_cell(x: Tensor) -> Tensor:
    """The same [B, H, T, D], laid out as [B, T, H, D]."""
    return x.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)


def by_lane(a: Tensor, shape: torch.Size) -> Tensor:
    """[B, N] with an element for each row of [B, ...], N rows of a lane: without a copy where the lanes alone differ."""
    lanes = shape[0] if shape else 1
    return a.expand(shape).reshape(lanes, shape.numel() // max(lanes, 1))
