# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Top-k, top-p and min-p of rows of probabilities, in place, in this order: exact, without a sort, ties to the lowest token.

What is kept is a prefix of the row in the order (larger first, of equals the lower token), so it is said by the smallest
probability kept and by how many of the entries that equal it. That probability is searched among the bits of floats, which
are ordered like the floats: each read of the row, from the second-level cache, counts above three pivots and quarters what
is left. Masses are summed as integers (2**-44), so no order of additions matters. 16 reads at most for float32, and as soon
as exactly k (or the mass) lies above a pivot, no more. Short rows, and float64 rows of one block, are taken entry by entry,
largest first, with the reference's own sums, so that its ties are decided as it decides them.
"""
import numpy as np
import torch
import triton
import triton.language as tl

from decgraph.backends.triton.cubin import Spec
from decgraph.backends.triton.rows.emit import power
from decgraph.backends.triton.rows.parts import sum_as_numpy

WIDEST = {torch.float32: 64, torch.float64: 4096}
"""Entries of a row that is taken entry by entry."""


@triton.jit
def measure(p, by_mass: tl.constexpr, above):
    """What counts above a pivot: entries, or their mass in 2**-44."""
    if by_mass:
        return tl.where(above, (p * 17592186044416.0).to(tl.int64), 0)
    return above.to(tl.int64)


@triton.jit
def bits(p, WIDE: tl.constexpr):
    """An integer of the same order as p >= 0."""
    return p.to(tl.int64, bitcast=True) if WIDE else p.to(tl.int32, bitcast=True).to(tl.int64)


@triton.jit
def value_of(key, WIDE: tl.constexpr):
    """The probability with these bits."""
    return key.to(tl.float64, bitcast=True) if WIDE else key.to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def prefix(row, want, largest, V: tl.constexpr, BLOCK: tl.constexpr, by_mass: tl.constexpr, WIDE: tl.constexpr):
    """(the bits of the last probability kept, how much lies above it): the largest bits at and above which there is `want`,
    or 0 where the whole row has less."""
    lane = tl.arange(0, BLOCK)
    low = tl.zeros((), tl.int64)               # there is enough at and above low, or it is 0
    high = largest + 1                         # and too little at and above high
    over = tl.zeros((), tl.int64)              # what is there
    while high - low > 1:
        step = tl.maximum((high - low) // 4, 1)
        a = low + step
        b = tl.minimum(a + step, high)
        c = tl.minimum(b + step, high)
        na = tl.zeros((BLOCK,), tl.int64)
        nb = tl.zeros((BLOCK,), tl.int64)
        nc = tl.zeros((BLOCK,), tl.int64)
        for start in range(0, V, BLOCK):
            p = tl.load(row + start + lane, mask=start + lane < V, other=0.0)
            key = bits(p, WIDE)
            na += measure(p, by_mass, key >= a)
            nb += measure(p, by_mass, key >= b)
            nc += measure(p, by_mass, key >= c)
        sa = tl.sum(na, 0)
        sb = tl.sum(nb, 0)
        sc = tl.sum(nc, 0)
        if sc >= want:
            low = c
        elif sb >= want:
            low = b
            high = c
            over = sc
        elif sa >= want:
            low = a
            high = b
            over = sb
        else:
            high = a
            over = sa
    return low, over


@triton.jit
def ties_of(last, over, want, by_mass: tl.constexpr, WIDE: tl.constexpr):
    """How many of the entries that equal the last one are kept."""
    if by_mass:
        each = tl.maximum((value_of(last, WIDE) * 17592186044416.0).to(tl.int64), 1)
        return (want - over + each - 1) // each
    return want - over


@triton.jit
def truncate_kernel(probs, stride, V: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr, P: tl.constexpr, MIN: tl.constexpr,
                    WIDE: tl.constexpr):
    """A row a program. K: 0 for all; P: 1 for all; MIN: a part of the largest, 0 for all."""
    row = probs + tl.program_id(0).to(tl.int64) * stride
    lane = tl.arange(0, BLOCK)
    tops = tl.load(row + lane, mask=lane < V, other=0.0)
    for start in range(BLOCK, V, BLOCK):
        tops = tl.maximum(tops, tl.load(row + start + lane, mask=start + lane < V, other=0.0))
    top = tl.max(tops, 0)
    largest = bits(top, WIDE)
    last = tl.zeros((), tl.int64)
    ties = tl.full((), V, tl.int64)
    mass = tl.full((), 17592186044416, tl.int64)
    if K > 0:
        last, over = prefix(row, K, largest, V, BLOCK, False, WIDE)
        ties = ties_of(last, over, K, False, WIDE)
        if P < 1:    # the mass of the k
            total = tl.zeros((BLOCK,), tl.int64)
            for start in range(0, V, BLOCK):
                p = tl.load(row + start + lane, mask=start + lane < V, other=0.0)
                total += measure(p, True, bits(p, WIDE) > last)
            mass = tl.sum(total, 0) + ties * (value_of(last, WIDE) * 17592186044416.0).to(tl.int64)
    if P < 1:
        want = tl.maximum((mass.to(tl.float64) * P).to(tl.int64), 1)
        last_p, over_p = prefix(row, want, largest, V, BLOCK, True, WIDE)
        ties_p = ties_of(last_p, over_p, want, True, WIDE)
        ties = tl.where(last_p > last, ties_p, tl.where(last_p == last, tl.minimum(ties, ties_p), ties))
        last = tl.maximum(last, last_p)
    least = top * MIN
    seen = tl.zeros((), tl.int64)
    sums = tl.zeros((BLOCK,), row.dtype.element_ty)
    for start in range(0, V, BLOCK):
        p = tl.load(row + start + lane, mask=start + lane < V, other=0.0)
        key = bits(p, WIDE)
        equal = (key == last).to(tl.int32)
        place = seen + tl.cumsum(equal, 0) - equal
        sums += tl.where(((key > last) | ((key == last) & (place < ties))) & (p >= least), p, 0.0)
        seen += tl.sum(equal, 0)
    total = tl.sum(sums, 0)
    total = tl.where(total > 0, total, 1.0)
    seen = tl.zeros((), tl.int64)
    for start in range(0, V, BLOCK):
        p = tl.load(row + start + lane, mask=start + lane < V, other=0.0)
        key = bits(p, WIDE)
        equal = (key == last).to(tl.int32)
        place = seen + tl.cumsum(equal, 0) - equal
        kept = ((key > last) | ((key == last) & (place < ties))) & (p >= least)
        tl.store(row + start + lane, tl.where(kept, p / total, 0.0), mask=start + lane < V)
        seen += tl.sum(equal, 0)


@triton.jit
def over_total(p, V: tl.constexpr, BLOCK: tl.constexpr):
    """p over its sum, in NumPy's order where that is short."""
    total = sum_as_numpy(p, V, BLOCK) if V <= 128 else tl.sum(p, 0)
    return p / tl.where(total > 0, total, 1.0)


