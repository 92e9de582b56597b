# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Device functions of generated kernels: keyed noise (the layout in runtime/noise.py), bit for bit."""

import triton
import triton.language as tl


@triton.jit
def philox(c0, c1, c2, c3, k0, k1):
    """Philox 4x32-10: four blocks of uint32 words at the counters (c0, c1, c2, c3), uint32 of one shape. k0, k1: uint32."""
    for _ in tl.static_range(10):
        low0 = c0 * 0xD2511F53
        low2 = c2 * 0xCD9E8D57
        high0 = tl.umulhi(c0, 0xD2511F53)
        high2 = tl.umulhi(c2, 0xCD9E8D57)
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def word_at(token, c0, c1, c2, k0, k1):
    """The noise word of each token, uint32 of the shape of `token` (int32): word `token % 4` of block `token // 4`.

    A block is computed for every token, four times as many as in a loop over blocks, which kernels over whole rows use.
    """
    zero = (token * 0).to(tl.uint32)
    w0, w1, w2, w3 = philox(zero + c0, zero + c1, zero + c2, (token // 4).to(tl.uint32), zero + k0, zero + k1)
    lane = token % 4
    return tl.where(lane == 0, w0, tl.where(lane == 1, w1, tl.where(lane == 2, w2, w3)))


@triton.jit
def uniform(word):
    """(word + 0.5) * 2**-32 in float64, exactly: in (0, 1)."""
    return (word.to(tl.float64) + 0.5) * 2.3283064365386963e-10


@triton.jit
def uniform32(word):
    """The nearest float32 of `uniform`, kept below one."""
    u = (word.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    return tl.minimum(u, 0.99999994)


@triton.jit
def hash_start():
    """The state of hash32 before its first word."""
    return tl.full((), 0, tl.uint32)


@triton.jit
def hash_word(h, w):
    """The state of hash32 after a word, uint32."""
    k = w * 0xCC9E2D51
    k = ((k << 15) | (k >> 17)) * 0x1B873593
    h = h ^ k
    return ((h << 13) | (h >> 19)) * 5 + 0xE6546B64


@triton.jit
def hash_end(h, n: tl.constexpr):
    """hash32 of n words from its state after them."""
    h = h ^ (4 * n)
    h = (h ^ (h >> 16)) * 0x85EBCA6B
    h = (h ^ (h >> 13)) * 0xC2B2AE35
    return h ^ (h >> 16)
