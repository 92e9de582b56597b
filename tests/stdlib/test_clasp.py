"""CLaSp's choice of layers against the dynamic programme written out, every state from the first layer on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lib.models.tiny import TinyModel

import decgraph
from decgraph.backends.registry import machine
from decgraph.runtime.models.derive import derive
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from decgraph.runtime.trace import Committed, Drafted, ModelCall

LAYERS = 5


def state(model: Any, dropped: frozenset[int], layers: int, path: tuple[int, ...]) -> np.ndarray:
    """The state at the end of a path after so many layers, without those dropped."""
    kept: Any = derive(derive(model, "skip", dropped), "upto", layers) if dropped else derive(model, "upto", layers)
    (row,) = kept.hidden_states([path], model.memory(path[:-1]))
    return np.asarray(row)


def alike(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def chosen(model: Any, skips: int, path: tuple[int, ...]) -> frozenset[int]:
    """The layers to leave out after a path: row j has the best j of those so far."""
    rows: list[frozenset[int]] = [frozenset()]
    for i in range(LAYERS):
        full, before = state(model, frozenset(), i + 1, path), rows
        rows = [frozenset()]
        for j in range(1, min(i + 1, skips) + 1):
            without = before[j - 1] | {i}
            keeps = j < len(before) and alike(state(model, before[j], i + 1, path), full) >= alike(
                state(model, before[j - 1], i, path), full
            )
            rows.append(before[j] if keeps else without)
    return rows[-1]


@pytest.mark.quick(("3", "reference"))
@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("skips", [1, 3])
def test_drafts_are_those_of_the_chosen_layers(skips: int, backend: str) -> None:
    model, algorithm = TinyModel(3, 7, LAYERS, name="target"), decgraph.load("clasp")
    module = algorithm.module if backend == "reference" else algorithm.optimised()
    s = Session(module, {"target": model}, {"skips": skips, "gamma": 2, "eta": 0.0}, machine=machine(backend))
    result = s.run(Request(prompt=(1, 2, 3), max_tokens=3, temperature=0))
    assert result.error is None
    text, drafts, calls = [1, 2, 3], [], 0
    for event in result.events:
        if isinstance(event, Drafted):
            drafts.append(event.token)
        elif isinstance(event, ModelCall):
            calls += ".upto(" in event.model
        elif isinstance(event, Committed):
            small = derive(model, "skip", chosen(model, skips, tuple(text[:-1])))
            wanted = list(text)
            for _ in drafts:
                (row,) = small.eval([tuple(wanted)], model.memory(tuple(text[:-1])))
                wanted.append(int(row.to_float().logits.argmax()))  # type: ignore[union-attr]
            assert drafts == wanted[len(text) :]
            rows = sum(min(i, skips) for i in range(LAYERS))
            assert calls == 1 + LAYERS + rows  # the states entering the first layer, the target's, and each row's
            text += event.tokens
            drafts, calls = [], 0
