"""Small random models of nine architectures, and cells to run them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

_TINY = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _TINY,
    "qwen2": _TINY,
    "qwen3": {**_TINY, "head_dim": 16},
    "mistral": {**_TINY, "sliding_window": 5, "head_dim": 8},
    "gpt2": {
        "vocab_size": 97,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 64,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "gpt_neox": {**_TINY, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    "opt": {
        **{k: v for k, v in _TINY.items() if k not in ("intermediate_size", "num_key_value_heads")},
        "ffn_dim": 48,
        "word_embed_proj_dim": 32,
    },
    "phi3": {**_TINY, "sliding_window": 6},
    "gemma3_text": {
        **_TINY,
        "head_dim": 8,
        "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
}


@pytest.fixture
def random_model() -> Callable[..., Any]:
    """`random_model("llama", hidden_size=64)`: a causal model with random weights, float32, evaluation mode."""

    def make(name: str, dtype: torch.dtype = torch.float32, **changed: Any) -> Any:
        torch.manual_seed(7)
        config = AutoConfig.for_model(name, **{**CONFIGS[name], **changed})
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager").eval()
        with torch.no_grad():
            for weight in model.parameters():  # norms and biases are ones and zeros: those hide mistakes
                weight.add_(torch.randn_like(weight) * 0.1)
        return model.requires_grad_(False)

    return make


@dataclass
class Caches:
    """Caches of B sequences, S rows, and a step over them. Position and row of a cell are what the test says."""

    step: Any
    keys: list[Tensor]
    values: list[Tensor]

    def run(self, ids: Tensor, positions: Tensor, write: Tensor, sees: Tensor) -> Any:
        """sees: bool[B, T, S]. Windows are applied by the rows' positions, kept here."""
        batch, cells = ids.shape
        for b in range(batch):
            self.at[b, write[b]] = positions[b]
        masks = {"full_attention": sees[:, None]}
        window = next((w for w in self.step.windows if w is not None), None)
        if window is not None:
            near = positions[:, :, None] - self.at[:, None, :] < window
            masks["sliding_attention"] = (sees & near)[:, None]
        return self.step(ids, positions, write, self.keys, self.values, masks)

    def __post_init__(self) -> None:
        self.at = torch.zeros(self.keys[0].shape[0], self.keys[0].shape[2], dtype=torch.long)


@pytest.fixture
def caches() -> Callable[..., Caches]:
    """`caches(step, model, batch, rows)`: caches full of noise, so that reading a row never written shows."""

    def make(step: Any, model: Any, batch: int, rows: int) -> Caches:
        from decgraph.runtime.models.capture.make import layers_of
        from decgraph.runtime.models.capture.record import callings

        _, shapes = callings(model.base_model, layers_of(model.base_model))[0]
        dtype = next(model.parameters()).dtype
        # Views of something larger, as a preallocated cache gives them.
        keys = [torch.randn(batch + 1, h, rows + 3, k, dtype=dtype)[:batch, :, :rows] for h, k, _ in shapes]
        values = [torch.randn(batch + 1, h, rows + 3, v, dtype=dtype)[1:, :, :rows] for h, _, v in shapes]
        return Caches(step, keys, values)

    return make


@pytest.fixture
def own() -> Callable[..., Tensor]:
    """`own(model, ids)`: the unmodified module's last hidden states [n, width] of one path, its own masks, no cache."""

    def run(model: Any, ids: Sequence[int]) -> Tensor:
        with torch.no_grad():
            out: Tensor = model.base_model(input_ids=torch.tensor([list(ids)]), use_cache=False).last_hidden_state
        return out[0]

    return run
