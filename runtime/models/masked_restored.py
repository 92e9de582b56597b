"""Published masked models by their weights, in transformers' classes of the same computation.

LLaDA is a Llama, Dream and Fast-dLLM v2 are Qwen2, SDAR is Qwen3, its mixtures and LLaDA-MoE are Qwen3-MoE, and LLaDA 2 is
GLM-4.5, each without the causal mask. Their own classes are code in the model's folder, which is not run. Their weights, under
transformers' names, are; so they run with caches, batched and by the decoder, like any other model. What is not that
computation (another norm, ALiBi, fused projections of another order) is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.config import mapping, whole

Weights = Mapping[str, Tensor]

RESTORED = {
    "LLaDAModelLM": "Llama",
    "DreamModel": "Qwen2",
    "Fast_dLLM_QwenForCausalLM": "Qwen2",
    "SDARForCausalLM": "Qwen3",
    "SDARMoeForCausalLM": "Qwen3Moe",
    "LLaDAMoEModelLM": "Qwen3Moe",
    "LLaDA2MoeModelLM": "Glm4Moe",
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
_SAME: dict[str, dict[str, tuple[object, ...]]] = {
    "LLaDAMoEModelLM": {
        "clip_qkv": (None,),
        "qk_layernorm": (True,),
        "shared_expert_intermediate_size": (None,),
        "moe_router_score_function": ("softmax", None),
        "moe_router_enable_expert_bias": (False, None),
        "routed_scaling_factor": (1, None),
        "partial_rotary_factor": (1, None),
    },
    "LLaDA2MoeModelLM": {
        "score_function": ("sigmoid", None),
        "use_qk_norm": (True, None),
        "use_bias": (False, None),
        "rotary_type": ("half", None),
        "use_linear_attention": (False, None),
    },
}
"""Settings of the mixtures' configurations, and the values under which they are the computation of transformers' class."""
_LLADA2_NAMES = {
    "word_embeddings": "embed_tokens",
    "attention.dense": "self_attn.o_proj",
    "attention.query_layernorm": "self_attn.q_norm",
    "attention.key_layernorm": "self_attn.k_norm",
    "gate.expert_bias": "gate.e_score_correction_bias",
}
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


def restored(kind: str, config: Mapping[str, object], weights: Weights) -> object:
    """A transformers model of a published class `kind` with these weights (shared) and its configuration. Raises DecError for
    weights and settings that are not that computation."""
    import transformers

    family = RESTORED[kind]
    named = {name: value for name, value in weights.items() if not name.endswith("rotary_emb.inv_freq")}
    settings = dict(config)
    if kind == "LLaDAModelLM":
        settings, named = _llada_settings(config), _llada_weights(config, named)
        family = "Qwen2" if config.get("include_qkv_bias") else "Llama"
    if kind in _SAME:
        _check_same(kind, config, _SAME[kind])
    if kind == "LLaDAMoEModelLM":
        settings = _llada_moe_settings(config)
    if kind == "LLaDA2MoeModelLM":
        settings, named = _llada2_settings(config), _llada2_weights(config, named)
    if family.endswith("Moe"):
        named = _joined_experts(named)
        settings |= dict.fromkeys(("num_local_experts", "n_routed_experts"), config["num_experts"])  # by either name
    own = getattr(transformers, f"{family}Config")
    known = own().to_dict().keys() - {"model_type", "architectures", "transformers_version", "dtype", "torch_dtype"}
    made = own(
        **{key: value for key, value in settings.items() if key in known or key in ("rope_theta", "rope_scaling", "head_dim")}
    )
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


def _check_same(kind: str, config: Mapping[str, object], wanted: Mapping[str, tuple[object, ...]]) -> None:
    """Raises DecError for a setting with another value than those."""
    for name, same in wanted.items():
        if config.get(name, same[0]) not in same:
            raise DecError(f"this {kind} has {name} = {config[name]!r}, and is not a {_ARTICLED[RESTORED[kind]]}")


_ARTICLED = {"Llama": "Llama", "Qwen3Moe": "Qwen3-MoE", "Glm4Moe": "GLM-4.5"}


def _llada_moe_settings(config: Mapping[str, object]) -> dict[str, object]:
    """Qwen3-MoE's settings of LLaDA-MoE's."""
    given = config.get("moe_layer_freq")
    frequency = given if isinstance(given, list) else [1] * whole(config, "num_hidden_layers")
    return {
        **config,
        "head_dim": config.get("head_dim") or whole(config, "hidden_size") // whole(config, "num_attention_heads"),
        "intermediate_size": config.get("dense_intermediate_size") or config["expert_intermediate_size"],
        "moe_intermediate_size": config["expert_intermediate_size"],
        "norm_topk_prob": bool(config.get("norm_topk_prob")),
        "mlp_only_layers": [n for n, sparse in enumerate(frequency) if not sparse],
        "decoder_sparse_step": 1,
    }


def _llada2_settings(config: Mapping[str, object]) -> dict[str, object]:
    """GLM-4.5's settings of LLaDA 2's."""
    rotary = {"rope_type": "default", **mapping(config, "rope_scaling"), "rope_theta": config.get("rope_theta", 10000.0)}
    return {
        **{name: value for name, value in config.items() if name not in ("rope_theta", "rope_scaling")},
        "rope_parameters": {**rotary, "partial_rotary_factor": config.get("partial_rotary_factor", 1.0)},
        "attention_bias": bool(config.get("use_qkv_bias")),
        "use_qk_norm": True,
        "norm_topk_prob": whole(config, "num_experts_per_tok") > 1,
        "n_shared_experts": config.get("num_shared_experts") or 0,
        "n_group": config.get("n_group") or 1,
        "topk_group": config.get("topk_group") or 1,
        "routed_scaling_factor": config.get("routed_scaling_factor") or 1.0,
    }


def _llada2_weights(config: Mapping[str, object], weights: Weights) -> dict[str, Tensor]:
    """LLaDA 2's weights under GLM-4.5's names: one matrix for queries, keys and values is split."""
    heads, kv, size = (whole(config, name) for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    made: dict[str, Tensor] = {}
    for name, value in weights.items():
        begin, middle, sort = name.rpartition("attention.query_key_value.")
        if middle:
            pieces = value.split((heads * size, kv * size, kv * size))
            made |= {f"{begin}self_attn.{part}_proj.{sort}": piece for part, piece in zip("qkv", pieces, strict=True)}
            continue
        for theirs, ours in _LLADA2_NAMES.items():
            name = name.replace(theirs, ours)
        made[name] = value
    for name in [name for name in made if name.endswith("mlp.gate.weight")]:  # a router without a bias has none
        made.setdefault(name.replace("weight", "e_score_correction_bias"), torch.zeros(len(made[name])))
    return made


def _joined_experts(weights: Weights) -> dict[str, Tensor]:
    """The matrices of a mixture's experts in one tensor each, [experts, out, in], as transformers has them."""
    made: dict[str, Tensor] = {}
    experts: dict[str, dict[int, dict[str, Tensor]]] = {}
    for name, value in weights.items():
        begin, middle, rest = name.partition(".experts.")
        number, _, part = rest.partition(".")
        if middle and number.isdigit() and part in ("gate_proj.weight", "up_proj.weight", "down_proj.weight"):
            experts.setdefault(begin, {}).setdefault(int(number), {})[part.partition("_")[0]] = value
        else:
            made[name] = value
    for begin, parts in experts.items():
        if sorted(parts) != list(range(len(parts))) or any(len(part) != 3 for part in parts.values()):
            raise DecError(f"{begin} lacks some of the matrices of its experts")
        each = [parts[n] for n in range(len(parts))]
        made[f"{begin}.experts.gate_up_proj"] = torch.stack([torch.cat([one["gate"], one["up"]]) for one in each])
        made[f"{begin}.experts.down_proj"] = torch.stack([one["down"] for one in each])
    return made


def _llada_settings(config: Mapping[str, object]) -> dict[str, object]:
    """Llama's settings of LLaDA's."""
    _check_same("LLaDAModelLM", config, _LLADA_SAME)
    kind, width = config.get("block_type", "llama"), whole(config, "d_model")
    inner = whole(config, "mlp_hidden_size", 0) or whole(config, "mlp_ratio") * width
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


def _llada_weights(config: Mapping[str, object], weights: Weights) -> dict[str, Tensor]:
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


def _pieces(config: Mapping[str, object], part: str, value: Tensor) -> dict[str, Tensor]:
    if part == "att_proj":
        heads, width = whole(config, "n_heads"), whole(config, "d_model")
        kv = whole(config, "n_kv_heads", 1 if config.get("multi_query_attention") else heads)
        each = width // heads * kv
        return dict(zip(("q_proj", "k_proj", "v_proj"), value.split((width, each, each)), strict=True))
    if part == "ff_proj" and config.get("block_type") == "sequential":  # SwiGLU: the second half goes through the activation
        up, gate = value.chunk(2)
        return {"up_proj": up, "ff_proj": gate}
    return {part: value}
