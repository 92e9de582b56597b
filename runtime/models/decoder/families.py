"""The families that the decoder knows: from a config to a shape and the names of its tensors. An entry says what differs from
Llama. To add a family: an entry of `FAMILIES`, and a row of tests/architecture_table.py, which compares it with its module.

Names are those of transformers' base module, without the prefix ("model.", "transformer.") that files have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

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
AFTER = {"attn_in": "", "attn_out": "layers.{i}.post_attention_layernorm", "mlp_in": "", "mlp_out": "layers.{i}.post_feedforward_layernorm"}


class Settings(Mapping[str, Any]):
    """A model's config as attributes, which remembers what was read."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config, self.read = dict(config), {"model_type", "architectures"}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self.read.add(name)
        if name not in self._config:
            raise Unknown(f"its config has no {name}")
        return self._config[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or the default where there is none or it is None."""
        self.read.add(name)
        found = self._config.get(name)
        return default if found is None else found

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
    old = {"rope_theta": c.get("rope_theta", 10000.0), **c.get("rope_scaling", {})}
    found = c.get("rope_parameters") or old
    kinds = {k: v for k, v in found.items() if isinstance(v, dict)}
    return kinds or {FULL: found}


def llama(c: Settings, **more: Any) -> Shape:
    """The shape of a config as Llama's is read, with other switches."""
    heads, count = c.num_attention_heads, c.num_hidden_layers
    head = c.get("head_dim") or c.hidden_size // heads
    rope, window = ropes(c), c.get("sliding_window")
    kinds = c.get("layer_types") or ([SLIDING] if window else [FULL]) * count
    if set(kinds) - {FULL, SLIDING}:
        raise Unknown(f"layers of kind {', '.join(sorted(set(kinds) - {FULL, SLIDING}))}")
    layers = tuple(Layer(window if kind == SLIDING else None, kind if kind in rope else FULL) for kind in kinds)
    part = float(rope.get(FULL, {}).get("partial_rotary_factor") or c.get("partial_rotary_factor", 1.0))
    s = Shape(
        width=c.hidden_size,
        heads=heads,
        kv_heads=c.get("num_key_value_heads", heads),
        head=head,
        layers=layers,
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


def windows_if_used(c: Settings) -> Entry:
    s = llama(c)
    return (s if c.get("use_sliding_window", False) else each(s, window=None)), LLAMA


def mistral(c: Settings) -> Entry:
    return each(llama(c), window=c.get("sliding_window")), LLAMA


def no_rope(c: Settings) -> Entry:
    return each(windows_if_used(c)[0], rope=lambda i: FULL if c.no_rope_layers[i] else None), LLAMA


def granite(c: Settings) -> Entry:
    s = llama(c, scale=c.attention_multiplier, embed_scale=c.embedding_multiplier, residual=c.residual_multiplier)
    return replace(s, logit_scale=1 / c.logits_scaling), LLAMA


def gemma(c: Settings) -> Entry:
    act = c.get("hidden_activation") or "gelu_pytorch_tanh"
    return llama(c, offset=1.0, activation=act, embed_scale=c.hidden_size**0.5, embed_rounded=True, tied=c.get("tie_word_embeddings", True)), LLAMA


def gemma2(c: Settings) -> Entry:
    s = replace(gemma(c)[0], scale=c.query_pre_attn_scalar**-0.5, cap=c.get("attn_logit_softcapping"))
    return replace(s, logit_cap=c.get("final_logit_softcapping")), {**LLAMA, **SANDWICH}


def phi3(c: Settings) -> Entry:
    names = {**without(LLAMA, "wq", "wk", "wv", "gate"), "qkv": _A + "qkv_proj", "up": _M + "gate_up_proj"}
    return each(llama(c), window=c.get("sliding_window")), names


def interleaved(c: Settings) -> Entry:
    return llama(c, pairs="kept"), LLAMA


def glm(c: Settings) -> Entry:
    return llama(c, pairs="kept"), {**without(LLAMA, "gate"), "up": _M + "gate_up_proj"}


def glm4(c: Settings) -> Entry:
    names = {"attn_out": "layers.{i}.post_self_attn_layernorm", "mlp_out": "layers.{i}.post_mlp_layernorm"}
    return glm(c)[0], {**glm(c)[1], **names}


def cohere(c: Settings) -> Entry:
    s = llama(c, norm="layer", eps=c.layer_norm_eps, pairs="kept", parallel=True, logit_scale=c.logit_scale)
    return s, without(LLAMA, "mlp_in")


def cohere2(c: Settings) -> Entry:
    s, names = cohere(c)
    return each(s, rope=lambda i: FULL if s.layers[i].window else None), names


def starcoder2(c: Settings) -> Entry:
    s = llama(c, norm="layer", eps=c.norm_epsilon, gated=False)
    return each(s, window=c.get("sliding_window")), {**without(LLAMA, "gate"), "up": _M + "c_fc", "down": _M + "c_proj"}


def stablelm(c: Settings) -> Entry:
    names = {"q": _A + "q_layernorm", "k": _A + "k_layernorm"}
    return llama(c, norm="layer", eps=c.layer_norm_eps, parallel=c.get("use_parallel_residual", False)), {**LLAMA, **names}


def olmo(c: Settings) -> Entry:
    return llama(c, norm="layer", eps=1e-5, unit_norms=True, clip=c.get("clip_qkv")), LLAMA


def olmo2(c: Settings) -> Entry:
    return llama(c, joined_norms=True), without({**LLAMA, **AFTER})


def exaone4(c: Settings) -> Entry:
    s = llama(c)
    return each(s, rope=lambda i: FULL if c.get("sliding_window") is None or s.layers[i].window else None), without({**LLAMA, **AFTER})


def ungated(c: Settings) -> Entry:
    return llama(c, gated=False), without(LLAMA, "gate")


def nemotron(c: Settings) -> Entry:
    return llama(c, norm="layer", eps=c.norm_eps, offset=1.0, gated=False), without(LLAMA, "gate")


def phi(c: Settings) -> Entry:
    names = {"norm": "final_layernorm", "o": _A + "dense", "up": _M + "fc1", "down": _M + "fc2", "q": _A + "q_layernorm", "k": _A + "k_layernorm"}
    return llama(c, norm="layer", eps=c.layer_norm_eps, gated=False, parallel=True), {**without(LLAMA, "gate", "mlp_in"), **names}


def persimmon(c: Settings) -> Entry:
    names = {"norm": "final_layernorm", "qkv": _A + "query_key_value", "o": _A + "dense", "q": _A + "q_layernorm",
             "k": _A + "k_layernorm", "up": _M + "dense_h_to_4h", "down": _M + "dense_4h_to_h"}  # fmt: skip
    s = llama(c, norm="layer", eps=c.layer_norm_eps, gated=False, kv_heads=c.num_attention_heads, qkv="heads")
    return s, {**without(LLAMA, "gate", "wq", "wk", "wv"), **names}


def gpt_neox(c: Settings) -> Entry:
    x = "layers.{i}."
    s = llama(c, norm="layer", eps=c.layer_norm_eps, gated=False, parallel=c.use_parallel_residual, qkv="heads",
              kv_heads=c.num_attention_heads)
    part = ropes(c)[FULL].get("partial_rotary_factor") or c.get("rotary_pct", 0.25)
    return replace(s, rotary=int(s.head * part)), {
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
    return replace(s, kv_heads=1 if c.multi_query else s.heads, qkv="" if c.multi_query else "heads"), {
        k: v for k, v in names.items() if k != "transposed"}  # fmt: skip


def falcon(c: Settings) -> Entry:
    if c.get("alibi", False):
        raise Unknown("ALiBi")
    x, new, heads = "h.{i}.", c.new_decoder_architecture, c.num_attention_heads
    kv = c.num_kv_heads if new else 1 if c.multi_query else heads
    s = llama(c, norm="layer", eps=c.layer_norm_epsilon, activation=c.get("activation", "gelu"), gated=False, kv_heads=kv,
              parallel=new or c.parallel_attn, qkv="groups" if new or not c.multi_query else "")  # fmt: skip
    two = new and c.get("num_ln_in_parallel_attn", 2) == 2
    return s, {
        "embed": "word_embeddings.weight", "norm": "ln_f", "attn_in": x + ("ln_attn" if two else "input_layernorm"),
        "mlp_in": x + ("ln_mlp" if two else "post_attention_layernorm"), "qkv": x + "self_attention.query_key_value",
        "o": x + "self_attention.dense", "up": x + "mlp.dense_h_to_4h", "down": x + "mlp.dense_4h_to_h"}  # fmt: skip


def mixtral(c: Settings) -> Entry:
    return each(mistral(c)[0], experts=Experts(c.num_local_experts, c.num_experts_per_tok)), {**LLAMA, **MOE}


def qwen_moe(c: Settings) -> Entry:
    e = Experts(c.num_experts, c.num_experts_per_tok, renormalised=c.norm_topk_prob)
    shared = {"shared_gate_proj": _M + "shared_expert.gate_proj", "shared_up_proj": _M + "shared_expert.up_proj",
              "shared_down": _M + "shared_expert.down_proj", "shared_gate": _M + "shared_expert_gate"}  # fmt: skip
    return each(windows_if_used(c)[0], experts=e), {**LLAMA, **MOE, **shared}


def olmoe(c: Settings) -> Entry:
    e = Experts(c.num_experts, c.num_experts_per_tok, renormalised=c.norm_topk_prob)
    return each(llama(c, joined_norms=True, clip=c.get("clip_qkv")), experts=e), {**LLAMA, **MOE}


def gpt_oss(c: Settings) -> Entry:
    e = Experts(c.num_local_experts, c.num_experts_per_tok, "topk_softmax", clamp=(c.get("swiglu_alpha", 1.702), c.get("swiglu_limit", 7.0)),
                columns=True, interleaved=True)  # fmt: skip
    return each(llama(c), experts=e), {**LLAMA, **MOE, "sinks": _A + "sinks", "router": _M + "router"}


def deepseek_experts(c: Settings) -> Experts:
    return Experts(c.n_routed_experts, c.num_experts_per_tok, "sigmoid", c.norm_topk_prob, c.n_group, c.topk_group,
                   c.routed_scaling_factor, epsilon=1e-20)  # fmt: skip


def glm4_moe(c: Settings) -> Entry:
    return each(llama(c), experts=deepseek_experts(c)), {**LLAMA, **MOE, **SHARED}


def deepseek_v3(c: Settings) -> Entry:
    still, moving, value = c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim
    r, scale = ropes(c)[FULL], (still + moving) ** -0.5
    if r.get("rope_type", "default") != "default" and r.get("mscale_all_dim") and r["factor"] > 1:
        import math

        scale *= (0.1 * r["mscale_all_dim"] * math.log(r["factor"]) + 1.0) ** 2
    s = llama(c, kv_heads=c.num_attention_heads, head=still + moving, value=value, scale=scale, rotary=moving, rotary_at=still,
              pairs="sorted" if c.get("rope_interleave", True) else "", latent=(c.kv_lora_rank, still, moving, value))  # fmt: skip
    names = {"q_down": _A + "q_a_proj", "q_up": _A + "q_b_proj", "q_latent": _A + "q_a_layernorm", "kv_up": _A + "kv_b_proj",
             "kv_down": _A + "kv_a_proj_with_mqa", "kv_latent": _A + "kv_a_layernorm"}  # fmt: skip
    return each(s, experts=deepseek_experts(c)), {**LLAMA, **MOE, **SHARED, **names}


FAMILIES: dict[str, Callable[[Settings], Entry]] = {
    **dict.fromkeys(("llama", "ministral", "seed_oss", "eurobert"), plain),
    **dict.fromkeys(("qwen2", "qwen3"), windows_if_used),
    **dict.fromkeys(("gemma2", "gemma3_text"), gemma2),
    **dict.fromkeys(("olmo2", "olmo3"), olmo2),
    **dict.fromkeys(("ernie4_5", "helium"), interleaved),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe"), qwen_moe),
    "mistral": mistral, "smollm3": no_rope, "granite": granite, "gemma": gemma, "phi3": phi3, "glm": glm, "glm4": glm4,
    "cohere": cohere, "cohere2": cohere2, "starcoder2": starcoder2, "stablelm": stablelm, "olmo": olmo, "exaone4": exaone4,
    "arcee": ungated, "nemotron": nemotron, "phi": phi, "persimmon": persimmon, "gpt_neox": gpt_neox, "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode, "falcon": falcon, "mixtral": mixtral, "olmoe": olmoe, "gpt_oss": gpt_oss, "glm4_moe": glm4_moe,
    "deepseek_v3": deepseek_v3,
}  # fmt: skip


def shape_of(config: Mapping[str, Any]) -> Entry:
    """The shape of a config (as a dictionary) and the names of its tensors. Raises Unknown for a family without an entry."""
    kind = str(config.get("model_type"))
    if kind not in FAMILIES:
        raise Unknown(f"there is no entry for {kind}")
    return FAMILIES[kind](Settings(config))
