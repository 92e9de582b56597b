"""Everything that a forward reads lies where the model is: on tensors that say they lie on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from far import Elsewhere, Far, away
from hf_modules import module

from decgraph.backends.triton.step.causal import device_model
from decgraph.backends.triton.step.causal_graph import dense_attention
from decgraph.backends.triton.step.table import TableOnDevice
from decgraph.runtime.models.hf_live import from_module
from decgraph.runtime.models.table import TableModel

STEP = {
    "tokens": [[5, 7, 9], [6, 8, 1]],
    "positions": [[3, 4, 4], [1, 2, 3]],
    "bits": [[[1], [3], [5]], [[1], [3], [7]]],
    "held": [3, 1],
    "rows": [[0, 2], [1, 1]],
}


def steps(made: Any) -> torch.Tensor:
    """Two steps with a move between them."""
    t = {name: torch.tensor(value, device=made.device) for name, value in STEP.items()}
    held, bits = t["held"].int(), t["bits"].int()
    made.begin([[1, 2, 3, 4], [5, 6]])
    one = made.forward(t["tokens"] % made.vocab_size, t["positions"], 0, held, bits, t["rows"])
    made.move(held, torch.tensor([[0, 2], [0, 1]], device=made.device), torch.tensor([2, 1], device=made.device).int())
    two = made.forward(t["tokens"][:, :1] % made.vocab_size, t["positions"][:, 1:2], 0, held + 1, bits[:, :1], None)
    return torch.cat([one, two], 1)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gemma2"])
def test_causal_models(kind: str) -> None:
    here = steps(device_model(from_module(module(kind), name=kind), 2, 40, 8, attention=dense_attention))
    with Elsewhere():
        made = device_model(from_module(away(module(kind)), name=kind), 2, 40, 8, attention=dense_attention)
        assert made.device.type == "cuda"
        got = steps(made)
        assert isinstance(got, Far) and torch.allclose(got.inner, here, atol=1e-4)


def test_tables() -> None:
    model = TableModel(7, 1, window=2, heads=2)
    here = steps(TableOnDevice(model, 2, 40, 8))
    with Elsewhere():
        made = TableOnDevice(model, 2, 40, 8, "cuda")
        got = steps(made)
        heads = made.heads(torch.tensor([3, 1], device="cuda"))
        assert isinstance(got, Far) and torch.equal(got.inner, here) and isinstance(heads, Far)
