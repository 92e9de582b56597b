# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Top-k, top-p and min-p of rows of probabilities, each row with its own numbers, without a sort; ties to the lowest token.

The kept entries are a prefix of the row in the order (larger first, of equals the lower token). That is the order of *keys*:
the bits of a probability, which are ordered like the numbers, and below them the token, counted from the end. What is kept are
the entries with keys from some key on, the *cut*. Three launches over rows and parts of rows: `weigh` counts and weighs the
entries above powers of two; `find` sees from that between which two of them the cut lies, collects the entries there (some
hundreds, of a model's row), and the last program of a row to arrive searches among these; `apply` writes what is kept over its
sum. Masses are summed as integers (2**-44), so no order of additions matters.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from decgraph.backends.torch.shaping import total as total_of
from decgraph.backends.triton.kernels.shared import about, by_lane, counters, power

EDGES = 32
"""Powers of two at which a row is weighed: 2**-1 .. 2**-32. What is below the last has almost no mass, and is searched too."""
UNIT = tl.constexpr(17592186044416.0)
PIVOTS = tl.constexpr(8)
BITS = tl.constexpr(0x7F800000)  # those of probabilities are below


@triton.jit
def mass_of(p):
    """A probability in 2**-44."""
    return (p * UNIT).to(tl.int64)


@triton.jit
def edge_bits(edge):
    """The bits of 2**-(edge + 1)."""
    return (126 - edge) << 23


@triton.jit
def key_of(p, at, SHIFT: tl.constexpr):
    """The keys of the probabilities of tokens, of SHIFT bits."""
    return (p.to(tl.int32, bitcast=True).to(tl.int64) << SHIFT) + ((1 << SHIFT) - 1 - at)


@triton.jit(do_not_specialize=["size", "per"])
def weigh_kernel(probs, weights, tops, size, per, stride, BLOCK: tl.constexpr, EDGES: tl.constexpr):
    """weights: int64[rows, parts, 2, EDGES], number and mass of the entries at and above each edge; tops: the largest."""
    row, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    edges = edge_bits(tl.arange(0, EDGES))
    number = tl.zeros((EDGES,), tl.int64)
    mass = tl.zeros((EDGES,), tl.int64)
    top = tl.zeros((BLOCK,), tl.float32)
    for n in range(part * per, (part + 1) * per):
        at = n * BLOCK + tl.arange(0, BLOCK)
        p = tl.load(probs + row * stride + at, mask=at < size, other=0.0)
        top = tl.maximum(top, p)
        above = p.to(tl.int32, bitcast=True)[None, :] >= edges[:, None]
        number += tl.sum(above.to(tl.int32), 1).to(tl.int64)
        mass += tl.sum(tl.where(above, mass_of(p)[None, :], 0), 1)
    line = (row * parts + part) * 2 * EDGES + tl.arange(0, EDGES)
    tl.store(weights + line, number)
    tl.store(weights + line + EDGES, mass)
    tl.store(tops + row * parts + part, tl.max(top, 0))


@triton.jit
def from_cuts(few, n, cuts, number, mass, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    """number and mass [PIVOTS], with those of the n keys `few` from each of `cuts` on."""
    for begin in range(0, n, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        key = tl.load(few + at, mask=at < n, other=-1, cache_modifier=".cg")
        p = tl.where(at < n, key >> SHIFT, 0).to(tl.int32).to(tl.float32, bitcast=True)
        above = key[None, :] >= cuts[:, None]
        number += tl.sum(above.to(tl.int32), 1).to(tl.int64)
        mass += tl.sum(tl.where(above, mass_of(p)[None, :], 0), 1)
    return number, mass


@triton.jit
def searched(few, n, low, high, number, mass, want, BY_MASS: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    """The last cut from which on there is the number or mass `want` of entries: `few`, whose n keys are from `low` on and below
    `high`, and those from `high` on, of this number and mass [PIVOTS]. `low` where all have less."""
    pivot = tl.arange(0, PIVOTS)
    over, left = tl.max(number, 0), n.to(tl.int64)  # how many are from `high` on, and from `low` to `high`
    while (left > 1) & (high - low > 1):
        at = tl.minimum(low + pivot * ((high - low + PIVOTS - 1) // PIVOTS), high)
        numbers, masses = from_cuts(few, n, at, number, mass, SHIFT, BLOCK)
        found = masses if BY_MASS else numbers
        best = tl.max(tl.where((found >= want) & (at < high), pivot, 0), 0)
        low = tl.sum(tl.where(pivot == best, at, 0), 0)
        last = best == PIVOTS - 1
        high = tl.where(last, high, tl.sum(tl.where(pivot == best + 1, at, 0), 0))
        over = tl.where(last, over, tl.sum(tl.where(pivot == best + 1, numbers, 0), 0))
        left = tl.sum(tl.where(pivot == best, numbers, 0), 0) - over
    return low


@triton.jit(do_not_specialize=["size", "per", "within"])
def find_kernel(
    probs, top_k, top_p, min_p, weights, tops, few, taken, arrived, cuts, totals, size, per, stride, within,
    k_lane, k_row, p_lane, p_row, m_lane, m_row,
    SHIFT: tl.constexpr, BLOCK: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """cuts: int64[rows]; totals: int64[rows], the mass of what is kept, 0 where a row comes out as it is. within: rows of a
    lane. few: int64[rows, V], for the keys near the cut; taken, arrived: a counter for each row."""
    row, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    b, r = row // within, row % within
    k, share = tl.load(top_k + b * k_lane + r * k_row), tl.load(top_p + b * p_lane + r * p_row).to(tl.float64)
    least = tl.load(min_p + b * m_lane + r * m_row).to(tl.float32)
    by_k, by_p = (k > 0) & (k < size), share < 1.0
    p_at, e = tl.arange(0, PARTS), tl.arange(0, EDGES)
    line = ((row * parts + p_at) * 2 * EDGES)[:, None] + e[None, :]
    there = (p_at < parts)[:, None]
    numbers = tl.sum(tl.load(weights + line, mask=there, other=0), 0)
    masses = tl.sum(tl.load(weights + line + EDGES, mask=there, other=0), 0)
    top = tl.max(tl.load(tops + row * parts + p_at, mask=p_at < parts, other=0.0), 0)
    floor = tl.where(least > 0, (top * least).to(tl.int32, bitcast=True), 0)
    want = tl.where(by_k, k, tl.maximum((share * UNIT).to(tl.int64), 1))
    # The first edge at and above which there is enough, or all that min-p leaves.
    enough = tl.where(by_k | by_p, tl.where(by_k, numbers, masses) >= want, edge_bits(e) <= floor)
    edge = tl.min(tl.where(enough, e, EDGES), 0)
    low, high = tl.where(edge < EDGES, edge_bits(edge), 0), tl.where(edge > 0, edge_bits(edge - 1), BITS)
    # The mass of a top-p after a top-k is that of the k largest, and min-p may leave less: all are collected.
    every = by_k | (by_p & (least > 0))
    high = tl.where(every, BITS, high)
    own = few + row * size
    if by_k | by_p | (least >= 0):
        for n in range(part * per, (part + 1) * per):
            at = n * BLOCK + tl.arange(0, BLOCK)
            p = tl.load(probs + row * stride + at, mask=at < size, other=-1.0)
            bits = p.to(tl.int32, bitcast=True)
            near = ((bits >= low) & (bits < high)).to(tl.int32)
            found = tl.sum(near, 0)
            if found > 0:
                place = tl.atomic_add(taken + row, found) + tl.cumsum(near, 0) - 1  # blocks in any order
                tl.store(own + place, key_of(p, at, SHIFT), mask=near > 0)
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1, sem="acq_rel", scope="gpu") == parts - 1:
        cut, total = tl.zeros((), tl.int64) - (1 << 62), tl.zeros((), tl.int64)
        if by_k | by_p | (least >= 0):
            n = tl.load(taken + row, cache_modifier=".cg")
            start, end = low.to(tl.int64) << SHIFT, high.to(tl.int64) << SHIFT
            zero = tl.zeros((PIVOTS,), tl.int64)
            number = zero + tl.sum(tl.where((e == edge - 1) & (every == 0), numbers, 0), 0)
            mass = zero + tl.sum(tl.where((e == edge - 1) & (every == 0), masses, 0), 0)
            cut = start
            if by_k:
                cut = searched(own, n, start, end, number, mass, k, False, SHIFT, BLOCK)
                left = tl.max(from_cuts(own, n, zero + cut, number, mass, SHIFT, BLOCK)[1], 0)
                want = tl.maximum((left.to(tl.float64) * share).to(tl.int64), 1)
            if by_p:
                cut = searched(own, n, start, end, number, mass, want, True, SHIFT, BLOCK)
            cut = tl.maximum(cut, floor.to(tl.int64) << SHIFT)
            total = tl.max(from_cuts(own, n, zero + cut, number, mass, SHIFT, BLOCK)[1], 0)
        tl.store(cuts + row, cut)
        tl.store(totals + row, total)
        tl.store(taken + row, 0)
        tl.store(arrived + row, 0)


@triton.jit(do_not_specialize=["size", "per"])
def apply_kernel(probs, out, cuts, totals, size, per, stride, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    """What is kept of a part of a row, over its total."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    cut, total = tl.load(cuts + row), tl.load(totals + row)
    over = 1.0 / tl.where(total > 0, total.to(tl.float64) / UNIT, 1.0)
    for n in range(part * per, (part + 1) * per):
        at = n * BLOCK + tl.arange(0, BLOCK)
        p = tl.load(probs + row * stride + at, mask=at < size, other=0.0)
        kept = tl.where(key_of(p, at, SHIFT) >= cut, (p.to(tl.float64) * over).to(tl.float32), 0.0)
        tl.store(out + row * size + at, kept, mask=at < size)


BLOCK = 512


def launch(
    probs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor, *, block: int = BLOCK, programs: int | None = None
) -> Tensor:
    """The kernels' launches; arguments and shapes are those of `form`, with rows in float32. block, programs: how it is cut."""
    shape, size = probs.shape, probs.shape[-1]
    flat = probs.reshape(-1, size)
    flat = flat if flat.stride(1) == 1 else flat.contiguous()
    rows, device = len(flat), probs.device
    given = [by_lane(a, shape[:-1]) for a in (top_k, top_p, min_p)]
    blocks = -(-size // block)
    parts = max(min(programs or -(-2 * about(device)[0] // max(rows, 1)), blocks, 128), 1)
    per = -(-blocks // parts)
    parts = -(-blocks // per)

    def empty(*sizes: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.empty(sizes, dtype=dtype, device=device)

    weights, tops = empty(rows, parts, 2, EDGES), empty(rows, parts, dtype=torch.float32)
    few, cuts, totals, out = empty(rows, size), empty(rows), empty(rows), empty(rows, size, dtype=torch.float32)
    if rows:
        cut, shift = (size, per, flat.stride(0)), size.bit_length()
        weigh_kernel[(rows, parts)](flat, weights, tops, *cut, BLOCK=block, EDGES=EDGES, num_warps=8)
        find_kernel[(rows, parts)](
            flat, *given, weights, tops, few, counters("taken", device, rows), counters("found", device, rows), cuts, totals,
            *cut, given[0].shape[1], *(n for a in given for n in a.stride()),
            SHIFT=shift, BLOCK=block, EDGES=EDGES, PARTS=power(parts), num_warps=8,
        )  # fmt: skip
        apply_kernel[(rows, parts)](flat, out, cuts, totals, *cut, SHIFT=shift, BLOCK=block, num_warps=4)
    return out.reshape(shape)


def restricted(probs: Tensor, mask: Tensor, on: Tensor) -> Tensor:
    """The rows [..., V] without what is not kept, over their sums; unchanged where not `on` [..., 1], and rows of zeros."""
    some = torch.where(mask, probs, 0.0)
    total = total_of(some)
    return torch.where(on & (total > 0), some / total, probs)


def form(probs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Rows [..., V] (float32 or float64) after top-k, then top-p, then min-p, each over its sum; of equals the lowest stay. By
    one stable sort.

    top_k: int64, 0 or at least V: all; top_p: the least mass that is kept, 1: all; min_p: a share of the largest, below 0:
    none. Each expands to [...]. A row whose numbers are neutral comes out as it is.
    """
    size = probs.shape[-1]
    k, share, least = (a.expand(probs.shape[:-1])[..., None] for a in (top_k, top_p, min_p))
    order = torch.sort(probs, dim=-1, descending=True, stable=True).indices
    ranks = torch.empty_like(order).scatter_(-1, order, torch.arange(size, device=probs.device).expand_as(order))
    probs = restricted(probs, ranks < k, (k > 0) & (k < size))
    mass = probs.gather(-1, order).cumsum(-1)  # term after term, as NumPy's
    # Kept up to the first place that reaches the share, and everything where rounding never reaches it.
    needed = (mass < share.to(probs.dtype)).sum(-1, keepdim=True) + 1
    probs = restricted(probs, ranks < needed, share < 1)
    return restricted(probs, probs >= least.to(probs.dtype) * probs.amax(-1, keepdim=True), least >= 0)


truncate = torch.library.custom_op(
    "decgraph::truncate", form, mutates_args=(), device_types="cpu",
    schema="(Tensor probs, Tensor top_k, Tensor top_p, Tensor min_p) -> Tensor",
)  # fmt: skip


@truncate.register_fake
def _(probs, top_k, top_p, min_p):
    return probs.new_empty(probs.shape)


@truncate.register_kernel("cuda")
def _(probs, top_k, top_p, min_p):
    # Rows in float64 are those of table models, which are short and are compared with the reference bit for bit.
    return (form if probs.dtype == torch.float64 else launch)(probs, top_k, top_p, min_p)
