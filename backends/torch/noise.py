"""Keyed noise for draws: on the CPU the NumPy stream of runtime/noise.py, batched over rows; the same uint32 words on a
device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decgraph.backends.torch.transfer import fetched
from decgraph.runtime import noise

_LOW = 0xFFFFFFFF
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_FACTORS = np.array([[[0xD2511F53]], [[0xCD9E8D57]]], dtype=np.uint64)
_HALF, _MASK = np.uint64(32), np.uint64(_LOW)


def exponentials(keys: Sequence[noise.Key], n: int) -> np.ndarray:
    """The arrival times of n unit exponentials for every key: float64[len(keys), n], bit for bit runtime/noise.py's."""
    words = np.array([k.words() for k in keys], dtype=np.uint64)
    blocks = -(-n // 4)
    # (c0, c2) are what a round multiplies, (c1, c3) what it mixes in; both pairs go through NumPy as one array
    mult = np.empty((2, len(keys), blocks), dtype=np.uint64)
    mixed = np.empty_like(mult)
    mult[0], mult[1], mixed[0] = words[:, 0, None], words[:, 2, None], words[:, 1, None]
    mixed[1] = np.arange(blocks, dtype=np.uint64)
    product = np.empty_like(mult)
    seed = keys[0].seed
    k0, k1 = seed & _LOW, seed >> 32
    for _ in range(10):
        np.multiply(mult, _FACTORS, out=product)
        np.right_shift(product, _HALF, out=mult)
        mult ^= mixed[::-1]
        mult ^= np.array([[[k1]], [[k0]]], dtype=np.uint64)
        mult = mult[::-1]
        np.bitwise_and(product[::-1], _MASK, out=mixed)
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    out = np.empty((len(keys), blocks, 4))
    out[:, :, 0], out[:, :, 1], out[:, :, 2], out[:, :, 3] = mult[0], mixed[0], mult[1], mixed[1]
    u = out.reshape(len(keys), -1)[:, :n]
    u += 0.5
    u *= 2.0**-32
    np.log(u, out=u)
    np.negative(u, out=u)
    return u


def races(q: np.ndarray, keys: Sequence[noise.Key]) -> np.ndarray:
    """The winner of each row's race, argmin E_v / q_v over q_v > 0, ties to the lowest token: int64[R]. q: [R, V]. Raises
    ValueError where a row has no mass. A one-hot row reads no noise."""
    runs = q > 0
    runners = np.count_nonzero(runs, axis=-1)
    if not runners.all():
        raise ValueError("a draw from a distribution without mass")
    out: np.ndarray = q.argmax(-1)
    open_rows = np.flatnonzero(runners > 1)
    if len(open_rows):
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


__all__ = ["exponentials", "fetched", "races", "unit"]
