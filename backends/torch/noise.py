"""Keyed noise for draws: on the CPU the NumPy stream of runtime/noise.py, batched over rows; the same uint32 words on a
device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from decgraph.backends.torch.protocols import Machine
from decgraph.errors import DecError
from decgraph.ir.ops.draws import NO_PLACE, NoiseKey
from decgraph.runtime import noise

_LOW = 0xFFFFFFFF
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_FACTOR0, _FACTOR1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_FACTORS = np.array([[[0xD2511F53]], [[0xCD9E8D57]]], dtype=np.uint64)
BLOCKS = 1 << 14  # blocks of four numbers at once: what one pass reads and writes stays in the processor's cache
_HALF, _MASK = np.uint64(32), np.uint64(_LOW)


def exponentials(keys: Sequence[noise.Key], n: int) -> np.ndarray:
    """The arrival times of n unit exponentials for every key: float64[len(keys), n], bit for bit runtime/noise.py's. The keys
    are of one seed."""
    words = np.array([k.words() for k in keys], dtype=np.uint64)
    blocks = -(-n // 4)
    at_once = max(1, BLOCKS // max(blocks, 1))
    if len(keys) <= at_once:
        return arrivals(words, keys[0].seed, n)
    out = np.empty((len(keys), n))
    for first in range(0, len(keys), at_once):
        out[first : first + at_once] = arrivals(words[first : first + at_once], keys[0].seed, n)
    return out


@lru_cache(maxsize=64)
def _round_keys(seed: int) -> tuple[np.ndarray, ...]:
    """What each of the ten rounds mixes in: uint64[2, 1, 1], the second half of the key first."""
    k0, k1 = seed & _LOW, seed >> 32
    return tuple(np.array([[[(k1 + i * _W1) & _LOW]], [[(k0 + i * _W0) & _LOW]]], dtype=np.uint64) for i in range(10))


def arrivals(words: np.ndarray, seed: int, n: int) -> np.ndarray:
    """The same for the words uint64[R, 3] of the counters: float64[R, n]. Of a counter only its last word differs in a row, so
    for the first rounds most of what is computed is one number a row."""
    keys, blocks = _round_keys(seed), -(-n // 4)
    c0, c1, c2 = (words[:, i, None] for i in range(3))
    p0, p1 = c0 * _FACTOR0, c2 * _FACTOR1
    a, b = (p1 >> _HALF) ^ c1 ^ keys[0][1, 0], p1 & _MASK
    c, d = ((p0 >> _HALF) ^ keys[0][0, 0]) ^ np.arange(blocks, dtype=np.uint64), p0 & _MASK
    p0, p1 = a * _FACTOR0, c * _FACTOR1
    a, b, c, d = (p1 >> _HALF) ^ (b ^ keys[1][1, 0]), p1 & _MASK, (p0 >> _HALF) ^ d ^ keys[1][0, 0], p0 & _MASK
    p0, p1 = a * _FACTOR0, c * _FACTOR1
    # From here on all differ. (c0, c2) are what a round multiplies, (c1, c3) what it mixes in: pairs go through as one array.
    mult = np.empty((2, len(words), blocks), dtype=np.uint64)
    mixed, product = np.empty_like(mult), np.empty_like(mult)
    mult[0], mult[1] = b ^ ((p1 >> _HALF) ^ keys[2][1, 0]), (p0 >> _HALF) ^ (d ^ keys[2][0, 0])
    mixed[0], mixed[1] = p1 & _MASK, p0 & _MASK
    for key in keys[3:]:
        np.multiply(mult, _FACTORS, out=product)
        np.right_shift(product, _HALF, out=mult)
        mult ^= mixed[::-1]
        mult ^= key
        mult = mult[::-1]
        np.bitwise_and(product[::-1], _MASK, out=mixed)
    out = np.empty((len(words), blocks, 4))
    out[:, :, 0], out[:, :, 1], out[:, :, 2], out[:, :, 3] = mult[0], mixed[0], mult[1], mixed[1]
    u = out.reshape(len(words), -1)[:, :n]
    u += 0.5
    u *= 2.0**-32
    np.log(u, out=u)
    np.negative(u, out=u)
    return u


def first_arrivals(q: np.ndarray, keys: Sequence[noise.Key], k: int) -> np.ndarray:
    """The first k tokens of each row's race in the order of their arrival, -1 where fewer have mass: int64[R, k]. q: [R, V]."""
    out = np.full((len(q), k), -1, dtype=np.int64)
    at_once = max(1, 4 * BLOCKS // max(q.shape[-1], 1))
    for first in range(0, len(q) if k else 0, at_once):
        some = slice(first, first + at_once)
        with np.errstate(divide="ignore"):
            raced = noise.race_keys(np.log(q[some]), exponentials(keys[some], q.shape[-1]))
        for row, one in zip(out[some], raced):
            order = noise.race_order(one, k)
            row[: len(order)] = order
    return out


def races(q: np.ndarray, keys: Sequence[noise.Key], times_of: Callable[[int], np.ndarray] | None = None) -> np.ndarray:
    """The winner of each row's race, argmin E_v / q_v over q_v > 0, ties to the lowest token: int64[R]. q: [R, V]. Raises
    ValueError where a row has no mass. A one-hot row reads no noise. times_of: of a single row the arrival times
    float64[1, V], in the place of its key."""
    runs = q > 0
    runners = np.count_nonzero(runs, axis=-1)
    if not runners.all():
        raise ValueError("a draw from a distribution without mass")
    out: np.ndarray = q.argmax(-1)
    open_rows = np.flatnonzero(runners > 1)
    if len(open_rows):
        if times_of is not None:
            times = times_of(q.shape[-1])
        else:
            times = exponentials([keys[int(i)] for i in open_rows], q.shape[-1])
        every = len(open_rows) == len(q)
        with np.errstate(divide="ignore", over="ignore"):
            times /= q if every else q[open_rows]  # inf where q is 0
        winners = times.argmin(-1)
        for n in np.flatnonzero(times[np.arange(len(winners)), winners] == np.inf):
            winners[n] = runs[open_rows[n]].argmax()  # the arrival times of all tokens with mass overflow
        out[open_rows] = winners
    return out


def unit(key: noise.Key) -> float:
    """One uniform in (0, 1): runtime/noise.py's, in plain integers, since one block is not worth an array."""
    c0, c1, c2 = key.words()
    c3 = 0
    k0, k1 = key.seed & _LOW, key.seed >> 32
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _LOW, (p0 >> 32) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return (c0 + 0.5) * 2.0**-32


def key_of(
    m: Machine,
    key: NoiseKey,
    lane: tuple[int, ...],
    position: int | None = None,
    node: int | None = None,
    index: int | None = None,
) -> noise.Key:
    """The Philox key of a draw; `position` and `node` are the row's. Raises DecError for output noise of a distribution
    that stands at no position of the text, without an index."""
    seed = m.request.seed
    if key.kind != "output":
        return noise.Key(seed, m.noise_id, m.site_prefix + key.site, m.counter_prefix + key.counters, lane)
    at = index if index is not None else position
    if at is None:
        raise DecError("`as output` needs an index here: the distribution has no place of its own", hint=NO_PLACE)
    place = (int(node),) if index is not None and node is not None else ()
    if m.site_prefix:
        return noise.Key(seed, m.noise_id, m.site_prefix + "output", m.counter_prefix + (int(at),), place)
    return noise.output_key(seed, m.request.request_id, int(at), place)
