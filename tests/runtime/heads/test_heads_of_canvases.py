"""Heads on the states of a whole canvas: distributions for its cells, and values."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from lib.models.tiny import TinyModel
from lib.repository import ROOT
from torch import Tensor, nn

import decgraph
from decgraph.ir.data.hidden import states_value
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.interface import MASK
from decgraph.runtime.models.reading import AnyScores
from decgraph.runtime.models.table import TableModel

MODELS = ROOT / "tests" / "fidelity" / "golden" / "dllm" / "models"
V = 5
SMALL: dict[str, Any] = {
    "table": lambda: TableModel(V, 3, kind="masked"),
    "free": lambda: FreeModel(6, V, 2, visibility="full"),
    "tiny": lambda: TinyModel(6, V, 2, visibility="full"),
}


def masked(name: str) -> Any:
    return decgraph.masked(MODELS / name, shift=name.endswith("_shift"), visibility="full")


def told(program: str, models: Any, backend: str, prompt: tuple[int, ...] = (1, 2), **params: Any) -> tuple[int, ...]:
    done = decgraph.load(program).run(prompt, models=models, backend=backend, max_tokens=8, params={"length": 8, **params})
    assert done.error is None
    return done.tokens


@pytest.mark.parametrize("name", [*SMALL, "llama_bidir", "qwen2_bidir_shift"])
def test_scores_are_made_of_the_states(name: str) -> None:
    model = SMALL[name]() if name in SMALL else masked(name)
    cells, at = (1, 2, MASK, 3, MASK, MASK), [5, 2, 3]
    rows = model.eval_canvas(cells, at)
    for state, row in zip(model.canvas_states(cells, at), rows, strict=True):
        np.testing.assert_allclose(
            model.read_state(states_value([state], ())).to_float().logits, row.to_float().logits, atol=1e-4
        )


@pytest.mark.parametrize("name", SMALL)
def test_what_stands_in_for_a_sampler_is_the_model_itself(name: str) -> None:
    """Then the cells after the first of a call are those that the call was surest of, as in LLaDA's sampler."""
    many = told("joint_sampler", {"model": masked("llama_bidir")}, "torch", k=4, block=8) if name == "table" else ()
    assert many == (told("llada", {"model": masked("llama_bidir")}, "torch", steps=2, block=8) if many else ())
    model = SMALL[name]()
    for backend in ("reference", "torch"):
        one = told("joint_sampler", {"model": model, "sampler": AnyScores(model)}, backend, k=1, block=4)
        assert one == told("static_masked", {"model": model}, backend, block=4)


@pytest.mark.parametrize("name", ["table", "free"])
def test_a_sampler_is_asked_alike_on_both_backends(name: str) -> None:
    texts = set()
    for seed in range(4):
        made = [SMALL[name]() for _ in range(2)]
        samplers = [AnyScores(m, seed) for m in made]
        a, b = (
            told("joint_sampler", {"model": m, "sampler": s}, backend, k=4, block=8)
            for m, s, backend in zip(made, samplers, ("reference", "torch"), strict=True)
        )
        assert a == b and samplers[0].asked.keys() == samplers[1].asked.keys()
        texts.add(a)
    assert len(texts) > 1


class Layer(nn.Module):
    """Attends over all cells, each with the token that it holds by now."""

    asked: ClassVar[list[tuple[Tensor, Tensor]]] = []

    def __init__(self, width: int, vocab: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.token, self.mix, self.out = nn.Embedding(vocab, width), nn.Linear(width, width), nn.Linear(width, vocab)

    def forward(self, states: Tensor, tokens: Tensor) -> Tensor:
        self.asked.append((states, tokens))
        made: Tensor = self.out(torch.tanh(self.mix(states + self.token(tokens)).cumsum(0)))
        return made


def test_a_module_gets_the_states_of_the_call_and_the_tokens_since() -> None:
    found = {}
    for backend in ("reference", "torch"):
        model = masked("llama_bidir")
        Layer.asked.clear()
        layer = Layer(model.embedding.shape[1], model.vocab.size)
        text = told("joint_sampler", {"model": model, "sampler": layer}, backend, prompt=(5, 6, 7), k=4, block=8)
        found[backend] = (text, torch.stack([t for _, t in Layer.asked]), torch.stack([s for s, _ in Layer.asked]))
    (a, tokens, states), (b, tokens_, states_) = found.values()
    assert a == b and tokens.tolist() == tokens_.tolist()
    assert [(row != 127).sum() for row in tokens] == [1, 2, 3, 5, 6, 7]  # of eight cells, two calls
    torch.testing.assert_close(states, states_, atol=1e-4, rtol=1e-3)
    assert (states[0] == states[2]).all() and not (states[0] == states[3]).all()
