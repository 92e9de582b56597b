"""Modules with the call signatures and the weights' names of LLaDA's, LLaDA-MoE's, LLaDA 2's and Dream's own classes, which are
not in transformers.

Written from what is published of them, with the plainest attention there is, so that what decgraph computes of them can be
compared with code that shares nothing with it. The classes have the published names: decgraph goes by those.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

GOLDEN = Path(__file__).parents[2] / "fidelity" / "golden" / "dllm" / "models"
MASK = 127


class Norm(nn.Module):
    """A root-mean-square norm."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * (x.pow(2).mean(-1, keepdim=True) + self.eps).rsqrt()


def rotated(x: Tensor, theta: float, size: int | None = None) -> Tensor:
    """Rotary positions 0, 1, ... of [batch, heads, length, dim], the halves of a vector being its pairs; or of its first `size`
    numbers alone."""
    if size is not None and size < x.shape[-1]:
        return torch.cat([rotated(x[..., :size], theta), x[..., size:]], -1)
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[2])[:, None] * theta ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1).to(x.dtype)


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int, kv: int, theta: float, bias: Tensor | None) -> Tensor:
    """Attention of everyone to everyone, of [batch, length, width]; bias: added to the scores."""
    batch, length, width = q.shape
    dim = width // heads
    query = rotated(q.view(batch, length, heads, dim).transpose(1, 2), theta)
    key = rotated(k.view(batch, length, kv, dim).transpose(1, 2), theta).repeat_interleave(heads // kv, 1)
    value = v.view(batch, length, kv, dim).transpose(1, 2).repeat_interleave(heads // kv, 1)
    scores = query @ key.transpose(-1, -2) / dim**0.5
    weights = (scores if bias is None else scores + bias).softmax(-1)
    return (weights @ value).transpose(1, 2).reshape(batch, length, width)


class LLaDAConfig(transformers.PretrainedConfig):
    """LLaDA's settings by its own names."""

    model_type = "llada"


class DreamConfig(transformers.PretrainedConfig):
    """Dream's settings, which are Qwen2's."""

    model_type = "Dream"


class LLaDABlock(nn.Module):
    """A layer with separate projections ("llama") or with one for queries, keys and values and one for the MLP
    ("sequential")."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        width, heads, kv, inner = config.d_model, config.n_heads, config.n_kv_heads, config.mlp_hidden_size
        each = width // heads * kv
        self.attn_norm, self.ff_norm = (Norm(width, config.rms_norm_eps) for _ in range(2))
        self.attn_out = nn.Linear(width, width, bias=False)
        self.fused = config.block_type == "sequential"
        if self.fused:
            self.att_proj = nn.Linear(width, width + 2 * each, bias=False)
        else:
            self.q_proj = nn.Linear(width, width, bias=False)
            self.k_proj, self.v_proj = (nn.Linear(width, each, bias=False) for _ in range(2))
            self.up_proj = nn.Linear(width, inner, bias=False)
        self.ff_proj = nn.Linear(width, inner, bias=False)
        self.ff_out = nn.Linear(inner // 2 if self.fused else inner, width, bias=False)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        config, normed = self.config, self.attn_norm(x)
        if self.fused:
            each = config.d_model // config.n_heads * config.n_kv_heads
            q, k, v = self.att_proj(normed).split((config.d_model, each, each), -1)
        else:
            q, k, v = self.q_proj(normed), self.k_proj(normed), self.v_proj(normed)
        x = x + self.attn_out(attention(q, k, v, config.n_heads, config.n_kv_heads, config.rope_theta, bias))
        normed = self.ff_norm(x)
        if self.fused:
            up, gate = self.ff_proj(normed).chunk(2, -1)
        else:
            gate, up = self.ff_proj(normed), self.up_proj(normed)
        return x + self.ff_out(F.silu(gate) * up)


class _LLaDA(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.embedding_size, config.d_model),
                "ln_f": Norm(config.d_model, config.rms_norm_eps),
                "blocks": nn.ModuleList(LLaDABlock(config) for _ in range(config.n_layers)),
                "ff_out": nn.Linear(config.d_model, config.embedding_size, bias=False),
            }
        )


class LLaDAModelLM(transformers.PreTrainedModel):
    """LLaDA (Nie et al., 2025): a Llama without a causal mask under names of its own. `spoiled`: a mistake for tests to
    find."""

    config_class, base_model_prefix, all_tied_weights_keys = LLaDAConfig, "model", {}

    def __init__(self, config: Any, spoiled: str = "") -> None:
        super().__init__(config)
        self.model, self.spoiled, self.called = _LLaDA(config), spoiled, 0

    def get_input_embeddings(self) -> Any:
        return self.model.transformer.wte

    def get_output_embeddings(self) -> Any:
        return self.model.transformer.ff_out

    def forward(
        self,
        input_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        attention_mask: Tensor | None = None,
        attention_bias: Tensor | None = None,
        past_key_values: Any = None,
        labels: Any = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        assert attention_mask is None or attention_mask.dim() == 2, "which of the tokens are padding"
        self.called += 1
        part = self.model.transformer
        x = part.wte(input_ids) if inputs_embeds is None else inputs_embeds
        if self.spoiled == "causal":
            attention_bias = torch.full((x.shape[1], x.shape[1]), -1e9).triu(1)
        for block in part.blocks:
            x = block(x, attention_bias)
        return SimpleNamespace(logits=part.ff_out(torch.tanh(x) if self.spoiled == "other" else part.ln_f(x)))


class _DreamAttention(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, width = config, config.hidden_size
        each = width // config.num_attention_heads * config.num_key_value_heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj, self.v_proj = (nn.Linear(width, each) for _ in range(2))
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        c = self.config
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.o_proj(attention(q, k, v, c.num_attention_heads, c.num_key_value_heads, c.rope_theta, bias))


class _DreamMLP(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(config.hidden_size, config.intermediate_size, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class _DreamLayer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.self_attn, self.mlp = _DreamAttention(config), _DreamMLP(config)
        self.input_layernorm, self.post_attention_layernorm = (Norm(config.hidden_size, config.rms_norm_eps) for _ in range(2))

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), bias)
        return x + self.mlp(self.post_attention_layernorm(x))


class _Dream(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_DreamLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)


class DreamModel(transformers.PreTrainedModel):
    """Dream (Ye et al., 2025): a Qwen2 without a causal mask; the logits at i - 1 are the prediction of position i."""

    config_class, base_model_prefix, all_tied_weights_keys = DreamConfig, "model", {}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model, self.called = _Dream(config), 0
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def get_input_embeddings(self) -> Any:
        return self.model.embed_tokens

    def get_output_embeddings(self) -> Any:
        return self.lm_head

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | str | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Any = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        cache_position: Any = None,
        num_logits_to_keep: int = 0,
        **loss_kwargs: Any,
    ) -> Any:
        assert "decgraph" not in loss_kwargs
        self.called += 1
        x = self.model.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        for layer in self.model.layers:
            x = layer(x, attention_mask if isinstance(attention_mask, Tensor) else None)
        return SimpleNamespace(logits=self.lm_head(self.model.norm(x)[:, -num_logits_to_keep:]))


class MixtureConfig(transformers.PretrainedConfig):
    """LLaDA-MoE's or LLaDA 2's settings."""

    model_type = "llada2_moe"


class Router(nn.Module):
    """Scores of experts, and a bias by which they are chosen."""

    def __init__(self, width: int, count: int, biased: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, width))
        if biased:
            self.register_buffer("expert_bias", torch.empty(count))


class _Mixture(nn.Module):
    """A mixture of experts, token by token: LLaDA 2's with a sigmoid, groups and a shared expert, or LLaDA-MoE's softmax."""

    def __init__(self, config: Any, second: bool) -> None:
        super().__init__()
        inner = config.moe_intermediate_size if second else config.expert_intermediate_size
        of = lambda size: SimpleNamespace(hidden_size=config.hidden_size, intermediate_size=size)
        self.config, self.second, self.gate = config, second, Router(config.hidden_size, config.num_experts, second)
        self.experts = nn.ModuleList(_DreamMLP(of(inner)) for _ in range(config.num_experts))
        if second:
            self.shared_experts = _DreamMLP(of(inner * config.num_shared_experts))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        rows = torch.stack([self.one(row) for row in flat]).view(x.shape)
        return rows + self.shared_experts(x) if self.second else rows

    def one(self, x: Tensor) -> Tensor:
        """What the chosen experts make of one state [width]."""
        c, raw = self.config, self.gate.weight @ x
        scores = raw.sigmoid() if self.second else raw.softmax(-1)
        choice = scores.tolist()
        if self.second:
            choice = (scores + self.gate.expert_bias).tolist()
            size = c.num_experts // c.n_group
            groups = [sum(sorted(choice[g * size : (g + 1) * size])[-2:]) for g in range(c.n_group)]
            best = sorted(range(c.n_group), key=lambda g: -groups[g])[: c.topk_group]
            choice = [score if n // size in best else float("-inf") for n, score in enumerate(choice)]
        chosen = sorted(range(c.num_experts), key=lambda n: -choice[n])[: c.num_experts_per_tok]
        total = sum(scores[n] for n in chosen) if self.second or c.norm_topk_prob else 1.0
        scale = c.routed_scaling_factor if self.second else 1.0
        return sum(scores[n] / total * scale * self.experts[n](x) for n in chosen)  # type: ignore[return-value]


class _MixtureLayer(nn.Module):
    def __init__(self, config: Any, second: bool, dense: bool) -> None:
        super().__init__()
        self.config, self.second, width = config, second, config.hidden_size
        heads, kv, size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.attention = self.self_attn = None
        attend: Any = nn.Module()
        if second:
            attend.query_key_value = nn.Linear(width, (heads + 2 * kv) * size, bias=False)
            attend.dense = nn.Linear(heads * size, width, bias=False)
            attend.query_layernorm, attend.key_layernorm = (Norm(size, config.rms_norm_eps) for _ in range(2))
            self.attention = attend
        else:
            attend.q_proj = nn.Linear(width, heads * size, bias=False)
            attend.k_proj, attend.v_proj = (nn.Linear(width, kv * size, bias=False) for _ in range(2))
            attend.o_proj = nn.Linear(heads * size, width, bias=False)
            attend.q_norm, attend.k_norm = (Norm(size, config.rms_norm_eps) for _ in range(2))
            self.self_attn = attend
        self.mlp = _DreamMLP(config) if dense else _Mixture(config, second)
        self.input_layernorm, self.post_attention_layernorm = (Norm(width, config.rms_norm_eps) for _ in range(2))

    def attended(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Attention with norms of queries and keys, and positions of a part of each head."""
        c, (batch, length, _) = self.config, x.shape
        heads, kv, size = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        at: Any = self.attention or self.self_attn
        if self.second:
            every = at.query_key_value(x).view(batch, length, heads + 2 * kv, size).transpose(1, 2)
            q, k, v = every.split((heads, kv, kv), 1)
            q, k = at.query_layernorm(q), at.key_layernorm(k)
        else:
            q, k, v = (f(x).view(batch, length, -1, size).transpose(1, 2) for f in (at.q_proj, at.k_proj, at.v_proj))
            q, k = at.q_norm(q), at.k_norm(k)
        turned = int(size * c.partial_rotary_factor)
        q, k = rotated(q, c.rope_theta, turned), rotated(k, c.rope_theta, turned).repeat_interleave(heads // kv, 1)
        scores = q @ k.transpose(-1, -2) / size**0.5
        out = (scores if bias is None else scores + bias).softmax(-1) @ v.repeat_interleave(heads // kv, 1)
        made: Tensor = (at.dense if self.second else at.o_proj)(out.transpose(1, 2).reshape(batch, length, -1))
        return made

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        x = x + self.attended(self.input_layernorm(x), bias)
        return x + self.mlp(self.post_attention_layernorm(x))


class _MixtureModel(nn.Module):
    def __init__(self, config: Any, second: bool) -> None:
        super().__init__()
        table = nn.Embedding(config.vocab_size, config.hidden_size)
        setattr(self, "word_embeddings" if second else "embed_tokens", table)
        self.layers = nn.ModuleList(_MixtureLayer(config, second, n == 0) for n in range(config.num_hidden_layers))
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)


class LLaDA2MoeModelLM(transformers.PreTrainedModel):
    """LLaDA 2 (Bie et al., 2025): a mixture of experts whose first layer is dense, read in blocks."""

    config_class, base_model_prefix, all_tied_weights_keys, second = MixtureConfig, "model", {}, True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = _MixtureModel(config, self.second)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def get_input_embeddings(self) -> Any:
        return self.model.word_embeddings if self.second else self.model.embed_tokens

    def get_output_embeddings(self) -> Any:
        return self.lm_head

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
    ) -> Any:
        x = self.get_input_embeddings()(input_ids) if inputs_embeds is None else inputs_embeds
        for layer in self.model.layers:
            x = layer(x, attention_mask)
        return SimpleNamespace(logits=self.lm_head(self.model.norm(x)))


class LLaDAMoEModelLM(LLaDA2MoeModelLM):
    """LLaDA-MoE (2025): a mixture of experts with a softmax, whose first layer is dense here."""

    second = False


MIXTURE = {
    "vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 512, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu", "num_experts": 8,
    "num_experts_per_tok": 3, "tie_word_embeddings": False, "mask_token_id": MASK, "eos_token_id": 126, "pad_token_id": 125,
}  # fmt: skip


def mixture(kind: type[LLaDA2MoeModelLM] = LLaDA2MoeModelLM) -> Any:
    """LLaDA 2's class, or LLaDA-MoE's, with random weights."""
    return _random(kind(MixtureConfig(**mixture_settings(kind))))


def mixture_settings(kind: type[LLaDA2MoeModelLM] = LLaDA2MoeModelLM) -> dict[str, Any]:
    """What config.json says of it. The heads of LLaDA 2 are wider than the states divided by their number."""
    if kind.second:
        own = {"intermediate_size": 48, "moe_intermediate_size": 24, "head_dim": 12, "n_group": 4, "topk_group": 2,
               "num_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5, "score_function": "sigmoid",
               "partial_rotary_factor": 0.5, "use_qk_norm": True, "use_bias": False, "use_qkv_bias": False,
               "norm_topk_prob": True, "moe_router_enable_expert_bias": True}  # fmt: skip
    else:
        own = {"dense_intermediate_size": 48, "intermediate_size": 48, "expert_intermediate_size": 24, "head_dim": 8,
               "moe_layer_freq": [0, 1, 1], "qk_layernorm": True, "clip_qkv": None, "norm_topk_prob": None,
               "shared_expert_intermediate_size": None, "moe_router_score_function": "softmax",
               "partial_rotary_factor": 1}  # fmt: skip
    return {"architectures": [kind.__name__], **MIXTURE, **own}


def _random(module: Any) -> Any:
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, p in module.state_dict().items():
            p.copy_(torch.randn(p.shape, generator=draw) * 0.2 + ("norm" in name))
    return module.eval()


def llada(block_type: str = "llama", spoiled: str = "") -> LLaDAModelLM:
    """LLaDA's class with the recorded weights."""
    return _loaded(LLaDAModelLM(LLaDAConfig(**llada_settings(block_type)), spoiled), llada_weights(block_type))


def llada_settings(block_type: str = "llama") -> dict[str, Any]:
    """What LLaDA's config.json says, of the recorded model."""
    return {
        "architectures": ["LLaDAModelLM"],
        "d_model": 64,
        "n_heads": 4,
        "n_kv_heads": 4,
        "n_layers": 3,
        "mlp_hidden_size": 128 if block_type == "llama" else 256,
        "block_type": block_type,
        "activation_type": "silu" if block_type == "llama" else "swiglu",
        "layer_norm_type": "rms",
        "rms_norm_eps": 1e-5,
        "alibi": False,
        "rope": True,
        "rope_theta": 10000.0,
        "max_sequence_length": 512,
        "vocab_size": 128,
        "embedding_size": 128,
        "weight_tying": False,
        "mask_token_id": MASK,
        "eos_token_id": 126,
        "pad_token_id": 125,
    }


def llada_weights(block_type: str = "llama") -> dict[str, Tensor]:
    """The recorded weights under LLaDA's names."""
    names = {"self_attn.q_proj": "q_proj", "self_attn.k_proj": "k_proj", "self_attn.v_proj": "v_proj"}
    names |= {"self_attn.o_proj": "attn_out", "input_layernorm": "attn_norm", "post_attention_layernorm": "ff_norm"}
    names |= {"mlp.gate_proj": "ff_proj", "mlp.up_proj": "up_proj", "mlp.down_proj": "ff_out"}
    whole = {"model.embed_tokens": "wte", "model.norm": "ln_f", "lm_head": "ff_out"}
    made: dict[str, Tensor] = {}
    for name, value in load_file(GOLDEN / "llama_bidir" / "model.safetensors").items():
        stem = name.removesuffix(".weight")
        if stem in whole:
            made[f"model.transformer.{whole[stem]}.weight"] = value
            continue
        _, _, layer, rest = stem.split(".", 3)
        made[f"model.transformer.blocks.{layer}.{names[rest]}.weight"] = value
    if block_type == "sequential":
        for n in range(3):
            at = f"model.transformer.blocks.{n}."
            parts = [made.pop(f"{at}{name}.weight") for name in ("q_proj", "k_proj", "v_proj")]
            made[f"{at}att_proj.weight"] = torch.cat(parts)
            made[f"{at}ff_proj.weight"] = torch.cat([made.pop(f"{at}up_proj.weight"), made[f"{at}ff_proj.weight"]])
    return made


def dream() -> DreamModel:
    """Dream's class with the recorded weights."""
    return _loaded(DreamModel(DreamConfig(**dream_settings())), dream_weights())


def dream_weights() -> dict[str, Tensor]:
    """The recorded weights, under Dream's names."""
    return load_file(GOLDEN / "qwen2_bidir_shift" / "model.safetensors")


def dream_settings() -> dict[str, Any]:
    """What Dream's config.json says, of the recorded model."""
    return {
        "architectures": ["DreamModel"],
        "vocab_size": 128,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "mask_token_id": MASK,
        "eos_token_id": 126,
        "pad_token_id": 125,
    }


def _loaded(module: Any, weights: dict[str, Tensor]) -> Any:
    module.load_state_dict(weights)
    return module.eval()
