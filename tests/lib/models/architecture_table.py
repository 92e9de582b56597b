"""Decoder architectures of transformers, small and with random weights, and which way decgraph runs each.

`python tests/lib/models/architecture_table.py` prints docs/architectures.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from decgraph.runtime.models.decoder.families import STATES as KEPT
from decgraph.runtime.models.decoder.families import WITHOUT

T: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
H = {**T, "head_dim": 8}
GPT = {"vocab_size": 97, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128, "bos_token_id": 1, "eos_token_id": 2,
       "pad_token_id": 0}  # fmt: skip
E = {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
SHARED = {**E, "n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1}
LATENT_DENSE = {**T, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
                "qk_nope_head_dim": 4, "v_head_dim": 6, "head_dim": 4}  # fmt: skip
LATENT = {**LATENT_DENSE, **SHARED}
WINDOW = {"sliding_window": 4}
STATES = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2}
LAST = {"layer_types": ["linear_attention", "linear_attention", "full_attention"]}
LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, **LAST}
KIMI = {"head_dim": 8, "mlp_layer_types": ["dense", "sparse", "sparse"], **LAST}
MAMBA = {"mamba_n_heads": 4, "mamba_d_state": 8, "mamba_d_head": 16}
DBRX = {
    "vocab_size": 97, "d_model": 32, "n_heads": 4, "n_layers": 3, "max_seq_len": 128, "pad_token_id": 0,
    "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 1e4},
    "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2},
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """kind: transformers' model_type. way: "decoder", "module" or "refused". word: in the reason, where it is not the decoder;
    a kind that the decoder has no entry for has its reason in `WITHOUT`. has: what is special about it, for the page."""

    kind: str
    config: dict[str, Any]
    has: str = ""
    way: str = "decoder"
    word: str = ""

    @property
    def why(self) -> str:
        return self.word or (WITHOUT[self.kind] if self.way == "module" else "")


ROWS: dict[str, Row] = {
    "llama": Row("llama", T),
    "llama, tied, biases": Row("llama", {**T, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    "qwen2": Row("qwen2", T, "biases of queries, keys and values"),
    "qwen3": Row("qwen3", H, "norms of queries and keys"),
    "mistral": Row("mistral", {**H, "sliding_window": 5}, "sliding window"),
    "ministral": Row("ministral", {**H, **WINDOW}, "sliding window"),
    "ministral3": Row("ministral3", H),
    "phi3": Row("phi3", {**T, "sliding_window": 6}, "joined projections, sliding window"),
    "phi": Row("phi", T, "partial rotary, one norm a layer, biases"),
    "gemma": Row("gemma", H, "scaled embeddings"),
    "gemma2": Row("gemma2", {**H, **WINDOW, "query_pre_attn_scalar": 8}, "soft caps of scores and logits, sliding windows"),
    "gemma3_text": Row("gemma3_text", {**H, **WINDOW}, "sliding windows, norms of queries and keys"),
    "gemma4_text": Row("gemma4_text", {**H, **WINDOW}, "sliding windows, an embedding for each layer", "module"),
    "gemma4_text, shared": Row("gemma4_text", {**H, **WINDOW, "num_hidden_layers": 4, "num_kv_shared_layers": 2,
                               "layer_types": ["sliding_attention", "full_attention"] * 2, "global_head_dim": 16,
                               "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 97},
                               "layers that attend to other layers' keys and values", "module"),
    "vaultgemma": Row("vaultgemma", {**H, **WINDOW, "query_pre_attn_scalar": 8}, "soft caps, sliding windows"),
    "gpt2": Row("gpt2", GPT, "learned positions, matrices stored transposed"),
    "gpt_neo": Row("gpt_neo", {"vocab_size": 97, "hidden_size": 32, "num_layers": 4, "num_heads": 4, "window_size": 4,
                               "attention_types": [[["global", "local"], 2]], "max_position_embeddings": 128,
                               "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
                   "learned positions, sliding windows, scores that are not scaled"),
    "gpt_bigcode": Row("gpt_bigcode", GPT, "learned positions, one head of keys and values"),
    "gpt_neox": Row("gpt_neox", T, "partial rotary, parallel branches"),
    "opt": Row("opt", {**T, "ffn_dim": 48, "word_embed_proj_dim": 32}, "learned positions, biases"),
    "biogpt": Row("biogpt", T, "learned positions"),
    "falcon": Row("falcon", {**T, "new_decoder_architecture": False}, "one head of keys and values"),
    "falcon, grouped": Row("falcon", {**T, "new_decoder_architecture": True, "num_kv_heads": 2}, "groups"),
    "gptj": Row("gptj", {**GPT, "rotary_dim": 4}, "interleaved partial rotary"),
    "codegen": Row("codegen", {**GPT, "rotary_dim": 4}, "interleaved partial rotary"),
    "xglm": Row("xglm", {"vocab_size": 97, "d_model": 32, "num_layers": 3, "attention_heads": 4, "ffn_dim": 48,
                         "max_position_embeddings": 128, "pad_token_id": 0}, "sinusoidal positions", "module"),
    "gpt_neox_japanese": Row("gpt_neox_japanese", T, "parallel branches, a bias after attention"),
    "diffllama": Row("diffllama", T, "difference of two attentions"),
    "doge": Row("doge", T, "mask that depends on the states", "refused", "differs from itself"),
    "mixtral": Row("mixtral", {**T, **E}, "mixture of experts"),
    "qwen2_moe": Row("qwen2_moe", {**T, **E, "shared_expert_intermediate_size": 24}, "mixture with a shared expert"),
    "qwen3_moe": Row("qwen3_moe", {**H, **E}, "mixture of experts"),
    "olmoe": Row("olmoe", {**T, **E}, "mixture of experts"),
    "flex_olmo": Row("flex_olmo", {**T, **E}, "mixture of experts"),
    "granitemoe": Row("granitemoe", {**T, **E}, "mixture of experts, scaled residuals and logits"),
    "granitemoeshared": Row("granitemoeshared", {**T, **E, "shared_intermediate_size": 24}, "mixture with a shared expert"),
    "phimoe": Row("phimoe", {**T, **E}, "mixture of experts, sparse mixer"),
    "gpt_oss": Row("gpt_oss", {**H, **E, **WINDOW}, "sinks, mixture of experts with biases, sliding windows"),
    "minimax_m2": Row("minimax_m2", {**H, **E}, "mixture of experts"),
    "mimo_v2_flash": Row("mimo_v2_flash", {**H, **E}, "sinks, mixture of experts", "module"),
    "granite_swa": Row("granite_swa", T, "sinks"),
    "deepseek_v2": Row("deepseek_v2", LATENT, "latent attention, mixture of experts"),
    "deepseek_v3": Row("deepseek_v3", LATENT, "latent attention, mixture of experts with groups"),
    "glm4_moe_lite": Row("glm4_moe_lite", LATENT, "latent attention, mixture of experts"),
    "youtu": Row("youtu", LATENT_DENSE, "latent attention"),
    "minicpm3": Row("minicpm3", {**LATENT_DENSE, "v_head_dim": 8}, "latent attention"),
    "axk1": Row("axk1", LATENT, "latent attention, mixture of experts"),
    "glm4_moe": Row("glm4_moe", {**H, **SHARED}, "mixture of experts, partial rotary"),
    "dots1": Row("dots1", {**H, **SHARED, **WINDOW}, "mixture of experts"),
    "solar_open": Row("solar_open", {**H, **E}, "mixture of experts"),
    "exaone_moe": Row("exaone_moe", {**H, **E}, "mixture of experts"),
    "afmoe": Row("afmoe", {**H, **E, **WINDOW}, "mixture of experts, gated attention"),
    "cohere2_moe": Row("cohere2_moe", {**H, **E}, "mixture of experts"),
    "hunyuan_v1_moe": Row("hunyuan_v1_moe", {**H, **E, "moe_topk": 2}, "mixture of experts"),
    "hy_v3": Row("hy_v3", {**H, **E}, "mixture of experts"),
    "laguna": Row("laguna", {**H, **E}, "mixture of experts"),
    "ernie4_5_moe": Row("ernie4_5_moe", {**T, **E, "moe_num_experts": 4, "moe_k": 2, "moe_layer_start_index": 1}, "mixture"),
    "dbrx": Row("dbrx", DBRX, "mixture that loops over its experts itself", "module"),
    "jetmoe": Row("jetmoe", {**T, **E, "kv_channels": 8}, "mixture of attentions", "module"),
    "longcat_flash": Row("longcat_flash", LATENT, "two attentions a layer, experts that do nothing", "module"),
    "cohere": Row("cohere", T, "parallel branches, scaled logits"),
    "cohere2": Row("cohere2", {**H, **WINDOW}, "layers without positions, scaled logits"),
    "olmo": Row("olmo", T, "norms without weights"),
    "olmo2": Row("olmo2", T, "norms after the branches"),
    "olmo3": Row("olmo3", {**T, **WINDOW}, "sliding windows"),
    "starcoder2": Row("starcoder2", T, "biases"),
    "stablelm": Row("stablelm", T, "partial rotary"),
    "persimmon": Row("persimmon", T, "partial rotary, joined projections"),
    "nemotron": Row("nemotron", T, "squared activations"),
    "glm": Row("glm", H, "interleaved partial rotary"),
    "glm4": Row("glm4", H, "interleaved partial rotary"),
    "smollm3": Row("smollm3", T, "layers without positions"),
    "helium": Row("helium", H),
    "granite": Row("granite", T, "scaled residuals and logits"),
    "exaone4": Row("exaone4", {**H, **WINDOW}, "norms after the branches"),
    "ernie4_5": Row("ernie4_5", H, "interleaved rotary"),
    "seed_oss": Row("seed_oss", H),
    "arcee": Row("arcee", T, "squared activations"),
    "apertus": Row("apertus", T, "an activation with weights"),
    "bitnet": Row("bitnet", T, "norms inside the branches"),
    "nanochat": Row("nanochat", T, "norms without weights, capped logits"),
    "hunyuan_v1_dense": Row("hunyuan_v1_dense", H),
    "internlm3": Row("internlm3", T),
    "jais2": Row("jais2", T),
    "hyperclovax": Row("hyperclovax", T),
    "falcon, ALiBi": Row("falcon", {**T, "alibi": True}, "ALiBi", "refused", "ALiBi"),
    "bloom": Row("bloom", {"vocab_size": 97, "hidden_size": 32, "n_layer": 3, "n_head": 4}, "ALiBi", "refused", "ALiBi"),
    "mpt": Row("mpt", {"vocab_size": 97, "d_model": 32, "n_layers": 3, "n_heads": 4, "max_seq_len": 128}, "ALiBi", "refused",
               "ALiBi"),
    "llama4_text": Row("llama4_text", {**H, **E, "intermediate_size_mlp": 48, "attention_chunk_size": 32}, "chunks",
                       "refused", "chunked_attention"),
    "deepseek_v32": Row("deepseek_v32", LATENT, "attention to an index of chosen tokens", "refused", "indexed_attention"),
    "mamba": Row("mamba", STATES, "recurrent", "module", KEPT),
    "mamba2": Row("mamba2", {**STATES, "state_size": 8, "num_heads": 4, "head_dim": 16, "n_groups": 1}, "recurrent", "module",
                  KEPT),
    "falcon_mamba": Row("falcon_mamba", STATES, "recurrent", "module", KEPT),
    "jamba": Row("jamba", {**T, **E, "mamba_d_state": 8, "use_mamba_kernels": False, "attn_layer_period": 3,
                           "attn_layer_offset": 2, "expert_layer_period": 2}, "recurrent layers, mixture", "module", KEPT),
    "qwen3_next": Row("qwen3_next", {**H, **E, **LINEAR, "shared_expert_intermediate_size": 16},
                      "recurrent layers (Gated DeltaNet), mixture", "module", KEPT),
    "qwen3_5_text": Row("qwen3_5_text", {**H, **LINEAR}, "recurrent layers (Gated DeltaNet)", "module", KEPT),
    "qwen3_5_moe_text": Row("qwen3_5_moe_text", {**H, **E, **LINEAR, "shared_expert_intermediate_size": 16},
                            "recurrent layers (Gated DeltaNet), mixture", "module", KEPT),
    "kimi_linear": Row("kimi_linear", {**LATENT, **KIMI, "linear_head_dim": 8, "linear_num_heads": 4},
                       "recurrent layers (Kimi Delta Attention), latent attention, mixture", "module", KEPT),
    "bailing_hybrid": Row("bailing_hybrid", {**LATENT, **KIMI}, "the same layers", "module", KEPT),
    "nemotron_h": Row("nemotron_h", {**H, **E, "layers_block_type": ["mamba", "attention", "mlp", "mamba", "moe"],
                                     "num_hidden_layers": 5, "use_mamba_kernels": False, "ssm_state_size": 8,
                                     "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 1,
                                     "moe_shared_expert_intermediate_size": 24},
                      "recurrent layers (Mamba 2), mixture", "module", KEPT),
    "lfm2": Row("lfm2", {**T, "layer_types": ["conv", "conv", "full_attention"]}, "short convolutions", "module", KEPT),
    "lfm2_moe": Row("lfm2_moe", {**T, **E, "num_dense_layers": 1, "layer_types": ["conv", "conv", "full_attention"]},
                    "short convolutions, mixture", "module", KEPT),
    "lfm3": Row("lfm3", {**H, **WINDOW, "layer_types": ["conv", "sliding_attention", "full_attention"]},
                "short convolutions, sliding windows", "module", KEPT),
    "granitemoehybrid": Row("granitemoehybrid", {**T, **E, **MAMBA, "mamba_expand": 2, "shared_intermediate_size": 24,
                                                 "layer_types": ["mamba", "mamba", "attention"]},
                            "Granite 4: recurrent layers (Mamba 2), mixture", "module", KEPT),
    "falcon_h1": Row("falcon_h1", {**H, **MAMBA, "mamba_d_ssm": 64, "lm_head_multiplier": 0.5},
                     "recurrent layers beside attention, scaled logits", "module", KEPT),
    "bamba": Row("bamba", {**T, **MAMBA, "attn_layer_indices": [1]}, "recurrent layers (Mamba 2)", "module", KEPT),
    "zamba2": Row("zamba2", {**T, "num_key_value_heads": 4, "attention_head_dim": 16, "attention_hidden_size": 64,
                             "mamba_d_state": 8, "n_mamba_heads": 4, "mamba_headdim": 16, "use_mamba_kernels": False,
                             "num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"]},
                  "recurrent layers (Mamba 2), one attention that layers share", "module", KEPT),
    "olmo_hybrid": Row("olmo_hybrid", {**T, **LINEAR}, "recurrent layers (Gated DeltaNet)", "module", KEPT),
}  # fmt: skip


def architecture(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model with random weights, in evaluation mode; its norms and biases are not ones and zeros, which hide mistakes."""
    import transformers

    row = ROWS[name]
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model(row.kind, **row.config)
    # Soft caps and sinks exist in the eager attention alone.
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().requires_grad_(False)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model.to(dtype)


