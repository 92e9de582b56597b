# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Attention of new cells over the slots that each of them sees: chains, trees, canvases and blocks of them, over pages.

A *tile* is some of the query rows of one lane and one key/value head: row t * GROUP + g is cell t under query head
head * GROUP + g. The slots that a tile sees are cut into as many *parts* as the shapes say, each a program that leaves its
maximum, its weight and its weighted values, undivided. A second launch has a program for each row, which adds the parts. Where
one part is enough there is no second launch. So grids depend on shapes alone, a captured launch fits every later length, only
slots that some cell may see are read, and sums have the same order in every call.

The queries and keys of new cells may come unrotated, and their keys and values unwritten. Then each part first writes those
whose slots it is about to read: nothing that a program reads is written by another one alone, so that no launch is needed
between. Parts of several tiles write the same numbers.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from decgraph.backends.triton.kernels.shared import PAGE, about, by_cell, power, rows_of
from decgraph.backends.triton.models.interface import Seen
from decgraph.errors import DecError

# The interpreter keeps bfloat16 as its bits, and multiplies those.
WIDEN = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
EDGE = tl.constexpr(16)  # slots at a time where some rows see them and some do not: masks take registers


@triton.jit
def product(left, right, total):
    """total + left @ right in float32."""
    if WIDEN:
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, total, input_precision="ieee")


@triton.jit
def fold(top, weight, total, scores, value):
    """One more block in a running softmax: scores fp32[ROWS, BLOCK] in powers of two, -inf where nothing is seen; value
    [BLOCK, DV]. A row that has seen nothing yet keeps top = -inf and sums of zero."""
    higher = tl.maximum(top, tl.max(scores, 1))
    shift = tl.where(higher == float("-inf"), 0.0, higher)
    seen = tl.exp2(scores - shift[:, None])
    shrink = tl.exp2(top - shift)
    weight = weight * shrink + tl.sum(seen, 1)
    total = product(seen.to(value.dtype), value, total * shrink[:, None])
    return higher, weight, total


@triton.jit
def scored(query, key, scale, cap, CAP: tl.constexpr):
    """Scores times log2(e). cap: scores become cap * tanh(score / cap)."""
    scores = product(query, key, tl.zeros((query.shape[0], key.shape[1]), tl.float32))
    if CAP:
        # tanh(x) = 1 - 2 / (e**2x + 1), which is right at both infinities
        bent = 1.0 - 2.0 / (tl.exp2(scores * (scale / cap * 2.8853900817779268)) + 1.0)
        return bent * (cap * 1.4426950408889634)
    return scores * (scale * 1.4426950408889634)


@triton.jit
def turned(x, cos, sin, d, mask, D: tl.constexpr, ROTARY: tl.constexpr):
    """Heads [N, D] at x [N, 1], the first ROTARY numbers of each rotated in halves by those at cos, sin [N, 1]; computed in
    float32 and rounded once. d: [1, D padded]."""
    HALF: tl.constexpr = ROTARY // 2
    y = tl.load(x + d, mask=mask & (d < D), other=0.0)
    if ROTARY > 0:
        turning = mask & (d < ROTARY)
        other = tl.load(x + (d + HALF) % ROTARY, mask=turning, other=0.0).to(tl.float32)
        c = tl.load(cos + d, mask=turning, other=1.0).to(tl.float32)
        s = tl.load(sin + d, mask=turning, other=0.0).to(tl.float32)
        y = (y.to(tl.float32) * c + tl.where(d < HALF, -other, other) * s).to(y.dtype)
    return y


