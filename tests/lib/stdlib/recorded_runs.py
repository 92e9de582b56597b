"""Recorded runs on table models, for tests of recordings and of what is drawn of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import decgraph
from decgraph.check.validation import outside
from decgraph.models import request_for
from decgraph.passes.plan import Plan
from decgraph.runtime.models.table import TableAdapter, TableFeatures, TableModel
from decgraph.runtime.recording import Recorder, Recording
from decgraph.runtime.session import Result, Session
from decgraph.runtime.text import detokenizer_of
from decgraph.views.document import Trace

REVOKING = """
algorithm revoking(model: masked, length: int in 1..8 = 4, budget: int in 0..8 = 3):
    canvas c: length
    left = budget
    while any(c.masked):
        p = model(c)
        x ~ p
        unmask c where rank(p.raw[x]) < 1 with x
        if left > 0:
            remask c
            left = left - 1
    commit c
"""
"""Every iteration decides a cell and masks it again, `budget` times; after the first, all calls are answered from memory."""


class Pieces:
    """A tokenizer of a few given pieces; it reads a character as the token that is it, anything else as token 0."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces, self.detokenizer = list(pieces), detokenizer_of(pieces)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.pieces.index(c) if c in self.pieces else 0 for c in text)

    def decode(self, tokens: tuple[int, ...]) -> str:
        return self.detokenizer.text(tokens)

    def token(self, text: str) -> int | None:
        return self.pieces.index(text) if text in self.pieces else None

    def spelled(self, token: int) -> str | None:
        return None


def open_tables(
    name: str, backend: str = "reference", pieces: Sequence[str] = "abc\n", plan: Plan | None = None, **params: Any
) -> Session:
    """A session of an algorithm (a name, or a path) on table models. plan: the passes."""
    algorithm = decgraph.load(name)
    size = len(pieces)
    target = TableModel(size, seed=1, name="target", heads=3)
    made: dict[str, Any] = {}
    for model, kind in algorithm.models.items():
        if kind == "causal":
            made[model] = target if "target" not in made and model == "target" else TableModel(size, seed=2, name=model)
        elif kind == "masked":
            made[model] = TableModel(size, seed=7, kind="masked", name="masked")
        else:
            made[model] = TableFeatures(target, seed=5) if kind == "features" else TableAdapter(target, seed=6)
    externs = outside(algorithm.module)["externs"]
    return algorithm.session(made, tokenizer=Pieces(pieces), backend=backend, plan=plan, externs=externs, **params)


def recorded(session: Session, prompt: str = "ab", **fields: Any) -> tuple[Result, Recording]:
    """A run, and what a recorder heard of it."""
    recorder = Recorder()
    result = session.run(request_for(session, prompt, **{"max_tokens": 12, "temperature": 1.0, **fields}), listener=recorder)
    if result.error is not None:
        raise result.error
    return result, recorder.recording()


def traced(name: str, backend: str = "reference", pieces: Sequence[str] = "abc\n", prompt: str = "ab", **fields: Any) -> Trace:
    """A run to be shown."""
    params = {k: fields.pop(k) for k in list(fields) if k in decgraph.load(name).params}
    session = open_tables(name, backend, pieces, **params)
    result, recording = recorded(session, prompt, **fields)
    algorithm = decgraph.load(name)
    asked = request_for(session, prompt, max_tokens=1)
    return replace(Trace.of(session, asked.prompt, result, recording, source=algorithm.text, path=algorithm.path), params={})
