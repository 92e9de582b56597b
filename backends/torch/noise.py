"""Keyed noise for draws: on the CPU the NumPy stream of runtime/noise.py, batched over rows; the same words on a device."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from decgraph.runtime import noise

_LOW = 0xFFFFFFFF
_M0, _M1, _W0, _W1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57), 0x9E3779B9, 0xBB67AE85
_HALF, _MASK = np.uint64(32), np.uint64(_LOW)


def exponentials(keys: Sequence[noise.Key], n: int) -> np.ndarray:
    """The arrival times of n unit exponentials for every key: float64[len(keys), n], bit for bit runtime/noise.py's."""
    words = np.array([k.words() for k in keys], dtype=np.uint64)
    blocks = -(-n // 4)
    c0, c1, c2 = (words[:, i, None] for i in range(3))
    c3 = np.arange(blocks, dtype=np.uint64)[None]
    seed = keys[0].seed
    k0, k1 = seed & _LOW, seed >> 32
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ np.uint64(k0), p1 & _MASK, (p0 >> _HALF) ^ c3 ^ np.uint64(k1), p0 & _MASK
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    out = np.empty((len(keys), blocks, 4))
    for i, c in enumerate((c0, c1, c2, c3)):
        out[:, :, i] = c
    u = out.reshape(len(keys), -1)[:, :n]
    u += 0.5
    u *= 2.0**-32
    return -np.log(u)


def races(q: np.ndarray, keys: Sequence[noise.Key]) -> np.ndarray:
    """The winner of each row's race, argmin E_v / q_v over q_v > 0: int64[R]. q: float64[R, V]. Raises ValueError where a row
    has no mass."""
    certain = np.count_nonzero(q > 0, axis=-1)
    if not certain.all():
        raise ValueError("a draw from a distribution without mass")
    out = q.argmax(-1)
    open_rows = np.flatnonzero(certain > 1)
    if len(open_rows):
        times = exponentials([keys[int(i)] for i in open_rows], q.shape[-1])
        for n, i in enumerate(open_rows):
            out[i] = noise.race(q[i], times[n])
    return out


def unit(key: noise.Key) -> float:
    """One uniform in (0, 1)."""
    return noise.unit(key)


def fetched(t: Any) -> np.ndarray:
    """A tensor's values on the host, float64."""
    out: np.ndarray = t.detach().to("cpu").double().numpy()
    return out
