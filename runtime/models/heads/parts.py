"""The layers that drafting heads are made of, as plain modules: the reference runs them over whole sequences, the engines run
the decoder with their weights.

transformers' own decoder layers do not fit: an EAGLE-1 layer has no norm before its attention, EAGLE-3's reads two states
side by side, Kangaroo's has no MLP. A layer here has the parts that its options name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from decgraph.runtime.models.decoder.decoder import ACTIVATIONS
from decgraph.runtime.models.decoder.llama import ropes
from decgraph.runtime.models.decoder.rotary import inverse_frequencies
from decgraph.runtime.models.decoder.settings import Settings
from decgraph.runtime.models.decoder.shape import FULL, UnknownToDecoder
from decgraph.runtime.models.heads.base import LayerConfig

if TYPE_CHECKING:
    from transformers import Cache


class Norm(nn.Module):
    """Root mean square norm, computed in float32 as transformers does."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, states: Tensor) -> Tensor:
        """[..., width] -> [..., width]."""
        wide = states.float() if states.dtype != torch.float64 else states
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(states.dtype)


class Rotary(nn.Module):
    """Cosines and sines [B, T, head] of rotary positions; the frequencies are always float32."""

    inv_freq: Tensor

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.config = config
        with torch.device("cpu"):
            found, self.attention_scaling = inverse_frequencies(ropes(Settings(config.to_dict()))[FULL], config.head_dim)
        self.register_buffer("inv_freq", found, persistent=False)

    @torch.no_grad()
    def forward(self, states: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Of positions int64[B, T], in the dtype of `states`."""
        angles = position_ids[..., None].float() * self.inv_freq
        both = torch.cat([angles, angles], -1)
        cos, sin = both.cos() * self.attention_scaling, both.sin() * self.attention_scaling
        return cos.to(states.dtype), sin.to(states.dtype)


def rotary_of(config: LayerConfig) -> nn.Module:
    """The rotary positions of a head's layers; of kinds that transformers alone computes its module."""
    try:
        return Rotary(config)
    except UnknownToDecoder:
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        settings: dict[str, Any] = {k: v for k, v in config.to_dict().items() if k != "model_type"}
        return LlamaRotaryEmbedding(LlamaConfig(**settings))


def rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys [B, heads, T, size] turned by their positions' cosines and sines [B, T, size]."""
    half = states.shape[-1] // 2
    swapped = torch.cat([-states[..., half:], states[..., :half]], -1)
    return states * cos[:, None] + swapped * sin[:, None]


class Attention(nn.Module):
    """Causal attention with rotary positions. `entering`: the width of the states that it reads. Options: `qkv_bias`,
    `output_bias`, `qk_norm` (a norm of every query and key)."""

    def __init__(self, config: LayerConfig, index: int, entering: int, options: Mapping[str, object]) -> None:
        super().__init__()
        self.layer_idx, self.head_dim = index, config.head_dim
        heads, shared = config.num_attention_heads, config.num_key_value_heads
        self.groups = heads // shared
        bias = bool(options.get("qkv_bias"))
        self.q_proj = nn.Linear(entering, heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(entering, shared * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(entering, shared * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(heads * self.head_dim, config.hidden_size, bias=bool(options.get("output_bias")))
        normed = bool(options.get("qk_norm"))
        self.q_norm = Norm(self.head_dim, config.rms_norm_eps) if normed else None
        self.k_norm = Norm(self.head_dim, config.rms_norm_eps) if normed else None

    def project(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [B, heads, T, size] of states [B, T, entering], without their positions."""
        shape = (*states.shape[:-1], -1, self.head_dim)
        query, key, value = (p(states).view(shape) for p in (self.q_proj, self.k_proj, self.v_proj))
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def forward(
        self,
        states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
    ) -> Tensor:
        """[B, T, entering] -> [B, T, hidden]. A cache's `update` gets the new keys and values, and gives all of them."""
        query, key, value = self.project(states)
        query, key = (rotated(x, *position_embeddings) for x in (query, key))
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        key, value = (x.repeat_interleave(self.groups, 1) for x in (key, value))
        scores = query @ key.transpose(-1, -2) * self.head_dim**-0.5
        if attention_mask is not None:
            scores = scores + attention_mask
        weights = scores.softmax(-1, dtype=torch.float64 if scores.dtype == torch.float64 else torch.float32)
        out = (weights.to(value.dtype) @ value).transpose(1, 2)
        made: Tensor = self.o_proj(out.reshape(*states.shape[:-1], -1))
        return made


class MLP(nn.Module):
    """Llama's gated MLP. Option: `mlp_bias`."""

    def __init__(self, config: LayerConfig, options: Mapping[str, object]) -> None:
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, bool(options.get("mlp_bias"))
        self.gate_proj = nn.Linear(width, inner, bias=bias)
        self.up_proj = nn.Linear(width, inner, bias=bias)
        self.down_proj = nn.Linear(inner, width, bias=bias)
        if config.hidden_act not in ACTIVATIONS or config.hidden_act == "xielu":  # that one has weights
            raise ValueError(f"no activation is called {config.hidden_act!r}")
        self.act_fn = ACTIVATIONS[config.hidden_act]

    def forward(self, states: Tensor) -> Tensor:
        """[..., hidden] -> [..., hidden]."""
        made: Tensor = self.down_proj(self.act_fn(self.gate_proj(states)) * self.up_proj(states))
        return made


class HeadLayer(nn.Module):
    """A decoder layer on one state: attention, then perhaps an MLP. Options: `input_norm`, `mlp`, and those of its parts."""

    def __init__(self, config: LayerConfig, index: int, options: Mapping[str, object]) -> None:
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps) if options.get("input_norm", True) else None
        self.self_attn = Attention(config, index, config.hidden_size, options)
        has = bool(options.get("mlp", True))
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps) if has else None
        self.mlp = MLP(config, options) if has else None

    def forward(self, states: Tensor, **attending: object) -> Tensor:
        """[B, T, hidden] -> [B, T, hidden]; `attending` goes to the attention."""
        entering = states if self.input_layernorm is None else self.input_layernorm(states)
        return _through(self, states + self.self_attn(entering, **attending))


class PairLayer(nn.Module):
    """EAGLE-3's layer: its attention reads an embedding and a feature side by side, each after a norm of its own.

    Option `norm_before_residual`: what attention is added to is the feature after its norm, not before it.
    """

    def __init__(self, config: LayerConfig, index: int, options: Mapping[str, object]) -> None:
        super().__init__()
        self.width, self.after = int(config.hidden_size), bool(options.get("norm_before_residual"))
        self.input_layernorm = Norm(self.width, config.rms_norm_eps)
        self.hidden_norm = Norm(self.width, config.rms_norm_eps)
        self.self_attn = Attention(config, index, 2 * self.width, options)
        self.post_attention_layernorm = Norm(self.width, config.rms_norm_eps)
        self.mlp = MLP(config, options)

    def forward(self, states: Tensor, **attending: object) -> Tensor:
        """[B, T, 2 hidden] -> [B, T, hidden]; `attending` goes to the attention."""
        embedded, feature = states[..., : self.width], states[..., self.width :]
        normed = self.hidden_norm(feature)
        both = torch.cat((self.input_layernorm(embedded), normed), dim=-1)
        return _through(self, (normed if self.after else feature) + self.self_attn(both, **attending))


def _through(layer: HeadLayer | PairLayer, states: Tensor) -> Tensor:
    """The MLP's half of a layer, where it has one."""
    if layer.mlp is None or layer.post_attention_layernorm is None:
        return states
    made: Tensor = states + layer.mlp(layer.post_attention_layernorm(states))
    return made
