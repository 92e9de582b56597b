"""A model's settings as an entry reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from decgraph.runtime.models.decoder.defaults import defaults
from decgraph.runtime.models.decoder.shape import UnknownToDecoder

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
