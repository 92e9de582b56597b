"""A model's settings as an entry reads them, and what they are where a config.json leaves them out, as transformers' config
classes have it: what is not the same for all (`llama.py` has what is)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from decgraph.runtime.models.decoder.shape import UnknownToDecoder

DEFAULTS: dict[str, dict[object, str]] = {
    "activation": {"gelu": "falcon"},
    "activation_function": {"gelu_new": "codegen gpt2 gpt_neo gptj", "gelu_pytorch_tanh": "gpt_bigcode", "relu": "opt"},
    "attention_bias": {True: "glm glm4 gpt_neox gpt_oss jais2 seed_oss"},
    "attention_multiplier": {1.0: "granite granite_swa granitemoe granitemoeshared"},
    "attn_logit_softcapping": {50.0: "gemma2 vaultgemma"},
    "dim_model_base": {256: "minicpm3"},
    "enable_bias": {True: "opt"},
    "embedding_multiplier": {1.0: "granite granite_swa granitemoe granitemoeshared hyperclovax"},
    "expert_selection_fn": {"softmax": "cohere2_moe"},
    "final_logit_softcapping": {30.0: "gemma2 vaultgemma", 15.0: "nanochat"},
    "global_attn_every_n_layers": {4: "afmoe"},
    "head_dim": {
        128: "afmoe cohere2_moe ernie4_5 glm glm4 helium hy_v3 internlm3 laguna minimax_m2 ministral3 qwen3 seed_oss "
        "solar_open",
        256: "gemma gemma2 gemma3_text vaultgemma",
        64: "gpt_oss",
    },
    "hidden_act": {
        "gelu_new": "phi",
        "gelu_pytorch_tanh": "gemma starcoder2",
        "gelu": "biogpt gpt_neox gpt_neox_japanese",
        "relu2": "arcee bitnet jais2 nanochat nemotron persimmon",
        "xielu": "apertus",
    },
    "layer_norm_eps": {1e-05: "cohere cohere2 cohere2_moe gpt_neox gpt_neox_japanese jais2 persimmon phi stablelm"},
    "layer_norm_epsilon": {1e-05: "codegen falcon gpt2 gpt_bigcode gpt_neo gptj"},
    "logit_scale": {0.0625: "cohere cohere2 cohere2_moe"},
    "logits_scaling": {1.0: "granite granite_swa granitemoe granitemoeshared hyperclovax"},
    "max_window_layers": {28: "qwen2 qwen2_moe qwen3", 62: "dots1"},
    "mlp_bias": {True: "jais2"},
    "moe_num_shared_experts": {2: "ernie4_5_moe"},
    "moe_routed_scaling_factor": {1.0: "laguna"},
    "multi_query": {True: "falcon gpt_bigcode"},
    "n_group": {8: "axk1 deepseek_v3", 1: "dots1 exaone_moe glm4_moe glm4_moe_lite solar_open"},
    "no_rope_layer_interval": {4: "smollm3"},
    "norm_eps": {1e-05: "nemotron"},
    "norm_epsilon": {1e-05: "starcoder2"},
    "norm_topk_prob": {True: "axk1 cohere2_moe deepseek_v3 exaone_moe glm4_moe glm4_moe_lite solar_open"},
    "num_key_value_heads": {
        32: "dots1 exaone4 exaone_moe qwen2 qwen3 stablelm",
        8: "glm4_moe gpt_oss hy_v3 laguna minimax_m2 ministral ministral3 mistral mixtral phimoe seed_oss solar_open",
        16: "gemma qwen2_moe youtu",
        4: "ernie4_5_moe gemma2 gemma3_text granite_swa qwen3_moe smollm3 vaultgemma",
        128: "deepseek_v3",
        20: "glm4_moe_lite helium",
        40: "minicpm3",
        64: "axk1",
        2: "ernie4_5 glm glm4 internlm3 starcoder2",
        5: "bitnet",
    },
    "parallel_attn": {True: "falcon"},
    "partial_rotary_factor": {1.0: "phi3", 0.5: "glm glm4 glm4_moe nemotron persimmon phi", 0.25: "stablelm"},
    "prefix_dense_sliding_window_pattern": {1: "cohere2_moe"},
    "q_lora_rank": {1536: "axk1 deepseek_v2 deepseek_v3 youtu", 768: "glm4_moe_lite minicpm3"},
    "qk_layernorm": {True: "persimmon"},
    "qkv_bias": {True: "qwen2_moe"},
    "query_pre_attn_scalar": {256: "gemma2 gemma3_text vaultgemma"},
    "residual_multiplier": {1.0: "granite granite_swa granitemoe granitemoeshared hyperclovax"},
    "rms_norm_eps": {
        1e-05: "afmoe apertus arcee bitnet diffllama ernie4_5 ernie4_5_moe exaone4 exaone_moe glm4_moe glm4_moe_lite "
        "gpt_oss granite_swa hunyuan_v1_dense hunyuan_v1_moe hy_v3 internlm3 minicpm3 ministral3 mixtral olmo2 "
        "olmo3 olmoe phi3 phimoe solar_open",
        1.5625e-07: "glm glm4",
        1e-08: "helium",
    },
    "rope_theta": {
        1000000.0: "gemma3_text mixtral phimoe solar_open",
        500000.0: "bitnet cohere ernie4_5 ernie4_5_moe flex_olmo olmo3",
        150000.0: "gpt_oss",
        5000000.0: "minimax_m2",
        11158840.0: "hy_v3",
        2000000.0: "smollm3",
        100000.0: "helium",
        12000000.0: "apertus",
    },
    "rotary_dim": {64: "codegen gptj"},
    "route_scale": {1.0: "afmoe"},
    "routed_scaling_factor": {
        1.0: "deepseek_v2 dots1 glm4_moe solar_open",
        2.5: "axk1 deepseek_v3 exaone_moe",
        1.8: "glm4_moe_lite",
    },
    "router_jitter_noise": {0.01: "phimoe"},
    "router_scaling_factor": {2.826: "hy_v3"},
    "scale_depth": {1.4: "minicpm3"},
    "scale_emb": {12: "minicpm3"},
    "scale_embedding": {True: "biogpt"},
    "shared_expert_combination_strategy": {"average": "cohere2_moe"},
    "sliding_window": {
        4096: "cohere2 cohere2_moe dots1 exaone4 exaone_moe gemma2 gemma3_text ministral mistral olmo3 qwen2 qwen2_moe "
        "qwen3 qwen3_moe vaultgemma",
        128: "gpt_oss granite_swa",
        1024: "afmoe",
        512: "laguna",
    },
    "sliding_window_pattern": {4: "cohere2_moe exaone4 exaone_moe"},
    "swiglu_alpha": {1.702: "gpt_oss"},
    "swiglu_limit": {7.0: "gpt_oss"},
    "tie_word_embeddings": {
        True: "biogpt cohere cohere2 cohere2_moe ernie4_5 ernie4_5_moe falcon gemma gemma2 gemma3_text gpt2 gpt_bigcode "
        "gpt_neo gpt_neox_japanese granite_swa minicpm3 opt smollm3 starcoder2 vaultgemma youtu",
    },
    "topk_group": {4: "axk1 deepseek_v3", 1: "dots1 exaone_moe glm4_moe glm4_moe_lite solar_open"},
    "topk_method": {"greedy": "deepseek_v2"},
    "use_bias": {True: "starcoder2"},
    "use_parallel_residual": {True: "gpt_neox"},
}
"""By setting, the families of each default; tests/runtime/models/test_families.py compares them with transformers' classes."""

