"""What entries are made of: the names of Llama's tensors and the shape of its config, from which each says how it differs.

Names are those of transformers' base module, without the prefix ("model.", "transformer.") that files have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from decgraph.runtime.models.decoder.settings import Settings
from decgraph.runtime.models.decoder.shape import FULL, SLIDING, Layer, Rope, Shape, UnknownToDecoder

Entry = tuple[Shape, dict[str, str]]
A, M = "layers.{i}.self_attn.", "layers.{i}.mlp."
LLAMA = {
    "embed": "embed_tokens.weight", "norm": "norm", "attn_in": "layers.{i}.input_layernorm",
    "wq": A + "q_proj", "wk": A + "k_proj", "wv": A + "v_proj", "o": A + "o_proj", "q": A + "q_norm", "k": A + "k_norm",
    "mlp_in": "layers.{i}.post_attention_layernorm", "gate": M + "gate_proj", "up": M + "up_proj", "down": M + "down_proj",
}  # fmt: skip
MOE = {"router": M + "gate", "experts_up": M + "experts.gate_up_proj", "experts_down": M + "experts.down_proj"}
SHARED = {"router_bias": M + "gate.e_score_correction_bias", "shared_gate_proj": M + "shared_experts.gate_proj",
          "shared_up_proj": M + "shared_experts.up_proj", "shared_down": M + "shared_experts.down_proj"}  # fmt: skip
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


FAMILIES: dict[str, Callable[..., Entry]] = {}
"""Entries: a function of a config's settings to the model's shape and the names of its tensors, by model type."""


def family(*names: str) -> Callable[[Callable[..., Entry]], Callable[..., Entry]]:
    """Says that a function is the entry of these model types."""

    def known(entry: Callable[..., Entry]) -> Callable[..., Entry]:
        FAMILIES.update(dict.fromkeys(names, entry))
        return entry

    return known


def without(names: dict[str, str], *keys: str) -> dict[str, str]:
    """The names but these, and but those that are empty."""
    return {k: v for k, v in names.items() if k not in keys and v}


def ropes(c: Settings) -> dict[str, Rope]:
    """Rotary settings by kind of layer, of old configs and new ones."""
    theta, part, scaled = c.get("rope_theta", 10000.0), c.get("partial_rotary_factor"), c.get("rope_scaling")
    found = dict(scaled or c.get("rope_parameters") or {})
    kinds = {k: v for k, v in found.items() if isinstance(v, dict)} or {FULL: found}
    return {
        kind: rotary(c, {"rope_theta": theta} | ({} if part is None else {"partial_rotary_factor": part}) | r)
        for kind, r in kinds.items()
    }


def rotary(c: Settings, r: Rope) -> Rope:
    """Rotary settings in the form of new configs. Raises UnknownToDecoder for frequencies that change with a text's length."""
    kind, original = r.get("rope_type") or r.get("type") or "default", c.get("original_max_position_embeddings")
    if kind == "longrope" or kind == "dynamic" and not r.get("alpha"):
        raise UnknownToDecoder(f"rotary frequencies of kind {kind}, which change with the length of a text")
    if kind in ("llama3", "yarn"):
        original = original or r.get("original_max_position_embeddings") or c.max_position_embeddings
        r = r | {"original_max_position_embeddings": original}
    return {"rope_type": kind} | {k: v for k, v in r.items() if k not in ("type", "rope_type", "max_position_embeddings")}


def windows(c: Settings, sliding: Callable[[int], object]) -> tuple[int | None, ...]:
    """The window of each layer. sliding: which layers have one where the config does not list their kinds."""
    window, count = c.get("sliding_window") or None, c.num_hidden_layers
    if window is not None and (type(window) is not int or window < 1):
        raise UnknownToDecoder(f"setting sliding_window = {window!r}")
    kinds = (c.get("layer_types") or [SLIDING if sliding(i) else FULL for i in range(count)])[:count]
    if set(kinds) - {FULL, SLIDING}:
        raise UnknownToDecoder(f"layers of kind {', '.join(sorted(set(kinds) - {FULL, SLIDING}))}")
    return tuple(window if kind == SLIDING else None for kind in kinds)


def every(pattern: int) -> Callable[[int], object]:
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


def two_ropes(c: Settings, s: Shape, theta: float) -> Shape:
    """Layers with windows have frequencies of their own, which old configs do not list: these are not scaled."""
    if SLIDING in s.rope:
        return s
    return each(
        replace(s, rope=s.rope | {SLIDING: {"rope_type": "default", "rope_theta": theta}}), rope=lambda i: s.layers[i].kind
    )


def each(s: Shape, **more: Any) -> Shape:
    """The same change of every layer; a value may be a function of its number."""
    changed = [{k: v(i) if callable(v) else v for k, v in more.items()} for i in range(len(s.layers))]
    return replace(s, layers=tuple(replace(layer, **change) for layer, change in zip(s.layers, changed, strict=True)))
