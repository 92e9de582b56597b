"""Folders of drafting heads in their authors' layouts, with random weights: what the tests write, and then read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from lib.models.hf_models import V

WIDTH, INNER, HEADS, SIZE = 32, 48, 4, 8
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": V,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "num_hidden_layers": 1,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
}
Weights = dict[str, Tensor]


def drawn(shapes: Mapping[str, tuple[int, ...]], seed: int = 0, scale: float = 0.3) -> Weights:
    """Random tensors of these shapes; those of norms are near one."""
    made = torch.Generator().manual_seed(seed)
    out = {name: torch.randn(shape, generator=made) * scale for name, shape in shapes.items()}
    return {name: t + 1 if "norm" in name else t for name, t in out.items()}


def layer(prefix: str, *, kv: int = HEADS, entering: int = WIDTH, mlp: bool = True, norm: bool = True) -> dict[str, Any]:
    """The shapes of a decoder layer."""
    attention = {
        "self_attn.q_proj": (HEADS * SIZE, entering),
        "self_attn.k_proj": (kv * SIZE, entering),
        "self_attn.v_proj": (kv * SIZE, entering),
        "self_attn.o_proj": (WIDTH, HEADS * SIZE),
    }
    rest = {"mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH), "mlp.down_proj": (WIDTH, INNER)}
    norms = {"post_attention_layernorm": (WIDTH,)} if mlp else {}
    norms |= {"input_layernorm": (WIDTH,)} if norm else {}
    return {f"{prefix}{name}.weight": shape for name, shape in {**attention, **(rest if mlp else {}), **norms}.items()}


def written(at: Path, config: Mapping[str, Any], weights: Weights, file: str = "model.safetensors", shards: int = 1) -> Path:
    """A folder with these; several shards have an index."""
    at.mkdir(parents=True)
    (at / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save: Callable[[Any, Any], Any] = save_file if file.endswith(".safetensors") else torch.save
    stem, _, ending = file.rpartition(".")
    if shards == 1:
        save(weights, at / file)
        return at
    places = {name: f"{stem}-{n % shards + 1:05d}-of-{shards:05d}.{ending}" for n, name in enumerate(weights)}
    for place in sorted(set(places.values())):
        save({name: weights[name] for name in weights if places[name] == place}, at / place)
    (at / f"{file}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")
    return at


def eagle1(*, bias: bool = True, embedding: bool = True, kv: int = HEADS) -> tuple[dict[str, Any], Weights]:
    """EAGLE-1 and EAGLE-2."""
    shapes = {"fc.weight": (WIDTH, 2 * WIDTH), **layer("layers.0.", kv=kv, norm=False)}
    shapes |= {"fc.bias": (WIDTH,)} if bias else {}
    shapes |= {"embed_tokens.weight": (V, WIDTH)} if embedding else {}
    return {**LLAMA, "bias": bias}, drawn(shapes, 1, 0.1)


def eagle3(
    *, draft: int = 24, kv: int = HEADS, embedding: bool = False, reads: list[int] | None = None, first: str = "midlayer."
) -> tuple[dict[str, Any], Weights]:
    """EAGLE-3. draft: the size of its vocabulary; the whole one has no maps."""
    shapes = {"fc.weight": (WIDTH, 3 * WIDTH), **layer(first, kv=kv, entering=2 * WIDTH)}
    shapes |= {f"{first}hidden_norm.weight": (WIDTH,), "norm.weight": (WIDTH,), "lm_head.weight": (draft, WIDTH)}
    shapes |= {"embed_tokens.weight": (V, WIDTH)} if embedding else {}
    weights = drawn(shapes, 2)
    if draft < V:
        kept = torch.randperm(V, generator=torch.Generator().manual_seed(3))[:draft].sort().values
        weights["d2t"] = kept - torch.arange(draft)
        weights["t2d"] = torch.zeros(V, dtype=torch.bool).index_fill(0, kept, True)
    config = {**LLAMA, "draft_vocab_size": draft, "num_key_value_heads": kv}
    return (config if reads is None else {**config, "eagle_aux_hidden_state_layer_ids": reads}), weights


def speculators(kind: str, reads: list[int], *, layers: int = 1) -> tuple[dict[str, Any], Weights]:
    """vLLM's folders of EAGLE-3 and P-EAGLE."""
    _, weights = eagle3(first="layers.0.")
    for n in range(1, layers):
        weights |= drawn(layer(f"layers.{n}."), 20 + n)
    config: dict[str, Any] = {"speculators_model_type": kind, "draft_vocab_size": 24, "eagle_aux_hidden_state_layer_ids": reads}
    if kind == "peagle":
        config["mask_token_id"] = 3
        weights |= drawn({"mask_hidden": (1, 1, 3 * WIDTH)}, 4)
    return {**config, "transformer_layer_config": {**LLAMA, "num_hidden_layers": layers}}, weights