ROPES: dict[str, dict[str, object]] = {
    "apertus": {
        "rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0, "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    },
    "gpt_oss": {
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    "ministral3": {
        "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 16384,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1,
    },
    "laguna": {
        "full_attention": {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
    },
}  # fmt: skip
"""Of `rope_parameters`."""


def defaults(family: str) -> dict[str, object]:
    """The defaults of a family's settings."""
    found = {name: value for name, by in DEFAULTS.items() for value, families in by.items() if family in families.split()}
    return found | ({"rope_parameters": ROPES[family]} if family in ROPES else {})


_MLP = "up down shared_up shared_down"
OPTIONAL: dict[str, dict[str, str]] = {
    "": {
        "qkv o up down": "biogpt gpt2 gpt_bigcode persimmon phi",
        "qkv": "qwen2",
        "o up down": "gpt_neo",
        "up down": "codegen gpt_neox gptj",
        "out": "codegen gptj phi",
        "router experts_up experts_down": "gpt_oss",
        "norms": "biogpt codegen falcon gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gptj jais2 nemotron opt persimmon "
        "phi phimoe stablelm starcoder2",
        "head_norms": "afmoe apertus dots1 exaone4 exaone_moe flex_olmo gemma3_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 "
        "laguna minimax_m2 nanochat olmo2 olmo3 olmoe qwen3 qwen3_moe",
        "router_bias": "afmoe axk1 deepseek_v3 dots1 ernie4_5_moe exaone_moe glm4_moe glm4_moe_lite hy_v3 laguna minimax_m2 "
        "solar_open",
        "shared": "afmoe axk1 deepseek_v2 deepseek_v3 dots1 exaone_moe glm4_moe glm4_moe_lite hunyuan_v1_moe hy_v3 laguna "
        "qwen2_moe solar_open",
    },
    "attention_bias": {
        "qkv o": "afmoe apertus arcee bitnet cohere cohere2 cohere2_moe diffllama dots1 eurobert flex_olmo gemma gemma2 "
        "gemma3_text gpt_neox gpt_oss granite granite_swa granitemoe granitemoeshared hunyuan_v1_dense hunyuan_v1_moe hy_v3 "
        "hyperclovax jais2 laguna llama modernbert nanochat nemotron olmo olmo2 olmo3 olmoe phimoe qwen3 qwen3_moe smollm3 "
        "vaultgemma",
        "qkv": "glm glm4 glm4_moe helium seed_oss solar_open",
        "o q_down kv_down": "axk1 deepseek_v2 deepseek_v3 glm4_moe_lite minicpm3 youtu",
    },
    "attention_out_bias": {"o": "seed_oss"},
    "bias": {"o up down": "internlm3", "qkv o up down": "falcon"},
    "enable_bias": {"qkv o up down": "opt"},
    "lm_head_bias": {"out": "phimoe"},
    "mlp_bias": {
        _MLP: "arcee deepseek_v2 eurobert granite granite_swa helium hy_v3 hyperclovax jais2 llama minicpm3 modernbert "
        "nemotron seed_oss smollm3",
    },
    "moe_num_shared_experts": {"shared": "ernie4_5_moe"},
    "norm_bias": {"norms": "modernbert"},
    "num_shared_experts": {"shared": "cohere2_moe"},
    "qk_layernorm": {"head_norms": "persimmon phi stablelm"},
    "qkv_bias": {"qkv": "internlm3 qwen2_moe"},
    "shared_intermediate_size": {"shared": "granitemoeshared"},
    "use_bias": {"qkv o " + _MLP: "ernie4_5 ernie4_5_moe starcoder2", "out": "ernie4_5_moe"},
    "use_qk_norm": {"head_norms": "cohere glm4_moe"},
    "use_qkv_bias": {"qkv": "stablelm"},
}
"""What not every family has, by the setting that says so ("": none has to): products with a bias, norms with one, norms of
queries and keys, a bias of the router's choice, experts that every token takes. A folder's tensor that is not declared here is
not read, as transformers leaves it out; test_declared.py compares with transformers' modules."""


def declared(c: Settings) -> frozenset[str]:
    """The parts of `OPTIONAL` that a config's family has with these settings."""
    family = str(c.get("model_type"))
    return frozenset(
        part
        for setting, parts in OPTIONAL.items()
        if not setting or c.get(setting)
        for names, families in parts.items()
        if family in families.split()
        for part in names.split()
    )


SILENT = """
    model_type architectures transformers_version _name_or_path name_or_path dtype torch_dtype use_cache return_dict id2label
    label2id problem_type max_position_embeddings n_positions n_ctx tokenizer_class is_decoder pretraining_tp
    chunk_size_feed_forward attn_implementation _attn_implementation_autoset cache_implementation task_specific_params prefix
    is_llama_config transformers.js_config gradient_checkpointing initial_context_length ep_size pre_allocate_kv_cache
    pad_key_length validate_runner_input max_sequence_length
    bos_token_id eos_token_id pad_token_id sep_token_id eod_token_id decoder_start_token_id mask_token_id
    attention_dropout attn_pdrop embd_pdrop resid_pdrop dropout hidden_dropout activation_dropout layerdrop hidden_dropout_prob
    attention_probs_dropout_prob classifier_dropout classifier_pooling residual_dropout summary_first_dropout embedding_dropout
    ffn_dropout
    embed_dropout type_vocab_size batch_norm_eps is_training n_group
    summary_type summary_use_proj summary_activation summary_proj_to_labels
    initializer_range init_std embedding_initializer_range lambda_std_dev initializer_factor
    router_aux_loss_coef router_z_loss_coef aux_loss_alpha seq_aux output_router_logits router_jitter_noise input_jitter_noise
    reorder_and_upcast_attn scale_attention_softmax_in_fp32 attention_softmax_in_fp32 enable_moe_fp32_combine
"""
"""Settings that change no arithmetic of a forward: what is used in training alone, numbers of special tokens, precisions."""
SHOWN = """
    intermediate_size moe_intermediate_size ffn_dim n_inner shared_intermediate_size shared_expert_intermediate_size
    ffn_hidden_size prefix_dense_intermediate_size intermediate_multiple_size qk_head_dim word_embed_proj_dim q_lora_rank
    n_shared_experts num_shared_experts moe_num_shared_experts first_k_dense_replace num_dense_layers moe_layer_freq
    mlp_layer_types decoder_sparse_step mlp_only_layers moe_layer_start_index moe_layer_end_index moe_layer_interval
    attention_bias mlp_bias use_bias qkv_bias bias enable_bias lm_head_bias use_qk_norm qk_layernorm use_qkv_bias use_post_norm
    attention_out_bias
    num_nextn_predict_layers num_mtp_layers gating
"""
"""Settings that the tensors themselves show: sizes, biases, and which layers have what."""
NEUTRAL = frozenset((SILENT + SHOWN).split())


class Settings(Mapping[str, object]):
    """A model's config as attributes, with the defaults of its family for what is absent; it remembers what was read."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self._config = {**defaults(str(config.get("model_type"))), **config}
        self._given, self._read = dict(config), set[str]()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self._read.add(name)
        if name not in self._config:
            raise UnknownToDecoder(f"its config has no {name}")
        return self._config[name]

    def get(self, name: str, default: object = None) -> Any:
        """The value, or the default where there is none or it is None."""
        self._read.add(name)
        found = self._config.get(name)
        return default if found is None else found

    def one_of(self, *names: str) -> Any:
        """What a setting of several names is. Raises UnknownToDecoder where it is absent, or its names say different things."""
        found = [value for name in names if (value := self.get(name)) is not None]
        if not found or any(value != found[0] for value in found):
            raise UnknownToDecoder(f"its config has {'several values' if found else 'no value'} of {', '.join(names)}")
        return found[0]

    def only(self, **values: object) -> None:
        """Raises UnknownToDecoder where a setting is there and is not this."""
        for name, value in values.items():
            if self.get(name, value) != value:
                raise UnknownToDecoder(f"setting {name} = {self.get(name)!r}")

    def unread(self) -> list[str]:
        """The settings that say something and that nothing read."""
        return sorted(
            name for name, value in self._given.items() if value and name[0] != "_" and name not in self._read | NEUTRAL
        )

    def __getitem__(self, name: str) -> object:
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)
