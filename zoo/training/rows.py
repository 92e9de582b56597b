"""A batch of rows that a causal model writes token by token; a finished row's place goes to the next one.

All rows share the prefix of the chat template. Its keys and values are computed once and copied to where a
new row begins, so a row costs the tokens it has and nothing is padded: what stood in its columns before is
masked. Layers, attention and cache are those of the transformers module; only the cache's storage is ours,
written in place instead of concatenated.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.cache_utils import Cache, DynamicLayer

from decgraph.errors import DecError

_NAME = "decgraph_grouped_rows"


def _grouped(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, scaling: Any = None, **_: Any
) -> tuple[torch.Tensor, None]:
    """Attention of one new position per row: query heads that share keys become rows of one product."""
    batch, heads, length, size = query.shape
    shared = key.shape[1]
    if length == 1:
        query = query.reshape(batch, shared, heads // shared, size)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
        return out.reshape(batch, 1, heads, value.shape[-1]), None
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, enable_gqa=heads != shared)
    return out.transpose(1, 2), None


AttentionInterface.register(_NAME, _grouped)


class _Columns(DynamicLayer):
    """One layer's keys and values in a buffer that is written in place and shifted left when it is full."""

    store: list[torch.Tensor]
    kept: list[torch.Tensor]
    """The keys and values of the prefix, with which rows begin."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity, self.used = capacity, 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the columns of a forward call; views of all columns so far."""
        if self.used == 0:
            batch, heads = key_states.shape[:2]
            self.store = [state.new_empty(batch, heads, self.capacity, state.shape[-1]) for state in (key_states, value_states)]
            self.is_initialized = True
        end = self.used + key_states.shape[2]
        for store, state in zip(self.store, (key_states, value_states), strict=True):
            store[:, :, self.used : end] = state
        self.used = end
        keys, values = self.store
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values

    def begin(self, row: int, prefix: int) -> None:
        """Copy the first columns of `kept` to the last columns of a row."""
        for store, kept in zip(self.store, self.kept, strict=True):
            store[row, :, self.used - prefix : self.used] = kept

    def forget(self, count: int) -> None:
        """Drop the oldest columns."""
        for store in self.store:
            store[:, :, : self.used - count] = store[:, :, count : self.used].clone()
        self.used -= count


def check(model: Any, longest: int) -> None:
    """Raises DecError for a model whose attention is more than a softmax over all earlier positions: rows would be wrong."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    reason = None
    if not getattr(model, "_supports_attention_backend", False):
        reason = "does not let its attention be replaced"
    elif getattr(config, "attn_logit_softcapping", None):
        reason = "caps its attention scores"
    elif any("sinks" in name for name, _ in model.named_parameters()):
        reason = "has attention sinks"
    elif kinds - {"full_attention", "sliding_attention"}:
        reason = f"has layers of {', '.join(sorted(kinds - {'full_attention', 'sliding_attention'}))}"
    elif (window := getattr(config, "sliding_window", None)) and "sliding_attention" in kinds and window < longest:
        reason = f"has an attention window of {window} tokens, and rows may be {longest} long"
    if reason:
        raise DecError(
            f"{type(model).__name__} {reason}, so it cannot write its text many rows at a time",
            hint="give texts: --data FILES, without --self and --regenerate",
        )


class TrainingRows:
    """`size` rows of a model. `features` names the layers whose inputs are stored for a head; None stores none."""

    def __init__(self, model: Any, prefix: list[int], size: int, capacity: int, features: tuple[int, ...] | None) -> None:
        check(model, capacity)
        self.model, self.prefix, self.size, self.features = model, prefix, size, features
        model.set_attn_implementation(_NAME)
        layers = model.config.get_text_config().num_hidden_layers
        self.layers = [_Columns(capacity) for _ in range(layers)]
        self.cache = Cache(layers=[*self.layers])
        self.capacity, self.dtype, at = capacity, model.dtype, model.device
        low = torch.finfo(self.dtype).min
        self.low, self.mask = low, torch.full((size, 1, 1, capacity), low, dtype=self.dtype, device=at)
        length = len(prefix)
        ids = torch.tensor([prefix], device=at).expand(size, -1)
        causal = torch.full((length, length), low, dtype=self.dtype, device=at).triu(1).expand(size, 1, -1, -1)
        self.opening = self._call(ids, torch.arange(length, device=at).expand(size, -1), causal)
        for layer in self.layers:
            layer.kept = [store[0, :, :length].clone() for store in layer.store]
        self.mask[:, :, :, :length] = 0
        self.position = torch.full((size,), length, device=at)
        self.start = [0] * size

    def _call(self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, Any]:
        out = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
            output_hidden_states=self.features is not None,
        )
        states = None
        if self.features is not None:
            states = torch.cat([out.hidden_states[place] for place in self.features], -1)
        return out.logits[:, -1], states

    def begin(self, row: int) -> None:
        """Start a new row in this place, right after the prefix."""
        length, used = len(self.prefix), self.layers[0].used
        for layer in self.layers:
            layer.begin(row, length)
        self.mask[row, ..., : used - length] = self.low
        self.mask[row, ..., used - length : used] = 0
        self.position[row] = length
        self.start[row] = used - length

    def feed(self, tokens: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """One more token int64[rows] for every row: logits [rows, vocabulary] and features [rows, width] or None."""
        if self.layers[0].used == self.capacity:
            self._shift()
        used = self.layers[0].used
        self.mask[..., used] = 0
        logits, states = self._call(tokens[:, None].to(self.mask.device), self.position[:, None], self.mask[..., : used + 1])
        self.position += 1
        return logits, None if states is None else states[:, 0]

    def _shift(self) -> None:
        count = min(self.start)
        for layer in self.layers:
            layer.forget(count)
        used = self.layers[0].used
        self.mask[..., :used] = self.mask[..., count : count + used].clone()
        self.start = [start - count for start in self.start]
