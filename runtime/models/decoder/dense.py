"""Entries of families whose layers have one MLP."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from decgraph.runtime.models.decoder.llama import (
    AFTER,
    LLAMA,
    SANDWICH,
    A,
    Entry,
    M,
    each,
    every,
    family,
    llama,
    ropes,
    two_ropes,
    windows,
    without,
)
from decgraph.runtime.models.decoder.settings import Settings
from decgraph.runtime.models.decoder.shape import FULL, SLIDING, Layer, Shape, UnknownToDecoder


@family("llama", "seed_oss", "internlm3", "eurobert")
def plain(c: Settings) -> Entry:
    return llama(c), LLAMA


MODERN = {
    "embed": "embeddings.tok_embeddings.weight", "embed_norm": "embeddings.norm", "norm": "final_norm",
    "attn_in": "layers.{i}.attn_norm", "mlp_in": "layers.{i}.mlp_norm", "qkv": "layers.{i}.attn.Wqkv",
    "0.attn_in": "", "o": "layers.{i}.attn.Wo", "up": "layers.{i}.mlp.Wi", "down": "layers.{i}.mlp.Wo",
}  # fmt: skip


@family("modernbert")
def modernbert(c: Settings) -> Entry:
    near, of_heads = (
        c.local_attention // 2 + 1,
        ("classifier_pooling", "classifier_activation", "decoder_bias", "sliding_window"),
    )
    for name in (
        *of_heads,
        "cls_token_id",
        "sep_token_id",
        "sparse_pred_ignore_index",
        "initializer_cutoff_factor",
        "global_attn_every_n_layers",
    ):
        c.get(name)  # of heads, or said by `layer_types`
    seen = tuple(near if kind == SLIDING else None for kind in c.layer_types)
    return llama(c, seen, norm="layer", activation=c.hidden_activation, eps=c.norm_eps), MODERN


@family("mistral")
def one_window(c: Settings) -> Entry:
    return each(llama(c), window=c.get("sliding_window")), LLAMA


@family("ministral")
def ministral(c: Settings) -> Entry:
    return llama(c, windows(c, lambda i: True)), LLAMA


@family("ministral3")
def ministral3(c: Settings) -> Entry:
    s = one_window(c)[0]
    r = s.rope[FULL]
    return replace(s, stretch=(r.get("llama_4_scaling_beta") or 0.0, r["original_max_position_embeddings"])), LLAMA


@family("qwen2", "qwen3")
def qwen(c: Settings) -> Entry:
    first, used = c.get("max_window_layers", 0), c.get("use_sliding_window")
    s = llama(c, windows(c, lambda i: i >= first))
    return (s if used else each(s, window=None, rope=FULL)), LLAMA


@family("smollm3")
def smollm3(c: Settings) -> Entry:
    s, n, used = llama(c), c.get("no_rope_layer_interval", 4), c.get("use_sliding_window")
    rotary = c.get("no_rope_layers") or [(i + 1) % n for i in range(len(s.layers))]
    seen = windows(c, lambda i: used and not rotary[i])
    return each(s, rope=lambda i: FULL if rotary[i] else None, window=lambda i: seen[i]), LLAMA


@family("granite")
def granite(c: Settings) -> Entry:
    s = llama(c, scale=c.attention_multiplier, embed_scale=c.embedding_multiplier, residual=c.residual_multiplier)
    return replace(s, logit_scale=1 / c.logits_scaling), LLAMA


@family("granite_swa")
def granite_swa(c: Settings) -> Entry:
    s, seen, thetas = granite(c)[0], windows(c, lambda i: i % 4), c.get("layer_rope_theta")
    if set(thetas or ()) - {0, s.rope[FULL]["rope_theta"]}:
        raise UnknownToDecoder("layers with several rotary frequencies")
    return each(s, window=lambda i: seen[i], rope=lambda i: None if thetas and not thetas[i] else FULL), {
        **LLAMA,
        "sinks": A + "sinks",
    }


@family("hyperclovax")
def hyperclovax(c: Settings) -> Entry:
    names = {"attn_out": "layers.{i}.post_norm1", "mlp_out": "layers.{i}.post_norm2"} if c.get("use_post_norm") else {}
    s = llama(c, embed_scale=c.embedding_multiplier, residual=c.residual_multiplier, logit_scale=c.logits_scaling)
    return replace(s, scale=c.get("attention_multiplier", s.head**-0.5)), {**LLAMA, **names}


@family("gemma")
def gemma(c: Settings, seen: tuple[int | None, ...] = ()) -> Entry:
    act = c.get("hidden_activation") or "gelu_pytorch_tanh"
    c.get("hidden_act")  # gemma's own files say "gelu" here, and mean the other
    return llama(c, seen, offset=1.0, activation=act, embed_scale=c.hidden_size**0.5, embed_rounded=True), LLAMA


@family("gemma2")
def gemma2(c: Settings) -> Entry:
    s = gemma(c, windows(c, every(2)))[0]
    s = replace(s, scale=c.query_pre_attn_scalar**-0.5, cap=c.get("attn_logit_softcapping"))
    return replace(s, logit_cap=c.get("final_logit_softcapping")), {**LLAMA, **SANDWICH}


@family("gemma3_text")
def gemma3(c: Settings) -> Entry:
    pattern = c.get("sliding_window_pattern") or c.get("_sliding_window_pattern", 6)
    s = replace(gemma2(c)[0], layers=llama(c, windows(c, every(pattern))).layers)
    return two_ropes(c, s, c.get("rope_local_base_freq", 10000.0)), {**LLAMA, **SANDWICH}


@family("vaultgemma")
def vaultgemma(c: Settings) -> Entry:
    return gemma2(c)[0], {**LLAMA, "mlp_in": SANDWICH["mlp_in"]}


@family("phi3")
def phi3(c: Settings) -> Entry:
    return one_window(c)[0], {**without(LLAMA, "wq", "wk", "wv", "gate"), "qkv": A + "qkv_proj", "up": M + "gate_up_proj"}


@family("ernie4_5", "helium")
def interleaved(c: Settings) -> Entry:
    return llama(c, pairs="kept"), LLAMA


@family("glm")
def glm(c: Settings) -> Entry:
    return llama(c, pairs="kept"), {**without(LLAMA, "gate"), "up": M + "gate_up_proj"}


@family("glm4")
def glm4(c: Settings) -> Entry:
    names = {"attn_out": "layers.{i}.post_self_attn_layernorm", "mlp_out": "layers.{i}.post_mlp_layernorm"}
    return glm(c)[0], {**glm(c)[1], **names}


@family("cohere")
def cohere(c: Settings, seen: tuple[int | None, ...] = ()) -> Entry:
    s = llama(c, seen, norm="layer", eps=c.layer_norm_eps, pairs="kept", parallel=True, logit_scale=c.logit_scale)
    return s, without(LLAMA, "mlp_in")


@family("cohere2")
def cohere2(c: Settings) -> Entry:
    s, names = cohere(c, windows(c, every(c.get("sliding_window_pattern", 4))))
    return each(s, rope=lambda i: FULL if s.layers[i].window else None), names


@family("starcoder2")
def starcoder2(c: Settings) -> Entry:
    c.only(mlp_type="default", norm_type="layer_norm", scale_attn_weights=True)
    return replace(one_window(c)[0], norm="layer", eps=c.norm_epsilon, gated=False), {
        **without(LLAMA, "gate"),
        "up": M + "c_fc",
        "down": M + "c_proj",
    }


@family("stablelm")
def stablelm(c: Settings) -> Entry:
    names = {"q": A + "q_layernorm", "k": A + "k_layernorm"}
    s = llama(c, norm="layer", eps=c.layer_norm_eps, parallel=c.get("use_parallel_residual", False))
    return s, {**without(LLAMA, *["mlp_in"] * s.parallel), **names}


@family("olmo")
def olmo(c: Settings) -> Entry:
    return llama(c, norm="layer", eps=1e-5, unit_norms=True, clip=c.get("clip_qkv")), without(LLAMA, "q", "k")


@family("olmo2")
def olmo2(c: Settings) -> Entry:
    return llama(c, joined_norms=True), without({**LLAMA, **AFTER})


@family("olmo3")
def olmo3(c: Settings) -> Entry:
    s = llama(c, windows(c, every(4)), joined_norms=True)
    return two_ropes(c, s, c.get("rope_theta")), without({**LLAMA, **AFTER})


def exaone(c: Settings) -> Shape:
    """Layers with windows are rotated; those without are not, unless none has one."""
    s = llama(c, windows(c, every(c.get("sliding_window_pattern", 4))))
    return each(s, rope=lambda i: FULL if c.get("sliding_window") is None or s.layers[i].window else None)


@family("exaone4")
def exaone4(c: Settings) -> Entry:
    return exaone(c), without({**LLAMA, **AFTER})


@family("bitnet")
def bitnet(c: Settings) -> Entry:
    return llama(c), {**LLAMA, "attn_sub": A + "attn_sub_norm", "mlp_sub": M + "ffn_sub_norm"}


@family("arcee")
def ungated(c: Settings) -> Entry:
    return llama(c, gated=False), without(LLAMA, "gate")


@family("jais2")
def jais2(c: Settings) -> Entry:
    return replace(ungated(c)[0], norm="layer", eps=c.layer_norm_eps), without(LLAMA, "gate")


@family("apertus")
def apertus(c: Settings) -> Entry:
    names = {"attn_in": "layers.{i}.attention_layernorm", "mlp_in": "layers.{i}.feedforward_layernorm"}
    return ungated(c)[0], {
        **without(LLAMA, "gate"),
        **names,
        **{key: M + "act_fn." + key for key in ("alpha_p", "alpha_n", "beta", "eps")},
    }


@family("nanochat")
def nanochat(c: Settings) -> Entry:
    s = replace(ungated(c)[0], unit_norms=True, late_norms=True, backward=True, logit_cap=c.get("final_logit_softcapping"))
    return s, {**without(LLAMA, "gate"), "embed_norm": "norm", "up": M + "fc1", "down": M + "fc2"}


@family("nemotron")
def nemotron(c: Settings) -> Entry:
    return llama(c, norm="layer", eps=c.norm_eps, offset=1.0, gated=False), without(LLAMA, "gate")


@family("hunyuan_v1_dense")
def hunyuan(c: Settings) -> Entry:
    return llama(c, late_norms=True), {**LLAMA, "q": A + "query_layernorm", "k": A + "key_layernorm"}


@family("diffllama")
def diffllama(c: Settings) -> Entry:
    s = llama(c)
    start = each(s, difference=lambda i: 0.8 - 0.6 * math.exp(-0.3 * i))
    return replace(start, value=2 * s.head), {
        **LLAMA,
        **{key: A + key for key in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")},
    }


@family("phi")
def phi(c: Settings) -> Entry:
    names = {
        "norm": "final_layernorm",
        "o": A + "dense",
        "up": M + "fc1",
        "down": M + "fc2",
        "q": A + "q_layernorm",
        "k": A + "k_layernorm",
    }
    return llama(c, norm="layer", eps=c.layer_norm_eps, gated=False, parallel=True), {
        **without(LLAMA, "gate", "mlp_in"),
        **names,
    }


@family("persimmon")
def persimmon(c: Settings) -> Entry:
    names = {"norm": "final_layernorm", "qkv": A + "query_key_value", "o": A + "dense", "q": A + "q_layernorm",
             "k": A + "k_layernorm", "up": M + "dense_h_to_4h", "down": M + "dense_4h_to_h"}  # fmt: skip
    s = llama(c, norm="layer", eps=c.layer_norm_eps, gated=False, kv_heads=c.num_attention_heads, qkv="heads")
    return s, {**without(LLAMA, "gate", "wq", "wk", "wv"), **names}


@family("gpt_neox")
def gpt_neox(c: Settings, part: float = 0.25) -> Entry:
    x, base, part = "layers.{i}.", c.get("rotary_emb_base", 10000.0), c.get("rotary_pct", part)
    s = llama(c, norm="layer", eps=c.layer_norm_eps, gated=False, parallel=c.get("use_parallel_residual", False), qkv="heads",
              kv_heads=c.num_attention_heads)  # fmt: skip
    r = {"partial_rotary_factor": part} | s.rope[FULL]
    if not (c.get("rope_parameters") or {}).get("rope_theta"):
        r["rope_theta"] = base
    return replace(s, rope={FULL: r}, rotary=int(s.head * r["partial_rotary_factor"])), {
        "embed": "embed_in.weight", "norm": "final_layer_norm", "attn_in": x + "input_layernorm",
        "mlp_in": x + "post_attention_layernorm", "qkv": x + "attention.query_key_value", "o": x + "attention.dense",
        "up": x + "mlp.dense_h_to_4h", "down": x + "mlp.dense_4h_to_h"}  # fmt: skip


@family("gpt_neox_japanese")
def gpt_neox_japanese(c: Settings) -> Entry:
    s, names = gpt_neox(c, 1.0)
    return s, {**names, "o.b": "layers.{i}.attention.dense_bias"}


@family("gpt2")
def gpt2(c: Settings) -> Entry:
    x, heads = "h.{i}.", c.n_head
    s = Shape(
        width=c.n_embd, heads=heads, kv_heads=heads, head=c.n_embd // heads, layers=(Layer(rope=None),) * c.n_layer,
        vocabulary=c.vocab_size, norm="layer", eps=c.layer_norm_epsilon, activation=c.activation_function, gated=False,
        tied=bool(c.get("tie_word_embeddings")), scale=0.0 if c.get("scale_attn_weights", True) else 1.0)  # fmt: skip
    if c.get("scale_attn_by_inverse_layer_idx", False):
        s = each(s, scale=lambda i: (s.scale or s.head**-0.5) / (i + 1))
    return s, {
        "embed": "wte.weight", "positions": "wpe.weight", "norm": "ln_f", "transposed": "", "attn_in": x + "ln_1",
        "mlp_in": x + "ln_2", "qkv": x + "attn.c_attn", "o": x + "attn.c_proj", "up": x + "mlp.c_fc",
        "down": x + "mlp.c_proj"}  # fmt: skip


@family("gpt_bigcode")
def gpt_bigcode(c: Settings) -> Entry:
    s, names = gpt2(c)
    c.get("num_key_value_heads")
    return replace(s, kv_heads=1 if c.multi_query else s.heads, qkv="" if c.multi_query else "heads"), {
        k: v for k, v in names.items() if k != "transposed"}  # fmt: skip


@family("gpt_neo")
def gpt_neo(c: Settings) -> Entry:
    a, x = "h.{i}.attn.attention.", "h.{i}."
    given = c.get("attention_types", [[["global", "local"], c.num_layers // 2]])
    kinds = [kind for cycle, times in given for _ in range(times) for kind in cycle]
    if len(kinds) != c.num_layers or set(kinds) - {"global", "local"} or c.get("attention_layers", kinds) != kinds:
        raise UnknownToDecoder(f"setting attention_types = {given!r}")
    window = c.get("window_size", 256)
    return Shape(
        width=c.hidden_size, heads=c.num_heads, kv_heads=c.num_heads, head=c.hidden_size // c.num_heads,
        layers=tuple(Layer(window if kind == "local" else None, rope=None) for kind in kinds), vocabulary=c.vocab_size,
        norm="layer", eps=c.layer_norm_epsilon, activation=c.activation_function, gated=False, scale=1.0,
        tied=bool(c.get("tie_word_embeddings"))), {
        "embed": "wte.weight", "positions": "wpe.weight", "norm": "ln_f", "attn_in": x + "ln_1", "mlp_in": x + "ln_2",
        "wq": a + "q_proj", "wk": a + "k_proj", "wv": a + "v_proj", "o": a + "out_proj", "up": x + "mlp.c_fc",
        "down": x + "mlp.c_proj"}  # fmt: skip


@family("gptj")
def gptj(c: Settings) -> Entry:
    x, s = "h.{i}.", gpt2(c)[0]
    c.only(rotary=True)
    rope = {FULL: {"rope_type": "default", "rope_theta": 10000.0}}
    s = replace(each(s, rope=FULL), rope=rope, rotary=c.get("rotary_dim", s.width), pairs="kept", parallel=True)
    if s.rotary > s.head:
        raise UnknownToDecoder("rotary positions of more numbers than a head has")
    return s, {
        "embed": "wte.weight", "norm": "ln_f", "attn_in": x + "ln_1", "wq": x + "attn.q_proj", "wk": x + "attn.k_proj",
        "wv": x + "attn.v_proj", "o": x + "attn.out_proj", "up": x + "mlp.fc_in", "down": x + "mlp.fc_out"}  # fmt: skip


@family("codegen")
def codegen(c: Settings) -> Entry:
    s, names = gptj(c)
    return replace(s, qkv="quarters"), {**without(names, "wq", "wk", "wv"), "qkv": "h.{i}.attn.qkv_proj"}


@family("biogpt")
def biogpt(c: Settings, at: str = "", norm: str = "layer_norm", **more: Any) -> Entry:
    x = at + "layers.{i}."
    s = llama(c, norm="layer", eps=1e-5, gated=False, kv_heads=c.num_attention_heads, position_offset=2, rope={},
              **more or {"embed_scale": c.hidden_size**0.5 if c.get("scale_embedding", True) else 1.0})  # fmt: skip
    c.get("layer_norm_eps")  # the module does not read it
    return each(s, rope=None), {
        "embed": at + "embed_tokens.weight", "positions": at + "embed_positions.weight", "norm": at + norm,
        "attn_in": x + "self_attn_layer_norm", "wq": x + "self_attn.q_proj", "wk": x + "self_attn.k_proj",
        "wv": x + "self_attn.v_proj", "o": x + "self_attn.out_proj", "mlp_in": x + "final_layer_norm", "up": x + "fc1",
        "down": x + "fc2"}  # fmt: skip


@family("opt")
def opt(c: Settings) -> Entry:
    if not c.get("do_layer_norm_before", True) or not c.get("layer_norm_elementwise_affine", True):
        raise UnknownToDecoder("norms without weights, or after the branches and over the sum")
    return biogpt(c, "decoder.", "final_layer_norm", activation=c.activation_function)


@family("falcon")
def falcon(c: Settings) -> Entry:
    if c.get("alibi", False):
        raise UnknownToDecoder("ALiBi")
    x, new, heads = "h.{i}.", c.get("new_decoder_architecture", False), c.num_attention_heads
    many, given, beside = c.multi_query, c.get("num_kv_heads", heads), c.get("parallel_attn", False)
    kv = given if new else 1 if many else heads
    s = llama(c, norm="layer", eps=c.layer_norm_epsilon, activation=c.get("activation", "gelu"), gated=False, kv_heads=kv,
              parallel=new or beside, qkv="groups" if new or not many else "")  # fmt: skip
    two = new and c.get("num_ln_in_parallel_attn", 2) == 2
    after = "ln_mlp" if two else "post_attention_layernorm"
    return s, without({
        "embed": "word_embeddings.weight", "norm": "ln_f", "attn_in": x + ("ln_attn" if two else "input_layernorm"),
        "mlp_in": x + after if two or not s.parallel else "", "qkv": x + "self_attention.query_key_value",
        "o": x + "self_attention.dense", "up": x + "mlp.dense_h_to_4h", "down": x + "mlp.dense_4h_to_h"})  # fmt: skip


@family("youtu")
def latent(c: Settings) -> Entry:
    still, moving, value = c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim
    r, scale = ropes(c)[FULL], (still + moving) ** -0.5
    if r.get("rope_type", "default") != "default" and r.get("mscale_all_dim") and r["factor"] > 1:
        scale *= (0.1 * r["mscale_all_dim"] * math.log(r["factor"]) + 1.0) ** 2
    s = llama(c, kv_heads=c.num_attention_heads, head=still + moving, value=value, scale=scale, rotary=moving, rotary_at=still,
              pairs="sorted" if c.get("rope_interleave", True) else "", latent=(c.kv_lora_rank, still, moving, value),
              )  # fmt: skip
    names = {"q_down": A + "q_a_proj", "q_up": A + "q_b_proj", "q_latent": A + "q_a_layernorm", "kv_up": A + "kv_b_proj",
             "kv_down": A + "kv_a_proj_with_mqa", "kv_latent": A + "kv_a_layernorm"}  # fmt: skip
    direct = ("q_down", "q_up", "q_latent") if c.q_lora_rank is None else ("wq",)
    return s, without({**LLAMA, **names}, "q", "k", "wk", "wv", *direct)


@family("minicpm3")
def minicpm3(c: Settings) -> Entry:
    s, names = latent(c)
    s = replace(s, embed_scale=c.scale_emb, embed_rounded=True, residual=c.scale_depth / math.sqrt(len(s.layers)), pairs="")
    return replace(s, logit_scale=c.dim_model_base / c.hidden_size), names
