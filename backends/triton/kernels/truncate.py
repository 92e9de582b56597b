# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Top-k, top-p and min-p of rows of probabilities, each row with its own numbers, without a sort; ties to the lowest token.

The kept entries are a prefix of the row in the order (larger first, of equals the lower token), so they are determined by the
smallest probability kept and by how many of the entries that equal it. That probability is searched among the bits of floats,
which are ordered like the floats, in three launches over rows and parts of rows:
`weigh` counts and weighs the entries above EDGES powers of two; `find` sees from that between which two of them the smallest
kept one lies, collects the entries there (some hundreds, of a model's row), and the last program of a row to arrive searches
among these; `apply` writes what is kept over its sum. Masses are summed as integers (2**-44), so no order of additions matters.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from decgraph.backends.torch.shaping import total as total_of
from decgraph.backends.triton.kernels.shared import about, by_lane, counters

EDGES = 32
"""Powers of two at which a row is weighed: 2**-1 .. 2**-32. What is below the last has almost no mass, and is searched too."""
UNIT = tl.constexpr(17592186044416.0)
PIVOTS = tl.constexpr(16)


@triton.jit
def mass_of(p):
    """A probability in 2**-44."""
    return (p * UNIT).to(tl.int64)


@triton.jit
def edge_bits(edge):
    """The bits of 2**-(edge + 1)."""
    return (126 - edge) << 23


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
def searched(few, n, want, low, high, rest, over, BY_MASS: tl.constexpr, BLOCK: tl.constexpr):
    """(the largest bits in low .. high - 1 at and above which entries have the weight `want`, or low; the weight above them).
    few: the n entries at and above low, without those of the weight `over` at and above high; rest: the weight of all these."""
    pivot = tl.arange(0, PIVOTS)
    while high - low > 1:
        step = tl.maximum((high - low + PIVOTS - 1) // PIVOTS, 1)
        at = tl.minimum(low + pivot * step, high)
        found = tl.zeros((PIVOTS,), tl.int64) + over
        for begin in range(0, n, BLOCK):
            i = begin + tl.arange(0, BLOCK)
            p = tl.load(few + i, mask=i < n, other=0.0, cache_modifier=".cg")
            above = (p.to(tl.int32, bitcast=True)[None, :] >= at[:, None]) & (i < n)[None, :]
            if BY_MASS:
                found += tl.sum(tl.where(above, mass_of(p)[None, :], 0), 1)
            else:
                found += tl.sum(above.to(tl.int32), 1).to(tl.int64)
        best = tl.max(tl.where((found >= want) & (at < high), pivot, 0), 0)
        after = tl.sum(tl.where(pivot == best + 1, at, 0), 0)
        rest = tl.where(best == PIVOTS - 1, rest, tl.sum(tl.where(pivot == best + 1, found, 0), 0))
        high = tl.where(best == PIVOTS - 1, high, tl.minimum(after, high))
        low = tl.sum(tl.where(pivot == best, at, 0), 0)
    return low, rest


@triton.jit(do_not_specialize=["size", "per", "within"])
def find_kernel(
    probs, top_k, top_p, min_p, weights, tops, few, taken, arrived, last_out, ties_out, total_out, size, per, stride,
    within, k_lane, k_row, p_lane, p_row, m_lane, m_row,
    BLOCK: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """last: the bits of the smallest probability that is kept; ties: how many of the entries that equal it, -1: all; total: the
    mass of what is kept, 0 where all is. within: rows of a lane. few: [rows, V] for the entries near the smallest; taken,
    arrived: a counter for each row."""
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
    want = tl.where(by_k, k, tl.maximum((share * UNIT).to(tl.int64), 1))
    weighed = tl.where(by_k, numbers, masses)
    # The first edge at and above which there is enough, and the one before it.
    edge = tl.min(tl.where(weighed >= want, e, EDGES), 0)
    low = tl.where(edge < EDGES, edge_bits(edge), 0)
    high = tl.minimum(tl.where(edge > 0, edge_bits(edge - 1), 0x7F800000), top.to(tl.int32, bitcast=True) + 1)
    rest = tl.sum(tl.where(e == edge - 1, weighed, 0), 0)
    # After a top-k, the mass of a top-p is that of the k largest: all of them are collected.
    ceiling = tl.where(by_k, 0x7F800000, high)
    over = tl.where(by_k, 0, rest)
    line_of_row = few + row * size
    if by_k | by_p:
        for n in range(part * per, (part + 1) * per):
            at = n * BLOCK + tl.arange(0, BLOCK)
            p = tl.load(probs + row * stride + at, mask=at < size, other=0.0)
            bits = p.to(tl.int32, bitcast=True)
            near = (bits >= low) & (bits < ceiling) & (at < size)
            slot = tl.atomic_add(taken + row + at * 0, 1, mask=near)  # in any order
            tl.store(line_of_row + slot, p, mask=near)
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1, sem="acq_rel", scope="gpu") == parts - 1:
        n = tl.load(taken + row, cache_modifier=".cg")
        last = tl.zeros((), tl.int32)
        ties = tl.full((), -1, tl.int64)
        total = tl.zeros((), tl.int64)
        above = tl.zeros((), tl.int64)
        if by_k:
            last, above = searched(line_of_row, n, want, low, high, rest, over, False, BLOCK)
            ties = k - above
            low, high = last, top.to(tl.int32, bitcast=True) + 1
            rest = tl.zeros((), tl.int64)
            for begin in range(0, n, BLOCK):
                i = begin + tl.arange(0, BLOCK)
                p = tl.load(line_of_row + i, mask=i < n, other=0.0, cache_modifier=".cg")
                total += tl.sum(tl.where(p.to(tl.int32, bitcast=True) > last, mass_of(p), 0), 0)
            mass = total + ties * mass_of(last.to(tl.float32, bitcast=True))
            want = tl.maximum((mass.to(tl.float64) * share).to(tl.int64), 1)
        if by_p:
            found, above = searched(line_of_row, n, want, low, high, rest, over, True, BLOCK)
            each = tl.maximum(mass_of(found.to(tl.float32, bitcast=True)), 1)
            needed = tl.maximum((want - above + each - 1) // each, 1)
            ties = tl.where((found == last) & (ties >= 0), tl.minimum(needed, ties), needed)
            last, total = found, above
        equal = tl.zeros((), tl.int64)
        for begin in range(0, n, BLOCK):
            i = begin + tl.arange(0, BLOCK)
            p = tl.load(line_of_row + i, mask=i < n, other=-1.0, cache_modifier=".cg")
            equal += tl.sum((p.to(tl.int32, bitcast=True) == last).to(tl.int32), 0)
        total = tl.where(ties >= 0, total + tl.minimum(ties, equal) * mass_of(last.to(tl.float32, bitcast=True)), 0)
        ties = tl.where(ties >= equal, -1, ties)
        floor = top * least
        if (least > 0) & (floor.to(tl.int32, bitcast=True) > last):
            last = floor.to(tl.int32, bitcast=True)
            ties = tl.full((), -1, tl.int64)
            total = tl.zeros((), tl.int64)
            for begin in range(0, size, BLOCK):
                i = begin + tl.arange(0, BLOCK)
                p = tl.load(probs + row * stride + i, mask=i < size, other=0.0)
                total += tl.sum(tl.where(p >= floor, mass_of(p), 0), 0)
        tl.store(last_out + row, last)
        tl.store(ties_out + row, ties)
        tl.store(total_out + row, total)
        tl.store(taken + row, 0)
        tl.store(arrived + row, 0)


@triton.jit(do_not_specialize=["size", "per"])
def apply_kernel(probs, out, lasts, ties, totals, size, per, stride, BLOCK: tl.constexpr):
    """What is kept of a part of a row, over its total."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    last, some, total = tl.load(lasts + row), tl.load(ties + row), tl.load(totals + row)
    seen = tl.zeros((), tl.int64)
    column = tl.arange(0, BLOCK)
    if some >= 0:  # entries that equal the smallest, in the parts before
        for n in range(part * per):
            at = n * BLOCK + column
            p = tl.load(probs + row * stride + at, mask=at < size, other=-1.0)
            seen += tl.sum((p.to(tl.int32, bitcast=True) == last).to(tl.int32), 0)
    over = 1.0 / tl.where(total > 0, total.to(tl.float64) / UNIT, 1.0)
    for n in range(part * per, (part + 1) * per):
        at = n * BLOCK + column
        p = tl.load(probs + row * stride + at, mask=at < size, other=-1.0)
        bits = p.to(tl.int32, bitcast=True)
        equal = (bits == last).to(tl.int32)
        place = seen + tl.cumsum(equal, 0) - equal
        kept = (bits > last) | ((equal > 0) & ((some < 0) | (place < some)))
        seen += tl.sum(equal, 0)
        tl.store(out + row * size + at, tl.where(kept, (p.to(tl.float64) * over).to(tl.float32), 0.0), mask=at < size)


BLOCK = 256


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
    parts = max(min(programs or -(-2 * about(device)[0] // max(rows, 1)), blocks, 32), 1)
    per = -(-blocks // parts)
    parts = -(-blocks // per)

    def empty(*sizes: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.empty(sizes, dtype=dtype, device=device)

    weights, tops = empty(rows, parts, 2, EDGES), empty(rows, parts, dtype=torch.float32)
    few = empty(rows, size, dtype=torch.float32)
    last, ties, total, out = empty(rows, dtype=torch.int32), empty(rows), empty(rows), empty(rows, size, dtype=torch.float32)
    taken, arrived = counters("taken", device, rows), counters("found", device, rows)
    if rows:
        cut = (size, per, flat.stride(0))
        weigh_kernel[(rows, parts)](flat, weights, tops, *cut, BLOCK=block, EDGES=EDGES, num_warps=4)
        find_kernel[(rows, parts)](
            flat, *given, weights, tops, few, taken, arrived, last, ties, total, *cut,
            given[0].shape[1], *(n for a in given for n in a.stride()),
            BLOCK=block, EDGES=EDGES, PARTS=32, num_warps=4,
        )  # fmt: skip
        apply_kernel[(rows, parts)](flat, out, last, ties, total, *cut, BLOCK=block, num_warps=4)
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
