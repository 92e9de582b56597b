"""The layers that drafting heads are made of, in the form that transformers' attention interface needs.

transformers' own decoder layers do not fit: an EAGLE-1 layer has no norm before its attention, EAGLE-3's reads two states
side by side, Kangaroo's has no MLP. A layer here has the parts that its options name.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.activations import ACT2FN
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import (
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
    eager_attention_forward,
)

Norm, Rotary = LlamaRMSNorm, LlamaRotaryEmbedding


class Attention(nn.Module):
    """Causal attention with rotary positions. `entering`: the width of the states that it reads. Options: `qkv_bias`,
    `output_bias`, `qk_norm` (a norm of every query and key)."""

    def __init__(self, config: LlamaConfig, index: int, entering: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.config, self.layer_idx = config, index
        self.head_dim = int(config.head_dim)
        heads, shared = int(config.num_attention_heads), int(config.num_key_value_heads)
        self.num_key_value_groups, self.scaling, self.is_causal = heads // shared, self.head_dim**-0.5, True
        bias = bool(options.get("qkv_bias"))
        self.q_proj = nn.Linear(entering, heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(entering, shared * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(entering, shared * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(heads * self.head_dim, config.hidden_size, bias=bool(options.get("output_bias")))
        for name in ("q_norm", "k_norm"):
            setattr(self, name, Norm(self.head_dim, config.rms_norm_eps) if options.get("qk_norm") else None)

    def project(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [B, heads, T, size] of states [B, T, entering], without their positions."""
        shape = (*states.shape[:-1], -1, self.head_dim)
        query, key, value = (p(states).view(shape) for p in (self.q_proj, self.k_proj, self.v_proj))
        if self.q_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def forward(
        self,
        states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
    ) -> Tensor:
        """[B, T, entering] -> [B, T, hidden]. A cache's `update` gets the new keys and values, and gives all of them."""
        query, key, value = self.project(states)
        query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        out, _ = attend(self, query, key, value, attention_mask, dropout=0.0, scaling=self.scaling)
        made: Tensor = self.o_proj(out.reshape(*states.shape[:-1], -1))
        return made


class MLP(nn.Module):
    """Llama's gated MLP. Option: `mlp_bias`."""

    def __init__(self, config: LlamaConfig, options: dict[str, Any]) -> None:
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, bool(options.get("mlp_bias"))
        self.gate_proj = nn.Linear(width, inner, bias=bias)
        self.up_proj = nn.Linear(width, inner, bias=bias)
        self.down_proj = nn.Linear(inner, width, bias=bias)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, states: Tensor) -> Tensor:
        """[..., hidden] -> [..., hidden]."""
        made: Tensor = self.down_proj(self.act_fn(self.gate_proj(states)) * self.up_proj(states))
        return made


class Layer(nn.Module):
    """A decoder layer on one state: attention, then perhaps an MLP. Options: `input_norm`, `mlp`, and those of its parts."""

    def __init__(self, config: LlamaConfig, index: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps) if options.get("input_norm", True) else None
        self.self_attn = Attention(config, index, config.hidden_size, options)
        has = bool(options.get("mlp", True))
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps) if has else None
        self.mlp = MLP(config, options) if has else None

    def forward(self, states: Tensor, **attending: Any) -> Tensor:
        """[B, T, hidden] -> [B, T, hidden]; `attending` goes to the attention."""
        entering = states if self.input_layernorm is None else self.input_layernorm(states)
        return _through(self, states + self.self_attn(entering, **attending))


class PairLayer(nn.Module):
    """EAGLE-3's layer: its attention reads an embedding and a feature side by side, each after a norm of its own.

    Option `norm_before_residual`: what attention is added to is the feature after its norm, not before it.
    """

    def __init__(self, config: LlamaConfig, index: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.width, self.after = int(config.hidden_size), bool(options.get("norm_before_residual"))
        self.input_layernorm = Norm(self.width, config.rms_norm_eps)
        self.hidden_norm = Norm(self.width, config.rms_norm_eps)
        self.self_attn = Attention(config, index, 2 * self.width, options)
        self.post_attention_layernorm = Norm(self.width, config.rms_norm_eps)
        self.mlp = MLP(config, options)

    def forward(self, states: Tensor, **attending: Any) -> Tensor:
        """[B, T, 2 hidden] -> [B, T, hidden]; `attending` goes to the attention."""
        embedded, feature = states[..., : self.width], states[..., self.width :]
        normed = self.hidden_norm(feature)
        both = torch.cat((self.input_layernorm(embedded), normed), dim=-1)
        return _through(self, (normed if self.after else feature) + self.self_attn(both, **attending))


def _through(layer: Any, states: Tensor) -> Tensor:
    """The MLP's half of a layer, where it has one."""
    if layer.mlp is None:
        return states
    made: Tensor = states + layer.mlp(layer.post_attention_layernorm(states))
    return made
