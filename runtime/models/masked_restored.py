"""Published masked models by their weights, in transformers' classes of the same computation.

LLaDA is a Llama, Dream and Fast-dLLM v2 are Qwen2, SDAR is Qwen3, each without the causal mask. Their own classes are code in
the model's folder, which is not run. Their weights, under transformers' names, are; so they run with caches, batched and
by the decoder, like any other model. What is not that computation (another norm, ALiBi, fused projections of another order) is
refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from decgraph.errors import DecError

Weights = Mapping[str, Tensor]

RESTORED = {
    "LLaDAModelLM": "Llama",
    "DreamModel": "Qwen2",
    "Fast_dLLM_QwenForCausalLM": "Qwen2",
    "SDARForCausalLM": "Qwen3",
}
"""By class, the architecture of transformers that it is."""

_LLADA_SAME = {
    "alibi": (False, None),
    "rope": (True, None),
    "layer_norm_type": ("rms",),
    "include_bias": (False, None),
    "input_emb_norm": (False, None),
    "scale_logits": (False, None),
    "attention_layer_norm": (False, None),
    "clip_qkv": (None,),
    "block_group_size": (1, None),
}
"""Settings of LLaDA's configuration, and the values under which it is a Llama."""
_LLADA_NAMES = {
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}


def restored(kind: str, config: Mapping[str, Any], weights: Weights) -> Any:
    """A transformers model of a published class `kind` with these weights (shared) and its configuration. Raises DecError for
    weights and settings that are not that computation."""
    import transformers

    family = RESTORED[kind]
    named = {name: value for name, value in weights.items() if not name.endswith("rotary_emb.inv_freq")}
    settings = dict(config)
    if kind == "LLaDAModelLM":
        settings, named = _llada_settings(config), _llada_weights(config, named)
        family = "Qwen2" if config.get("include_qkv_bias") else "Llama"
    own = getattr(transformers, f"{family}Config")
    known = own().to_dict().keys() - {"model_type", "architectures", "transformers_version", "dtype", "torch_dtype"}
    made = own(**{key: value for key, value in settings.items() if key in known or key in ("rope_theta", "rope_scaling")})
    with torch.device("meta"):
        module = getattr(transformers, f"{family}ForCausalLM")(made)
    if made.tie_word_embeddings or "lm_head.weight" not in named:
        named["lm_head.weight"] = named.get("model.embed_tokens.weight", torch.empty(0))
    _check_names(kind, named, module)
    module.load_state_dict(named, assign=True)
    rotary = module.model.rotary_emb  # its tables are computed, not loaded
    module.model.rotary_emb = type(rotary)(made).to(named["lm_head.weight"].device)
    return module.eval()


def _check_names(kind: str, named: Weights, module: nn.Module) -> None:
    wanted = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    missing, extra = sorted(wanted.keys() - named.keys()), sorted(named.keys() - wanted.keys())
    wrong = sorted(name for name in wanted.keys() & named.keys() if wanted[name] != tuple(named[name].shape))
    for what, names in (("has no weights", missing), ("has other weights", extra), ("has weights of another shape", wrong)):
        if names:
            rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise DecError(f"this {kind} {what}: {names[0]}{rest}")


def _llada_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Llama's settings of LLaDA's."""
    for name, same in _LLADA_SAME.items():
        if config.get(name, same[0]) not in same:
            raise DecError(f"this LLaDAModelLM has {name} = {config[name]!r}, and is not a Llama")
    kind, width = config.get("block_type", "llama"), config["d_model"]
    inner = config.get("mlp_hidden_size") or config["mlp_ratio"] * width
    act = config.get("activation_type", "silu")
    if (kind, act) not in (("llama", "silu"), ("sequential", "swiglu")):
        raise DecError(f"this LLaDAModelLM has blocks {kind!r} with {act!r}, and is not a Llama")
    kv = config.get("n_kv_heads") or (1 if config.get("multi_query_attention") else config["n_heads"])
    return {
        "vocab_size": config.get("embedding_size") or config["vocab_size"],
        "hidden_size": width,
        "intermediate_size": inner if kind == "llama" else inner // 2,
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": config["n_heads"],
        "num_key_value_heads": kv,
        "max_position_embeddings": config["max_sequence_length"],
        "rms_norm_eps": config.get("rms_norm_eps", 1e-5),
        "rope_theta": config.get("rope_theta", 10000.0),
        "tie_word_embeddings": bool(config.get("weight_tying")),
        "eos_token_id": config.get("eos_token_id"),
        "pad_token_id": config.get("pad_token_id"),
    }


def _llada_weights(config: Mapping[str, Any], weights: Weights) -> dict[str, Tensor]:
    """LLaDA's weights under Llama's names: one matrix for queries, keys and values, or for both halves of the MLP, is split."""
    made: dict[str, Tensor] = {}
    whole = {"wte": "model.embed_tokens", "ln_f": "model.norm", "ff_out": "lm_head"}
    for name, value in weights.items():
        path = name.removeprefix("model.").removeprefix("transformer.").split(".")
        if path[0] in whole:
            made[f"{whole[path[0]]}.{path[-1]}"] = value
            continue
        if path[0] != "blocks" or len(path) != 4:
            made[name] = value  # refused by name later
            continue
        _, layer, part, sort = path
        for inner, piece in _pieces(config, part, value).items():
            made[f"model.layers.{layer}.{_LLADA_NAMES.get(inner, inner)}.{sort}"] = piece
    return made


def _pieces(config: Mapping[str, Any], part: str, value: Tensor) -> dict[str, Tensor]:
    if part == "att_proj":
        heads = config["n_heads"]
        kv = config.get("n_kv_heads") or (1 if config.get("multi_query_attention") else heads)
        width = config["d_model"]
        each = width // heads * kv
        return dict(zip(("q_proj", "k_proj", "v_proj"), value.split((width, each, each)), strict=True))
    if part == "ff_proj" and config.get("block_type") == "sequential":  # SwiGLU: the second half goes through the activation
        up, gate = value.chunk(2)
        return {"up_proj": up, "ff_proj": gate}
    return {part: value}
