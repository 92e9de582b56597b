"""Entries of families with mixtures of experts."""

from __future__ import annotations

from dataclasses import replace

from decgraph.runtime.models.decoder.dense import cohere, exaone, granite, hunyuan, latent, one_window
from decgraph.runtime.models.decoder.llama import (
    AFTER,
    LLAMA,
    MOE,
    SHARED,
    A,
    Entry,
    M,
    each,
    every,
    family,
    llama,
    windows,
    without,
)
from decgraph.runtime.models.decoder.settings import Settings
from decgraph.runtime.models.decoder.shape import FULL, Experts, UnknownToDecoder

COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def experts(c: Settings, *names: str) -> int:
    """How many experts there are, by the family's names of it. Raises UnknownToDecoder where layers differ in it, and where
    another family's name of it says something else."""
    count = c.one_of(*names)
    if not isinstance(count, int) or count != c.one_of(*COUNTS):
        raise UnknownToDecoder("several numbers of experts")
    return count


@family("mixtral")
def mixtral(c: Settings) -> Entry:
    return each(one_window(c)[0], experts=Experts(experts(c, "num_local_experts", "num_experts"), c.num_experts_per_tok)), {
        **LLAMA,
        **MOE,
    }


@family("phimoe")
def phimoe(c: Settings) -> Entry:
    e = Experts(experts(c, "num_local_experts"), c.num_experts_per_tok, "sparse_mixer", jitter=c.router_jitter_noise)
    s = replace(one_window(c)[0], norm="layer")
    return each(s, experts=e), {**LLAMA, **MOE, "router": M + "router"}


@family("minimax_m2")
def minimax_m2(c: Settings) -> Entry:
    s = llama(c, joined_norms=True)
    if dim := c.get("rotary_dim"):
        s = replace(s, rotary=dim % s.head, rope={FULL: s.rope[FULL] | {"partial_rotary_factor": dim / s.head}})
    e = Experts(experts(c, "num_local_experts", "num_experts"), c.num_experts_per_tok, "sigmoid")
    return each(s, experts=e), {**LLAMA, **MOE, "router_bias": M + "e_score_correction_bias"}


@family("granitemoe", "granitemoeshared")
def granite_moe(c: Settings) -> Entry:
    e, x = Experts(experts(c, "num_local_experts"), c.num_experts_per_tok, "topk_softmax"), "layers.{i}.block_sparse_moe."
    return each(granite(c)[0], experts=e), {
        **LLAMA, "router": x + "router", "experts_up": x + "experts.gate_up_proj", "experts_down": x + "experts.down_proj",
        "shared_up": "layers.{i}.shared_mlp.input_linear", "shared_down": "layers.{i}.shared_mlp.output_linear"}  # fmt: skip


def qwen_moe(c: Settings, *names: str) -> Entry:
    """What Qwen's mixtures share; names: of the number of experts."""
    e = Experts(experts(c, *names), c.num_experts_per_tok, renormalised=bool(c.get("norm_topk_prob")))
    shared = {"shared_gate_proj": M + "shared_expert.gate_proj", "shared_up_proj": M + "shared_expert.up_proj",
              "shared_down": M + "shared_expert.down_proj", "shared_gate": M + "shared_expert_gate"}  # fmt: skip
    return each(llama(c), experts=e, window=c.get("sliding_window") if c.get("use_sliding_window") else None), {
        **LLAMA,
        **MOE,
        **shared,
    }


@family("qwen3_moe")
def qwen3_moe(c: Settings) -> Entry:
    return qwen_moe(c, "num_local_experts", "num_experts")


@family("qwen2_moe")
def qwen2_moe(c: Settings) -> Entry:
    s, names = qwen_moe(c, "num_experts")
    first, used = c.get("max_window_layers", 0), c.get("use_sliding_window")
    seen = windows(c, lambda i: (i + 1) % 2 and i < first)
    return each(s, window=lambda i: seen[i] if used else None), names


