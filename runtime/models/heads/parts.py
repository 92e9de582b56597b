"""The layers that drafting heads are made of: their tensors, by the names of transformers' Llama. What runs them is the
decoder, everywhere (decoder/layers.py).

transformers' own decoder layers do not fit: an EAGLE-1 layer has no norm before its attention, EAGLE-3's reads two states
side by side, Kangaroo's has no MLP. A layer here has the parts that its options name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from decgraph.runtime.models.config import whole
from decgraph.runtime.models.decoder.decoder import ACTIVATIONS
from decgraph.runtime.models.decoder.llama import ropes
from decgraph.runtime.models.decoder.rotary import inverse_frequencies
from decgraph.runtime.models.decoder.settings import Settings
from decgraph.runtime.models.decoder.shape import FULL, UnknownToDecoder
from decgraph.runtime.models.heads.base import LayerConfig


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
    """The frequencies of rotary positions, always float32, and the factor of their cosines and sines."""

    inv_freq: Tensor

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.config = config
        with torch.device("cpu"):
            found, self.attention_scaling = inverse_frequencies(ropes(Settings(config.to_dict()))[FULL], config.head_dim)
        self.register_buffer("inv_freq", found, persistent=False)


def rotary_of(config: LayerConfig) -> nn.Module:
    """The rotary positions of a head's layers; of kinds that transformers alone computes its module."""
    try:
        return Rotary(config)
    except UnknownToDecoder:
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        settings: dict[str, Any] = {k: v for k, v in config.to_dict().items() if k != "model_type"}
        return LlamaRotaryEmbedding(LlamaConfig(**settings))


class Attention(nn.Module):
    """Causal attention with rotary positions. `entering`: the width of the states that it reads. Options: `qkv_bias`,
    `output_bias`, `qk_norm` (a norm of every query and key)."""

    def __init__(self, config: LayerConfig, entering: int, options: Mapping[str, object]) -> None:
        super().__init__()
        size, bias = config.head_dim, bool(options.get("qkv_bias"))
        heads, shared = config.num_attention_heads, config.num_key_value_heads
        self.q_proj = nn.Linear(entering, heads * size, bias=bias)
        self.k_proj = nn.Linear(entering, shared * size, bias=bias)
        self.v_proj = nn.Linear(entering, shared * size, bias=bias)
        self.o_proj = nn.Linear(heads * size, config.hidden_size, bias=bool(options.get("output_bias")))
        if options.get("qk_norm"):
            self.q_norm, self.k_norm = Norm(size, config.rms_norm_eps), Norm(size, config.rms_norm_eps)


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


class Convolution(nn.Module):
    """DFlash 2's two convolutions around a branch: learned kernels, and what the entering states add to them for each group."""

    def __init__(self, width: int, taps: int, groups: int) -> None:
        super().__init__()
        self.base_kernel = nn.Parameter(torch.empty(2, taps, width))
        self.kernel_projection = nn.Linear(width, 2 * taps * groups, bias=False)


class HeadLayer(nn.Module):
    """A decoder layer on one state: attention, then perhaps an MLP. Options: `input_norm`, `mlp`, those of its parts, and
    `taps` and `groups` of its convolutions."""

    def __init__(self, config: LayerConfig, options: Mapping[str, object]) -> None:
        super().__init__()
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps) if options.get("input_norm", True) else None
        self.self_attn = Attention(config, config.hidden_size, options)
        has = bool(options.get("mlp", True))
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps) if has else None
        self.mlp = MLP(config, options) if has else None
        if taps := whole(options, "taps", 0):
            self.attention_conv, self.mlp_conv = (
                Convolution(config.hidden_size, taps, whole(options, "groups")) for _ in range(2)
            )


class PairLayer(nn.Module):
    """EAGLE-3's layer: its attention reads an embedding and a feature side by side, each after a norm of its own.

    Option `norm_before_residual`: what attention is added to is the feature after its norm, not before it.
    """

    def __init__(self, config: LayerConfig, options: Mapping[str, object]) -> None:
        super().__init__()
        width, self.after = int(config.hidden_size), bool(options.get("norm_before_residual"))
        self.input_layernorm = Norm(width, config.rms_norm_eps)
        self.hidden_norm = Norm(width, config.rms_norm_eps)
        self.self_attn = Attention(config, 2 * width, options)
        self.post_attention_layernorm = Norm(width, config.rms_norm_eps)
        self.mlp = MLP(config, options)
