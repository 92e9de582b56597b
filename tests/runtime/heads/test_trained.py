"""The heads that decgraph trained, loaded without transformers, compute what the classes they were trained with do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import modeling, transformers

from decgraph import zoo
from decgraph.runtime.models.decoder.layers import over
from decgraph.runtime.models.heads import load

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
}


def folders(tmp_path: Path) -> dict[str, Path]:
    """The shipped heads, and random ones of other sizes."""
    torch.manual_seed(5)
    made = {
        "eagle": modeling.EagleHead(modeling.EagleConfig(**SIZES)),
        "exit": modeling.ExitAdapter(modeling.ExitConfig(exit_layer=3, **SIZES)),
        "medusa": modeling.MedusaHeads(modeling.MedusaConfig(hidden_size=32, inner_size=24, heads=3)),
    }
    for name, module in made.items():
        for p in module.parameters():
            p.data.normal_(0, 0.2)
        module.save_pretrained(tmp_path / name)
    return {f"random {name}": tmp_path / name for name in made} | {name: zoo.path(name) for name in made}


def ran(module: Any, states: torch.Tensor) -> torch.Tensor:
    """A head's layers over texts [B, n, width], one by one."""
    return torch.stack([over(module, one, torch.arange(len(one)))[0] for one in states])


@pytest.mark.parametrize("name", ["eagle", "exit", "medusa", "random eagle", "random exit", "random medusa"])
@torch.no_grad()
def test_what_they_compute(name: str, tmp_path: Path) -> None:
    at = folders(tmp_path)[name]
    theirs: Any = transformers.AutoModel.from_pretrained(at, dtype=torch.float64, attn_implementation="eager").eval()
    mine: Any = load.module(load.read(at), at, torch.float64)
    torch.manual_seed(1)
    states = torch.randn(2, 9, theirs.config.hidden_size, dtype=torch.float64)
    if "eagle" in name:
        tokens = torch.randint(theirs.config.vocab_size, (2, 9))
        pairs = [(ran(mine, mine.enter(tokens, states)), theirs(tokens, states))]
    elif "exit" in name:
        pairs = [(ran(mine, states), theirs(states))]
        assert mine.exit_layer == theirs.exit_layer and mine.norm is None
    else:
        pairs = list(zip(mine(states), theirs(states), strict=True))
        assert not mine.own_output
    for ours, other in pairs:
        assert float((ours - other).abs().max()) <= 2e-6 * float(other.abs().max())  # their norms compute in float32