@triton.jit
def one_by_one_kernel(probs, stride, V: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr, P: tl.constexpr,
                      MIN: tl.constexpr):
    """A row of one block a program: the entries in their order, the sums as the reference makes them."""
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
    """Keep the top_k, then the smallest prefix with mass top_p, then what has min_p of the largest, each over its sum: in
    place, probs float32 or float64 [R, V]. Of equals the lowest tokens are kept."""
    rows, size = probs.shape
    wide = probs.dtype == torch.float64
    k = int(top_k) if top_k is not None and top_k < size else 0
    mass = float(top_p) if top_p is not None and top_p < 1 else 1.0
    least = float(min_p) if min_p is not None else 0.0
    if not rows:
        return
    with np.errstate(all="ignore"):
        if size <= WIDEST[probs.dtype]:
            one_by_one_kernel[(rows,)](probs, probs.stride(0), size, max(16, power(size)), k, mass, least,
                                       num_warps=max(1, power(size) // 512))
        else:
            truncate_kernel[(rows,)](probs, probs.stride(0), size, min(2048, max(16, power(size))), k, mass, least, wide,
                                     num_warps=8)


def specs(size=128256):
    """The kernels at the sizes that real models have, and a table's."""
    common = {"K": 50, "P": 0.9, "MIN": 0.05}
    module = "decgraph.backends.triton.rows.truncate"
    return [Spec("rows.truncate", "truncate_kernel", {"probs": "*fp32", "stride": "i64"},
                 {"V": size, "BLOCK": 2048, "WIDE": False, **common}, module=module, warps=8),
            Spec("rows.one_by_one", "one_by_one_kernel", {"probs": "*fp64", "stride": "i64"},
                 {"V": 100, "BLOCK": 128, **common}, module=module, warps=1)]
