# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Device functions of generated row kernels: arrival times of a race, sums in NumPy's order, the best k of a row."""

import triton
import triton.language as tl

from decgraph.backends.triton.prelude import philox, uniform, word_at


@triton.jit
def exponential(word, WIDE: tl.constexpr):
    """-log(u) of noise words: in float64 the reference's; in float32 to float32's relative accuracy also where u is near one,
    since the winner of a race over many tokens is one of those."""
    if WIDE:
        time = -tl.log(uniform(word))
    else:
        u = (word.to(tl.float32) + 0.5) * 2.3283064365386963e-10
        d = ((word ^ 0xFFFFFFFF).to(tl.float32) + 0.5) * 2.3283064365386963e-10  # 1 - u
        near = d * (1.0 + d * (0.5 + d * (0.33333334 + d * (0.25 + d * 0.2))))
        time = tl.where(d < 0.03125, near, -tl.log(u))
    return time


@triton.jit
def times(first, c0, c1, c2, k0, k1, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """Arrival times of the tokens first .. first + BLOCK, `first` a multiple of four: whole blocks of noise."""
    block = (first // 4 + tl.arange(0, BLOCK // 4)).to(tl.uint32)
    zero = block * 0
    w0, w1, w2, w3 = philox(zero + c0, zero + c1, zero + c2, block, zero + k0, zero + k1)
    return exponential(tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3)), WIDE)


@triton.jit
def time_at(token, c0, c1, c2, k0, k1, WIDE: tl.constexpr):
    """The arrival time of one token, or of a few."""
    return exponential(word_at(token, c0, c1, c2, k0, k1), WIDE)


@triton.jit
def arrival(time, q, WIDE: tl.constexpr):
    """time / q: finite wherever q has mass, inf where it has none. Times that overflow are tied."""
    slowest = 1.7976931348623157e308 if WIDE else 3.4028234663852886e38
    runs = q > 0
    return tl.where(runs, tl.minimum(time / tl.where(runs, q, 1.0), slowest), float("inf"))


@triton.jit
def entr(p):
    """-p log p; 0 at 0."""
    return tl.where(p > 0, -p * tl.log(tl.where(p > 0, p, 1.0)), 0.0)


@triton.jit
def sum_as_numpy(x, V: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the first V <= 128 of BLOCK numbers in NumPy's order: eight lanes, their sums in pairs, then the rest."""
    at = tl.arange(0, BLOCK)
    whole: tl.constexpr = V // 8 * 8
    total = tl.sum(x * 0.0, 0)
    if whole > 0:
        lanes = tl.sum(tl.reshape(tl.where(at < whole, x, 0.0), (BLOCK // 8, 8)), 0)
        pairs = tl.sum(tl.reshape(lanes, (4, 2)), 1)
        total = tl.sum(tl.sum(tl.reshape(pairs, (2, 2)), 1), 0)
    for i in tl.static_range(whole, V):
        total += tl.sum(tl.where(at == i, x, 0.0), 0)
    return total


@triton.jit
def packed(values, tokens):
    """float32 values and their tokens as int64 of the order (larger value, of equals the lower token)."""
    bits = (values + 0.0).to(tl.int32, bitcast=True)  # no -0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | (2147483647 - tokens).to(tl.int64)


@triton.jit
def value_in(key):
    """The value in a packed key."""
    ordered = (key >> 32).to(tl.int32)
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def token_in(key):
    """The token in a packed key; 2**31 - 1 for an empty one."""
    return 2147483647 - (key & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def nobody(KP: tl.constexpr):
    """Packed keys that sort after every entry of a row, -inf too."""
    return packed(tl.full((KP,), float("-inf"), tl.float32), tl.full((KP,), 2147483647, tl.int32))


@triton.jit
def merge_best(kept, new, KP: tl.constexpr):
    """The KP largest of KP packed keys in order and of a block of new ones, in order. A block with none of them is skipped."""
    if tl.max(new, 0) > tl.min(kept, 0):
        kept = tl.topk(tl.reshape(tl.join(kept, tl.topk(new, KP)), (2 * KP,)), KP)
    return kept


@triton.jit
def keep_best(values, tokens, new, at, K: tl.constexpr, KP: tl.constexpr):
    """The K best of [KP] kept ones and of a block of new ones: the larger, of equals the lower token. Slots from K on are
    never used. Costs a fold of the block for each entry that gets in, and one more."""
    none = 2147483647
    slot = tl.arange(0, KP)
    worst = tl.min(tl.where(slot < K, values, float("inf")), 0)
    top = tl.max(new, 0)
    while top > worst:
        token = tl.min(tl.where(new == top, at, none), 0)
        last = tl.max(tl.where((slot < K) & (values == worst), tokens, -1), 0)
        out = tl.min(tl.where((slot < K) & (values == worst) & (tokens == last), slot, KP), 0)
        values = tl.where(slot == out, top, values)
        tokens = tl.where(slot == out, token, tokens)
        new = tl.where(at == token, float("-inf"), new)
        worst = tl.min(tl.where(slot < K, values, float("inf")), 0)
        top = tl.max(new, 0)
    return values, tokens


@triton.jit
def next_best(values, tokens, done, K: tl.constexpr, KP: tl.constexpr):
    """(value, token, slot) of the best of the slots that are not done."""
    none = 2147483647
    slot = tl.arange(0, KP)
    live = (slot < K) & (done == 0)
    value = tl.max(tl.where(live, values, float("-inf")), 0)
    token = tl.min(tl.where(live & (values == value), tokens, none), 0)
    return value, token, tl.min(tl.where(live & (values == value) & (tokens == token), slot, KP), 0)
