# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Top-k, top-p and min-p of rows of probabilities, in place, in this order: exact, without a sort, ties to the lowest token.

The kept entries are a prefix of the row in the order (larger first, of equals the lower token), so they are determined by the
smallest probability kept and by how many of the entries that equal it. That probability is searched among the bits of floats,
which are ordered like the floats: a read of the row, from the second-level cache, weighs the entries above three pivots and
quarters the interval. Once few enough entries lie above the lower end (after two or three reads of a model's row), one more
read collects them and the search ends in registers; where many are equal it goes on over the row, 16 reads at most for float32.
Masses are summed as integers (2**-44) and entries are counted, so no order of additions matters. Two more reads renormalise.
Short rows, and float64 rows of one block, are taken entry by entry, largest first, with the reference's own sums, so that ties
are decided as in the reference.
"""

import numpy as np
import torch
import triton
import triton.language as tl

from decgraph.backends.triton.cubin import Spec
from decgraph.backends.triton.rows.folds import power
from decgraph.backends.triton.rows.parts import sum_as_numpy

WIDEST = {torch.float32: 64, torch.float64: 4096}
"""Entries of a row that is taken entry by entry."""

BLOCK, FEW, WARPS = 2048, 2048, 16
"""Entries read at a time, entries that are searched in registers, warps of a program."""


@triton.jit
def mass_of(p):
    """A probability in 2**-44."""
    return (p * 17592186044416.0).to(tl.int64)


@triton.jit
def weight(p, by_mass: tl.constexpr, above):
    """The weight of entries in a search: their mass, or 1 for each."""
    if by_mass:
        out = tl.where(above, mass_of(p), 0)
    else:
        out = above.to(tl.int64)
    return out


@triton.jit
def bits(p, WIDE: tl.constexpr):
    """An integer of the same order as p >= 0."""
    return p.to(tl.int64, bitcast=True) if WIDE else p.to(tl.int32, bitcast=True).to(tl.int64)


@triton.jit
def value_of(key, WIDE: tl.constexpr):
    """The probability with these bits."""
    return key.to(tl.float64, bitcast=True) if WIDE else key.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def read(row, start, V: tl.constexpr, SIZE: tl.constexpr):
    """A block of a row; 0 beyond its end."""
    at = start + tl.arange(0, SIZE)
    return tl.load(row + at, mask=at < V, other=0.0)


@triton.jit
def prefix(
    row,
    few,
    taken,
    want,
    low,
    least,
    largest,
    V: tl.constexpr,
    SIZE: tl.constexpr,
    SOME: tl.constexpr,
    by_mass: tl.constexpr,
    WIDE: tl.constexpr,
):
    """(the bits of the last probability kept, the weight above it, how many entries have at least it): the largest bits at
    and above which there is `want`, or `low` where there is less. least: an upper bound of how many entries are at and above
    `low`. few, taken: scratch for SOME entries, and a zero."""
    high = largest + 1  # the weight at and above high is too small
    over = tl.zeros((), tl.int64)  # that much
    while (high - low > 1) & (least > SOME):
        step = tl.maximum((high - low) // 4, 1)
        a = low + step
        b = tl.minimum(a + step, high)
        c = tl.minimum(b + step, high)
        wa = tl.zeros((SIZE,), tl.int64)
        wb = tl.zeros((SIZE,), tl.int64)
        wc = tl.zeros((SIZE,), tl.int64)
        counts = tl.zeros((SIZE,), tl.int64)  # three in one: V is below 2**21
        for start in tl.range(0, V, SIZE, num_stages=3):
            p = read(row, start, V, SIZE)
            key = bits(p, WIDE)
            if by_mass:
                wa += weight(p, True, key >= a)
                wb += weight(p, True, key >= b)
                wc += weight(p, True, key >= c)
            counts += (key >= a).to(tl.int64) + ((key >= b).to(tl.int64) << 21) + ((key >= c).to(tl.int64) << 42)
        found = tl.sum(counts, 0)
        na = found & 2097151
        nb = (found >> 21) & 2097151
        nc = found >> 42
        sa = tl.sum(wa, 0) if by_mass else na
        sb = tl.sum(wb, 0) if by_mass else nb
        sc = tl.sum(wc, 0) if by_mass else nc
        if sc >= want:
            low = c
            least = nc
        elif sb >= want:
            low = b
            high = c
            over = sc
            least = nb
        elif sa >= want:
            low = a
            high = b
            over = sb
            least = na
        else:
            high = a
            over = sa
    if high - low > 1:
        for start in tl.range(0, V, SIZE, num_stages=3):
            p = read(row, start, V, SIZE)
            near = (bits(p, WIDE) >= low) & (start + tl.arange(0, SIZE) < V)
            slot = tl.atomic_add(taken + tl.zeros((SIZE,), tl.int32), 1, mask=near)  # in any order
            tl.store(few + slot, p, mask=near)
        tl.debug_barrier()
        least = tl.load(taken).to(tl.int64)
        some = tl.load(few + tl.arange(0, SOME), mask=tl.arange(0, SOME) < least, other=0.0)
        key = tl.where(tl.arange(0, SOME) < least, bits(some, WIDE), -1)
        while high - low > 1:
            middle = low + (high - low) // 2
            there = tl.sum(weight(some, by_mass, key >= middle), 0)
            enough = there >= want
            low = tl.where(enough, middle, low)
            high = tl.where(enough, high, middle)
            over = tl.where(enough, over, there)
        least = tl.sum((key >= low).to(tl.int64), 0)
    return low, over, least


@triton.jit
def ties_of(last, over, want, by_mass: tl.constexpr, WIDE: tl.constexpr):
    """How many of the entries that equal the last one are kept."""
    if by_mass:
        each = tl.maximum(mass_of(value_of(last, WIDE)), 1)
        out = (want - over + each - 1) // each
    else:
        out = want - over
    return out


@triton.jit
def kept_of(p, last, ties, seen, least, all_ties, SIZE: tl.constexpr, WIDE: tl.constexpr):
    """(which entries of a block are kept, how many ties were seen up to its end). Ties are counted only where some are
    dropped."""
    key = bits(p, WIDE)
    kept = (key >= last) & (p >= least)
    if all_ties == 0:
        equal = (key == last).to(tl.int32)
        place = seen + tl.cumsum(equal, 0) - equal
        kept = kept & ((key > last) | (place < ties))
        seen += tl.sum(equal, 0)
    return kept, seen


@triton.jit
def truncate_kernel(
    probs,
    stride,
    few,
    taken,
    k,
    part,
    share,
    V: tl.constexpr,
    SIZE: tl.constexpr,
    SOME: tl.constexpr,
    BY_K: tl.constexpr,
    BY_P: tl.constexpr,
    WIDE: tl.constexpr,
):
    """A row a program. k: top-k, where BY_K; part: top-p, where BY_P; share: of the largest, 0 for all. few: SOME entries a
    row; taken: two zeros a row."""
    at = tl.program_id(0).to(tl.int64)
    row = probs + at * stride
    few += at * SOME
    taken += at * 2
    tops = read(row, 0, V, SIZE)
    for start in tl.range(SIZE, V, SIZE, num_stages=3):
        tops = tl.maximum(tops, read(row, start, V, SIZE))
    top = tl.max(tops, 0)
    largest = bits(top, WIDE)
    last = tl.zeros((), tl.int64)
    least = tl.full((), V, tl.int64)
    ties = tl.full((), V, tl.int64)
    all_ties = 1
    mass = tl.full((), 17592186044416, tl.int64)
    want_k = tl.zeros((), tl.int64) + k
    if BY_K:
        last, over, least = prefix(row, few, taken, want_k, last, least, largest, V, SIZE, SOME, False, WIDE)
        ties = ties_of(last, over, want_k, False, WIDE)
        all_ties = (least <= want_k).to(tl.int32)
        if BY_P:  # the mass of the k
            total = tl.zeros((SIZE,), tl.int64)
            for start in tl.range(0, V, SIZE, num_stages=3):
                p = read(row, start, V, SIZE)
                total += weight(p, True, bits(p, WIDE) > last)
            mass = tl.sum(total, 0) + ties * mass_of(value_of(last, WIDE))
            tl.debug_barrier()  # the scratch is used again
    if BY_P:
        want = tl.maximum((mass.to(tl.float64) * part).to(tl.int64), 1)
        last_p, over_p, least = prefix(row, few, taken + 1, want, last, least, largest, V, SIZE, SOME, True, WIDE)
        ties_p = ties_of(last_p, over_p, want, True, WIDE)
        if (last_p > last) | (ties_p < ties):
            ties = ties_p
            all_ties = 0
        last = last_p
    smallest = top * share
    seen = tl.zeros((), tl.int64)
    sums = tl.zeros((SIZE,), row.dtype.element_ty)
    for start in tl.range(0, V, SIZE, num_stages=3):
        p = read(row, start, V, SIZE)
        kept, seen = kept_of(p, last, ties, seen, smallest, all_ties, SIZE, WIDE)
        sums += tl.where(kept, p, 0.0)
    total = tl.sum(sums, 0)
    total = tl.where(total > 0, total, 1.0)
    seen = tl.zeros((), tl.int64)
    for start in tl.range(0, V, SIZE, num_stages=3):
        p = read(row, start, V, SIZE)
        kept, seen = kept_of(p, last, ties, seen, smallest, all_ties, SIZE, WIDE)
        tl.store(row + start + tl.arange(0, SIZE), tl.where(kept, p / total, 0.0), mask=start + tl.arange(0, SIZE) < V)


@triton.jit
def over_total(p, V: tl.constexpr, BLOCK: tl.constexpr):
    """p over its sum, in NumPy's order where that is short."""
    total = sum_as_numpy(p, V, BLOCK) if V <= 128 else tl.sum(p, 0)
    return p / tl.where(total > 0, total, 1.0)


@triton.jit
def one_by_one_kernel(probs, stride, V: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr, P: tl.constexpr, MIN: tl.constexpr):
    """A row of one block a program: the entries in their order, the sums as in the reference."""
    row = probs + tl.program_id(0).to(tl.int64) * stride
    token = tl.arange(0, BLOCK)
    p = tl.load(row + token, mask=token < V, other=0.0)
    given = tl.where(token < V, p, float("-inf"))
    if K > 0:
        rest = given
        kept = tl.zeros((BLOCK,), tl.int32)
        for _ in range(K):
            at = tl.min(tl.where(rest == tl.max(rest, 0), token, BLOCK), 0)
            kept = tl.where(token == at, 1, kept)
            rest = tl.where(token == at, float("-inf"), rest)
        p = over_total(tl.where(kept > 0, p, 0.0), V, BLOCK)
    if P < 1:
        rest = given
        kept = tl.zeros((BLOCK,), tl.int32)
        inside = tl.zeros((), row.dtype.element_ty)
        n = 0
        while (inside < P) & (n < V):
            at = tl.min(tl.where(rest == tl.max(rest, 0), token, BLOCK), 0)
            kept = tl.where(token == at, 1, kept)
            rest = tl.where(token == at, float("-inf"), rest)
            inside += tl.sum(tl.where(token == at, p, 0.0), 0)
            n += 1
        p = over_total(tl.where(kept > 0, p, 0.0), V, BLOCK)
    if MIN > 0:
        p = over_total(tl.where(p >= MIN * tl.max(p, 0), p, 0.0), V, BLOCK)
    tl.store(row + token, p, mask=token < V)


def truncate(probs, *, top_k=None, top_p=None, min_p=None) -> None:
    """Keep the top_k, then the smallest prefix with mass top_p, then the entries of at least min_p times the largest, each over
    its sum: in place, probs float32 or float64 [R, V]. Of equals the lowest tokens are kept."""
    rows, size = probs.shape
    wide = probs.dtype == torch.float64
    k = int(top_k) if top_k is not None and top_k < size else 0
    mass = float(top_p) if top_p is not None and top_p < 1 else 1.0
    least = float(min_p) if min_p is not None else 0.0
    if not rows:
        return
    with np.errstate(all="ignore"):
        if size <= WIDEST[probs.dtype]:
            one_by_one_kernel[(rows,)](
                probs, probs.stride(0), size, max(16, power(size)), k, mass, least, num_warps=max(1, power(size) // 512)
            )
        else:
            few = torch.empty(rows, FEW, dtype=probs.dtype, device=probs.device)
            taken = torch.zeros(rows, 2, dtype=torch.int32, device=probs.device)
            truncate_kernel[(rows,)](
                probs,
                probs.stride(0),
                few,
                taken,
                k,
                mass,
                least,
                size,
                min(BLOCK, max(16, power(size))),
                FEW,
                k > 0,
                mass < 1,
                wide,
                num_warps=WARPS,
            )


def specs(size=128256):
    """The kernels at the sizes of real models, and of a table model."""
    module = "decgraph.backends.triton.rows.truncate"
    given = {"probs": "*fp32", "stride": "i64", "few": "*fp32", "taken": "*i32", "k": "i32", "part": "fp32", "share": "fp32"}
    sizes = {"V": size, "SIZE": BLOCK, "SOME": FEW, "WIDE": False}
    out = [
        Spec("rows.truncate", "truncate_kernel", given, {**sizes, "BY_K": by_k, "BY_P": by_p}, module=module, warps=WARPS)
        for by_k in (True, False)
        for by_p in (True, False)
    ]
    return [
        *out,
        Spec(
            "rows.one_by_one",
            "one_by_one_kernel",
            {"probs": "*fp64", "stride": "i64"},
            {"V": 100, "BLOCK": 128, "K": 50, "P": 0.9, "MIN": 0.05},
            module=module,
            warps=1,
        ),
    ]
