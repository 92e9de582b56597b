# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
"""Keys of noise computed on the device: the three counter words of runtime/noise.py's `Key.words`, for every row of every
sequence.

Loop counters are static but for the iteration of `while not done`, which each sequence counts for itself; positions of the
stream `output` are tensors.
"""

import numpy as np
import triton
import triton.language as tl
from torch import Tensor

from decgraph.backends.triton.prelude import hash_end, hash_start, hash_word
from decgraph.backends.triton.tuned import Config, config
from decgraph.runtime.noise import hash32


def site_word(site: str) -> int:
    """The uint32 word of a site's name in the first counter."""
    return 2**31 | hash32(site.encode()) >> 1


@triton.jit
def key_words(
    out,
    request,
    site,
    iteration,
    counters,
    counter_b,
    counter_r,
    lanes,
    lane_b,
    lane_r,
    rows,
    N: tl.constexpr,
    ITERATION: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out: int32[B, rows, 3]. request: int32[B, 2], the id's low and high word. site: int64[1]. iteration: int32[B]. counters,
    lanes: N and LANES int64 numbers for each row, with strides for the sequence and the row. The counter at ITERATION (none:
    -1) is the sequence's iteration."""
    b = tl.program_id(0)
    r = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = r < rows
    h = hash_word(hash_start(), tl.load(request + 2 * b).to(tl.uint32))
    h = hash_word(h, tl.load(request + 2 * b + 1).to(tl.uint32))
    h = hash_word(h, tl.load(site).to(tl.uint32))
    c0 = hash_end(h, 3)

    none = (r * 0).to(tl.uint32)
    h = none + hash_start()
    for i in tl.static_range(N):
        if i == ITERATION:
            h = hash_word(h, none + tl.load(iteration + b).to(tl.uint32))
        else:
            h = hash_word(h, tl.load(counters + b * counter_b + r * counter_r + i, mask=inside, other=0).to(tl.uint32))
    c1 = hash_end(h, N)

    h = none + hash_start()
    for i in tl.static_range(LANES):
        h = hash_word(h, tl.load(lanes + b * lane_b + r * lane_r + i, mask=inside, other=0).to(tl.uint32))
    c2 = hash_end(h, LANES)

    at = out + (b * rows + r) * 3
    tl.store(at, (none + c0).to(tl.int32, bitcast=True), mask=inside)
    tl.store(at + 1, c1.to(tl.int32, bitcast=True), mask=inside)
    tl.store(at + 2, c2.to(tl.int32, bitcast=True), mask=inside)


def words_for(
    out: Tensor, request: Tensor, site: Tensor, iteration: Tensor, counters: Tensor, lanes: Tensor, *, iteration_at: int = -1
) -> Tensor:
    """Fill `out`, int32[B, R, 3], with key words and return it.

    request: int32[B, 2]. site: int64[1] (`site_word`). iteration: int32[B]. counters: int64[B or 1, R or 1, n], lanes: int64[B
    or 1, R or 1, k], axes of one repeated; `iteration_at`: the index of the counter that is the iteration (its entry in
    `counters` is not read).
    """
    batch, rows = int(out.shape[0]), int(out.shape[1])
    sizes = config("key_words", (), Config(block=64, warps=1))
    block = min(sizes.block, triton.next_power_of_2(rows))
    counters, lanes = counters.contiguous(), lanes.contiguous()
    key_words[(batch, triton.cdiv(rows, block))](
        out,
        request,
        site,
        iteration,
        counters,
        *_strides(counters),
        lanes,
        *_strides(lanes),
        rows,
        N=int(counters.shape[2]),
        ITERATION=iteration_at,
        LANES=int(lanes.shape[2]),
        BLOCK=block,
        num_warps=sizes.warps,
    )
    return out


def _strides(a: Tensor) -> tuple[int, int]:
    """Strides of sequence and row; 0 for an axis of one."""
    n = int(a.shape[2])
    return (0 if a.shape[0] == 1 else int(a.shape[1]) * n, 0 if a.shape[1] == 1 else n)


def int32_words(number: int) -> np.ndarray:
    """A 64-bit number as int32[2], the low word first."""
    return np.array([number & 0xFFFFFFFF, number >> 32], dtype=np.uint32).view(np.int32)
