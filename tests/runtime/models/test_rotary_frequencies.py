"""Rotary frequencies from a config's settings are those of transformers' functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from lib.lazily import transformers

from decgraph.runtime.models.decoder.rotary import inverse_frequencies
from decgraph.runtime.models.decoder.shape import UnknownToDecoder

FACTORS = some.floats(0.5, 64)


@given(
    kind=some.sampled_from(["linear", "llama3", "yarn"]),
    theta=some.floats(500, 1e7),
    factor=FACTORS,
    first=some.sampled_from([32, 2048, 8192]),
    size=some.sampled_from([8, 64, 128]),
    more=some.fixed_dictionaries(
        {},
        optional={
            "truncate": some.booleans(),
            "attention_factor": some.floats(0.5, 2),
            "mscale": some.floats(0.1, 2),
            "mscale_all_dim": some.floats(0.1, 2),
            "beta_fast": some.floats(8, 64),
            "beta_slow": some.floats(0.5, 4),
        },
    ),
)
def test_the_same_frequencies(kind: str, theta: float, factor: float, first: int, size: int, more: dict[str, Any]) -> None:
    settings = {"rope_type": kind, "rope_theta": theta, "factor": factor, "original_max_position_embeddings": first}
    if kind == "llama3":
        settings |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind == "yarn":
        settings |= more
    config = transformers.LlamaConfig(hidden_size=2 * size, num_attention_heads=2, head_dim=size, max_position_embeddings=65536)
    config.rope_parameters = dict(settings)
    theirs, their_factor = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    mine, factor = inverse_frequencies(settings, size)
    assert torch.allclose(mine.double(), theirs.double(), rtol=2e-6, atol=0) and factor == pytest.approx(their_factor, rel=1e-9)


def test_other_kinds_are_not_guessed() -> None:
    with pytest.raises(UnknownToDecoder, match="longrope"):
        inverse_frequencies({"rope_type": "longrope", "rope_theta": 1e4}, 8)
