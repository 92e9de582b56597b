"""Reference results of kernels, in plain float64 code that shares nothing with the kernels under test.

Ties go to the lowest token everywhere. Rows are worked on one function at a time, so a check costs memory, not care.
"""

from __future__ import annotations

import torch
from torch import Tensor

from decgraph.runtime import noise

_LOW = 0xFFFFFFFF


def raw(logits: Tensor) -> Tensor:
    """Softmax of each row: float64[R, V]."""
    x = logits.double()
    w = (x - x.max(-1, keepdim=True).values).exp()
    return w / w.sum(-1, keepdim=True)


def shaped(
    logits: Tensor, temperature: float, top_k: int | None = None, top_p: float | None = None, min_p: float | None = None
) -> Tensor:
    """Temperature, top-k, top-p and min-p in this order, each on what the one before left: float64[R, V]."""
    x = logits.double()
    if temperature == 0:
        return torch.nn.functional.one_hot(first_max(x), x.shape[-1]).double()
    p = raw((x - x.max(-1, keepdim=True).values) / temperature)
    order = p.sort(dim=-1, descending=True, stable=True).indices
    if top_k is not None and top_k < p.shape[-1]:
        p = _kept(p, order, torch.arange(p.shape[-1], device=p.device).expand_as(p) < top_k)
    if top_p is not None and top_p < 1:
        sums = p.gather(-1, order).cumsum(-1)
        before = torch.cat([torch.zeros_like(sums[:, :1]), sums[:, :-1]], -1)
        p = _kept(p, order, before < top_p)
    if min_p is not None:
        keep = p >= min_p * p.max(-1, keepdim=True).values
        p = torch.where(keep, p, 0.0)
        p = p / p.sum(-1, keepdim=True)
    return p


def _kept(p: Tensor, order: Tensor, keep: Tensor) -> Tensor:
    """Only the places of `order` that are kept, summing to one again."""
    p = torch.where(torch.zeros_like(keep).scatter(-1, order, keep), p, 0.0)
    return p / p.sum(-1, keepdim=True)


def first_max(x: Tensor) -> Tensor:
    """The lowest index of each row's maximum: int64[R]."""
    best = x == x.max(-1, keepdim=True).values
    return torch.where(best, torch.arange(x.shape[-1], device=x.device), x.shape[-1]).min(-1).values


def top(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row and where they stand, ties to the lower index: [R, k] twice."""
    found = x.double().sort(dim=-1, descending=True, stable=True)
    return found.values[:, :k], found.indices[:, :k]


def entropy(p: Tensor) -> Tensor:
    """In nats: float64[R]."""
    return -torch.where(p > 0, p * p.clamp_min(1e-300).log(), 0.0).sum(-1)


def words(key: noise.Key, n: int, device: torch.device) -> Tensor:
    """The first n words of noise at a key (runtime/noise.py: Philox 4x32-10) as int64[n], by torch on the device.

    Products of two 32-bit words wrap in int64, and their upper half is right all the same."""
    blocks = -(-n // 4)
    c0, c1, c2 = (torch.full((blocks,), word, dtype=torch.int64, device=device) for word in key.words())
    c3 = torch.arange(blocks, dtype=torch.int64, device=device)
    k0, k1 = key.seed & _LOW, key.seed >> 32
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32 & _LOW) ^ c1 ^ k0, p1 & _LOW, (p0 >> 32 & _LOW) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & _LOW, (k1 + 0xBB67AE85) & _LOW
    return torch.stack([c0, c1, c2, c3], 1).view(-1)[:n]


def times(keys: list[noise.Key], n: int, device: torch.device) -> Tensor:
    """Arrival times of n tokens for the draw of each row: float64[R, n]."""
    return torch.stack([-torch.log((words(key, n, device).double() + 0.5) * 2.0**-32) for key in keys])


def arrivals(q: Tensor, t: Tensor) -> Tensor:
    """When each token comes in: t / q, inf where it does not run: [R, n]."""
    return torch.where(q > 0, t / q, torch.inf)


def margin(q: Tensor, t: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The winners of races, and by how much, relative to the winner's time, the given tokens came in behind them: [R] twice."""
    at = arrivals(q, t)
    best = at.min(-1).values
    return first_max(-at), at.gather(-1, tokens[:, None].long())[:, 0] / best - 1


def attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float, softcap: float | None = None) -> Tensor:
    """q: [B, T, H, D]; k, v: [B, N, G, D], H a multiple of G; seen: bool[B, T, N]. Returns float64[B, T, H, D]; a row that
    sees nothing is zero."""
    heads = q.shape[2] // k.shape[2]
    k, v = (x.double().repeat_interleave(heads, 2) for x in (k, v))
    scores = torch.einsum("bthd,bnhd->bhtn", q.double(), k) * scale
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~seen[:, None], -torch.inf)
    weights = (scores - scores.max(-1, keepdim=True).values.clamp_min(-1e300)).exp()
    weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)
    return torch.einsum("bhtn,bnhd->bthd", weights, v)


def apart(mine: Tensor, right: Tensor) -> float:
    """The norm of the difference over the norm of what is right, of equal shapes; inf where anything is no number."""
    mine, right = mine.double(), right.double()
    if not bool(torch.isfinite(mine).all()):
        return float("inf")
    return float((mine - right).norm() / right.norm().clamp_min(1e-30))
