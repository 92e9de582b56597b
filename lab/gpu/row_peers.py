"""Vocabulary operations as they are written in eager torch: what generated kernels are compared with.

Each takes logits [R, V] of any float type and returns its counterpart's result; draws use torch's own generator, so only their
distribution is the same.
"""

from __future__ import annotations

import torch
from torch import Tensor


def softmax(logits: Tensor) -> Tensor:
    """Probabilities in float32."""
    return torch.softmax(logits, -1, dtype=torch.float32)


def shaped(logits: Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> Tensor:
    """Temperature, top-k, top-p and min-p by one sort, as samplers in eager torch do it: probabilities float32[R, V]."""
    found = (logits.float() / temperature).sort(-1, descending=True)
    p = torch.softmax(found.values, -1)
    rank = torch.arange(p.shape[-1], device=p.device)
    p = torch.where(rank < top_k, p, 0.0)
    p = p / p.sum(-1, keepdim=True)
    p = torch.where(p.cumsum(-1) - p < top_p, p, 0.0)
    p = torch.where(p >= min_p * p[..., :1], p, 0.0)
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter_(-1, found.indices, p)


def top_p_sampler(logits: Tensor, top_p: float) -> Tensor:
    """A token of each row from the nucleus: int64[R]."""
    found = torch.softmax(logits, -1, dtype=torch.float32).sort(-1, descending=True)
    p = torch.where(found.values.cumsum(-1) - found.values < top_p, found.values, 0.0)
    at = torch.multinomial(p, 1)
    return found.indices.gather(-1, at)[:, 0]


def multinomial(probs: Tensor) -> Tensor:
    """A token of each row: int64[R]."""
    return torch.multinomial(probs, 1)[:, 0]


def softmax_multinomial(logits: Tensor) -> Tensor:
    """A token of each row of logits: int64[R]."""
    return torch.multinomial(torch.softmax(logits, -1, dtype=torch.float32), 1)[:, 0]


def topk(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest logits and their tokens: [R, k] twice."""
    values, indices = torch.topk(logits, k, -1)
    return values, indices


def entropy(logits: Tensor) -> Tensor:
    """In nats: float32[R]."""
    logs = torch.log_softmax(logits, -1, dtype=torch.float32)
    return -(logs.exp() * logs).sum(-1)


def confidence(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest probability of each row, and its token: [R] twice."""
    values, indices = torch.softmax(logits, -1, dtype=torch.float32).max(-1)
    return values, indices
