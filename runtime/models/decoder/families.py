"""The families that the decoder knows: from a config to a shape and the names of its tensors. An entry says what differs from
Llama. To add a family: an entry of `FAMILIES`, and a row of tests/architecture_table.py, which compares it with its module.

Names are those of transformers' base module, without the prefix ("model.", "transformer.") that files have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from decgraph.runtime.models.decoder.defaults import defaults
from decgraph.runtime.models.decoder.shape import FULL, SLIDING, Experts, Layer, Shape, Unknown

Entry = tuple[Shape, dict[str, str]]
_A, _M = "layers.{i}.self_attn.", "layers.{i}.mlp."
LLAMA = {
    "embed": "embed_tokens.weight", "norm": "norm", "attn_in": "layers.{i}.input_layernorm",
    "wq": _A + "q_proj", "wk": _A + "k_proj", "wv": _A + "v_proj", "o": _A + "o_proj", "q": _A + "q_norm", "k": _A + "k_norm",
    "mlp_in": "layers.{i}.post_attention_layernorm", "gate": _M + "gate_proj", "up": _M + "up_proj", "down": _M + "down_proj",
}  # fmt: skip
MOE = {"router": _M + "gate", "experts_up": _M + "experts.gate_up_proj", "experts_down": _M + "experts.down_proj"}
SHARED = {"router_bias": _M + "gate.e_score_correction_bias", "shared_gate_proj": _M + "shared_experts.gate_proj",
          "shared_up_proj": _M + "shared_experts.up_proj", "shared_down": _M + "shared_experts.down_proj"}  # fmt: skip
SANDWICH = {
    "attn_out": "layers.{i}.post_attention_layernorm",
    "mlp_in": "layers.{i}.pre_feedforward_layernorm",
    "mlp_out": "layers.{i}.post_feedforward_layernorm",
}
AFTER = {
    "attn_in": "",
    "attn_out": "layers.{i}.post_attention_layernorm",
    "mlp_in": "",
    "mlp_out": "layers.{i}.post_feedforward_layernorm",
}


NEUTRAL = frozenset(
    """
    model_type architectures transformers_version _name_or_path name_or_path dtype torch_dtype use_cache return_dict id2label
    label2id problem_type max_position_embeddings n_positions n_ctx tokenizer_class is_decoder
    bos_token_id eos_token_id pad_token_id sep_token_id eod_token_id decoder_start_token_id
    attention_dropout attn_pdrop embd_pdrop resid_pdrop dropout hidden_dropout activation_dropout layerdrop hidden_dropout_prob
    attention_probs_dropout_prob classifier_dropout residual_dropout summary_first_dropout embedding_dropout ffn_dropout
    summary_type summary_use_proj summary_activation summary_proj_to_labels
    initializer_range init_std embedding_initializer_range lambda_std_dev initializer_factor router_aux_loss_coef router_z_loss_coef
    aux_loss_alpha seq_aux output_router_logits router_jitter_noise input_jitter_noise pretraining_tp chunk_size_feed_forward
    attn_implementation reorder_and_upcast_attn scale_attention_softmax_in_fp32 attention_softmax_in_fp32 enable_moe_fp32_combine
    intermediate_size moe_intermediate_size ffn_dim n_inner shared_intermediate_size shared_expert_intermediate_size
    ffn_hidden_size prefix_dense_intermediate_size intermediate_multiple_size qk_head_dim
    n_shared_experts num_shared_experts moe_num_shared_experts first_k_dense_replace num_dense_layers moe_layer_freq
    mlp_layer_types decoder_sparse_step mlp_only_layers moe_layer_start_index moe_layer_end_index moe_layer_interval
    attention_bias mlp_bias use_bias qkv_bias bias enable_bias lm_head_bias use_qk_norm qk_layernorm use_qkv_bias use_post_norm
    num_ln_in_parallel_attn num_nextn_predict_layers num_mtp_layers
