"""Attention in forms that `scaled_dot_product_attention` does not have, for captured graphs."""

from __future__ import annotations

import torch
from torch import Tensor


def plain_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    sinks: Tensor | None = None,
    *,
    attn_mask: Tensor | None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Softmax attention of [B, Hq, T, D] over [B, H, S, D] with scores capped by a tangent, and with sinks [Hq].

    attn_mask: bool, or added to the scores, [B, 1, T, S]; None hides nothing. A sink is a score that takes part in the
    softmax and has no value (gpt-oss); caps come before the mask (Gemma 2). Weights are computed in 32 bits at least.
    """
    batch, heads, count, size = query.shape
    groups = heads // keys.shape[1]
    folded = query.reshape(batch, -1, groups * count, size)
    scores = torch.matmul(folded, keys.transpose(-1, -2)) * (size**-0.5 if scale is None else scale)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.view(batch, -1, groups, count, scores.shape[-1])
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if attn_mask is not None:
        mask = attn_mask[:, :, None]
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min) if mask.dtype == torch.bool else scores + mask
    if sinks is None:
        weights = scores.softmax(-1)
    else:
        column = sinks.to(scores.dtype).view(1, -1, groups, 1, 1)
        highest = torch.maximum(scores.amax(-1, keepdim=True), column)
        weights = torch.exp(scores - highest)
        weights = weights / (weights.sum(-1, keepdim=True) + torch.exp(column - highest))
    weights = weights.to(values.dtype).view(batch, -1, groups * count, weights.shape[-1])
    return torch.matmul(weights, values).view(batch, heads, count, -1)
