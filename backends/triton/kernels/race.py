# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Draws of one token from each of many rows of probabilities, by keyed noise (runtime/noise.py), in one launch.

A row is raced by several programs, each over a part of the vocabulary; the last of a row to arrive compares their winners. The
noise that is hashed for a token is used at once. A race of logits, l / t - log(E), would need no sum, but it draws other tokens
where two are as near as the probabilities are rounded: once in some millions of draws.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from decgraph.backends.torch import noise
from decgraph.backends.triton.kernels.shared import about, by_lane, counters, power

LARGEST = tl.constexpr(1.7976931348623157e308)


@triton.jit
def philox(c0, c1, c2, c3, k0, k1):
    """Philox 4x32-10: four words at the counters (c0, c1, c2, c3), uint32 of one shape. k0, k1: uint32."""
    for _ in tl.static_range(10):
        low0 = c0 * 0xD2511F53
        low2 = c2 * 0xCD9E8D57
        high0 = tl.umulhi(c0, 0xD2511F53)
        high2 = tl.umulhi(c2, 0xCD9E8D57)
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit(do_not_specialize=["size", "per", "within"])
def race_kernel(
    rows, c0, c1, c2, k0, k1, out, best, token, arrived, size, per, within, row_stride,
    c0_lane, c0_row, c1_lane, c1_row, c2_lane, c2_row, k0_lane, k0_row, k1_lane, k1_row,
    BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """`per` blocks of four times BLOCK tokens of one row. within: rows of a lane. best, token: [rows, programs of a row],
    for the winners of the parts."""
    row, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    place, lane = tl.arange(0, BLOCK), tl.arange(0, 4)
    zero = (place * 0).to(tl.uint32)
    b, r = row // within, row % within
    w0 = zero + tl.load(c0 + b * c0_lane + r * c0_row).to(tl.uint32)
    w1 = zero + tl.load(c1 + b * c1_lane + r * c1_row).to(tl.uint32)
    w2 = zero + tl.load(c2 + b * c2_lane + r * c2_row).to(tl.uint32)
    s0 = zero + tl.load(k0 + b * k0_lane + r * k0_row).to(tl.uint32)
    s1 = zero + tl.load(k1 + b * k1_lane + r * k1_row).to(tl.uint32)
    top = tl.full((BLOCK, 4), float("-inf"), tl.float64)
    which = tl.full((BLOCK, 4), 2147483647, tl.int32)
    for n in range(part * per, (part + 1) * per):
        block = n * BLOCK + place
        at = block[:, None] * 4 + lane[None, :]
        x = tl.load(rows + row * row_stride + at, mask=at < size, other=0.0).to(tl.float64)
        n0, n1, n2, n3 = philox(w0, w1, w2, block.to(tl.uint32), s0, s1)
        word = tl.reshape(tl.join(tl.join(n0, n2), tl.join(n1, n3)), (BLOCK, 4))
        time = -tl.log((word.to(tl.float64) + 0.5) * 2.3283064365386963e-10)
        # The quotient of the reference, so that near ties go as there; one that overflows still runs.
        key = tl.where(x > 0, -tl.minimum(time / tl.where(x > 0, x, 1.0), LARGEST), float("-inf"))
        better = key > top
        top = tl.where(better, key, top)
        which = tl.where(better, at, which)
    highest = tl.max(tl.max(top, 1), 0)
    winner = tl.min(tl.min(tl.where(top == highest, which, 2147483647), 1), 0)
    tl.store(best + row * parts + part, highest)
    tl.store(token + row * parts + part, winner)
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1, sem="acq_rel", scope="gpu") == parts - 1:
        p = tl.arange(0, PARTS)
        tops = tl.load(best + row * parts + p, mask=p < parts, other=float("-inf"), cache_modifier=".cg")
        tokens = tl.load(token + row * parts + p, mask=p < parts, other=2147483647, cache_modifier=".cg")
        final = tl.min(tl.where(tops == tl.max(tops, 0), tokens, 2147483647), 0)
        tl.store(out + row, tl.where(final == 2147483647, -1, final).to(tl.int64))
        tl.store(arrived + row, 0)


BLOCK = 256
"""Noise blocks, of four tokens each, that a program has at a time."""


def launch(
    rows: Tensor, c0: Tensor, c1: Tensor, c2: Tensor, k0: Tensor, k1: Tensor, *, block: int = BLOCK, programs: int | None = None
) -> Tensor:
    """The kernel's launch; arguments and shapes are those of `draw`. block, programs: how the work is cut."""
    shape, size = rows.shape[:-1], rows.shape[-1]
    flat = rows.reshape(-1, size)
    flat = flat if flat.stride(1) == 1 else flat.contiguous()
    count = len(flat)
    words = [by_lane(w, shape) for w in (c0, c1, c2, k0, k1)]
    blocks = -(-size // (4 * block))
    parts = max(min(programs or -(-4 * about(rows.device)[0] // max(count, 1)), blocks), 1)
    per = -(-blocks // parts)
    parts = -(-blocks // per)
    out = torch.empty(count, dtype=torch.int64, device=rows.device)
    best = torch.empty((count, parts), dtype=torch.float64, device=rows.device)
    token = torch.empty((count, parts), dtype=torch.int32, device=rows.device)
    if count:
        race_kernel[(count, parts)](
            flat, *words, out, best, token, counters("race", rows.device, count), size, per,
            words[0].shape[1], flat.stride(0), *(n for w in words for n in w.stride()),
            BLOCK=block, PARTS=power(parts), num_warps=4,
        )  # fmt: skip
    return out.reshape(shape)


@torch.library.custom_op("decgraph::draw", mutates_args=(), device_types="cpu")
def draw(rows: Tensor, c0: Tensor, c1: Tensor, c2: Tensor, k0: Tensor, k1: Tensor) -> Tensor:
    """One token of each row, int64[...]: the winner of its race, of equals the lowest, and -1 of a row without mass.

    rows: weights [..., V], which need not sum to one. c0, c1, c2, k0, k1: the words of the rows' noise keys (noise.words),
    int64 that expand to [...]. The race is run in float64, as the language says.
    """
    words = torch.stack([w.expand(rows.shape[:-1]).flatten() for w in (c0, c1, c2, k0, k1)], -1).numpy().astype(np.uint64)
    flat, out = rows.reshape(-1, rows.shape[-1]).numpy(), np.full(len(words), -1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for r, (q, key) in enumerate(zip(flat, words, strict=True)):
            seed = int(key[3]) + (int(key[4]) << 32)
            time = noise.arrivals(key[None, :3], seed, len(q))[0]  # half of what torch's int64 takes
            time = np.where(q > 0, np.minimum(time / q, LARGEST.value), np.inf)
            best = int(time.argmin()) if len(q) else 0
            out[r] = best if len(q) and time[best] < np.inf else -1
    return torch.from_numpy(out).reshape(rows.shape[:-1])


@draw.register_fake
def _(rows, *words):
    return rows.new_empty(rows.shape[:-1], dtype=torch.int64)


draw.register_kernel("cuda")(launch)
