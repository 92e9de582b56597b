# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Attention over cached keys and values, cut into equal runs of work (see docs/kernels.md, "Attention").

A *tile* is some of the query rows of one sequence and one key/value head: row t * GROUP + g is cell t under query head
head * GROUP + g. A *unit* is one tile against one block of keys. Units are numbered by (sequence, head, tile, block), and
every program takes a run of neighbouring units, all runs equally long but for one unit. The numbers come from the lengths
of the sequences, on the device, so that a captured launch fits whatever they are later.

A tile whose blocks all lie in one run is finished there. Else each of its runs leaves a part: sums that are not divided
yet, with their maximum and weight. A run has at most two such tiles, the first and the last of its own.
"""

import os

import triton
import triton.language as tl

# The interpreter keeps bfloat16 as its bits, and multiplies those.
WIDEN = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def spans(cached, extra, BLOCK: tl.constexpr, WINDOW: tl.constexpr):
    """First slot that any row can see and the number of key blocks, of sequences with `cached` slots and `extra` cells behind
    them. Rows lie at positions cached and above, so a window leaves out the slots below cached - WINDOW + 1."""
    first = cached * 0
    if WINDOW > 0:
        first = tl.maximum(cached - WINDOW + 1, 0)
    return first, tl.maximum((cached + extra - first + BLOCK - 1) // BLOCK, 1)


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
def either(left, right):
    """Bits of either."""
    return left | right


@triton.jit
def tail_bits(line, words, start, valid):
    """Bits start .. start + 31 of each row as one word. line: where a row's words are. Bits that do not exist are not set;
    start may be below zero. So words are loaded by row, not by row and column."""
    at = tl.where(valid, start >> 5, -2)
    low = tl.load(line + at, mask=(at >= 0) & (at < words), other=0).to(tl.int64)
    high = tl.load(line + at + 1, mask=(at >= -1) & (at < words - 1), other=0).to(tl.int64)
    return (((high << 32) | (low & 0xFFFFFFFF)) >> (start & 31)).to(tl.int32)


@triton.jit(do_not_specialize=["batch", "tiles", "cells", "extra", "words", "tail_width"])
def attend_runs(
    q,
    keys,
    values,
    cached,
    bits,
    positions,
    tail_positions,
    offset,
    hidden,
    row_blocks,
    slot_blocks,
    out,
    logs,
    parts,
    stats,
    batch,
    heads,
    tiles,
    cells,
    extra,
    words,
    capacity,
    tail_width,
    scale,
    cap,
    q_batch,
    q_cell,
    q_head,
    k_batch,
    k_head,
    k_slot,
    v_batch,
    v_head,
    v_slot,
    BATCH: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    DK_PAD: tl.constexpr,
    DV_PAD: tl.constexpr,
    TAIL: tl.constexpr,
    WINDOW: tl.constexpr,
    SHIFTED: tl.constexpr,
    HIDDEN: tl.constexpr,
    CAUSAL: tl.constexpr,
    CAP: tl.constexpr,
    LOGS: tl.constexpr,
):
    """One run. out [batch, cells, heads * GROUP, DV] and logs fp32 [batch, cells, heads * GROUP] (log2 of the summed weights)
    get finished tiles; parts fp32 [runs, 2, ROWS, DV] and stats fp32 [runs, 2, 2, ROWS] the others."""
    run, runs = tl.program_id(0), tl.num_programs(0)
    sequences = tl.arange(0, BATCH)
    lengths = tl.load(cached + sequences, mask=sequences < batch, other=0)
    firsts, blocks = spans(lengths, extra, BLOCK, WINDOW)
    counts = tl.where(sequences < batch, blocks * heads * tiles, 0)
    ends = tl.cumsum(counts, 0)
    units = tl.sum(counts, 0)
    per, more = units // runs, units % runs
    begin, end = run_start(run, per, more), run_start(run + 1, per, more)

    in_row, dk, dv = tl.arange(0, ROWS), tl.arange(0, DK_PAD), tl.arange(0, DV_PAD)
    EDGE: tl.constexpr = min(BLOCK, 32)
    column, edge = tl.arange(0, BLOCK), tl.arange(0, EDGE)
    unit = begin
    while unit < end:
        # Which tile and which of its blocks this unit is.
        b = tl.sum((ends <= unit).to(tl.int32), 0)
        mine = sequences == b
        within = unit - tl.sum(tl.where(sequences < b, counts, 0), 0)
        count = tl.sum(tl.where(mine, blocks, 0), 0)
        length = tl.sum(tl.where(mine, lengths, 0), 0)
        first = tl.sum(tl.where(mine, firsts, 0), 0)
        limit = tl.minimum(length + extra, capacity)
        head = within // count // tiles
        tile = within // count % tiles
        block = within % count
        stop = tl.minimum(count, block + end - unit)

        row = tile * ROWS + in_row
        cell = row // GROUP
        valid = row < cells * GROUP
        query_head = head * GROUP + row % GROUP
        query = tl.load(
            q + b.to(tl.int64) * q_batch + (cell * q_cell + query_head * q_head)[:, None] + dk[None, :],
            mask=valid[:, None] & (dk < DK)[None, :],
            other=0.0,
        )
        key_base = keys + b.to(tl.int64) * k_batch + head.to(tl.int64) * k_head
        value_base = values + b.to(tl.int64) * v_batch + head.to(tl.int64) * v_head
        lowest = cell * 0
        if WINDOW > 0:
            # In slots: position p has slot p, or p - offset behind a shared prefix.
            lowest = tl.load(positions + b * cells + cell, mask=valid, other=0).to(tl.int32) - WINDOW + 1
            if SHIFTED:
                lowest -= tl.load(offset)
        newest = cell * 0
        if CAUSAL:
            newest = tl.load(row_blocks + b * cells + cell, mask=valid, other=0)

        top = tl.full((ROWS,), float("-inf"), tl.float32)
        weight = tl.zeros((ROWS,), tl.float32)
        total = tl.zeros((ROWS, DV_PAD), tl.float32)
        inner = tl.minimum(tl.maximum((length - first) // BLOCK, block), stop)
        for n in tl.range(block, inner):
            # All of these slots are cached.
            slot = first + n * BLOCK + column
            value_mask = (dv < DV)[None, :]
            if HIDDEN:
                open_slot = tl.load(hidden + b.to(tl.int64) * capacity + slot) == 0
                value_mask = value_mask & open_slot[:, None]
            if DK != DK_PAD:
                key = tl.load(key_base + slot[None, :] * k_slot + dk[:, None], mask=(dk < DK)[:, None], other=0.0)
            else:
                key = tl.load(key_base + slot[None, :] * k_slot + dk[:, None])
            scores = scored(query, key, scale, cap, CAP)
            if WINDOW > 0:
                scores = tl.where(slot[None, :] >= lowest[:, None], scores, float("-inf"))
            if CAUSAL:
                age = tl.load(slot_blocks + b.to(tl.int64) * capacity + slot)
                if HIDDEN:
                    age = tl.where(open_slot, age, 2147483647)  # later than any
                scores = tl.where(age[None, :] <= newest[:, None], scores, float("-inf"))
            elif HIDDEN:
                scores = tl.where(open_slot[None, :], scores, float("-inf"))
            if HIDDEN or DV != DV_PAD:
                value = tl.load(value_base + slot[:, None] * v_slot + dv[None, :], mask=value_mask, other=0.0)
            else:
                value = tl.load(value_base + slot[:, None] * v_slot + dv[None, :])
            top, weight, total = fold(top, weight, total, scores, value)
        for n in tl.range(inner * (BLOCK // EDGE), stop * (BLOCK // EDGE), num_stages=1):
            # The last of the cached slots, and the cells behind them; less at a time, since masks take registers.
            slot = first + n * EDGE + edge
            exists = slot < limit
            needed = exists & (slot < length)
            if HIDDEN:
                needed = needed & (tl.load(hidden + b.to(tl.int64) * capacity + slot, mask=needed, other=1) == 0)
            key = tl.load(key_base + slot[None, :] * k_slot + dk[:, None], mask=exists[None, :] & (dk < DK)[:, None], other=0.0)
            scores = scored(query, key, scale, cap, CAP)
            visible = needed[None, :] & valid[:, None]
            if CAUSAL:
                age = tl.load(slot_blocks + b.to(tl.int64) * capacity + slot, mask=needed, other=0)
                visible = visible & (age[None, :] <= newest[:, None])
            at = slot
            if TAIL:
                tail = slot - length
                in_tail = exists & (tail >= 0)
                word = tail_bits(bits + (b * cells + cell) * words, words, first + n * EDGE - length, valid)
                visible = visible | (in_tail[None, :] & (((word[:, None] >> edge[None, :]) & 1) != 0))
                # Slots that no row of the tile sees may have NaN, and zero times NaN is NaN.
                needed = needed | (in_tail & (((tl.reduce(word, 0, either) >> edge) & 1) != 0))
                if WINDOW > 0:
                    place = tl.load(tail_positions + b * tail_width + tail, mask=in_tail, other=0).to(tl.int32)
                    if SHIFTED:
                        place -= tl.load(offset)
                    at = tl.where(in_tail, place, slot)
            if WINDOW > 0:
                visible = visible & (at[None, :] >= lowest[:, None])
            scores = tl.where(visible, scores, float("-inf"))
            value = tl.load(
                value_base + slot[:, None] * v_slot + dv[None, :], mask=needed[:, None] & (dv < DV)[None, :], other=0.0
            )
            top, weight, total = fold(top, weight, total, scores, value)

        keep = valid[:, None] & (dv < DV)[None, :]
        if stop - block == count:
            weight = tl.where(weight == 0.0, 1.0, weight)
            done = total / weight[:, None]
            line = (b * cells + cell).to(tl.int64) * (heads * GROUP) + query_head
            tl.store(out + line[:, None] * DV + dv[None, :], done.to(out.dtype.element_ty), mask=keep)
            if LOGS:
                tl.store(logs + line, top + tl.log2(weight), mask=valid)
        else:
            part = run * 2 + (unit != begin).to(tl.int32)
            tl.store(parts + (part * ROWS + in_row).to(tl.int64)[:, None] * DV + dv[None, :], total, mask=keep)
            tl.store(stats + part * 2 * ROWS + in_row, top, mask=valid)
            tl.store(stats + (part * 2 + 1) * ROWS + in_row, weight, mask=valid)
        unit += stop - block


@triton.jit(do_not_specialize=["batch", "tiles", "cells", "extra", "runs"])
def merge_runs(
    cached,
    parts,
    stats,
    done,
    done_logs,
    other,
    other_logs,
    out,
    logs,
    batch,
    heads,
    tiles,
    cells,
    extra,
    runs,
    BATCH: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WINDOW: tl.constexpr,
    DV: tl.constexpr,
    DV_PAD: tl.constexpr,
    SPLITS: tl.constexpr,
    SOME: tl.constexpr,
    JOIN: tl.constexpr,
    LOGS: tl.constexpr,
):
    """SOME rows of a tile: their parts, SPLITS at a time. Rows that one run finished are left as they are.

    JOIN: rows that one run finished are in done and done_logs, fp32; every row is joined with other and other_logs (what it
    sees elsewhere) and written to out. The order of the runs is the order of the sum, so results do not vary.
    """
    here = tl.program_id(0)
    row_in_tile = here % (ROWS // SOME) * SOME + tl.arange(0, SOME)
    tile = here // (ROWS // SOME) % tiles
    head = here // (ROWS // SOME) // tiles % heads
    b = here // (ROWS // SOME) // tiles // heads
    row = tile * ROWS + row_in_tile
    valid = row < cells * GROUP
    place = (b * cells + row // GROUP).to(tl.int64) * (heads * GROUP) + head * GROUP + row % GROUP
    sequences = tl.arange(0, BATCH)
    lengths = tl.load(cached + sequences, mask=sequences < batch, other=0)
    _, blocks = spans(lengths, extra, BLOCK, WINDOW)
    counts = tl.where(sequences < batch, blocks * heads * tiles, 0)
    units = tl.sum(counts, 0)
    per, more = units // runs, units % runs
    count = tl.sum(tl.where(sequences == b, blocks, 0), 0)
    start = tl.sum(tl.where(sequences < b, counts, 0), 0) + (head * tiles + tile) * count
    low, high = run_of(start, per, more), run_of(start + count - 1, per, more)

    dv, lane = tl.arange(0, DV_PAD), tl.arange(0, SPLITS)
    keep = valid[:, None] & (dv < DV)[None, :]
    top = tl.full((SOME,), float("-inf"), tl.float32)
    weight = tl.zeros((SOME,), tl.float32)
    total = tl.zeros((SOME, DV_PAD), tl.float32)
    if JOIN:
        top = tl.load(other_logs + place, mask=valid, other=float("-inf"))
        weight = tl.where(top == float("-inf"), 0.0, 1.0)
        total = tl.load(other + place[:, None] * DV + dv[None, :], mask=keep, other=0.0)
    if low != high:
        for at in range(low, high + 1, SPLITS):
            run = at + lane
            used = (run <= high)[:, None] & valid[None, :]
            # A tile is the first of a run that begins within it, and the last of the run that it begins in.
            part = run * 2 + ((run == low) & (run_start(low, per, more) != start)).to(tl.int32)
            tops = tl.load(stats + (part * 2 * ROWS)[:, None] + row_in_tile[None, :], mask=used, other=float("-inf"))
            weights = tl.load(stats + (part * 2 * ROWS + ROWS)[:, None] + row_in_tile[None, :], mask=used, other=0.0)
            line = (part * ROWS).to(tl.int64)[:, None] + row_in_tile[None, :]
            sums = tl.load(
                parts + line[:, :, None] * DV + dv[None, None, :], mask=used[:, :, None] & (dv < DV)[None, None, :], other=0.0
            )
            higher = tl.maximum(top, tl.max(tops, 0))
            shift = tl.where(higher == float("-inf"), 0.0, higher)
            grown, shrink = tl.exp2(tops - shift[None, :]), tl.exp2(top - shift)
            weight = weight * shrink + tl.sum(weights * grown, 0)
            total = total * shrink[:, None] + tl.sum(sums * grown[:, :, None], 0)
            top = higher
    elif JOIN:
        mine = tl.load(done_logs + place, mask=valid, other=float("-inf"))
        near = tl.load(done + place[:, None] * DV + dv[None, :], mask=keep, other=0.0)
        higher = tl.maximum(top, mine)
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        grown, shrink = tl.exp2(mine - shift), tl.exp2(top - shift)
        weight = weight * shrink + grown
        total = total * shrink[:, None] + near * grown[:, None]
        top = higher
    if JOIN or low != high:
        weight = tl.where(weight == 0.0, 1.0, weight)
        result = total / weight[:, None]
        tl.store(out + place[:, None] * DV + dv[None, :], result.to(out.dtype.element_ty), mask=keep)
        if LOGS:
            tl.store(logs + place, top + tl.log2(weight), mask=valid)
