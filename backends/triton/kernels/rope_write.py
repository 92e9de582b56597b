# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Queries and keys rotated by their positions, and the new keys and values written to their slots in pages: one launch.

As torch this is eight to ten launches a layer, and Inductor copies the whole cache for the scatter.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from decgraph.backends.triton.kernels.shared import by_cell, power
from decgraph.errors import DecError


@triton.jit(do_not_specialize=["cells", "queries"])
def rope_write_kernel(
    q, k, v, cos, sin, slots, keys, values, out, cells, queries, heads,
    q_lane, q_head, q_cell, k_lane, k_head, k_cell, v_lane, v_head, v_cell, cos_lane, cos_cell, slots_lane, slots_cell,
    keys_head, keys_slot, values_head, values_slot,
    DK: tl.constexpr, DV: tl.constexpr, PAD: tl.constexpr, ROTARY: tl.constexpr,
):  # fmt: skip
    """One head of one cell: first the heads of queries, then those of keys, then those of values."""
    lane, cell, head = (tl.program_id(0) // cells).to(tl.int64), tl.program_id(0) % cells, tl.program_id(1)
    d = tl.arange(0, PAD)
    # How many dimensions are read of a query, and of a key: all or none.
    of_query = tl.where(head < queries, DK, 0)
    of_key = DK - of_query
    slot = tl.load(slots + lane * slots_lane + cell * slots_cell)
    if head >= queries + heads:
        mine = (head - queries - heads).to(tl.int64)
        x = tl.load(v + lane * v_lane + mine * v_head + cell * v_cell + d, mask=d < DV)
        tl.store(values + mine * values_head + slot * values_slot + d, x, mask=d < DV)
    else:
        mine = tl.where(head < queries, head, head - queries).to(tl.int64)
        own = mine * tl.where(head < queries, q_head, k_head) + lane * tl.where(head < queries, q_lane, k_lane)
        own += cell * tl.where(head < queries, q_cell, k_cell)
        x = tl.load(q + own + d, mask=d < of_query, other=0.0) + tl.load(k + own + d, mask=d < of_key, other=0.0)
        if ROTARY > 0:
            other = tl.where(d < ROTARY // 2, d + ROTARY // 2, d - ROTARY // 2)
            rotary = d < ROTARY
            y = tl.load(q + own + other, mask=rotary & (d < of_query), other=0.0)
            y += tl.load(k + own + other, mask=rotary & (d < of_key), other=0.0)
            angle = lane * cos_lane + cell * cos_cell + d
            c = tl.load(cos + angle, mask=rotary, other=1.0).to(tl.float32)
            s = tl.load(sin + angle, mask=rotary, other=0.0).to(tl.float32)
            wide = y.to(tl.float32)
            x = (x.to(tl.float32) * c + tl.where(d < ROTARY // 2, -wide, wide) * s).to(x.dtype)
        tl.store(out + ((lane * cells + cell) * queries + mine) * DK + d, x, mask=d < of_query)
        tl.store(keys + mine * keys_head + slot * keys_slot + d, x, mask=d < of_key)


def launch(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor | None, sin: Tensor | None, slots: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """The kernel's launch; arguments and shapes are those of `rope_write`. Raises DecError for what is laid out otherwise, and
    for types that differ."""
    batch, queries, cells, size = q.shape
    if any(t.stride(-1) != 1 for t in (q, k, v, keys, values)):
        raise DecError("the last axis of queries, keys and values is contiguous")
    if not q.dtype == k.dtype == v.dtype == keys.dtype == values.dtype:
        raise DecError(f"queries, keys, values and caches have one type, not {q.dtype}, {k.dtype}, {v.dtype}, {keys.dtype}")
    out = torch.empty((batch, cells, queries, size), dtype=q.dtype, device=q.device)
    slots = slots.expand(batch, cells)
    cosines = q if cos is None else cos.expand(batch, -1, -1)
    sines = q if sin is None else sin.expand(batch, -1, -1)
    if cos is not None and (cosines.stride(-1) != 1 or cosines.stride() != sines.stride()):
        raise DecError("cosines and sines are laid out alike, their last axis contiguous")
    heads = k.shape[1]
    rope_write_kernel[(batch * cells, queries + 2 * heads)](
        q, k, v, cosines, sines, slots, keys, values, out, cells, queries, heads,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *cosines.stride()[:2], *slots.stride(),
        *keys.stride()[:2], *values.stride()[:2],
        DK=size, DV=v.shape[3], PAD=power(max(size, v.shape[3])), ROTARY=0 if cos is None else cos.shape[2],
        num_warps=1,
    )  # fmt: skip
    return out.transpose(1, 2)


def rotated(x: Tensor, cos: Tensor | None, sin: Tensor | None) -> Tensor:
    """x [B, H, T, D], the first R dimensions of each head rotated in halves by cos, sin [B or 1, T, R]; computed in float32 (or
    float64) and rounded once."""
    if cos is None or sin is None:
        return x
    size = cos.shape[2]
    wide = torch.promote_types(x.dtype, torch.float32)
    turning = x[..., :size].to(wide)
    low, high = turning.chunk(2, -1)
    turned = turning * cos[:, None].to(wide) + torch.cat([-high, low], -1) * sin[:, None].to(wide)
    return torch.cat([turned.to(x.dtype), x[..., size:]], -1)


@torch.library.custom_op(
    "decgraph::rope_write", mutates_args=("keys", "values"), device_types="cpu",
    schema="(Tensor q, Tensor k, Tensor v, Tensor? cos, Tensor? sin, Tensor slots, Tensor(a!) keys, Tensor(b!) values)"
    " -> Tensor",
)  # fmt: skip
def rope_write(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor | None, sin: Tensor | None, slots: Tensor, keys: Tensor, values: Tensor
) -> Tensor:
    """The rotated queries [B, Hq, T, D], laid out as [B, T, Hq, D]; the rotated keys and the values are written to their slots.

    q: [B, Hq, T, D], k: [B, H, T, D], v: [B, H, T, Dv], any strides but the last. cos, sin: [B or 1, T, R], R <= D, or None: no
    rotation. keys, values: [H, S, D], [H, S, Dv], pages of all lanes. slots: int64[B or 1, T], of these; one that occurs twice
    gets equal values.
    """
    at = slots.expand(q.shape[0], -1).flatten()
    keys.index_copy_(1, at, rotated(k, cos, sin).transpose(0, 1).flatten(1, 2))
    values.index_copy_(1, at, v.transpose(0, 1).flatten(1, 2))
    return by_cell(rotated(q, cos, sin))


@rope_write.register_fake
def _(q, *others):
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1], q.shape[3])).transpose(1, 2)


rope_write.register_kernel("cuda")(launch)