@family("olmoe")
def olmoe(c: Settings) -> Entry:
    e = Experts(experts(c, "num_experts"), c.num_experts_per_tok, renormalised=bool(c.get("norm_topk_prob")))
    return each(llama(c, joined_norms=True, clip=c.get("clip_qkv")), experts=e), {**LLAMA, **MOE}


@family("flex_olmo")
def flex_olmo(c: Settings) -> Entry:
    return olmoe(c)[0], without({**LLAMA, **MOE, **AFTER})


@family("gpt_oss")
def gpt_oss(c: Settings) -> Entry:
    clamp = c.get("swiglu_alpha", 1.702), c.get("swiglu_limit", 7.0)
    e = Experts(
        experts(c, "num_local_experts", "num_experts"),
        c.num_experts_per_tok,
        "topk_softmax",
        clamp=clamp,
        columns=True,
        interleaved=True,
    )
    return each(llama(c, windows(c, every(2))), experts=e), {**LLAMA, **MOE, "sinks": A + "sinks", "router": M + "router"}


@family("ernie4_5_moe")
def ernie4_5_moe(c: Settings) -> Entry:
    e = Experts(experts(c, "moe_num_experts", "num_experts"), c.one_of("moe_k", "num_experts_per_tok"), epsilon=0.0)
    c.get("moe_norm_min")  # less than the probabilities of the best experts can sum to
    names = {**SHARED, "router_bias": M + "gate.moe_statics.e_score_correction_bias"}
    return each(llama(c, pairs="kept"), experts=e), {**LLAMA, **MOE, **names}


@family("hunyuan_v1_moe")
def hunyuan_moe(c: Settings) -> Entry:
    top = c.one_of("moe_topk", "num_experts_per_tok") if isinstance(c.get("moe_topk", 1), int) else None
    if top is None:
        raise UnknownToDecoder("layers with several numbers of chosen experts")
    shared = {key: name.replace("shared_experts", "shared_mlp") for key, name in SHARED.items() if key != "router_bias"}
    return each(hunyuan(c)[0], experts=Experts(experts(c, "num_experts"), top)), {
        **hunyuan(c)[1],
        **MOE,
        **shared,
        "router": M + "gate.wg",
    }


def sigmoids(c: Settings, *names: str, scale: float | None = None) -> Experts:
    """DeepSeek-V3's experts; names: of their number."""
    scaled: float = c.get("routed_scaling_factor", 1.0) if scale is None else scale
    groups, normed = (c.get("n_group", 1), c.get("topk_group", 1)), bool(c.get("norm_topk_prob"))
    names = names or ("n_routed_experts", "num_local_experts")
    return Experts(experts(c, *names), c.num_experts_per_tok, "sigmoid", normed, *groups, scaled, epsilon=1e-20)


@family("glm4_moe")
def glm4_moe(c: Settings) -> Entry:
    return each(llama(c), experts=sigmoids(c)), {**LLAMA, **MOE, **SHARED}


@family("solar_open")
def solar_open(c: Settings) -> Entry:
    return glm4_moe(c)[0], without({**LLAMA, **MOE, **SHARED}, "q", "k")


@family("dots1")
def dots1(c: Settings) -> Entry:
    first = c.get("max_window_layers", 0)
    return each(llama(c, windows(c, lambda i: i >= first)), experts=sigmoids(c)), {**LLAMA, **MOE, **SHARED}


@family("hy_v3")
def hy_v3(c: Settings) -> Entry:
    names = {"router_bias": M + "e_score_correction_bias"}
    return each(
        llama(c),
        experts=replace(sigmoids(c, "num_experts", "num_local_experts", scale=c.router_scaling_factor), renormalised=True),
    ), {**LLAMA, **MOE, **SHARED, **names}


