"""`target.attention(...)`: how much attention every position gets is what transformers' eager attention says, on a memory
what a plain transformer computes from its rows, and on the small models shares that add up to one."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lib.models.hf_modules import module
from lib.models.plain_transformer import Plain, Rows, Vector, of_module
from lib.models.tiny import TinyModel

from decgraph.runtime.models import hf
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.table import TableModel

PATH = (3, 17, 5, 44, 9, 60, 2, 31)
LAYERS = 3


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> HFCausal:
    folder: Path = tmp_path_factory.mktemp("models") / "llama"
    module("llama", num_hidden_layers=LAYERS).save_pretrained(folder)
    made = hf.load_causal(folder)
    assert isinstance(made, HFCausal)
    return made


@pytest.mark.parametrize("last", [1, 3, 99])
def test_it_is_what_eager_attention_returns(target: HFCausal, last: int) -> None:
    eager: Any = module("llama", num_hidden_layers=LAYERS)
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        weights = torch.stack(eager(torch.tensor([PATH]), output_attentions=True).attentions)[:, 0]
    want = weights[:, :, -min(last, len(PATH)) :].mean((0, 1, 2))
    for path in (PATH[:5], PATH, PATH):  # what was computed for a shorter text goes on
        got = target.attention(path, None, last)
    assert np.allclose(got, want, atol=1e-5)


class Watched(Plain):
    """A plain transformer that notes the attention weights of every layer's last position."""

    def attention(self, layer: int, position: int, x: Vector, seen: Sequence[tuple[Vector, Vector]]) -> Vector:
        name = f"layers.{layer}"
        query = self.linear(self.norm(x, f"{name}.input_layernorm"), f"{name}.self_attn.q_proj").reshape(self.heads, self.size)
        query = self.rotate(query, position)
        scores = np.array([[q @ key[h // self.groups] for key, _ in seen] for h, q in enumerate(query)]) / np.sqrt(self.size)
        weights = np.exp(scores)
        self.noted[layer] = (weights / weights.sum(1, keepdims=True)).mean(0)
        return super().attention(layer, position, x, seen)


def test_on_a_memory_it_is_that_of_the_rows_that_are_there(target: HFCausal) -> None:
    plain = of_module(module("llama", num_hidden_layers=LAYERS))
    plain.__class__ = Watched
    plain.noted = {}  # type: ignore[attr-defined]
    kept = (0, 2, 3, 6)
    rows: Rows = plain.run(PATH[:-1], range(len(PATH) - 1)).only(kept)
    rows.length = len(PATH) - 1
    plain.run(PATH, [len(PATH) - 1], rows)
    want = np.zeros(len(PATH))
    want[[*kept, len(PATH) - 1]] = np.mean([plain.noted[k] for k in range(LAYERS)], axis=0)  # type: ignore[attr-defined]
    got = target.attention(PATH, target.memory(PATH[:-1]).only(kept))
    assert np.allclose(got, want, atol=1e-4)
    assert derive(target, "exit", 1).attention(PATH) != target.attention(PATH)


@pytest.mark.parametrize("model", [FreeModel(1, 61), TableModel(61, 1), TinyModel(1, 61)], ids=lambda m: type(m).__name__)
def test_the_small_models_give_shares(model: Any) -> None:
    known = model.memory(PATH[:-2]).only((1, 4))
    for given, last, there in ((None, 1, range(8)), (None, 4, range(8)), (known, 1, (1, 4, 6, 7)), (known, 5, (1, 4, 6, 7))):
        shares = model.attention(PATH, given, last)
        assert len(shares) == len(PATH) and all(w >= 0 for w in shares)
        assert sum(shares) == (1 if model.exact else pytest.approx(1))
        assert not model.exact or all(isinstance(w, Fraction) for w in shares if w)
        assert {i for i, w in enumerate(shares) if w} == set(there)
    each = [model.attention(PATH[:n], None, 1) + [0] * (8 - n) for n in (7, 8)]
    assert model.attention(PATH, None, 2) == pytest.approx([float(a + b) / 2 for a, b in zip(*each, strict=True)])
