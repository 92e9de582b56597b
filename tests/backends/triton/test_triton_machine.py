"""The triton machine: which way a run goes, and what happens when steps fail or are interrupted."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tree import python

from decgraph.api import load
from decgraph.backends.triton.kit import sources
from decgraph.backends.triton.step.program import StepProgram
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

ASKED = [Request(prompt=(1, 2, 3)[: i + 1], limit=6, seed=5, request_id=i) for i in range(3)]


def session(backend: str) -> Session:
    return load("autoregressive").session({"target": TableModel(5, 3, window=1)}, backend=backend)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests each batch of steps got."""
    seen: list[int] = []
    run = StepProgram.run

    def watched(self: StepProgram, requests: Any, shared: Any = None) -> Any:
        seen.append(len(requests))
        return run(self, requests, shared)

    monkeypatch.setattr(StepProgram, "run", watched)
    return seen


def test_steps_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, wanted = counted(monkeypatch), [session("torch").run(r) for r in ASKED]
    made = session("triton")
    assert [made.run(r).tokens for r in ASKED] == [w.tokens for w in wanted] and not seen
    got = made.generate(ASKED, batch=2)
    assert [(g.tokens, g.reason, g.stats) for g in got] == [(w.tokens, w.reason, w.stats) for w in wanted] and seen == [2, 1]
    assert made.run(ASKED[2], keep_events=False).tokens == wanted[2].tokens and seen == [2, 1, 1]


def test_steps_that_fail_are_driven_and_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def failing(self: StepProgram, requests: Any, shared: Any = None) -> Any:
        raise RuntimeError("out of shared memory")

    monkeypatch.setattr(StepProgram, "run", failing)
    wanted = [session("torch").run(r).tokens for r in ASKED]
    with caplog.at_level(logging.WARNING, "decgraph"):
        got = session("triton").generate(ASKED)
    assert [g.tokens for g in got] == wanted and not any(g.error for g in got)
    assert "autoregressive failed in graph mode" in caplog.text and "out of shared memory" in caplog.text


def test_an_interrupt_keeps_what_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, over = [0], StepProgram.over

    def interrupted(self: StepProgram) -> bool:
        looks[0] += 1
        if looks[0] == 3:
            raise KeyboardInterrupt
        return over(self)

    wanted = [session("torch").run(r).tokens for r in ASKED]
    monkeypatch.setattr(StepProgram, "over", interrupted)
    made = session("triton")
    got = made.generate(ASKED)
    assert [g.reason for g in got] == ["interrupted"] * 3
    assert all(0 < len(g.tokens) < len(w) and g.tokens == w[: len(g.tokens)] for g, w in zip(got, wanted, strict=True))
    assert [g.tokens for g in made.generate(ASKED)] == wanted, "the session is usable"


def test_sources_name_lines_of_the_program() -> None:
    made = sources(load("speculative").optimised())
    assert "rejection" in made and any("draw" in name for name in made)
    assert all("@triton.jit" in text and ".dec:" in text for text in made.values())


def test_a_library_that_is_not_there_is_named() -> None:
    text = python(
        "import sys; sys.modules['triton'] = None\nfrom decgraph import DecError\n"
        "from decgraph.backends.registry import machine\n"
        "try:\n    machine('triton')\nexcept DecError as error:\n    print(error)"
    )
    assert "backend triton needs triton, which is not installed" in text and "pip install" in text
