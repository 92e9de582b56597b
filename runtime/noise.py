"""Counter-based noise: a draw is a race, and its noise is a function of its key, not of the time of the draw.

Layout, for a kernel that has to reproduce it bit for bit. All words are uint32; arithmetic on them wraps.

    philox key     = (seed mod 2**32, seed // 2**32)
    philox counter = (c0, c1, c2, token // 4)    the draw of `token` reads word `token % 4` of the block
    c0 = hash32(request mod 2**32, request // 2**32, s)
         s = site if it is a number below 2**31; of a name 2**31 | hash32(its UTF-8 bytes, a word each) >> 1
    c1 = hash32(*loop counters)    outermost first; per sequence, so batching does not move them
    c2 = hash32(*lane)             which of several draws at one site: lane, node, position, ...
    u  = (word + 0.5) * 2**-32     float64, exact; never 0 and never 1
    E  = -log(u)                   float64, the arrival time of an exponential of rate one

    hash32(w0 .. wn-1), the words of MurmurHash3 x86_32 with seed 0:
        h = 0
        for each w:  k = rotl(w * 0xCC9E2D51, 15) * 0x1B873593;  h = rotl(h ^ k, 13) * 5 + 0xE6546B64
        h ^= 4 * n;  h ^= h >> 16;  h *= 0x85EBCA6B;  h ^= h >> 13;  h *= 0xC2B2AE35;  h ^= h >> 16

For one word hash32 is a bijection, so two positions, or two steps of one loop, never share their noise;
longer tuples collide with probability 2**-32. Counters and lanes are numbers from -2**31 to 2**32 - 1, taken
mod 2**32.

The stream `output` is reserved: site "output", counters = (position,), and no loop counters at all. It is
what `y ~ p as output` reads, so its draws depend on the position alone.

A draw from q is `argmin E_v / q_v` over the tokens with q_v > 0 (ties: the lowest token). The arrival order
of the first k is a sample without replacement; in logarithms it is Gumbel-top-k, and `under` conditions it on
its maximum (Kool, van Hoof and Welling, Stochastic Beams and Where to Find Them, 2019, section 3).

Philox: Salmon, Moraes, Dror and Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, 2011.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

OUTPUT: Final = "output"
_LOW: Final = 0xFFFFFFFF


@dataclass(frozen=True)
class Key:
    """Where a draw's noise stands. `site` is a source location (a number or a name), `counters` the
    iterations of the loops around it, `lane` which of several draws at the site it is."""

    seed: int
    request: int
    site: int | str
    counters: tuple[int, ...] = ()
    lane: tuple[int, ...] = ()

    def words(self) -> tuple[int, int, int]:
        """(c0, c1, c2), the three words of the Philox counter above the token's."""
        return _words(self.request, self.site, self.counters, self.lane)


def apart(request_id: int, number: int) -> int:
    """The id that keys the noise, but for the stream `output`, of a request that `number` others of its session came before:
    what a session remembers of their draws then tells nothing of its own, also where ids and seeds are the same
    (docs/decisions/0016-noise-and-memory.md). Of the first one it is the request's own id."""
    mixed = number * 0x9E3779B97F4A7C15 & 2**64 - 1
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
    return request_id ^ mixed ^ mixed >> 27


def output_key(seed: int, request: int, position: int, lane: tuple[int, ...] = ()) -> Key:
    """The key of the reserved stream `output` at a position (or at the index that the author gives)."""
    return Key(seed, request, OUTPUT, (position,), lane)


def hash32(words: Iterable[int]) -> int:
    """MurmurHash3 x86_32 with seed 0 over whole 32-bit words; see the module's layout."""
    h, n = 0, 0
    for w in words:
        k = ((w & _LOW) * 0xCC9E2D51) & _LOW
        k = (_rotl(k, 15) * 0x1B873593) & _LOW
        h = (_rotl(h ^ k, 13) * 5 + 0xE6546B64) & _LOW
        n += 1
    h ^= 4 * n
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & _LOW
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & _LOW
    return h ^ (h >> 16)


def _rotl(w: int, bits: int) -> int:
    return ((w << bits) | (w >> (32 - bits))) & _LOW


@lru_cache(maxsize=4096)
def _words(request: int, site: int | str, counters: tuple[int, ...], lane: tuple[int, ...]) -> tuple[int, int, int]:
    s = 2**31 | hash32(site.encode()) >> 1 if isinstance(site, str) else site
    if isinstance(site, int) and not 0 <= site < 2**31:
        raise ValueError(f"a numbered site lies in 0..2**31-1, not {site}")
    return hash32((request & _LOW, request >> 32, s)), hash32(counters), hash32(lane)


