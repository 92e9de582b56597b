"""Configs of every family that the decoder has an entry for: the rows of architecture_table.py, and branches of entries."""

from __future__ import annotations

from typing import Any

import torch

from decgraph.runtime.models.decoder.families import FAMILIES
from lib.models.architecture_table import GPT, LATENT, LATENT_DENSE, ROWS, WINDOW, E, H, T

KINDS = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], **WINDOW}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 1e4}
SCALES = {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2, "logits_scaling": 4.0}
GROUPS = {**LATENT, "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "n_group": 4, "topk_group": 2}
BRANCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama, yarn": ("llama", {**T, "rope_parameters": YARN}),
    "llama, llama3": ("llama", {**T, "rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0,
                                "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}}),
    "llama, linear": ("llama", {**T, "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 1e4}}),
    "llama, head": ("llama", {**H, "head_dim": 6, "hidden_act": "gelu"}),
    "qwen2, windows": ("qwen2", {**T, **WINDOW, "use_sliding_window": True, "max_window_layers": 1}),
    "qwen2_moe, windows": ("qwen2_moe", {**T, **E, **WINDOW, "use_sliding_window": True, "max_window_layers": 2,
                           "norm_topk_prob": True, "shared_expert_intermediate_size": 24, "mlp_only_layers": [1]}),
    "qwen3_moe, windows": ("qwen3_moe", {**H, **E, **WINDOW, "use_sliding_window": True, "norm_topk_prob": True}),
    "mixtral, windows": ("mixtral", {**T, **E, **WINDOW}),
    "phimoe, windows": ("phimoe", {**T, **E, **WINDOW, "attention_bias": True}),
    "ministral3, temperature": ("ministral3", {**H, **WINDOW, "rope_parameters": {**YARN, "llama_4_scaling_beta": 0.3}}),
    "granite, scaled": ("granite", {**T, **SCALES}),
    "granitemoe, scaled": ("granitemoe", {**T, **E, **SCALES}),
    "hyperclovax, scaled": ("hyperclovax", {**T, **SCALES, "use_post_norm": False}),
    "granite_swa, mixed": ("granite_swa", {**T, **SCALES, **KINDS, "layer_rope_theta": [1e4, 0, 1e4]}),
    "gemma3_text, scaled": ("gemma3_text", {**H, **KINDS, "final_logit_softcapping": 3.0, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
    "gemma2, uncapped": ("gemma2", {**H, **WINDOW, "attn_logit_softcapping": None, "final_logit_softcapping": None}),
    "phi, norms": ("phi", {**T, "qk_layernorm": True}),
    "stablelm, parallel": ("stablelm", {**T, "use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True}),
    "gpt_neox, in turn": ("gpt_neox", {**T, "use_parallel_residual": False, "attention_bias": False}),
    "gpt2, scaled": ("gpt2", {**GPT, "scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True}),
    "gpt_bigcode, heads": ("gpt_bigcode", {**GPT, "multi_query": False}),
    "falcon, heads": ("falcon", {**T, "new_decoder_architecture": False, "multi_query": False, "bias": True,
                      "parallel_attn": False}),
    "falcon, one norm": ("falcon", {**T, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}),
    "olmo, clipped": ("olmo", {**T, "clip_qkv": 0.1}),
    "olmoe, clipped": ("olmoe", {**T, **E, "clip_qkv": 0.1, "norm_topk_prob": True}),
    "olmo3, mixed": ("olmo3", {**T, **KINDS}),
    "smollm3, windows": ("smollm3", {**T, **WINDOW, "use_sliding_window": True, "no_rope_layers": [1, 0, 1]}),
    "exaone4, mixed": ("exaone4", {**H, **KINDS}),
    "exaone4, full": ("exaone4", {**H, "sliding_window": None, "layer_types": ["full_attention"] * 3}),
    "exaone_moe, mixed": ("exaone_moe", {**H, **E, **KINDS, "norm_topk_prob": False}),
    "cohere2_moe, mixed": ("cohere2_moe", {**H, **E, **KINDS, "mlp_layer_types": ["sparse", "dense", "sparse"],
                           "num_shared_experts": 1, "prefix_dense_intermediate_size": 40,
                           "shared_expert_combination_strategy": "sum", "expert_selection_fn": "sigmoid"}),
    "cohere2_moe, rms": ("cohere2_moe", {**H, **E, **KINDS, "rms_norm_eps": 1e-5, "prefix_dense_sliding_window_pattern": 2}),
    "afmoe, mixed": ("afmoe", {**H, **E, **KINDS, "mup_enabled": True, "route_scale": 2.0, "num_dense_layers": 1}),
    "laguna, mixed": ("laguna", {**H, **E, **KINDS, "gating": "per-element", "moe_routed_scaling_factor": 2.0}),
    "gpt_oss, mixed": ("gpt_oss", {**H, **E, **KINDS, "attention_bias": False}),
    "starcoder2, windows": ("starcoder2", {**T, **WINDOW}),
    "dots1, windows": ("dots1", {**H, **E, **WINDOW, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
                       "max_window_layers": 1, "first_k_dense_replace": 1}),
    "solar_open, groups": ("solar_open", {**H, **{k: v for k, v in GROUPS.items() if k not in LATENT_DENSE}}),
    "deepseek_v2, groups": ("deepseek_v2", {**GROUPS, "topk_method": "group_limited_greedy", "routed_scaling_factor": 3.0}),
    "deepseek_v3, groups": ("deepseek_v3", {**GROUPS, "q_lora_rank": None, "rope_interleave": False, "norm_topk_prob": False,
                            "rope_parameters": {**YARN, "mscale_all_dim": 0.7, "mscale": 0.7}}),
    "glm4_moe_lite, eps": ("glm4_moe_lite", {**LATENT, "rms_norm_eps": 1e-2, "attention_bias": True}),
    "minicpm3, queries": ("minicpm3", {**LATENT_DENSE, "v_head_dim": 8, "scale_emb": 3, "dim_model_base": 8}),
    "gptj, whole heads": ("gptj", {**GPT, "rotary_dim": 8}),
    "biogpt, not scaled": ("biogpt", {**T, "scale_embedding": False}),
    "nemotron, head": ("nemotron", {**H, "partial_rotary_factor": 0.25}),
    "jais2, plain": ("jais2", {**T, "attention_bias": False, "mlp_bias": False}),
}  # fmt: skip
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (row.kind, row.config) for name, row in ROWS.items() if row.kind in FAMILIES and row.way != "refused"},
    **BRANCHES,
}


def random_model(name: str, dtype: torch.dtype = torch.float64) -> Any:
    """A causal model with random weights; its norms and biases are not ones and zeros, which hide mistakes."""
    import transformers

    kind, config = CONFIGS[name]
    torch.manual_seed(7)
    made = transformers.AutoConfig.for_model(kind, **config)
    made._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager").eval().requires_grad_(False)
    biases = [b for at, b in model.named_buffers() if at.endswith("e_score_correction_bias")]
    for weight in (*model.parameters(), *biases):
        weight.add_(torch.randn_like(weight) * 0.1)
    return model.to(dtype)
