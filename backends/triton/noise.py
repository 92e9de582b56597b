"""Keyed noise in torch: the bits of runtime/noise.py, in int64 whose products wrap where that has 32-bit words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from decgraph.runtime.noise import OUTPUT
from decgraph.runtime.noise import hash32 as hash_of_words

LOW = 0xFFFFFFFF


class Keys(NamedTuple):
    """The part of noise keys that a request has, int64[B] each: the words of its id, which keys the stream `output`, of the id
    that keys all other noise (runtime/noise.py `apart`), and of its seed."""

    request: tuple[Tensor, Tensor]
    noise_id: tuple[Tensor, Tensor]
    seed: tuple[Tensor, Tensor]


@lru_cache(maxsize=4096)
def site_word(site: str) -> int:
    """The word of a named site."""
    return 2**31 | hash_of_words(site.encode()) >> 1


def philox(counter: Sequence[Tensor], k0: Tensor, k1: Tensor) -> tuple[Tensor, ...]:
    """Philox 4x32-10 of four counters and two keys, int64 each and below 2**32. All are of one shape."""
    c0, c1, c2, c3 = counter
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = ((p1 >> 32) & LOW) ^ c1 ^ k0, p1 & LOW, ((p0 >> 32) & LOW) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return c0, c1, c2, c3


def _rotl(w: Tensor, bits: int) -> Tensor:
    return ((w << bits) | (w >> (32 - bits))) & LOW


def hash32(words: Sequence[Tensor]) -> Tensor:
    """MurmurHash3 x86_32 of words, int64 tensors of shapes that go together."""
    h = torch.zeros((), dtype=torch.int64, device=words[0].device)
    for w in words:
        k = _rotl(((w & LOW) * 0xCC9E2D51) & LOW, 15) * 0x1B873593 & LOW
        h = (_rotl(h ^ k, 13) * 5 + 0xE6546B64) & LOW
    h = h ^ (4 * len(words))
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & LOW
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & LOW
    return h ^ (h >> 16)


def words(keys: Keys, site: str, counters: Sequence[Tensor | int], lanes: Sequence[Tensor | int]) -> tuple[Tensor, ...]:
    """The words (c0, c1, c2, k0, k1) of the noise keys of n rows, int64[B, n] each. counters, lanes: numbers, or int64[B or 1],
    int64[B or 1, n]."""

    def spread(a: Tensor) -> Tensor:
        return a.reshape(*a.shape, *([1] * (2 - a.ndim)))

    r0, r1, k0, k1 = (spread(a) for a in (*(keys.request if site == OUTPUT else keys.noise_id), *keys.seed))

    def hashed(*numbers: Tensor | int) -> Tensor:
        return hash32([spread(n) if isinstance(n, Tensor) else torch.full_like(r0[:1], int(n)) for n in numbers])

    counted, apart = (hashed(*numbers) if numbers else torch.zeros_like(r0) for numbers in (counters, lanes))
    return hashed(r0, r1, site_word(site)), counted, apart, k0, k1


def uniforms(key: Sequence[Tensor], n: int) -> Tensor:
    """float64[B, *shape, n], in the open interval (0, 1): what runtime/noise.py gives for keys of `words`."""
    c0, c1, c2, k0, k1 = torch.broadcast_tensors(*key)
    block = torch.arange(-(-n // 4), device=c0.device).expand(*c0.shape, -1)
    made = philox([*(torch.broadcast_to(c[..., None], block.shape) for c in (c0, c1, c2)), block], k0[..., None], k1[..., None])
    return (torch.stack(made[:n], -1).flatten(-2)[..., :n].double() + 0.5) * 2.0**-32


def race_keys(log_q: Tensor, u: Tensor) -> Tensor:
    """float64[..., V]: the same race in logarithms, highest first."""
    return torch.where(log_q > -torch.inf, log_q - torch.log(-torch.log(u)), -torch.inf)
