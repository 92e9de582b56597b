# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Device functions of generated rules: rows of probabilities as handles, Bernoulli draws and races over them.

A row is a handle (point, base, mass). point >= 0: all mass on that token; -2: no mass at all; -1: entry v is
base[v] / mass. So the residual of one-hot rows is one-hot and needs no pass, and normalising is a number to divide by.
"""

import triton
import triton.language as tl

from decgraph.backends.triton.prelude import hash_word, philox, uniform
from decgraph.backends.triton.rows.parts import arrival, times


@triton.jit
def entry(point, base, mass, token):
    """Entries of a row at tokens (int64, of any shape), float64; 0 at -1."""
    loaded = tl.load(base + tl.maximum(token, 0), mask=tl.where(point == -1, token, -1) >= 0, other=0.0) / mass
    return tl.where(point == -1, loaded.to(tl.float64), (point == token).to(tl.float64))


@triton.jit
def chunk(point, base, mass, offsets, V):
    """Entries of a row at a block of tokens, in the row's type; 0 past the vocabulary."""
    loaded = tl.load(base + offsets, mask=offsets < tl.where(point == -1, V, 0), other=0.0) / mass
    return tl.where(point == -1, loaded, (offsets == point).to(loaded.dtype))


@triton.jit
def race(point, base, mass, c0, c1, c2, k0, k1, lo, hi, V, BLOCK: tl.constexpr):
    """The race over the tokens lo .. hi-1 of a row (lo a multiple of four): (time of the winner, the winner, int32), ties to
    the lowest. Without mass the winner is V."""
    WIDE: tl.constexpr = base.dtype.element_ty == tl.float64
    lane = tl.arange(0, BLOCK)
    best = tl.zeros((BLOCK,), base.dtype.element_ty) + float("inf")
    who = lane * 0 + V
    for start in range(lo, hi, BLOCK):
        q = chunk(point, base, mass, start + lane, hi)
        time = arrival(times(start, c0, c1, c2, k0, k1, BLOCK, WIDE), q, WIDE)
        who = tl.where(time < best, start + lane, who)
        best = tl.where(time < best, time, best)
    least = tl.min(best)
    return least.to(tl.float64), tl.min(tl.where(best == least, who, V))


@triton.jit
def drawn(point, base, mass, c0, c1, c2, k0, k1, V, BLOCK: tl.constexpr):
    """One draw from a row, int64; -1 where it has no mass. A one-hot row needs no noise."""
    token = tl.maximum(point, -1).to(tl.int64)
    if point == -1:
        least, winner = race(point, base, mass, c0, c1, c2, k0, k1, 0, V, V, BLOCK)
        token = tl.where(winner < V, winner, -1).to(tl.int64)
    return token


@triton.jit
def coin(c0, c1, c2, k0, k1):
    """One uniform in (0, 1), float64: word 0 of block 0."""
    zero = c0 * 0
    w0, w1, w2, w3 = philox(c0, c1, c2, zero, k0, k1)
    return uniform(w0)


@triton.jit
def hashed(state, number):
    """The state of hash32 after a number, taken mod 2**32."""
    return hash_word(state, number.to(tl.uint32))


@triton.jit
def prefixed(counters, PREFIX: tl.constexpr):
    """The state of hash32 after the counters of a sub-run's caller."""
    state = tl.full((), 0, tl.uint32)
    for i in tl.static_range(PREFIX):
        state = hash_word(state, tl.load(counters + i).to(tl.uint32))
    return state


@triton.jit
def depth_of(node, parent):
    """The depth of a node, int64, by going up from it. parent: the sequence's row."""
    depth = tl.full((), 0, tl.int64)
    at = node
    while at > 0:
        at = tl.load(parent + at)
        depth += 1
    return depth


@triton.jit
def depths_of(parent, index, most):
    """The depth of every node, int64[NB], for parents int32[NB] (0 for nodes that do not exist). most: no node is deeper."""
    depth = (index * 0).to(tl.int64)
    at = index
    for _ in range(most):
        depth += (at > 0).to(tl.int64)
        at = tl.where(at > 0, tl.gather(parent, at, 0), 0)
    return depth


@triton.jit
def ratio(a, b):
    """a / b, also by zero: infinite, or NaN where a is zero too."""
    none = b == 0.0
    quotient = a / tl.where(none, 1.0, b)
    at_zero = tl.where(a > 0.0, float("inf"), tl.where(a < 0.0, float("-inf"), float("nan")))
    return tl.where(none, at_zero.to(quotient.dtype), quotient)


@triton.jit
def logarithm(a):
    """log(a), also of zero."""
    none = a == 0.0
    return tl.where(none, float("-inf"), tl.log(tl.where(none, 1.0, a)))
