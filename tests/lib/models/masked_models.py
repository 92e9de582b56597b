"""Small masked models, each with a plain transformer of its weights, and what the two must agree in."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import Visibility, Vocab
from lib.lazily import make, transformers
from lib.models.plain_transformer import Plain, of_module

V, MASK_ID, CONTEXT = 23, 22, 48


def module(seed: int) -> Any:
    torch.manual_seed(seed)
    sizes = {
        "vocab_size": V,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.3,
    }
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": MASK_ID}
    return transformers.EuroBertForMaskedLM(transformers.EuroBertConfig(**sizes, **ids)).eval()


def masked(seed: int, visibility: Visibility = "full") -> tuple[HFMasked, Plain]:
    of = module(seed)
    named: dict[str, Any] = {"name": "eurobert", "vocab": Vocab("test", V), "family": f"eurobert {seed}"}
    made = HFMasked(make.net_of_module(of), context=CONTEXT, mask=MASK_ID, visibility=visibility, **named)
    return made, of_module(of)


def everybody(visibility: Visibility) -> Any:
    if visibility == "full":
        return lambda i, j: True
    block = visibility[1]
    return lambda i, j: j < (i // int(block) + 1) * int(block)


def close(got: Any, want: Any) -> None:
    got, want = np.delete(np.asarray(got, dtype=np.float64)[:V], MASK_ID), np.delete(want, MASK_ID)
    assert np.allclose(got, want, atol=2e-4, rtol=1e-3), np.abs(got - want).max()


def probabilities(logits: Any) -> Any:
    """The law that a row of logits says, in which the mask has no part."""
    weights = np.exp(logits - np.delete(logits, MASK_ID).max())
    weights[MASK_ID] = 0
    return weights / weights.sum()