def philox(counter: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Philox 4x32-10. counter: uint32[..., 4]; key: uint32[..., 2], broadcast. Returns uint32[..., 4]."""
    c = [counter[..., i].astype(np.uint64) for i in range(4)]
    k0, k1 = (key[..., i].astype(np.uint64) for i in range(2))
    low, half = np.uint64(_LOW), np.uint64(32)
    for _ in range(10):
        p0 = c[0] * np.uint64(0xD2511F53)
        p1 = c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> half) ^ c[1] ^ k0, p1 & low, (p0 >> half) ^ c[3] ^ k1, p0 & low]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return np.stack(np.broadcast_arrays(*c), axis=-1).astype(np.uint32)


def words(key: Key, n: int) -> np.ndarray:
    """The first n words at a key: uint32[n]."""
    blocks = -(-n // 4)
    counter = np.empty((blocks, 4), np.uint32)
    counter[:, :3] = np.array(key.words(), np.uint32)
    counter[:, 3] = np.arange(blocks, dtype=np.uint32)
    return philox(counter, np.array([key.seed & _LOW, key.seed >> 32], np.uint32)).reshape(-1)[:n]


def uniforms(key: Key, n: int) -> np.ndarray:
    """n uniforms in the open interval (0, 1): float64[n], multiples of 2**-33."""
    return (words(key, n).astype(np.float64) + 0.5) * 2.0**-32


def unit(key: Key) -> float:
    """One uniform in (0, 1), for a coin: `unit(key) < r` is never true at r = 0 and always at r = 1."""
    return float(uniforms(key, 1)[0])


def exponentials(key: Key, n: int) -> np.ndarray:
    """The arrival times of n unit exponentials, one per token: float64[n], all positive."""
    return -np.log(uniforms(key, n))


def race(q: np.ndarray, times: np.ndarray) -> int:
    """The winner of a race: argmin times[v] / q[v] over q[v] > 0, ties to the lowest token.

    q: float64[V], which need not sum to one; times: float64[V] from `exponentials`. Raises ValueError if
    nothing in q is positive.
    """
    runs = q > 0
    if not runs.any():
        raise ValueError("nobody runs: the distribution has no mass")
    arrival = np.full(len(q), np.inf)
    # A tiny q may send its arrival to infinity; if it alone runs it still wins, hence the fallback.
    with np.errstate(over="ignore"):
        np.divide(times, q, out=arrival, where=runs)
    first = int(np.argmin(arrival))
    return first if runs[first] else int(np.argmax(runs))


def race_keys(log_q: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The same race in logarithms, highest first: log_q - log(times), which is log q plus Gumbel noise.

    log_q: float64[...], -inf where there is no mass; times of the same shape. With a whole path's
    log-probability in log_q the keys of different parents are comparable.
    """
    return log_q - np.log(times)


def race_order(keys: np.ndarray, k: int) -> np.ndarray:
    """The indices of the k highest keys, highest first, ties to the lowest: int64[<= k]; never a -inf."""
    k = max(k, 0)
    if 0 < 4 * k < len(keys):  # only those that are as high as the k-th have to be sorted
        least = -np.partition(-keys, k - 1)[k - 1]
        found = np.flatnonzero(keys >= least)
        if len(found) >= k:  # not where there are NaNs
            order = found[np.argsort(-keys[found], kind="stable")[:k]]
            return order[keys[order] > -np.inf]
    order = np.argsort(-keys, kind="stable")[:k]
    return order[keys[order] > -np.inf]


def under(keys: np.ndarray, ceiling: float) -> np.ndarray:
    """Race keys of siblings, float64[n], conditioned on their maximum being `ceiling`, their parent's key.

    In arrival times this adds one constant to all. Logarithms are used because long paths overflow.
    """
    top = np.max(keys)
    if not top > -np.inf:
        return np.full(len(keys), -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        v = ceiling - keys + np.log(-np.expm1(keys - top))
        moved = ceiling - np.maximum(v, 0.0) - np.log1p(np.exp(-np.abs(v)))
    # The maximum itself has v = -inf, and a sibling with no mass has v = inf: both have exact answers.
    moved = np.where(keys == top, ceiling, moved)
    return np.where(keys == -np.inf, -np.inf, moved)