@family("afmoe")
def afmoe(c: Settings) -> Entry:
    s = llama(
        c,
        windows(c, every(c.get("global_attn_every_n_layers", 4))),
        embed_scale=c.hidden_size**0.5 if c.get("mup_enabled") else 1.0,
    )
    names = {"attn_out": "layers.{i}.post_attention_layernorm", "mlp_in": "layers.{i}.pre_mlp_layernorm",
             "mlp_out": "layers.{i}.post_mlp_layernorm", "head_gate": A + "gate_proj", "router": M + "router.gate",
             "router_bias": M + "expert_bias"}  # fmt: skip
    s = each(
        s,
        experts=replace(sigmoids(c, "num_experts", scale=c.route_scale), renormalised=True),
        rope=lambda i: FULL if s.layers[i].window else None,
    )
    return s, {**LLAMA, **MOE, **SHARED, **names}


@family("laguna")
def laguna(c: Settings) -> Entry:
    heads, s = c.get("num_attention_heads_per_layer") or (), llama(c, windows(c, lambda i: False), gate="softplus")
    if set(heads) - {s.heads}:
        raise UnknownToDecoder("layers with several numbers of heads")
    e = replace(sigmoids(c, "num_experts", scale=c.get("moe_routed_scaling_factor", 1.0)), renormalised=True, epsilon=0.0)
    return each(s, experts=e), {**LLAMA, **MOE, **SHARED, "head_gate": A + "g_proj"}


@family("deepseek_v3", "glm4_moe_lite")
def deepseek_v3(c: Settings) -> Entry:
    c.only(scoring_func="sigmoid", topk_method="noaux_tc")
    s, names = latent(c)
    return each(s, experts=sigmoids(c)), {**names, **MOE, **SHARED}


@family("axk1")
def axk1(c: Settings) -> Entry:
    s, names = deepseek_v3(c)
    dense = {f"{i}.mlp_out": "" for i, kind in enumerate(c.get("mlp_layer_types") or ()) if kind == "dense"}
    return s, {**names, "mlp_out": M + "post_mlp_layernorm", **dense}


@family("deepseek_v2")
def deepseek_v2(c: Settings) -> Entry:
    c.only(scoring_func="softmax")
    (s, names), grouped = latent(c), c.topk_method == "group_limited_greedy"
    if not grouped and c.topk_method != "greedy":
        raise UnknownToDecoder(f"experts chosen by {c.topk_method}")
    groups, best = c.get("n_group", 1), c.get("topk_group", 1)
    c.get("norm_topk_prob")  # the module does not read it
    e = Experts(experts(c, "n_routed_experts", "num_experts"), c.num_experts_per_tok, renormalised=False, scores="one",
                scale=c.get("routed_scaling_factor", 1.0), groups=groups if grouped else 1,
                top_groups=best if grouped else 1)  # fmt: skip
    return each(s, experts=e), {**names, **MOE, **SHARED}


@family("cohere2_moe")
def cohere2_moe(c: Settings) -> Entry:
    pattern, first = c.get("sliding_window_pattern", 4), c.get("first_k_dense_replace", 0)
    dense = c.prefix_dense_sliding_window_pattern
    s, names = cohere(c, windows(c, lambda i: every(dense)(i) if i < first else every(pattern)(i - first)))
    plain = c.get("mlp_layer_types") or ["dense"] * first
    if c.shared_expert_combination_strategy != "sum" and c.get("num_shared_experts"):
        raise UnknownToDecoder("its shared experts are averaged with the others")
    soft = c.expert_selection_fn == "softmax"
    e = Experts(
        experts(c, "num_experts"),
        c.num_experts_per_tok,
        "topk_softmax" if soft else "sigmoid",
        bool(c.get("norm_topk_prob")) or soft,
    )
    if c.get("rms_norm_eps") is not None:
        s = replace(s, norm="rms", eps=c.rms_norm_eps)
    s = each(s, experts=e, rope=lambda i: FULL if s.layers[i].window or dense == 1 and plain[i : i + 1] == ["dense"] else None)
    return s, {**names, **MOE, **SHARED}


@family("exaone_moe")
def exaone_moe(c: Settings) -> Entry:
    return each(exaone(c), experts=sigmoids(c, "num_experts")), {**LLAMA, **MOE, **SHARED}
