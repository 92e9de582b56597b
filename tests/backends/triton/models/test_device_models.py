"""Device models give what the models themselves give after every path: ragged lanes, trees, moves, windows, prefixes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hf_modules import logits, module
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from walks import Path, Walk

from decgraph.backends.triton.models import step_model
from decgraph.backends.triton.models.interface import Seen
from decgraph.check.tables import Style, StyledModel
from decgraph.runtime.models.engine.plain import stacked
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.hf_live import from_module
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.models.tiny import TinyModel

CLOSE = {"atol": 3e-4, "rtol": 1e-4}  # of logits of size about 10: sums are taken in another order

TABLES = [
    *(TableModel(4, 11, window=w, zeros=w > 1, heads=2) for w in (0, 1, 2, 3)),
    TableModel(3, 7),
    StyledModel(4, 5, Style(sort="mixed"), heads=2),
    StyledModel(4, 5, Style(window=2), heads=2),
    FreeModel(3, 4),
    TinyModel(3, 5),
]


def exactly(model: Any, made: Any) -> Any:
    def check(paths: list[Path], states: Tensor, lane: int) -> None:
        got = made.read(states)
        assert got.dtype == torch.float64 and torch.equal(got, stacked(model.eval(paths), model.vocab.size)), paths

    return check


@pytest.mark.parametrize("model", TABLES, ids=lambda m: f"{m.name}-{getattr(m, 'window', None)}")
def test_tables_to_the_last_bit(model: Any) -> None:
    made = step_model(model, 3, 40)
    assert made.exact and made.kind == "causal"
    made.keep_states()
    walk = Walk(made, model.vocab.size, 3, exactly(model, made))
    walk.run([1, 2, 6], steps=4)
    if getattr(model, "heads_count", 0):
        ends = torch.tensor([[len(t) - 2, 0] for t in walk.texts])
        got = made.heads(made.states_at(ends))
        for lane, text in enumerate(walk.texts):
            for n, end in enumerate(ends[lane].tolist()):
                assert torch.equal(got[lane, n], stacked(model.heads(tuple(text[: end + 1])), model.vocab.size))


KINDS = ("llama", "qwen2-windows", "gpt2", "gemma2", "gemma3", "gpt_oss", "opt", "granite")


@pytest.mark.parametrize("kind", KINDS)
def test_architectures_over_random_trees(kind: str) -> None:
    of = module(kind)
    made = step_model(from_module(of, name=kind), 3, 60)

    def check(paths: list[Path], states: Tensor, lane: int) -> None:
        got, want = made.read(states), logits(of, paths)
        assert got.dtype == torch.float32 and torch.allclose(got, want, **CLOSE), (got - want).abs().max()

    Walk(made, 61, 3, check).run([1, 9, 4], steps=3)


@pytest.mark.parametrize("kind", ["llama", "qwen2-windows", "gemma3", "opt", "window", "path"])
def test_a_forward_is_a_graph_without_reads(kind: str) -> None:
    """Traced with tensors that have no values, it gives a graph that computes the same."""
    tables = {"window": TableModel(4, 11, window=2), "path": TableModel(4, 11)}
    model: Any = tables.get(kind) or from_module(module(kind), name=kind)
    made = step_model(model, 2, 30)
    for lane, text in enumerate(([1, 2, 3], [3, 1, 0])):
        made.fill(lane, text, 0, 3)

    def step(tokens: Tensor, positions: Tensor, tail: Tensor) -> Tensor:
        seen = Seen(positions[:, :1].expand(-1, 2), tail, positions[:, 0])
        states = made.forward(tokens, positions, positions, seen)
        made.move(positions, positions)
        return made.read(states)

    given = torch.tensor([[1, 2], [3, 0]]), torch.tensor([[3, 4], [3, 4]]), torch.ones(2, 2, dtype=torch.bool).tril()[None]
    graph = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*given)
    names = {str(node.target) for node in graph.graph.nodes}
    assert not {n for n in names if "_local_scalar" in n or "nonzero" in n}, names
    with torch.no_grad():
        assert torch.allclose(graph(*given), step(*given), atol=1e-5)