def medusa(*, heads: int = 3, blocks: int = 1, prefix: str = "") -> tuple[dict[str, Any], Weights]:
    """Medusa v0.1, or with the prefix `medusa_head.` what v1.0 adds to the target's file."""
    shapes: dict[str, tuple[int, ...]] = {}
    for h in range(heads):
        for b in range(blocks):
            shapes |= {f"{prefix}{h}.{b}.linear.weight": (WIDTH, WIDTH), f"{prefix}{h}.{b}.linear.bias": (WIDTH,)}
        shapes |= {f"{prefix}{h}.{blocks}.weight": (V, WIDTH)}
    return {"medusa_num_heads": heads, "medusa_num_layers": blocks, "base_model_name_or_path": "target"}, drawn(shapes, 5)


def hydra(*, heads: int = 3, blocks: int = 1, prefix: bool = False, kv: int = 2) -> tuple[dict[str, Any], Weights]:
    """Hydra, and Hydra++ with its prefix layer, which has the target's shape; dropout takes up numbers there."""
    shapes: dict[str, tuple[int, ...]] = {"input_embed_fn.weight": (V, WIDTH)}
    step, extra = (2, 1) if prefix else (1, 0)
    for h in range(heads):
        for b in range(blocks):
            at, entering = f"hydra_mlp.{h}.{step * b + extra}.", WIDTH * (h + 2) if b == 0 else WIDTH
            shapes |= {f"{at}linear.weight": (WIDTH, entering), f"{at}linear.bias": (WIDTH,)}
            if b == 0:
                shapes |= {f"{at}res_connection.weight": (WIDTH, entering), f"{at}res_connection.bias": (WIDTH,)}
        last = f"hydra_lm_head.{h}.1." if prefix else f"hydra_lm_head.{h}."
        shapes |= {f"{last}weight": (V, WIDTH), f"{last}bias": (V,)}
    if prefix:
        named = "prefix_embeding_layer."
        shapes |= {
            **layer(f"{named}layers.0.", kv=kv),
            f"{named}norm.weight": (WIDTH,),
            f"{named}embed_tokens.weight": (V, WIDTH),
        }
    arch = "prefix-mlp" if prefix else "mlp"
    config = {"hydra_head_arch": arch, "hydra_num_heads": heads, "hydra_num_layers": blocks, "grounded_heads": True}
    return config, drawn(shapes, 6, 0.2)


def redrafter(*, rnn: bool = True, blocks: int = 2, inner: int = 2 * WIDTH) -> tuple[dict[str, Any], Weights]:
    """ReDrafter, with or without its RNN and its input projection."""
    shapes: dict[str, tuple[int, ...]] = {}
    for b in range(blocks):
        shapes |= {f"lm_head.{b}.linear.weight": (inner, inner), f"lm_head.{b}.linear.bias": (inner,)}
    shapes |= {f"lm_head.{blocks}.weight": (V, inner)}
    if rnn:
        shapes |= {"rnn_u.weight": (WIDTH, WIDTH), "rnn_u.bias": (WIDTH,), "rnn_w.weight": (WIDTH, WIDTH)}
    if inner != 2 * WIDTH:
        shapes |= {"input_proj.weight": (inner, 2 * WIDTH), "input_proj.bias": (inner,)}
    config = {"model_type": "recurrent_drafting_drafter", "hidden_size": WIDTH, "exit_dim": inner, "rnn": rnn,
              "num_draft_layers": blocks, "vocab_size": V}  # fmt: skip
    return config, drawn(shapes, 7, 0.2)


def dflash(*, layers: int = 2, reads: list[int] | None = None) -> tuple[dict[str, Any], Weights]:
    """DFlash as z-lab publishes it: no embedding and no output matrix; `reads` counts outputs of layers."""
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (WIDTH, 2 * WIDTH),
        "hidden_norm.weight": (WIDTH,),
        "norm.weight": (WIDTH,),
    }
    for n in range(layers):
        shapes |= layer(f"layers.{n}.", kv=2)
        shapes |= {f"layers.{n}.self_attn.{name}.weight": (SIZE,) for name in ("q_norm", "k_norm")}
    config = {**LLAMA, "model_type": "qwen3", "architectures": ["DFlashDraftModel"], "num_key_value_heads": 2, "head_dim": SIZE,
              "block_size": 4, "dflash_config": {"mask_token_id": 3, "target_layer_ids": reads or [0, 2]}}  # fmt: skip
    return {**config, "num_hidden_layers": layers}, drawn(shapes, 8)


def kangaroo() -> tuple[dict[str, Any], Weights]:
    """Kangaroo's adapter."""
    return dict(LLAMA), drawn({**layer("layers.0.", mlp=False), "norm.weight": (WIDTH,)}, 9)