_HEAD = """# Architectures

A causal model of transformers runs in one of two ways. By the *decoder*: decgraph's own forward, one for all families
(`runtime/models/decoder`), in which an entry of a few lines says how a family differs from Llama. It is used where every
tensor of the model and every setting of its config has a meaning in the entry, and the states of some tokens are found equal
to the module's. *As a module*: transformers' own code runs, which takes longer for few tokens and gives the same ones.
Either is first compared on a small random model of the same class and switches, whose windows are shorter than the text; the
verdict is kept in the user's cache. What differs is refused.
`decgraph run --json`, `Result.forwards` and `decgraph compile ALGORITHM --emit cost --model target=FOLDER` say which way a
model runs and why. `decgraph zoo verify FOLDER` compares the decoder with the installed transformers on a small random model
of the folder's family and switches; after a difference folders of that shape run as a module.
[A recipe](recipes/architecture.md) adds a family.

Each row is a test: a small model of the architecture with random weights gives `generate`'s tokens, alone and in a
left-padded batch, with `autoregressive` and `prompt_lookup`; and in float64 the decoder's states are the module's to 1e-12,
at once, in chunks and over a tree (`tests/runtime/models/test_decoder.py`). In 16 bits tokens may differ where two are as
likely as each other to within a rounding. What is not in the table has no entry, and runs as a module.

Of a model with recurrent layers (rows with "recurrent layers keep states") the states after the committed tokens are kept,
and for a draft what entered those layers. So a draft of any length, a tree too, is verified in one call of the model, and a
rejected one costs nothing after it. The next call runs the recurrent layers alone again over the tokens that were accepted;
where a whole draft was, the states at its end are there already. Their rows are tested with `speculative` and `sequoia` too,
and forwards are counted. Heads (EAGLE, MTP) read such targets from folders. RWKV, MiniMax and RecurrentGemma keep their states
elsewhere: their drafts are computed token by token, or as whole texts. Of these `generate` itself gives other tokens in a
left-padded batch than alone, and decgraph gives those alone.

| architecture | what is special | forward |
|---|---|---|"""


def page() -> str:
    """docs/architectures.md."""
    says = {"decoder": "decoder", "module": "as a module", "refused": "refused"}
    lines = [_HEAD]
    for name, row in ROWS.items():
        why = f": {row.why}" if row.way == "module" else f" (`{row.word}`)" if row.word else ""
        lines.append(f"| {name} | {row.has} | {says[row.way]}{why} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
