"""Flights of requests on the triton machine over table models, and what is seen of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from decgraph.api import load
from decgraph.backends.registry import machine
from decgraph.backends.triton.program import Program
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from lib.stdlib.table_models import V


def session(backend: str, name: str = "autoregressive", **params: Any) -> Session:
    models: dict[str, Model] = {"target": TableModel(V, 3, window=2), "drafter": TableModel(V, 4, window=1, name="drafter")}
    algorithm = load(name)
    return algorithm.session({n: m for n, m in models.items() if n in algorithm.models}, backend=backend, **params)


def filled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(start, count) of every prompt's part that a table is filled with from now on."""
    from decgraph.backends.triton.models.table import PathModel

    seen: list[tuple[int, int]] = []
    fill = PathModel.fill
    monkeypatch.setattr(PathModel, "fill", lambda m, lane, tokens, *at: seen.append(at) or fill(m, lane, tokens, *at))
    return seen


def flown(sessions: list[Session], asked: list[Request], **settings: Any) -> list[Any]:
    """Results of requests of several sessions in one flight, as a server has them."""
    results: dict[int, Any] = {}
    began = [s.begin(r) for s, r in zip(sessions, asked, strict=True)]

    def ended(number: int, _: Any, problem: BaseException | None) -> None:
        results[number] = sessions[number].ended(began[number], problem)

    flight = machine("triton").schedule(ended, **settings)  # type: ignore[attr-defined]
    for number, run in enumerate(began):
        flight.join(number, run.machine)
    while flight.advance():
        pass
    return [results[n] for n in range(len(asked))]


def made_with(patch: pytest.MonkeyPatch, change: Callable[[Program], None]) -> None:
    """Programs are changed when they have been made."""
    init = Program.__init__
    patch.setattr(Program, "__init__", lambda made, *args: init(made, *args) or change(made))
