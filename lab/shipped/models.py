"""The shipped models as modules of transformers: their shape, their first weights, and the folders that they are written to."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from lab.shipped import data, loop


def architecture(*, width: int = 256, layers: int = 6, heads: int = 4, inner: int = 704) -> dict[str, Any]:
    """Settings of a configuration over the shipped vocabulary: tied embeddings, rotary positions, 1024 of context."""
    names = {f"{name}_token_id": data.SPECIAL_TOKENS.index(f"<|{name}|>") for name in ("bos", "eos", "pad")}
    return {
        "vocab_size": data.VOCAB_SIZE,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        **names,
    }


def build(seed: int, kind: type[Any], config: Any) -> Any:
    """A fresh model of a class of transformers; the projections back into the residual stream start at zero."""
    torch.manual_seed(seed)
    model = kind(config)
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    return model


def write_outcome(folder: Path, outcome: loop.TrainingOutcome) -> None:
    """training.json beside the weights."""
    (folder / "training.json").write_text(json.dumps(asdict(outcome), indent=2, default=str) + "\n", encoding="utf-8")


def save_model(
    model: Any, folder: Path, weights: dict[str, torch.Tensor], outcome: loop.TrainingOutcome, tokenizer: Any = None
) -> None:
    """Write `model` with `weights`, of its own shapes, as bfloat16 safetensors to `folder`, with training.json and the
    tokenizer.

    `model` is a transformers model; it is not changed.
    """
    copy = type(model)(model.config)
    copy.load_state_dict(weights)
    copy.to(torch.bfloat16).save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    write_outcome(folder, outcome)
