# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Compaction of the KV cache: the accepted path's slots of the tail become the next cached slots, in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from decgraph.backends.triton.attention.sizes import power
from decgraph.errors import DecError

ELEMENTS = 8192
"""Elements that a program loads at once."""


@triton.jit(do_not_specialize=["paths"])
def move_cells(
    table,
    cached,
    source,
    count,
    heads,
    capacity,
    width,
    batch_stride,
    head_stride,
    slot_stride,
    paths,
    K: tl.constexpr,
    PART: tl.constexpr,
    ELEMENT: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """Slots cached + source[k] become the slots cached + k, k < count, of one cache, sequence and head, PART columns of them.

    table: addresses of the caches. All rows are read before any is written, since source and destination overlap.
    """
    cache, b = tl.program_id(0), tl.program_id(1) // heads
    head, part = tl.program_id(1) % heads, tl.program_id(2)
    lane, column = tl.arange(0, K), part * PART + tl.arange(0, PART)
    kept = tl.load(cached + b)
    taken = tl.load(source + b.to(tl.int64) * paths + lane, mask=lane < tl.minimum(tl.load(count + b), paths), other=-1)
    # Rows at their destination stay: a fully accepted chain moves nothing.
    moves = (taken > lane) & (kept + taken < capacity)
    mask = moves[:, None] & (column < width)[None, :]
    kind: tl.constexpr = tl.dtype(ELEMENT)
    base = tl.load(table + cache).to(tl.pointer_type(kind))
    if ALIGNED:
        base = tl.multiple_of(base, 16)
    base += b.to(tl.int64) * batch_stride + head.to(tl.int64) * head_stride
    rows = tl.load(base + (kept + taken)[:, None] * slot_stride + column[None, :], mask=mask, other=0)
    tl.debug_barrier()
    tl.store(base + (kept + lane)[:, None] * slot_stride + column[None, :], rows, mask=mask)


class Mover:
    """Moves accepted rows within caches of fixed addresses. caches: [B, H, S, D], or [B, S, D] for last states; one
    launch for all that have one shape, strides and type. Create it before a capture: it copies the addresses to the device."""

    def __init__(self, caches: Sequence[Tensor]) -> None:
        kinds: dict[tuple[object, ...], list[Tensor]] = {}
        for cache in caches:
            whole = cache if cache.ndim == 4 else cache.unsqueeze(1)
            if whole.ndim != 4 or whole.stride(-1) != 1:
                raise DecError(f"a cache is [B, H, S, D] or [B, S, D] with its last axis contiguous, not {tuple(cache.shape)}")
            kinds.setdefault((whole.shape, whole.stride(), whole.dtype.itemsize), []).append(whole)
        self._groups = [
            (group, torch.tensor([c.data_ptr() for c in group], dtype=torch.int64).to(group[0].device))
            for group in kinds.values()
        ]

    @property
    def launches(self) -> int:
        """Kernels that one move takes."""
        return len(self._groups)

    def __call__(self, cached: Tensor, source: Tensor, count: Tensor) -> None:
        """Tail cells source[b, 0 .. count[b]-1] (int64[B, K], ascending) go to the slots cached[b], cached[b]+1, ...

        cached, count: int32[B]. Slots from cached + count on are undefined afterwards."""
        batch, paths = source.shape
        if paths == 0:
            return
        lanes = power(paths)
        for group, table in self._groups:
            _, heads, capacity, width = group[0].shape
            part = min(power(width), max(ELEMENTS // lanes, 16))
            move_cells[(len(group), batch * heads, -(-width // part))](
                table,
                cached,
                source.contiguous(),
                count,
                heads,
                capacity,
                width,
                *group[0].stride()[:3],
                paths,
                K=lanes,
                PART=part,
                ELEMENT=_BITS[group[0].dtype.itemsize],
                ALIGNED=all(c.data_ptr() % 16 == 0 for c in group),
                num_warps=4,
            )


_BITS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
"""Integer types of the same width: bits are moved, whatever the dtype."""


def move(caches: Sequence[Tensor], cached: Tensor, source: Tensor, count: Tensor) -> None:
    """One move; arguments as of `Mover`: cached, count int32[B], source int64[B, K]. Not for captures: use a `Mover`."""
    Mover(caches)(cached, source, count)