@triton.jit(do_not_specialize=["tiles", "cells", "width"])
def parts_kernel(
    q, keys, values, pages, below, tail, first, positions, slot_positions, k, v, slots, cos, sin, out, parts, stats,
    heads, tiles, cells, width, capacity, scale, cap,
    q_lane, q_head, q_cell, keys_head, keys_slot, values_head, values_slot, pages_lane,
    below_lane, below_cell, tail_lane, tail_cell, first_lane, position_lane, position_cell, slot_lane,
    k_lane, k_head, k_cell, v_lane, v_head, v_cell, new_lane, new_cell, cos_lane, cos_cell,
    NEW: tl.constexpr, ROTARY: tl.constexpr, CELLS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, PAGE: tl.constexpr,
    DK: tl.constexpr, DV: tl.constexpr, DK_PAD: tl.constexpr, DV_PAD: tl.constexpr, PARTS: tl.constexpr,
    TAIL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr,
):  # fmt: skip
    """One part of one tile. NEW: how many new keys and values are written at a time; 0: they are in their slots. parts: fp32
    [units, PARTS, ROWS, DV], stats: fp32 [units, PARTS, ROWS, 2], a unit being a lane, a head and a tile; out: [batch, cells,
    heads * GROUP, DV], written where there is one part."""
    unit, part = tl.program_id(0), tl.program_id(1)
    tile, head, b = unit % tiles, unit // tiles % heads, (unit // tiles // heads).to(tl.int64)
    # What the lane sees: up to which slot, and from which, since a window leaves out the first ones.
    some = tl.arange(0, CELLS)
    limit = tl.max(tl.load(below + b * below_lane + some * below_cell, mask=some < cells, other=0), 0).to(tl.int32)
    begin = limit * 0
    if TAIL:
        begin = tl.load(first + b * first_lane).to(tl.int32)
        limit = tl.maximum(limit, begin + width)
    limit = tl.minimum(limit, capacity)
    start = limit * 0
    if WINDOW > 0:
        lowest = tl.min(tl.load(positions + b * position_lane + some * position_cell, mask=some < cells, other=2147483647), 0)
        start = tl.minimum(tl.maximum(lowest.to(tl.int32) - WINDOW + 1, 0), limit) // BLOCK * BLOCK
    blocks = (limit - start + BLOCK - 1) // BLOCK
    each = (blocks + PARTS - 1) // PARTS
    block, stop = tl.minimum(part * each, blocks), tl.minimum((part + 1) * each, blocks)

    in_row, dk, dv = tl.arange(0, ROWS), tl.arange(0, DK_PAD), tl.arange(0, DV_PAD)
    row = tile * ROWS + in_row
    cell, valid = row // GROUP, row < cells * GROUP
    query_head = head * GROUP + row % GROUP
    table = pages + b * pages_lane
    key_base, value_base = keys + head.to(tl.int64) * keys_head, values + head.to(tl.int64) * values_head
    cos, sin = cos + b * cos_lane, sin + b * cos_lane
    if NEW > 0:
        # New keys and values of the slots of this part, so many cells at a time.
        high = tl.minimum(start + stop * BLOCK, limit)
        for n in range(0, cells, NEW):
            new = n + tl.arange(0, NEW)
            slot = tl.load(slots + b * new_lane + new * new_cell, mask=new < cells, other=-1).to(tl.int32)
            mine = (slot >= start + block * BLOCK) & (slot < high)
            if tl.max(mine.to(tl.int32), 0) > 0:
                line = new[:, None].to(tl.int64)
                place = (tl.load(table + slot // PAGE, mask=mine, other=0).to(tl.int64) * PAGE + slot % PAGE)[:, None]
                angle = line * cos_cell
                x = k + b * k_lane + head * k_head + line * k_cell
                x = turned(x, cos + angle, sin + angle, dk[None, :], mine[:, None], DK, ROTARY)
                tl.store(key_base + place * keys_slot + dk[None, :], x, mask=mine[:, None] & (dk < DK)[None, :])
                written = mine[:, None] & (dv < DV)[None, :]
                y = tl.load(v + b * v_lane + head * v_head + line * v_cell + dv[None, :], mask=written, other=0.0)
                tl.store(value_base + place * values_slot + dv[None, :], y, mask=written)
        tl.debug_barrier()  # every thread has stored before one reads
    x = q + b * q_lane + (cell * q_cell + query_head * q_head)[:, None]
    angle = (cell * cos_cell)[:, None]
    query = turned(x, cos + angle, sin + angle, dk[None, :], valid[:, None], DK, ROTARY)
    under = tl.load(below + b * below_lane + cell * below_cell, mask=valid, other=0).to(tl.int32)
    oldest = cell * 0
    if WINDOW > 0:
        oldest = tl.load(positions + b * position_lane + cell * position_cell, mask=valid, other=0).to(tl.int32) - WINDOW + 1

    top = tl.full((ROWS,), float("-inf"), tl.float32)
    weight = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, DV_PAD), tl.float32)
    whole = tl.min(tl.where(valid, under, 2147483647), 0)  # all rows see the slots below, but for a window
    inner = tl.minimum(tl.maximum((whole - start) // BLOCK, block), stop)
    column, edge = tl.arange(0, BLOCK), tl.arange(0, EDGE)
    for n in tl.range(block, inner):
        at = start + n * BLOCK
        place = tl.load(table + at // PAGE).to(tl.int64) * PAGE + at % PAGE
        some_keys = key_base + place * keys_slot + column[None, :] * keys_slot + dk[:, None]
        key = tl.load(some_keys) if DK == DK_PAD else tl.load(some_keys, mask=(dk < DK)[:, None], other=0.0)
        scores = scored(query, key, scale, cap, CAP)
        if WINDOW > 0:
            age = tl.load(slot_positions + b * slot_lane + at + column).to(tl.int32)
            scores = tl.where(age[None, :] >= oldest[:, None], scores, float("-inf"))
        some_values = value_base + place * values_slot + column[:, None] * values_slot + dv[None, :]
        value = tl.load(some_values) if DV == DV_PAD else tl.load(some_values, mask=(dv < DV)[None, :], other=0.0)
        top, weight, total = fold(top, weight, total, scores, value)
    for n in tl.range(inner * (BLOCK // EDGE), stop * (BLOCK // EDGE), num_stages=1):
        # Slots that some rows see and some do not.
        at = start + n * EDGE
        place = tl.load(table + at // PAGE, mask=at < limit, other=0).to(tl.int64) * PAGE + at % PAGE
        slot = at + edge
        visible = (slot[None, :] < under[:, None]) & valid[:, None]
        if TAIL:
            flag = tl.load(
                tail + b * tail_lane + cell[:, None] * tail_cell + (slot - begin)[None, :],
                mask=valid[:, None] & ((slot >= begin) & (slot < begin + width) & (slot < limit))[None, :], other=0,
            )  # fmt: skip
            visible = visible | (flag != 0)
        if WINDOW > 0:
            age = tl.load(slot_positions + b * slot_lane + slot, mask=slot < limit, other=0).to(tl.int32)
            visible = visible & (age[None, :] >= oldest[:, None])
        # Slots that no row of the tile sees may have NaN, and zero times NaN is NaN.
        needed = tl.max(visible.to(tl.int32), 0) > 0
        key = tl.load(
            key_base + place * keys_slot + edge[None, :] * keys_slot + dk[:, None],
            mask=needed[None, :] & (dk < DK)[:, None], other=0.0,
        )  # fmt: skip
        scores = tl.where(visible, scored(query, key, scale, cap, CAP), float("-inf"))
        value = tl.load(
            value_base + place * values_slot + edge[:, None] * values_slot + dv[None, :],
            mask=needed[:, None] & (dv < DV)[None, :], other=0.0,
        )  # fmt: skip
        top, weight, total = fold(top, weight, total, scores, value)

    keep = valid[:, None] & (dv < DV)[None, :]
    if PARTS == 1:
        done = total / tl.where(weight == 0.0, 1.0, weight)[:, None]
        line = (b * cells + cell) * (heads * GROUP) + query_head
        tl.store(out + line[:, None] * DV + dv[None, :], done.to(out.dtype.element_ty), mask=keep)
    else:
        line = (unit.to(tl.int64) * PARTS + part) * ROWS + in_row
        tl.store(parts + line[:, None] * DV + dv[None, :], total, mask=keep)
        tl.store(stats + line * 2, top, mask=valid)
        tl.store(stats + line * 2 + 1, weight, mask=valid)


@triton.jit(do_not_specialize=["tiles", "cells", "heads"])
def sum_kernel(
    parts, stats, out, heads, tiles, cells,
    GROUP: tl.constexpr, ROWS: tl.constexpr, DV: tl.constexpr, DV_PAD: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """One row of a unit: its parts over their common weight."""
    unit, in_row = tl.program_id(0), tl.program_id(1)
    row = unit % tiles * ROWS + in_row
    if row < cells * GROUP:
        dv = tl.arange(0, DV_PAD)
        line = (unit.to(tl.int64) * PARTS + tl.arange(0, PARTS)) * ROWS + in_row
        tops, weights = tl.load(stats + line * 2), tl.load(stats + line * 2 + 1)
        sums = tl.load(parts + line[:, None] * DV + dv[None, :], mask=(dv < DV)[None, :], other=0.0)
        top = tl.max(tops, 0)
        grown = tl.exp2(tops - tl.where(top == float("-inf"), 0.0, top))
        weight = tl.sum(weights * grown, 0)
        done = tl.sum(sums * grown[:, None], 0) / tl.where(weight == 0.0, 1.0, weight)
        b, head = (unit // tiles // heads).to(tl.int64), unit // tiles % heads
        target = (b * cells + row // GROUP) * (heads * GROUP) + head * GROUP + row % GROUP
        tl.store(out + target * DV + dv, done.to(out.dtype.element_ty), mask=dv < DV)


class Sizes(NamedTuple):
    """rows: query rows of a tile; block: slots at a time, which divide PAGE; programs: how many fill the device."""

    rows: int
    block: int
    warps: int
    stages: int
    programs: int


def sizes(rows: int, size: int, itemsize: int, processors: int, arch: int = 90) -> Sizes:
    """Sizes for `rows` query rows under one key/value head, and heads of `size` (a power of two, at least 16).

    All rows that share a key/value head should be in one tile, so that its keys are read once. A tile of few rows waits for
    memory: two programs a processor, three blocks in flight each. One of 128 rows, or of large heads, fills a processor's
    registers alone. Hopper multiplies out of shared memory, where the others have a query and a block of keys in registers and
    take smaller blocks; whole float32 products have no tensor cores at all.
    """
    if itemsize > 2:
        return Sizes(16, 16, 8, 1, processors)
    if size > 128:
        return Sizes(16, 32, 8, 3, processors)
    tile = min(max(power(rows), 16), 128)
    if tile <= 32:
        # Heads of 64 leave room for a third program.
        small = size <= 64 and arch >= 90
        return Sizes(tile, 64, 4 if arch >= 90 else 8, 2 if small else 3, (3 if small else 2) * processors)
    return Sizes(tile, 32, 8, 4, processors) if arch >= 90 else Sizes(128, 16, 8, 4, processors)


PARTS = 64
"""Parts of a tile, at most."""


def launch(
    q: Tensor, keys: Tensor, values: Tensor, pages: Tensor, below: Tensor, tail: Tensor | None = None,
    first: Tensor | None = None, scale: float = 1.0, window: int | None = None, positions: Tensor | None = None,
    slot_positions: Tensor | None = None, softcap: float | None = None, k: Tensor | None = None, v: Tensor | None = None,
    slots: Tensor | None = None, cos: Tensor | None = None, sin: Tensor | None = None, *, count: int | None = None,
) -> Tensor:  # fmt: skip
    """The kernels' launches; arguments and shapes are those of `form`. count: parts of a tile, a power of two. Raises DecError
    for what is laid out otherwise."""
    batch, wide, cells, dk = q.shape
    heads, dv, capacity = keys.shape[0], values.shape[2], pages.shape[1] * PAGE
    if q.dtype.itemsize > 4 or not q.dtype == keys.dtype == values.dtype:
        raise DecError(f"queries, keys, values have one type of at most 32 bits, not {q.dtype}, {keys.dtype}, {values.dtype}")
    if any(t.stride(-1) != 1 for t in (q, keys, values, pages, tail, k, v, cos, sin) if t is not None):
        raise DecError("the last axis of queries, keys, values, page tables, masks, cosines and sines is contiguous")
    if any(t is not None and t.dtype != q.dtype for t in (k, v)):
        raise DecError(f"new keys and values have the type of queries, {q.dtype}")
    if cos is not None and (sin is None or sin.stride() != cos.stride()):
        raise DecError("cosines and sines are laid out alike")
    if window is not None and (positions is None or slot_positions is None):
        raise DecError("a window needs the positions of the cells and of the slots")
    group, rotary, new = wide // heads, 0 if cos is None else cos.shape[2], 0 if k is None else min(power(cells), 16)
    s = sizes(cells * group, max(power(dk), power(dv), 16), q.dtype.itemsize, *about(q.device))
    tiles = -(-cells * group // s.rows)
    units = batch * heads * tiles
    # As many as fill the device, and no more than there can be blocks.
    count = count or max(1, min(PARTS, s.programs // max(units, 1), capacity // s.block))
    count = 1 << (count.bit_length() - 1)

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=q.device)

    out = empty(batch, cells, wide, dv, dtype=q.dtype)
    parts, stats = (empty(units, count, s.rows, n) for n in (dv, 2)) if count > 1 else (out, out)
    below = below.expand(batch, cells)
    masks = below if tail is None else tail.expand(batch, -1, -1).view(torch.uint8)
    starts = below if first is None else first.expand(batch)
    at = below if positions is None else positions.expand(batch, cells)
    noted = below if slot_positions is None else slot_positions.expand(batch, -1)
    k, v, slots = (q, q, below) if k is None or v is None or slots is None else (k, v, slots.expand(batch, cells))
    cos, sin = (q[0], q[0]) if cos is None or sin is None else (t.expand(batch, -1, -1) for t in (cos, sin))
    constants = {"GROUP": group, "ROWS": s.rows, "DV": dv, "DV_PAD": max(power(dv), 16), "PARTS": count}
    parts_kernel[(units, count)](
        q, keys, values, pages, below, masks, starts, at, noted, k, v, slots, cos, sin, out, parts, stats,
        heads, tiles, cells, 0 if tail is None else tail.shape[2], capacity, scale, softcap or 0.0,
        *q.stride()[:3], *keys.stride()[:2], *values.stride()[:2], pages.expand(batch, -1).stride(0), *below.stride(),
        masks.stride(0), masks.stride(1), starts.stride(0), *at.stride(), noted.stride(0),
        *k.stride()[:3], *v.stride()[:3], *slots.stride(), *cos.stride()[:2],
        NEW=new, ROTARY=rotary, CELLS=power(cells), BLOCK=s.block, PAGE=PAGE, DK=dk, DK_PAD=max(power(dk), 16),
        TAIL=tail is not None, WINDOW=window or 0, CAP=softcap is not None, **constants,
        num_warps=s.warps, num_stages=s.stages,
    )  # fmt: skip
    if count > 1:
        grid, warps = (units, min(s.rows, cells * group)), min(max(count * constants["DV_PAD"] // 2048, 1), 8)
        sum_kernel[grid](parts, stats, out, heads, tiles, cells, **constants, num_warps=warps)
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
    moved = turning * cos[:, None].to(wide) + torch.cat([-high, low], -1) * sin[:, None].to(wide)
    return torch.cat([moved.to(x.dtype), x[..., size:]], -1)


def form(
    q: Tensor, keys: Tensor, values: Tensor, pages: Tensor, below: Tensor, tail: Tensor | None = None,
    first: Tensor | None = None, scale: float = 1.0, window: int | None = None, positions: Tensor | None = None,
    slot_positions: Tensor | None = None, softcap: float | None = None, k: Tensor | None = None, v: Tensor | None = None,
    slots: Tensor | None = None, cos: Tensor | None = None, sin: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Attention of T cells of B lanes: what the kernels mean, in torch.

    q: [B, Hq, T, D]; keys, values: [H, S, D], [H, S, Dv], pages of all lanes, Hq a multiple of H. pages: int32[B, N], where the
    pages of each lane are: its slot s is row pages[b, s // PAGE] * PAGE + s % PAGE. Behind what is seen the table has any
    pages there are. A cell sees the slots below below[b, t] (int64[B or 1, T]), and slot first[b] + u (int64[B or 1]) where
    tail[b, t, u] (bool[B or 1, T, U]). window: only slots whose position slot_positions[b, s] is above positions[b, t] - window
    (int64[B or 1, N * PAGE], [B or 1, T]); no slot's position is above its number. softcap: scores become
    softcap * tanh(score / softcap). k, v: [B, H, T, D], [B, H, T, Dv], keys and values of the cells, which are written to their
    slots int64[B or 1, T] first; kernels leave out those behind all that some cell of the lane sees. A slot that is seen and
    occurs twice gets equal values. None: they are there already. cos, sin: [B or 1, T, R], R <= D, by which `q` and `k` are
    rotated first. Slots that nobody sees have finite numbers here. Returns [B, Hq, T, Dv] of q's type, laid out as
    [B, T, Hq, Dv]; cells that see nothing are zeros.
    """
    if k is not None and v is not None and slots is not None:
        at = rows_of(pages, slots.expand(len(pages), -1)).flatten()
        keys.index_copy_(1, at, rotated(k, cos, sin).transpose(0, 1).flatten(1, 2))
        values.index_copy_(1, at, v.transpose(0, 1).flatten(1, 2))
    q = rotated(q, cos, sin)
    used = int(below.max())  # no slot behind these is read
    if tail is not None and first is not None:
        used = max(used, int(first.max()) + tail.shape[2])
    rows = rows_of(pages, torch.arange(min(max(used, 1), pages.shape[1] * PAGE), device=q.device).expand(len(pages), -1))
    keys, values = (pool[:, rows].transpose(0, 1) for pool in (keys, values))
    seen = Seen(below.expand(q.shape[0], q.shape[2]), tail, first).dense(keys.shape[2])
    if window is not None and positions is not None and slot_positions is not None:
        seen = seen & (positions[..., None] - slot_positions[:, None, : keys.shape[2]] < window)
    if softcap is None:
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen[:, None], scale=scale, enable_gqa=True)
    else:
        group = q.shape[1] // keys.shape[1]
        wide_keys, wide_values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        scores = torch.tanh(q @ wide_keys.mT * (scale / softcap)) * softcap
        out = torch.softmax(scores.masked_fill(~seen[:, None], -torch.inf), -1) @ wide_values
    return by_cell(torch.where(seen.any(-1)[:, None, :, None], out, 0.0))


attend = torch.library.custom_op(
    "decgraph::attend", form, mutates_args=("keys", "values"), device_types="cpu",
    schema="(Tensor q, Tensor(a!) keys, Tensor(b!) values, Tensor pages, Tensor below, Tensor? tail=None, Tensor? first=None,"
    " float scale=1.0, int? window=None, Tensor? positions=None, Tensor? slot_positions=None, float? softcap=None,"
    " Tensor? k=None, Tensor? v=None, Tensor? slots=None, Tensor? cos=None, Tensor? sin=None) -> Tensor",
)  # fmt: skip
attend.register_kernel("cuda")(launch)


@attend.register_fake
def _(q, keys, values, *others):
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1], values.shape[2])).transpose(1, 2)