""".split()
)
"""Settings that change no arithmetic of a forward: what is used in training alone, numbers of special tokens, and sizes and biases
that the tensors themselves show."""


class Settings(Mapping[str, Any]):
    """A model's config as attributes, with the defaults of its family for what is absent; it remembers what was read."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = {**defaults(str(config.get("model_type"))), **config}
        self._given, self._read = dict(config), set[str]()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self._read.add(name)
        if name not in self._config:
            raise Unknown(f"its config has no {name}")
        return self._config[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or the default where there is none or it is None."""
        self._read.add(name)
        found = self._config.get(name)
        return default if found is None else found

    def one_of(self, *names: str) -> Any:
        """What a setting of several names is. Raises Unknown where it is absent, or its names say different things."""
        found = [value for name in names if (value := self.get(name)) is not None]
        if not found or any(value != found[0] for value in found):
            raise Unknown(f"its config has {'several values' if found else 'no value'} of {', '.join(names)}")
        return found[0]

    def unread(self) -> list[str]:
        """The settings that say something and that nothing read."""
        return sorted(name for name, value in self._given.items() if value and name not in self._read | NEUTRAL)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)


def without(names: dict[str, str], *keys: str) -> dict[str, str]:
    """The names but these, and but those that are empty."""
    return {k: v for k, v in names.items() if k not in keys and v}


def ropes(c: Settings) -> dict[str, dict[str, Any]]:
    """Rotary settings by kind of layer, of old configs and new ones."""
    theta, part, scaled = c.get("rope_theta", 10000.0), c.get("partial_rotary_factor"), c.get("rope_scaling")
    found = dict(scaled or c.get("rope_parameters") or {})
    kinds = {k: v for k, v in found.items() if isinstance(v, dict)} or {FULL: found}
    return {
        kind: rotary(c, {"rope_theta": theta} | ({} if part is None else {"partial_rotary_factor": part}) | r)
        for kind, r in kinds.items()
    }


def rotary(c: Settings, r: dict[str, Any]) -> dict[str, Any]:
    """Rotary settings in the form of new configs. Raises Unknown for frequencies that change with the length of a text."""
    kind = r.get("rope_type") or r.get("type") or "default"
    if kind == "longrope" or kind == "dynamic" and not r.get("alpha"):
        raise Unknown(f"rotary frequencies of kind {kind}, which change with the length of a text")
    if kind in ("llama3", "yarn"):
        length = (
            c.get("original_max_position_embeddings") or r.get("original_max_position_embeddings") or c.max_position_embeddings
        )
        r = r | {"original_max_position_embeddings": length}
    return {"rope_type": kind} | {k: v for k, v in r.items() if k not in ("type", "rope_type")}


def windows(c: Settings, sliding: Callable[[int], Any]) -> tuple[int | None, ...]:
    """The window of each layer. sliding: which layers have one where the config does not list their kinds."""
    window, count = c.get("sliding_window") or None, c.num_hidden_layers
    kinds = c.get("layer_types") or [SLIDING if sliding(i) else FULL for i in range(count)]
    if set(kinds) - {FULL, SLIDING}:
        raise Unknown(f"layers of kind {', '.join(sorted(set(kinds) - {FULL, SLIDING}))}")
    return tuple(window if kind == SLIDING else None for kind in kinds)


def every(pattern: int) -> Callable[[int], Any]:
    """Layers of which each `pattern`-th attends to everything and the others to a window."""
    return lambda i: bool(pattern) and (i + 1) % pattern


def llama(c: Settings, seen: tuple[int | None, ...] = (), **more: Any) -> Shape:
    """The shape of a config as Llama's is read, with windows and other switches."""
    heads, count = c.num_attention_heads, c.num_hidden_layers
    head = c.get("head_dim") or c.hidden_size // heads
    rope = ropes(c)
    local = SLIDING if SLIDING in rope else FULL
    part = float(rope.get(FULL, {}).get("partial_rotary_factor") or 1.0)
    s = Shape(
        width=c.hidden_size,
        heads=heads,
        kv_heads=c.get("num_key_value_heads", heads),
        head=head,
        layers=tuple(Layer(window, local if window else FULL) for window in seen or (None,) * count),
        vocabulary=c.vocab_size,
        eps=c.get("rms_norm_eps", 1e-6),
        activation=c.get("hidden_act", "silu"),
        rope=rope,
        rotary=int(head * part) if part != 1.0 else 0,
        tied=bool(c.get("tie_word_embeddings", False)),
    )
    return replace(s, **more)


def each(s: Shape, **more: Any) -> Shape:
    """The same change of every layer; a value may be a function of its number."""
    changed = [{k: v(i) if callable(v) else v for k, v in more.items()} for i in range(len(s.layers))]
    return replace(s, layers=tuple(replace(layer, **change) for layer, change in zip(s.layers, changed, strict=True)))


def plain(c: Settings) -> Entry:
    return llama(c), LLAMA


def one_window(c: Settings) -> Entry:
    return each(llama(c), window=c.get("sliding_window")), LLAMA


def ministral(c: Settings) -> Entry:
    return llama(c, windows(c, lambda i: True)), LLAMA


def ministral3(c: Settings) -> Entry:
    s = one_window(c)[0]
    r = s.rope[FULL]
    return replace(s, stretch=(r.get("llama_4_scaling_beta") or 0.0, r["original_max_position_embeddings"])), LLAMA


def qwen(c: Settings) -> Entry:
    first, used = c.get("max_window_layers", 0), c.get("use_sliding_window")
    s = llama(c, windows(c, lambda i: i >= first))
    return (s if used else each(s, window=None, rope=FULL)), LLAMA


def smollm3(c: Settings) -> Entry:
    s, n, used = llama(c), c.get("no_rope_layer_interval", 4), c.get("use_sliding_window")
    turned = c.get("no_rope_layers") or [(i + 1) % n for i in range(len(s.layers))]
    seen = windows(c, lambda i: used and not turned[i])
    return each(s, rope=lambda i: FULL if turned[i] else None, window=lambda i: seen[i]), LLAMA


def granite(c: Settings) -> Entry:
    s = llama(c, scale=c.attention_multiplier, embed_scale=c.embedding_multiplier, residual=c.residual_multiplier)
    return replace(s, logit_scale=1 / c.logits_scaling), LLAMA


def granite_swa(c: Settings) -> Entry:
    s, seen, thetas = granite(c)[0], windows(c, lambda i: i % 4), c.get("layer_rope_theta")
    if set(thetas or ()) - {0, s.rope[FULL]["rope_theta"]}:
        raise Unknown("layers with several rotary frequencies")
    return each(s, window=lambda i: seen[i], rope=lambda i: None if thetas and not thetas[i] else FULL), {
        **LLAMA,
        "sinks": _A + "sinks",
    }


def hyperclovax(c: Settings) -> Entry:
    names = {"attn_out": "layers.{i}.post_norm1", "mlp_out": "layers.{i}.post_norm2"}
    s = llama(c, embed_scale=c.embedding_multiplier, residual=c.residual_multiplier, logit_scale=c.logits_scaling)
    return replace(s, scale=c.get("attention_multiplier", s.head**-0.5)), {**LLAMA, **names}


def gemma(c: Settings, seen: tuple[int | None, ...] = ()) -> Entry:
    act = c.get("hidden_activation") or "gelu_pytorch_tanh"
    c.get("hidden_act")  # gemma's own files say "gelu" here, and mean the other
    return llama(c, seen, offset=1.0, activation=act, embed_scale=c.hidden_size**0.5, embed_rounded=True), LLAMA


def gemma2(c: Settings) -> Entry:
    s = gemma(c, windows(c, every(2)))[0]
    s = replace(s, scale=c.query_pre_attn_scalar**-0.5, cap=c.get("attn_logit_softcapping"))
    return replace(s, logit_cap=c.get("final_logit_softcapping")), {**LLAMA, **SANDWICH}


def gemma3(c: Settings) -> Entry:
    pattern, local = c.get("sliding_window_pattern", 6), {"rope_theta": c.get("rope_local_base_freq", 10000.0)}
    s = replace(gemma2(c)[0], layers=llama(c, windows(c, every(pattern))).layers)
    if SLIDING not in s.rope:  # an old config
        s = each(replace(s, rope={FULL: s.rope[FULL], SLIDING: rotary(c, local)}), rope=lambda i: s.layers[i].kind)
    return s, {**LLAMA, **SANDWICH}


def vaultgemma(c: Settings) -> Entry:
    return gemma2(c)[0], {**LLAMA, "mlp_in": SANDWICH["mlp_in"]}


def phi3(c: Settings) -> Entry:
    return one_window(c)[0], {**without(LLAMA, "wq", "wk", "wv", "gate"), "qkv": _A + "qkv_proj", "up": _M + "gate_up_proj"}


def interleaved(c: Settings) -> Entry:
    return llama(c, pairs="kept"), LLAMA


def glm(c: Settings) -> Entry:
    return llama(c, pairs="kept"), {**without(LLAMA, "gate"), "up": _M + "gate_up_proj"}


def glm4(c: Settings) -> Entry:
    names = {"attn_out": "layers.{i}.post_self_attn_layernorm", "mlp_out": "layers.{i}.post_mlp_layernorm"}
    return glm(c)[0], {**glm(c)[1], **names}


def cohere(c: Settings, seen: tuple[int | None, ...] = ()) -> Entry:
    s = llama(c, seen, norm="layer", eps=c.layer_norm_eps, pairs="kept", parallel=True, logit_scale=c.logit_scale)
    return s, without(LLAMA, "mlp_in")


def cohere2(c: Settings) -> Entry:
    s, names = cohere(c, windows(c, every(c.get("sliding_window_pattern", 4))))
    return each(s, rope=lambda i: FULL if s.layers[i].window else None), names


def cohere2_moe(c: Settings) -> Entry:
    pattern, dense, first = (
        c.get("sliding_window_pattern", 4),
        c.prefix_dense_sliding_window_pattern,
        c.get("first_k_dense_replace", 0),
    )
    s, names = cohere(c, windows(c, lambda i: every(dense)(i) if i < first else every(pattern)(i - first)))
    plain = c.get("mlp_layer_types") or ["dense"] * first
    if c.get("num_shared_experts") and c.shared_expert_combination_strategy != "sum":
        raise Unknown("its shared experts are averaged with the others")
    soft = c.expert_selection_fn == "softmax"
    e = Experts(experts(c), c.num_experts_per_tok, "topk_softmax" if soft else "sigmoid", c.norm_topk_prob or soft)
    if c.get("rms_norm_eps") is not None:
        s = replace(s, norm="rms", eps=c.rms_norm_eps)
    s = each(s, experts=e, rope=lambda i: FULL if s.layers[i].window or dense == 1 and plain[i : i + 1] == ["dense"] else None)
    return s, {**names, **MOE, **SHARED}


def starcoder2(c: Settings) -> Entry:
    return replace(one_window(c)[0], norm="layer", eps=c.norm_epsilon, gated=False), {
        **without(LLAMA, "gate"),
        "up": _M + "c_fc",
        "down": _M + "c_proj",
    }


def stablelm(c: Settings) -> Entry:
    names = {"q": _A + "q_layernorm", "k": _A + "k_layernorm"}
    return llama(c, norm="layer", eps=c.layer_norm_eps, parallel=c.get("use_parallel_residual", False)), {**LLAMA, **names}


def olmo(c: Settings) -> Entry:
    return llama(c, norm="layer", eps=1e-5, unit_norms=True, clip=c.get("clip_qkv")), without(LLAMA, "q", "k")


def olmo2(c: Settings) -> Entry:
    return llama(c, joined_norms=True), without({**LLAMA, **AFTER})


def olmo3(c: Settings) -> Entry:
    return llama(c, windows(c, every(4)), joined_norms=True), without({**LLAMA, **AFTER})


def exaone(c: Settings) -> Shape:
    s = llama(c, windows(c, every(c.get("sliding_window_pattern", 4))))
    return each(s, rope=lambda i: FULL if c.get("sliding_window") is None or s.layers[i].window else None)


def exaone4(c: Settings) -> Entry:
    return exaone(c), without({**LLAMA, **AFTER})


def exaone_moe(c: Settings) -> Entry:
    return each(exaone(c), experts=deepseek_experts(c)), {**LLAMA, **MOE, **SHARED}


def bitnet(c: Settings) -> Entry:
    return llama(c), {**LLAMA, "attn_sub": _A + "attn_sub_norm", "mlp_sub": _M + "ffn_sub_norm"}


def ungated(c: Settings) -> Entry:
    return llama(c, gated=False), without(LLAMA, "gate")


def jais2(c: Settings) -> Entry:
    return replace(ungated(c)[0], norm="layer", eps=c.layer_norm_eps), without(LLAMA, "gate")


def apertus(c: Settings) -> Entry:
    names = {"attn_in": "layers.{i}.attention_layernorm", "mlp_in": "layers.{i}.feedforward_layernorm"}
    return ungated(c)[0], {
        **without(LLAMA, "gate"),
        **names,
        **{key: _M + "act_fn." + key for key in ("alpha_p", "alpha_n", "beta", "eps")},
    }


def nanochat(c: Settings) -> Entry:
    s = replace(ungated(c)[0], unit_norms=True, late_norms=True, backward=True, logit_cap=c.get("final_logit_softcapping"))
    return s, {**without(LLAMA, "gate"), "embed_norm": "norm", "up": _M + "fc1", "down": _M + "fc2"}


def nemotron(c: Settings) -> Entry:
    return llama(c, norm="layer", eps=c.norm_eps, offset=1.0, gated=False), without(LLAMA, "gate")


def hunyuan(c: Settings) -> Entry:
    return llama(c, late_norms=True), {**LLAMA, "q": _A + "query_layernorm", "k": _A + "key_layernorm"}


def diffllama(c: Settings) -> Entry:
    s = llama(c)
    start = each(s, difference=lambda i: 0.8 - 0.6 * math.exp(-0.3 * i))
    return replace(start, value=2 * s.head), {
        **LLAMA,
        **{key: _A + key for key in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")},
    }


def phi(c: Settings) -> Entry:
    names = {
        "norm": "final_layernorm",
        "o": _A + "dense",
        "up": _M + "fc1",
        "down": _M + "fc2",
        "q": _A + "q_layernorm",
        "k": _A + "k_layernorm",
    }
    return llama(c, norm="layer", eps=c.layer_norm_eps, gated=False, parallel=True), {
        **without(LLAMA, "gate", "mlp_in"),
        **names,
    }


def persimmon(c: Settings) -> Entry:
    names = {"norm": "final_layernorm", "qkv": _A + "query_key_value", "o": _A + "dense", "q": _A + "q_layernorm",
             "k": _A + "k_layernorm", "up": _M + "dense_h_to_4h", "down": _M + "dense_4h_to_h"}  # fmt: skip
    s = llama(c, norm="layer", eps=c.layer_norm_eps, gated=False, kv_heads=c.num_attention_heads, qkv="heads")
    return s, {**without(LLAMA, "gate", "wq", "wk", "wv"), **names}


def gpt_neox(c: Settings) -> Entry:
    x, base, part = "layers.{i}.", c.get("rotary_emb_base", 10000.0), c.get("rotary_pct", 0.25)
    s = llama(c, norm="layer", eps=c.layer_norm_eps, gated=False, parallel=c.get("use_parallel_residual", False), qkv="heads",
              kv_heads=c.num_attention_heads)  # fmt: skip
    r = {"partial_rotary_factor": part} | s.rope[FULL]
    if not (c.get("rope_parameters") or {}).get("rope_theta"):
        r["rope_theta"] = base
    return replace(s, rope={FULL: r}, rotary=int(s.head * r["partial_rotary_factor"])), {
        "embed": "embed_in.weight", "norm": "final_layer_norm", "attn_in": x + "input_layernorm",
        "mlp_in": x + "post_attention_layernorm", "qkv": x + "attention.query_key_value", "o": x + "attention.dense",
        "up": x + "mlp.dense_h_to_4h", "down": x + "mlp.dense_4h_to_h"}  # fmt: skip


def gpt2(c: Settings) -> Entry:
    x, heads = "h.{i}.", c.n_head
    s = Shape(
        width=c.n_embd, heads=heads, kv_heads=heads, head=c.n_embd // heads, layers=(Layer(rope=None),) * c.n_layer,
        vocabulary=c.vocab_size, norm="layer", eps=c.layer_norm_epsilon, activation=c.activation_function, gated=False,
        tied=c.get("tie_word_embeddings", True), scale=0.0 if c.get("scale_attn_weights", True) else 1.0)  # fmt: skip
    if c.get("scale_attn_by_inverse_layer_idx", False):
        s = each(s, scale=lambda i: (s.scale or s.head**-0.5) / (i + 1))
    return s, {
        "embed": "wte.weight", "positions": "wpe.weight", "norm": "ln_f", "transposed": "", "attn_in": x + "ln_1",
        "mlp_in": x + "ln_2", "qkv": x + "attn.c_attn", "o": x + "attn.c_proj", "up": x + "mlp.c_fc", "down": x + "mlp.c_proj"}  # fmt: skip


def gpt_bigcode(c: Settings) -> Entry:
    s, names = gpt2(c)
    c.get("num_key_value_heads")
    return replace(s, kv_heads=1 if c.multi_query else s.heads, qkv="" if c.multi_query else "heads"), {
        k: v for k, v in names.items() if k != "transposed"}  # fmt: skip


def gptj(c: Settings) -> Entry:
    x, s = "h.{i}.", gpt2(c)[0]
    s = replace(each(s, rope=FULL), rope={FULL: {"rope_type": "default", "rope_theta": 10000.0}}, rotary=c.get("rotary_dim", s.width),
                pairs="kept", parallel=True)  # fmt: skip
    if s.rotary > s.head:
        raise Unknown("rotary positions of more numbers than a head has")
    return s, {
        "embed": "wte.weight", "norm": "ln_f", "attn_in": x + "ln_1", "wq": x + "attn.q_proj", "wk": x + "attn.k_proj",
        "wv": x + "attn.v_proj", "o": x + "attn.out_proj", "up": x + "mlp.fc_in", "down": x + "mlp.fc_out"}  # fmt: skip


def codegen(c: Settings) -> Entry:
    s, names = gptj(c)
    return replace(s, qkv="quarters"), {**without(names, "wq", "wk", "wv"), "qkv": "h.{i}.attn.qkv_proj"}


def biogpt(c: Settings, at: str = "", norm: str = "layer_norm", **more: Any) -> Entry:
    x = at + "layers.{i}."
    s = llama(c, norm="layer", eps=1e-5, gated=False, kv_heads=c.num_attention_heads, position_offset=2, rope={},
              **more or {"embed_scale": c.hidden_size**0.5 if c.get("scale_embedding", True) else 1.0})  # fmt: skip
    c.get("layer_norm_eps")  # the module does not read it
    return each(s, rope=None), {
        "embed": at + "embed_tokens.weight", "positions": at + "embed_positions.weight", "norm": at + norm,
        "attn_in": x + "self_attn_layer_norm", "wq": x + "self_attn.q_proj", "wk": x + "self_attn.k_proj", "wv": x + "self_attn.v_proj",
        "o": x + "self_attn.out_proj", "mlp_in": x + "final_layer_norm", "up": x + "fc1", "down": x + "fc2"}  # fmt: skip


def opt(c: Settings) -> Entry:
    if not c.get("do_layer_norm_before", True) or not c.get("layer_norm_elementwise_affine", True):
        raise Unknown("norms without weights, or after the branches and over the sum")
    c.get("word_embed_proj_dim")  # tensors show it
    return biogpt(c, "decoder.", "final_layer_norm", activation=c.activation_function)


def falcon(c: Settings) -> Entry:
    if c.get("alibi", False):
        raise Unknown("ALiBi")
    x, new, heads = "h.{i}.", c.get("new_decoder_architecture", False), c.num_attention_heads
    many, given = c.multi_query, c.get("num_kv_heads", heads)
    kv = given if new else 1 if many else heads
    s = llama(c, norm="layer", eps=c.layer_norm_epsilon, activation=c.get("activation", "gelu"), gated=False, kv_heads=kv,
              parallel=new or c.get("parallel_attn", False), qkv="groups" if new or not many else "")  # fmt: skip
    two = new and c.get("num_ln_in_parallel_attn", 2) == 2
    return s, {
        "embed": "word_embeddings.weight", "norm": "ln_f", "attn_in": x + ("ln_attn" if two else "input_layernorm"),
        "mlp_in": x + ("ln_mlp" if two else "post_attention_layernorm"), "qkv": x + "self_attention.query_key_value",
        "o": x + "self_attention.dense", "up": x + "mlp.dense_h_to_4h", "down": x + "mlp.dense_4h_to_h"}  # fmt: skip


def experts(c: Settings) -> int:
    """How many experts there are. Raises Unknown where layers differ in it."""
    count = c.one_of("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    if not isinstance(count, int):
        raise Unknown("layers with several numbers of experts")
    return count


def mixtral(c: Settings) -> Entry:
    return each(one_window(c)[0], experts=Experts(experts(c), c.num_experts_per_tok)), {**LLAMA, **MOE}


def phimoe(c: Settings) -> Entry:
    e = Experts(experts(c), c.num_experts_per_tok, "sparse_mixer", jitter=c.router_jitter_noise)
    s = replace(one_window(c)[0], norm="layer")
    return each(s, experts=e), {**LLAMA, **MOE, "router": _M + "router"}


def minimax_m2(c: Settings) -> Entry:
    s = llama(c, joined_norms=True)
    if dim := c.get("rotary_dim"):
        s = replace(s, rotary=dim % s.head, rope={FULL: s.rope[FULL] | {"partial_rotary_factor": dim / s.head}})
    e = Experts(experts(c), c.num_experts_per_tok, "sigmoid")
    return each(s, experts=e), {**LLAMA, **MOE, "router_bias": _M + "e_score_correction_bias"}


def granite_moe(c: Settings) -> Entry:
    e, x = Experts(experts(c), c.num_experts_per_tok, "topk_softmax"), "layers.{i}.block_sparse_moe."
    return each(granite(c)[0], experts=e), {
        **LLAMA, "router": x + "router", "experts_up": x + "experts.gate_up_proj", "experts_down": x + "experts.down_proj",
        "shared_up": "layers.{i}.shared_mlp.input_linear", "shared_down": "layers.{i}.shared_mlp.output_linear"}  # fmt: skip


def qwen_moe(c: Settings) -> Entry:
    e = Experts(experts(c), c.num_experts_per_tok, renormalised=c.norm_topk_prob)
    shared = {"shared_gate_proj": _M + "shared_expert.gate_proj", "shared_up_proj": _M + "shared_expert.up_proj",
              "shared_down": _M + "shared_expert.down_proj", "shared_gate": _M + "shared_expert_gate"}  # fmt: skip
    return each(llama(c), experts=e, window=c.get("sliding_window") if c.get("use_sliding_window") else None), {
        **LLAMA,
        **MOE,
        **shared,
    }


def qwen2_moe(c: Settings) -> Entry:
    s, names = qwen_moe(c)
    first, used = c.get("max_window_layers", 0), c.get("use_sliding_window")
    seen = windows(c, lambda i: (i + 1) % 2 and i < first)
    return each(s, window=lambda i: seen[i] if used else None), names


def olmoe(c: Settings) -> Entry:
    e = Experts(experts(c), c.num_experts_per_tok, renormalised=c.norm_topk_prob)
    return each(llama(c, joined_norms=True, clip=c.get("clip_qkv")), experts=e), {**LLAMA, **MOE}


def flex_olmo(c: Settings) -> Entry:
    return olmoe(c)[0], without({**LLAMA, **MOE, **AFTER})


def gpt_oss(c: Settings) -> Entry:
    e = Experts(experts(c), c.num_experts_per_tok, "topk_softmax", clamp=(c.get("swiglu_alpha", 1.702), c.get("swiglu_limit", 7.0)),
                columns=True, interleaved=True)  # fmt: skip
    return each(llama(c, windows(c, every(2))), experts=e), {**LLAMA, **MOE, "sinks": _A + "sinks", "router": _M + "router"}


def ernie4_5_moe(c: Settings) -> Entry:
    e = Experts(experts(c), c.one_of("moe_k", "num_experts_per_tok"), epsilon=0.0)
    c.get("moe_norm_min")  # less than the probabilities of the best experts can sum to
    names = {**SHARED, "router_bias": _M + "gate.moe_statics.e_score_correction_bias"}
    return each(llama(c, pairs="kept"), experts=e), {**LLAMA, **MOE, **names}


def hunyuan_moe(c: Settings) -> Entry:
    top = c.one_of("moe_topk", "num_experts_per_tok") if isinstance(c.get("moe_topk", 1), int) else None
    if top is None:
        raise Unknown("layers with several numbers of chosen experts")
    shared = {key: name.replace("shared_experts", "shared_mlp") for key, name in SHARED.items() if key != "router_bias"}
    return each(hunyuan(c)[0], experts=Experts(experts(c), top)), {**hunyuan(c)[1], **MOE, **shared, "router": _M + "gate.wg"}


def deepseek_experts(c: Settings, scale: float | None = None) -> Experts:
    return Experts(experts(c), c.num_experts_per_tok, "sigmoid", c.get("norm_topk_prob", True), c.get("n_group", 1), c.get("topk_group", 1),
                   c.get("routed_scaling_factor", 1.0) if scale is None else scale, epsilon=1e-20)  # fmt: skip


def glm4_moe(c: Settings) -> Entry:
    return each(llama(c), experts=deepseek_experts(c)), {**LLAMA, **MOE, **SHARED}


def solar_open(c: Settings) -> Entry:
    return glm4_moe(c)[0], without({**LLAMA, **MOE, **SHARED}, "q", "k")


def dots1(c: Settings) -> Entry:
    first = c.get("max_window_layers", 0)
    return each(llama(c, windows(c, lambda i: i >= first)), experts=deepseek_experts(c)), {**LLAMA, **MOE, **SHARED}


def hy_v3(c: Settings) -> Entry:
    names = {"router_bias": _M + "e_score_correction_bias"}
    return each(llama(c), experts=deepseek_experts(c, c.router_scaling_factor)), {**LLAMA, **MOE, **SHARED, **names}


def afmoe(c: Settings) -> Entry:
    s = llama(
        c, windows(c, every(c.get("global_attn_every_n_layers", 4))), embed_scale=c.hidden_size**0.5 if c.mup_enabled else 1.0
    )
    names = {"attn_out": "layers.{i}.post_attention_layernorm", "mlp_in": "layers.{i}.pre_mlp_layernorm",
             "mlp_out": "layers.{i}.post_mlp_layernorm", "head_gate": _A + "gate_proj", "router": _M + "router.gate",
             "router_bias": _M + "expert_bias"}  # fmt: skip
    s = each(s, experts=deepseek_experts(c, c.route_scale), rope=lambda i: FULL if s.layers[i].window else None)
    return s, {**LLAMA, **MOE, **SHARED, **names}


def laguna(c: Settings) -> Entry:
    heads, s = c.get("num_attention_heads_per_layer") or (), llama(c, windows(c, lambda i: False), gate="softplus")
    if set(heads) - {s.heads}:
        raise Unknown("layers with several numbers of heads")
    c.get("gating")  # a number a head or one for each of its numbers: the tensor shows it
    e = replace(deepseek_experts(c, c.get("moe_routed_scaling_factor", 1.0)), renormalised=True, epsilon=0.0)
    return each(s, experts=e), {**LLAMA, **MOE, **SHARED, "head_gate": _A + "g_proj"}


def latent(c: Settings) -> Entry:
    still, moving, value = c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim
    r, scale = ropes(c)[FULL], (still + moving) ** -0.5
    if r.get("rope_type", "default") != "default" and r.get("mscale_all_dim") and r["factor"] > 1:
        scale *= (0.1 * r["mscale_all_dim"] * math.log(r["factor"]) + 1.0) ** 2
    s = llama(c, kv_heads=c.num_attention_heads, head=still + moving, value=value, scale=scale, rotary=moving, rotary_at=still,
              pairs="sorted" if c.get("rope_interleave", True) else "", latent=(c.kv_lora_rank, still, moving, value))  # fmt: skip
    c.get("q_lora_rank")  # tensors show it
    names = {"q_down": _A + "q_a_proj", "q_up": _A + "q_b_proj", "q_latent": _A + "q_a_layernorm", "kv_up": _A + "kv_b_proj",
             "kv_down": _A + "kv_a_proj_with_mqa", "kv_latent": _A + "kv_a_layernorm"}  # fmt: skip
    return s, {**without(LLAMA, "q", "k"), **names, "wq": _A + "q_proj", "wk": "", "wv": ""}


def deepseek_v3(c: Settings) -> Entry:
    s, names = latent(c)
    return each(s, experts=deepseek_experts(c)), {**names, **MOE, **SHARED}


def axk1(c: Settings) -> Entry:
    s, names = deepseek_v3(c)
    return s, {**names, "mlp_out": _M + "post_mlp_layernorm"}


def deepseek_v2(c: Settings) -> Entry:
    (s, names), grouped = latent(c), c.topk_method == "group_limited_greedy"
    if not grouped and c.topk_method != "greedy":
        raise Unknown(f"experts chosen by {c.topk_method}")
    c.get("norm_topk_prob"), c.get("n_group"), c.get("topk_group")  # the module does not normalise
    e = Experts(experts(c), c.num_experts_per_tok, renormalised=False, scale=c.get("routed_scaling_factor", 1.0), scores="one",
                groups=c.get("n_group", 1) if grouped else 1, top_groups=c.get("topk_group", 1) if grouped else 1)  # fmt: skip
    return each(s, experts=e), {**names, **MOE, **SHARED}


def minicpm3(c: Settings) -> Entry:
    s, names = latent(c)
    s = replace(s, embed_scale=c.scale_emb, embed_rounded=True, residual=c.scale_depth / math.sqrt(len(s.layers)), pairs="")
    return replace(s, logit_scale=c.dim_model_base / c.hidden_size), names


FAMILIES: dict[str, Callable[[Settings], Entry]] = {
    **dict.fromkeys(("llama", "seed_oss", "internlm3"), plain),
    **dict.fromkeys(("qwen2", "qwen3"), qwen),
    **dict.fromkeys(("ernie4_5", "helium"), interleaved),
    **dict.fromkeys(("granitemoe", "granitemoeshared"), granite_moe),
    **dict.fromkeys(("deepseek_v3", "glm4_moe_lite"), deepseek_v3),
    "mistral": one_window, "ministral": ministral, "ministral3": ministral3, "smollm3": smollm3, "granite": granite, "granite_swa": granite_swa,
    "hyperclovax": hyperclovax, "gemma": gemma, "gemma2": gemma2, "gemma3_text": gemma3, "vaultgemma": vaultgemma, "phi3": phi3,
    "glm": glm, "glm4": glm4, "cohere": cohere, "cohere2": cohere2, "cohere2_moe": cohere2_moe, "starcoder2": starcoder2,
    "stablelm": stablelm, "olmo": olmo, "olmo2": olmo2, "olmo3": olmo3, "exaone4": exaone4, "exaone_moe": exaone_moe, "bitnet": bitnet,
    "arcee": ungated, "jais2": jais2, "apertus": apertus, "nanochat": nanochat, "nemotron": nemotron, "hunyuan_v1_dense": hunyuan,
    "diffllama": diffllama, "phi": phi, "persimmon": persimmon, "gpt_neox": gpt_neox, "gpt2": gpt2, "gpt_bigcode": gpt_bigcode,
    "gptj": gptj, "codegen": codegen, "biogpt": biogpt, "opt": opt, "falcon": falcon, "mixtral": mixtral, "phimoe": phimoe,
    "minimax_m2": minimax_m2, "qwen2_moe": qwen2_moe, "qwen3_moe": qwen_moe, "olmoe": olmoe, "flex_olmo": flex_olmo,
    "gpt_oss": gpt_oss, "ernie4_5_moe": ernie4_5_moe, "hunyuan_v1_moe": hunyuan_moe, "glm4_moe": glm4_moe, "solar_open": solar_open,
    "dots1": dots1, "hy_v3": hy_v3, "afmoe": afmoe, "laguna": laguna, "youtu": latent, "axk1": axk1, "deepseek_v2": deepseek_v2,
    "minicpm3": minicpm3,
}  # fmt: skip

WITHOUT = {
    "gemma4_text": "embeddings for each layer, and heads of several sizes",
    "doge": "a mask that depends on the states",
    "mimo_v2_flash": "layers with several numbers of heads of keys",
    "xglm": "positions that are computed and stand in no file",
    "gpt_neox_japanese": "a bias of the last layer under a name of its own",
    "dbrx": "a matrix of experts that are joined",
    "jetmoe": "a mixture of attentions",
    "longcat_flash": "two attentions a layer, and experts that do nothing",
    "bloom": "ALiBi",
    "mpt": "ALiBi",
    "llama4_text": "attention in chunks",
    "deepseek_v32": "attention to chosen tokens",
    "mamba": "no attention",
}
"""Families that have no entry, and why: they run as transformers' own modules."""


def shape_of(config: Mapping[str, Any]) -> Entry:
    """The shape of a config (as a dictionary) and the names of its tensors. Raises Unknown for a family without an entry, and for a
    setting that the entry does not know."""
    kind = str(config.get("model_type"))
    if kind not in FAMILIES:
        raise Unknown(WITHOUT.get(kind) or f"there is no entry for {kind}")
    settings = Settings(config)
    entry = FAMILIES[kind](settings)
    for name in settings.unread():
        raise Unknown(f"setting {name} = {config[name]!r}")
    return entry
