"""Attention over preallocated keys and values, and the cache object that hands them to a transformers module.

The module's own code runs unmodified. It calls `update` on its cache: ours writes the new tokens' keys and values
in place and returns all cached rows. The module calls the attention registered here with the engine's mask (boolean
turned additive, one row per new token): `ModuleStep` (step.py) checks that every layer gets the mask meant for it
and that the library creates none of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, Cache

from decgraph.errors import DecError

ATTENTION = "decgraph_cached"


class Written(Cache):
    """Keys and values [B, H, S, D] per layer, which the caller owns; `write` int64[B, T] is the row of each new token."""

    def __init__(self, keys: Sequence[Tensor], values: Sequence[Tensor], write: Tensor, at: dict[int, int]) -> None:
        self.layers: list[Any] = []  # the library's own per-layer objects: none
        self._keys, self._values, self._at = keys, values, at
        self._one = len(write) == 1
        # One index for all layers: rows of a single sequence; else broadcast over heads and dimensions.
        self._write = write[0] if self._one else write[:, None, :, None]

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Writes new keys and values [B, H, T, D] of a layer in place; returns all of that layer's."""
        layer = self._at[layer_idx]
        keys, values = self._keys[layer], self._values[layer]
        if self._one:
            keys.index_copy_(2, self._write, key_states)
            values.index_copy_(2, self._write, value_states)
        else:
            keys.scatter_(2, self._write.expand(key_states.shape), key_states)
            values.scatter_(2, self._write.expand(value_states.shape), value_states)
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: positions and masks are given with every call, nothing is to be inferred from a length."""
        return 0

    def __len__(self) -> int:
        return len(self._keys)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Softmax attention of queries [B, Hq, T, D] over [B, H, S, D] with an additive mask [B, 1, T, S].

    Query heads share keys and values in groups without copying them. Where the mask has a row per head of a
    group and token, [B, 1, G * T, S], the group is folded into the rows. Soft caps (Gemma 2) and sinks (gpt-oss)
    take the plain formula. Raises DecError where the module calls it without a mask.
    """
    if attention_mask is None:
        raise DecError(f"{type(module).__name__} does not hand the mask it is given on to its attention")
    batch, heads, count, size = query.shape
    groups = heads // key.shape[1]
    if softcap is not None or s_aux is not None:
        return _plainly(query, key, value, attention_mask, scaling, softcap, s_aux), None
    if groups > 1 and attention_mask.shape[2] == groups * count:
        folded = query.reshape(batch, -1, groups * count, size)
        out = F.scaled_dot_product_attention(folded, key, value, attn_mask=attention_mask, scale=scaling)
        out = out.reshape(batch, heads, count, -1)
    else:
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=groups > 1)
    return out.transpose(1, 2).contiguous(), None


def _plainly(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None, cap: float | None, sinks: Tensor | None
) -> Tensor:
    batch, heads, count, size = query.shape
    groups = heads // key.shape[1]
    grouped = query.reshape(batch, -1, groups, count, size)
    scores = grouped @ key[:, :, None].transpose(-1, -2) * (size**-0.5 if scaling is None else scaling)
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    scores = (scores + mask[:, :, None, -count:]).float()
    if sinks is not None:
        column = sinks.float().view(1, -1, groups, 1, 1).expand(*scores.shape[:-1], 1)
        weights = torch.cat([scores, column], dim=-1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    out = weights.to(value.dtype) @ value[:, :, None]
    return out.reshape(batch, heads, count, -1).transpose(1, 2).contiguous()


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask as a term to add to scores, of the mask's shape: 0 or -inf. Computed once a call, not once a layer. A
    mask that is such a term already is itself."""
    if mask.is_floating_point():
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


@contextmanager
def attending(config: Any) -> Iterator[None]:
    """Sets our attention in a module's config, and restores the previous one at the end: others may use the module too."""
    had = config._attn_implementation
    config._attn_implementation_internal = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation_internal = had


# A name of its own without a mask function: transformers then creates no masks.
AttentionInterface.register(ATTENTION, attention)
