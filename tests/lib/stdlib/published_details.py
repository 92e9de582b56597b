"""What the tests of published details share: tiny models, distributions of texts, and which call did what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from decgraph.backends.registry import machine
from decgraph.runtime.models.interface import MASK, Model, Scores
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.trace import ModelCall, Remasked, Unmasked
from lib.models.tiny import TinyModel
from lib.stdlib.table_models import module

V = 8
Text = tuple[int, ...]


def run(name: str, models: Mapping[str, Model], prompt: Text, params: Mapping[str, Any], **request: Any) -> Result:
    """A program on the reference, greedily unless the request says otherwise."""
    bound = Session(module(name), models, params, machine=machine("reference"))
    done = bound.run(Request(**{"prompt": prompt, "max_tokens": 12, "temperature": 0, **request}))
    if done.error is not None:
        raise done.error
    return done


class Drawn(TableModel):
    """A causal model over V tokens, each of whose texts has a row of its own; no two of its scores are equal."""

    drawn = 0

    def eval(self, paths: Sequence[Text], memory: Any = None) -> list[Scores]:
        return [Scores(logits=np.random.default_rng([self.drawn, *path]).normal(scale=1.5, size=V)) for path in paths]


def causal(seed: int) -> Drawn:
    """Such a model."""
    made = Drawn(V, seed, name="target")
    made.drawn = seed
    return made


def canvases(seed: int) -> TinyModel:
    """A masked one."""
    return TinyModel(seed, V, 1, visibility="full")


def said(model: Model) -> Callable[[Sequence[int]], np.ndarray]:
    """The distribution of the token after a text."""
    memo: dict[Text, np.ndarray] = {}

    def after(text: Sequence[int]) -> np.ndarray:
        key = tuple(text)
        if key not in memo:
            (row,) = model.eval([key])
            logits = row.to_float().logits
            assert logits is not None
            e = np.exp(logits - logits.max())
            memo[key] = e / e.sum()
        return memo[key]

    return after


def seen(model: Model, prompt: Text, cells: Sequence[int]) -> np.ndarray:
    """The distributions of all cells of a canvas; -1 is a mask."""
    text = (*prompt, *(MASK if c < 0 else c for c in cells))
    rows = model.eval_canvas(text, range(len(prompt), len(text)))
    logits = np.array([r.logits for r in rows])
    e = np.exp(logits - logits.max(-1, keepdims=True))
    out: np.ndarray = e / e.sum(-1, keepdims=True)
    return out


def steps(result: Result, length: int) -> list[list[int]]:
    """The canvas at each call that is followed by a decision, by the run's events."""
    cells, found = [-1] * length, [[-1] * length]
    for event in result.events:
        if isinstance(event, ModelCall) and cells != found[-1]:
            found.append(list(cells))
        if isinstance(event, Unmasked):
            cells[event.position] = event.token
        if isinstance(event, Remasked):
            cells[event.position] = -1
    return [*found, cells]
