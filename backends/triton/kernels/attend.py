# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Attention of new cells over the slots that each of them sees: chains, trees, canvases and blocks of them.

A *tile* is some of the query rows of one lane and one key/value head: row t * GROUP + g is cell t under query head
head * GROUP + g. A *unit* is one tile against one block of slots. Units are numbered by (lane, head, tile, block), and every
program takes a run of neighbouring units, all runs equally long but for one unit. The numbers come from what is seen, on the
device, so that a captured launch fits whatever that is later, and only slots that some cell may see are read.

A tile whose blocks all lie in one run is finished there. Else each of its runs leaves a part: sums that are not divided
yet, with their maximum and weight; a run has at most two such tiles, the first and the last of its own. The last run of a tile
to arrive merges its parts, in the order of the runs, so that results do not depend on which run is last.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from decgraph.backends.triton.kernels.shared import about, by_cell, counters, power
from decgraph.backends.triton.models.interface import Seen
from decgraph.errors import DecError

# The interpreter keeps bfloat16 as its bits, and multiplies those.
WIDEN = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


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
def run_start(run, per, more):
    """First unit of a run: the first `more` runs have per + 1 units, the others `per`."""
    return run * per + tl.minimum(run, more)


@triton.jit
def run_of(unit, per, more):
    """The run that has a unit."""
    wide = more * (per + 1)
    return tl.where(unit < wide, unit // (per + 1), more + (unit - wide) // tl.maximum(per, 1))


@triton.jit
def span(below, first, width, capacity, positions, there, lanes, TAIL: tl.constexpr, WINDOW: tl.constexpr, AXIS: tl.constexpr):
    """(up to which slot some cell sees, from which: a window leaves out the first ones, and where the tail begins), of one lane
    or of several: the cells lie along AXIS."""
    limit = tl.max(tl.load(below, mask=there, other=0), AXIS).to(tl.int32)
    begin = limit * 0
    if TAIL:
        begin = tl.load(first, mask=lanes, other=0).to(tl.int32) if AXIS == 1 else tl.load(first).to(tl.int32)
        limit = tl.maximum(limit, begin + width)
    limit = tl.minimum(limit, capacity)
    start = limit * 0
    if WINDOW > 0:
        lowest = tl.min(tl.load(positions, mask=there, other=2147483647), AXIS).to(tl.int32)
        start = tl.minimum(tl.maximum(lowest - WINDOW + 1, 0), limit)
    return limit, start, begin


@triton.jit(noinline=True)
def merged(
    parts, stats, out, counter, low, high, split_first, rows, base, heads_all, head_first,
    GROUP: tl.constexpr, ROWS: tl.constexpr, DV: tl.constexpr, DV_PAD: tl.constexpr, SOME: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """The parts of one tile in the runs low .. high, SPLITS parts of SOME rows at a time. split_first: 1 where the run `low`
    has the tile as its last. base: the tile's first row; rows: how many it has; head_first: its first query head, or lane's
    line."""
    dv, lane = tl.arange(0, DV_PAD), tl.arange(0, SPLITS)
    for begin in range(0, rows, SOME):
        inside = begin + tl.arange(0, SOME)
        top = tl.full((SOME,), float("-inf"), tl.float32)
        weight = tl.zeros((SOME,), tl.float32)
        total = tl.zeros((SOME, DV_PAD), tl.float32)
        for at in range(low, high + 1, SPLITS):
            run = at + lane
            used = (run <= high)[:, None] & (inside < rows)[None, :]
            part = (run * 2 + tl.where(run == low, split_first, 0)).to(tl.int64)
            line = part[:, None] * ROWS + inside[None, :]
            place = part[:, None] * (2 * ROWS) + inside[None, :]
            tops = tl.load(stats + place, mask=used, other=float("-inf"), cache_modifier=".cg")
            weights = tl.load(stats + place + ROWS, mask=used, other=0.0, cache_modifier=".cg")
            sums = tl.load(
                parts + line[:, :, None] * DV + dv[None, None, :],
                mask=used[:, :, None] & (dv < DV)[None, None, :], other=0.0, cache_modifier=".cg",
            )  # fmt: skip
            higher = tl.maximum(top, tl.max(tops, 0))
            shift = tl.where(higher == float("-inf"), 0.0, higher)
            grown, shrink = tl.exp2(tops - shift[None, :]), tl.exp2(top - shift)
            weight = weight * shrink + tl.sum(weights * grown, 0)
            total = total * shrink[:, None] + tl.sum(sums * grown[:, :, None], 0)
            top = higher
        row = base + inside
        done = total / tl.where(weight == 0.0, 1.0, weight)[:, None]
        target = (row // GROUP).to(tl.int64) * heads_all + head_first + row % GROUP
        tl.store(
            out + target[:, None] * DV + dv[None, :],
            done.to(out.dtype.element_ty),
            mask=(inside < rows)[:, None] & (dv < DV)[None, :],
        )
    tl.store(counter, 0)


@triton.jit(do_not_specialize=["batch", "tiles", "cells", "width"])
def attend_kernel(
    q, keys, values, below, tail, first, positions, slot_positions, out, parts, stats, arrived,
    batch, heads, tiles, cells, width, capacity, scale, cap,
    q_lane, q_head, q_cell, k_lane, k_head, k_slot, v_lane, v_head, v_slot,
    below_lane, below_cell, tail_lane, tail_cell, first_lane, position_lane, position_cell, slot_lane,
    LANES: tl.constexpr, CELLS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, LEAST: tl.constexpr,
    DK: tl.constexpr, DV: tl.constexpr, DK_PAD: tl.constexpr, DV_PAD: tl.constexpr, SOME: tl.constexpr, SPLITS: tl.constexpr,
    TAIL: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr,
):  # fmt: skip
    """One run. out: [batch, cells, heads * GROUP, DV]; parts fp32 [runs, 2, ROWS, DV], stats fp32 [runs, 2, 2, ROWS]; arrived:
    a counter for every tile. LEAST: units of a run, where there are fewer of them than programs could take."""
    # What each lane sees: from which slot (a window leaves out the first ones), up to which, and how many blocks that is.
    lane, some = tl.arange(0, LANES), tl.arange(0, CELLS)
    there = (lane < batch)[:, None] & (some < cells)[None, :]
    limits, starts, _ = span(
        below + lane[:, None] * below_lane + some[None, :] * below_cell, first + lane * first_lane, width, capacity,
        positions + lane[:, None] * position_lane + some[None, :] * position_cell, there, lane < batch, TAIL, WINDOW, 1,
    )  # fmt: skip
    blocks = tl.maximum((limits - starts + BLOCK - 1) // BLOCK, 1)
    counts = tl.where(lane < batch, blocks * heads * tiles, 0)
    ends = tl.cumsum(counts, 0)
    units = tl.sum(counts, 0)
    run = tl.program_id(0)
    runs = tl.maximum(tl.minimum(tl.num_programs(0), units // LEAST), 1)
    per, more = units // runs, units % runs
    begin = tl.where(run < runs, run_start(run, per, more), 0)
    end = tl.where(run < runs, run_start(run + 1, per, more), 0)

    in_row, dk, dv = tl.arange(0, ROWS), tl.arange(0, DK_PAD), tl.arange(0, DV_PAD)
    EDGE: tl.constexpr = min(BLOCK, 16 if ROWS * DK_PAD >= 4096 else 32)
    column, edge = tl.arange(0, BLOCK), tl.arange(0, EDGE)
    unit = begin
    while unit < end:
        # Which tile and which of its blocks this unit is.
        b = tl.sum((ends <= unit).to(tl.int32), 0)
        within = unit - tl.sum(tl.where(lane < b, counts, 0), 0)
        count = tl.sum(tl.where(lane == b, blocks, 0), 0)
        wide = b.to(tl.int64)
        limit, start, tail_start = span(
            below + wide * below_lane + some * below_cell, first + wide * first_lane, width, capacity,
            positions + wide * position_lane + some * position_cell, some < cells, some < cells, TAIL, WINDOW, 0,
        )  # fmt: skip
        head = within // count // tiles
        tile = within // count % tiles
        block = within % count
        stop = tl.minimum(count, block + end - unit)

        row = tile * ROWS + in_row
        cell = row // GROUP
        valid = row < cells * GROUP
        query_head = head * GROUP + row % GROUP
        query = tl.load(
            q + wide * q_lane + (cell * q_cell + query_head * q_head)[:, None] + dk[None, :],
            mask=valid[:, None] & (dk < DK)[None, :], other=0.0,
        )  # fmt: skip
        key_base = keys + wide * k_lane + head.to(tl.int64) * k_head
        value_base = values + wide * v_lane + head.to(tl.int64) * v_head
        under = tl.load(below + wide * below_lane + cell * below_cell, mask=valid, other=0).to(tl.int32)
        oldest = cell * 0
        if WINDOW > 0:
            oldest = (
                tl.load(positions + wide * position_lane + cell * position_cell, mask=valid, other=0).to(tl.int32) - WINDOW + 1
            )

        top = tl.full((ROWS,), float("-inf"), tl.float32)
        weight = tl.zeros((ROWS,), tl.float32)
        total = tl.zeros((ROWS, DV_PAD), tl.float32)
        whole = tl.min(tl.where(valid, under, 2147483647), 0)  # all rows see the slots below, but for a window
        inner = tl.minimum(tl.maximum((whole - start) // BLOCK, block), stop)
        for n in tl.range(block, inner):
            slot = start + n * BLOCK + column
            if DK != DK_PAD:
                key = tl.load(key_base + slot[None, :] * k_slot + dk[:, None], mask=(dk < DK)[:, None], other=0.0)
            else:
                key = tl.load(key_base + slot[None, :] * k_slot + dk[:, None])
            scores = scored(query, key, scale, cap, CAP)
            if WINDOW > 0:
                at = tl.load(slot_positions + wide * slot_lane + slot).to(tl.int32)
                scores = tl.where(at[None, :] >= oldest[:, None], scores, float("-inf"))
            if DV != DV_PAD:
                value = tl.load(value_base + slot[:, None] * v_slot + dv[None, :], mask=(dv < DV)[None, :], other=0.0)
            else:
                value = tl.load(value_base + slot[:, None] * v_slot + dv[None, :])
            top, weight, total = fold(top, weight, total, scores, value)
        for n in tl.range(inner * (BLOCK // EDGE), stop * (BLOCK // EDGE), num_stages=1):
            # Slots that some rows see and some do not; less at a time, since masks take registers.
            slot = start + n * EDGE + edge
            visible = (slot[None, :] < under[:, None]) & valid[:, None]
            if TAIL:
                at = slot - tail_start
                flag = tl.load(
                    tail + wide * tail_lane + cell[:, None] * tail_cell + at[None, :],
                    mask=valid[:, None] & ((at >= 0) & (at < width) & (slot < limit))[None, :], other=0,
                )  # fmt: skip
                visible = visible | (flag != 0)
            if WINDOW > 0:
                age = tl.load(slot_positions + wide * slot_lane + slot, mask=slot < limit, other=0).to(tl.int32)
                visible = visible & (age[None, :] >= oldest[:, None])
            # Slots that no row of the tile sees may have NaN, and zero times NaN is NaN.
            needed = tl.max(visible.to(tl.int32), 0) > 0
            key = tl.load(key_base + slot[None, :] * k_slot + dk[:, None], mask=needed[None, :] & (dk < DK)[:, None], other=0.0)
            scores = tl.where(visible, scored(query, key, scale, cap, CAP), float("-inf"))
            value = tl.load(
                value_base + slot[:, None] * v_slot + dv[None, :], mask=needed[:, None] & (dv < DV)[None, :], other=0.0
            )
            top, weight, total = fold(top, weight, total, scores, value)

        keep = valid[:, None] & (dv < DV)[None, :]
        if stop - block == count:
            done = total / tl.where(weight == 0.0, 1.0, weight)[:, None]
            line = (b * cells + cell).to(tl.int64) * (heads * GROUP) + query_head
            tl.store(out + line[:, None] * DV + dv[None, :], done.to(out.dtype.element_ty), mask=keep)
        else:
            part = run * 2 + (unit != begin).to(tl.int32)
            tl.store(parts + (part * ROWS + in_row).to(tl.int64)[:, None] * DV + dv[None, :], total, mask=keep)
            tl.store(stats + part * 2 * ROWS + in_row, top, mask=valid)
            tl.store(stats + (part * 2 + 1) * ROWS + in_row, weight, mask=valid)
            tl.debug_barrier()  # every thread has stored before one says so
            low, high = run_of(unit - block, per, more), run_of(unit - block + count - 1, per, more)
            counter = arrived + (b * heads + head) * tiles + tile
            if tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == high - low:
                merged(
                    parts, stats, out, counter, low, high, (run_start(low, per, more) != unit - block).to(tl.int32),
                    tl.minimum(cells * GROUP - tile * ROWS, ROWS), tile * ROWS, heads * GROUP,
                    wide * cells * (heads * GROUP) + head * GROUP, GROUP, ROWS, DV, DV_PAD, SOME, SPLITS,
                )  # fmt: skip
        unit += stop - block


class Sizes(NamedTuple):
    """rows: query rows of a tile; block: slots at a time; programs: of the grid, at most."""

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
        return Sizes(16, 32, 4, 1, 2 * processors) if size <= 128 else Sizes(16, 16, 8, 1, processors)
    if size > 128:
        return Sizes(16, 32, 8, 3, processors)
    tile = min(max(power(rows), 16), 128)
    if tile <= 32:
        # Heads of 64 leave room for a third program.
        small = size <= 64 and arch >= 90
        return Sizes(tile, 64, 4, 2 if small else 3, (3 if small else 2) * processors)
    return Sizes(tile, 32, 8, 4, processors) if arch >= 90 else Sizes(128, 16, 8, 4, processors)


LEAST = 2
"""Units of a run, at least: a run's start costs about as much as two of them."""
SPLITS = 4
"""Parts that a merge reads at once."""


def constants(
    q: Tensor, keys: Tensor, values: Tensor, s: Sizes, tail: bool, window: int, cap: bool, least: int
) -> dict[str, int]:
    """What attend_kernel is compiled for. int64[n] each."""
    group, dv = q.shape[1] // keys.shape[1], max(power(values.shape[3]), 16)
    some = min(power(q.shape[2] * group), s.rows, max(1024 * s.warps // (SPLITS * dv), 1))
    return {
        "LANES": power(q.shape[0]), "CELLS": power(q.shape[2]), "GROUP": group, "ROWS": s.rows, "BLOCK": s.block,
        "LEAST": least, "DK": q.shape[3], "DV": values.shape[3], "DK_PAD": max(power(q.shape[3]), 16), "DV_PAD": dv,
        "SOME": some, "SPLITS": SPLITS, "TAIL": tail, "WINDOW": window, "CAP": cap,
    }  # fmt: skip


def launch(
    q: Tensor, keys: Tensor, values: Tensor, below: Tensor, tail: Tensor | None = None, first: Tensor | None = None,
    scale: float = 1.0, window: int | None = None, positions: Tensor | None = None, slot_positions: Tensor | None = None,
    softcap: float | None = None, *, programs: int | None = None, least: int = LEAST,
) -> Tensor:  # fmt: skip
    """The kernel's launch; arguments and shapes are those of `form`. programs, least: how the work is cut. Raises DecError for
    what is laid out otherwise."""
    batch, wide, cells, dk = q.shape
    heads, capacity, dv = keys.shape[1], keys.shape[2], values.shape[3]
    if q.dtype.itemsize > 4 or not q.dtype == keys.dtype == values.dtype:
        raise DecError(f"queries, keys, values have one type of at most 32 bits, not {q.dtype}, {keys.dtype}, {values.dtype}")
    if any(t.stride(-1) != 1 for t in (q, keys, values)) or (tail is not None and tail.stride(-1) != 1):
        raise DecError("the last axis of queries, keys, values and masks is contiguous")
    if window is not None and (positions is None or slot_positions is None):
        raise DecError("a window needs the positions of the cells and of the slots")
    rows = cells * (wide // heads)
    s = sizes(rows, max(power(dk), power(dv), 16), q.dtype.itemsize, *about(q.device))
    tiles = -(-rows // s.rows)
    runs = max(min(programs or s.programs, batch * heads * tiles * -(-capacity // s.block)), 1)
    out = torch.empty((batch, cells, wide, dv), dtype=q.dtype, device=q.device)
    parts = torch.empty((runs, 2, s.rows, dv), dtype=torch.float32, device=q.device)
    stats = torch.empty((runs, 2, 2, s.rows), dtype=torch.float32, device=q.device)
    below = below.expand(batch, cells)
    masks = below if tail is None else tail.expand(batch, -1, -1).view(torch.uint8)
    starts = below if first is None else first.expand(batch)
    at = below if positions is None else positions.expand(batch, cells)
    slots = below if slot_positions is None else slot_positions.expand(batch, -1)
    attend_kernel[(runs,)](
        q, keys, values, below, masks, starts, at, slots, out, parts, stats,
        counters("attend", q.device, batch * heads * tiles), batch, heads, tiles, cells,
        0 if tail is None else tail.shape[2], capacity, scale, softcap or 0.0,
        *q.stride()[:3], *keys.stride()[:3], *values.stride()[:3], *below.stride(), masks.stride(0), masks.stride(1),
        starts.stride(0), *at.stride(), slots.stride(0),
        **constants(q, keys, values, s, tail is not None, window or 0, softcap is not None, least),
        num_warps=s.warps, num_stages=s.stages,
    )  # fmt: skip
    return out.transpose(1, 2)


def form(
    q: Tensor, keys: Tensor, values: Tensor, below: Tensor, tail: Tensor | None = None, first: Tensor | None = None,
    scale: float = 1.0, window: int | None = None, positions: Tensor | None = None, slot_positions: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:  # fmt: skip
    """Attention of T cells of B lanes, whose keys and values are in their slots already: what the kernel means, in torch.

    q: [B, Hq, T, D]; keys, values: [B, H, S, D], [B, H, S, Dv], Hq a multiple of H. A cell sees the slots below
    below[b, t] (int64[B or 1, T]), and slot first[b] + u (int64[B or 1]) where tail[b, t, u] (bool[B or 1, T, U]).
    window: only slots whose position slot_positions[b, s] is above positions[b, t] - window (int64[B or 1, S], [B or 1, T]); no
    slot's position is above its number. softcap: scores become softcap * tanh(score / softcap). Slots that nobody sees have
    finite numbers here. Returns [B, Hq, T, Dv] of q's type, laid out as [B, T, Hq, Dv]; cells that see nothing are zeros.
    """
    used = int(below.max())  # no slot behind these is read
    if tail is not None and first is not None:
        used = max(used, int(first.max()) + tail.shape[2])
    keys, values = keys[:, :, : max(used, 1)], values[:, :, : max(used, 1)]
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
    "decgraph::attend", form, mutates_args=(), device_types="cpu",
    schema="(Tensor q, Tensor keys, Tensor values, Tensor below, Tensor? tail=None, Tensor? first=None, float scale=1.0,"
    " int? window=None, Tensor? positions=None, Tensor? slot_positions=None, float? softcap=None) -> Tensor",
)  # fmt: skip
attend.register_kernel("cuda")(launch)


@attend.register_fake
def _(q, keys, values, *others):
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1], values.shape[3])).transpose(1, 2)
