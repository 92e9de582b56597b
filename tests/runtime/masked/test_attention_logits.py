"""What queries look at, as transformers' own attention weights say it, and the layers of a canvas's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lib.models.masked_models import V, masked, module
from lib.models.tiny import TinyModel

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import MASK, Model
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

REQUEST = Request((5, 9, 2), max_tokens=6, eos=frozenset(), temperature=0)
CELLS = (5, 9, MASK, 2, MASK, 7, 3)


def test_looks_are_the_logarithms_of_attention_up_to_a_constant() -> None:
    """log softmax(q . k) is q . k less a number of the query and the head's, so the means over both differ by one number."""
    model, _ = masked(3)
    assert isinstance(model, HFMasked)
    plain = module(3)
    plain.set_attn_implementation("eager")
    ids = torch.tensor([[model.mask if c is MASK else c for c in CELLS]])
    with torch.no_grad():
        weights = plain(ids, attention_mask=torch.ones_like(ids), output_attentions=True).attentions
    queries = (2, 4, 5)
    for layer, found in enumerate(model.attention_logits(CELLS, queries)):
        want = np.log(weights[layer][0][:, list(queries)].double().numpy()).mean(axis=(0, 1))
        got = np.array(found) * (16 // 4) ** -0.5
        assert np.allclose(got - got.mean(), want - want.mean(), atol=1e-4), layer


def test_a_tiny_models_looks_lead_to_its_attention() -> None:
    """One head: the softmax of what a query attention_logits at weighs the values into the state after attention."""
    model = TinyModel(2, 10, 2, visibility="full", heads_per_layer=1, dim=8)
    columns = model._canvas(CELLS, range(len(CELLS)), None)
    for i in range(len(CELLS)):
        for layer, found in enumerate(model.attention_logits(CELLS, [i])):
            rows = [columns[j].kv[layer] for j in range(len(CELLS))]
            weights = np.exp(np.array(found) / np.sqrt(8))
            values = np.stack([row[1] for row in rows])
            state = columns[i].states[layer]
            want = state + (weights / weights.sum()) @ values @ model._blocks[layer]["o"]
            assert np.allclose(model._attention(layer, i, state, rows), want)


TEXT = """algorithm cuts(model: masked, length: int in 1..64 = 6, kept: int in 0..64 = 0):
    canvas c: length
    while any(c.masked):
        every = range_(0 - ctx.length, len(c.all))
        m = model.memory(c, queries = yes)
        for l in model.layers:
            s = m[l].scores(first(c.all, 2), at = every)
            m[l] = m[l].without(every where rank(s) >= kept)
        b = first(c.all where c.masked, 1)
        p = model(c, at = b, given = m)
        x ~ p
        unmask c[b] with x
    commit c
"""


@pytest.mark.parametrize("table", [True, False], ids=["table", "transformer"])
def test_layers_are_cut_alike_on_both_backends(table: bool) -> None:
    """All kept: what a call without a memory says of the cell. None kept: what the cell alone says."""
    model: Model = TableModel(V, 1, kind="masked", name="model") if table else masked(3)[0]
    for kept in (0, 3, 64):
        found = [
            decgraph.parse(TEXT).session({"model": model}, backend=b, length=6, kept=kept).run(REQUEST)
            for b in ("reference", "torch")
        ]
        assert found[0].error is None and found[0].tokens == found[1].tokens
        cells: list[Any] = [*REQUEST.prompt, *[MASK] * 6]
        for i in range(6):
            at = len(REQUEST.prompt) + i
            memory = model.memory(tuple(cells)).only(range(64) if kept == 64 else ())
            (row,) = model.eval_canvas(tuple(cells), [at], memory)
            if kept != 3:
                assert int(np.argmax(row.to_float().logits)) == found[0].tokens[i]
            cells[at] = found[0].tokens[i]


def test_a_memory_without_queries_says_so() -> None:
    text = """algorithm asks(model: masked, length: int in 1..64 = 4):
    canvas c: length
    m = model.memory(c)
    s = m.scores(c.all)
    p = model(c)
    x ~ p
    unmask c where s <= max(s) with x
    commit c
"""
    model: Model = TableModel(V, 1, kind="masked", name="model")
    result = decgraph.parse(text).run([1, 2], {"model": model}, max_tokens=4)
    assert isinstance(result.error, DecError) and "queries = yes" in str(result.error)


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("m[9] = m[9].without(c.all)", "no layer 9: the memory has 3"),
        ("m[0 - 1] = m[0].without(c.all)", "no layer -1"),
        ("m[0] = m[0].without(first(c.all where m[0].scores(c.all, at = range_(0, 9)) > 0, 1))", "no position 6 here"),
    ],
)
def test_a_layer_or_position_that_is_not_there_is_named(said: str, message: str, backend: str) -> None:
    text = f"""algorithm cuts(model: masked, length: int in 1..64 = 6):
    canvas c: length
    m = model.memory(c, queries = yes)
    {said}
    p = model(c, at = c.all, given = m)
    x ~ p
    unmask c with x
    commit c
"""
    result = decgraph.parse(text).session({"model": masked(3)[0]}, backend=backend, length=6).run(REQUEST)
    assert isinstance(result.error, DecError) and message in str(result.error), result.error
