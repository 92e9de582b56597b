"""The triton machine: which way a run goes, and what happens when steps fail or are interrupted."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tree import python

from decgraph import DecError
from decgraph.api import load
from decgraph.backends.triton import placement
from decgraph.backends.triton.kit import sources
from decgraph.backends.triton.step import canvas_run, captured, program
from decgraph.backends.triton.step.program import StepProgram
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from decgraph.runtime.trace import Commits, Stopped

ASKED = [Request(prompt=(1, 2, 3)[: i + 1], limit=6, seed=5, request_id=i) for i in range(3)]


def session(backend: str) -> Session:
    return load("autoregressive").session({"target": TableModel(5, 3, window=1)}, backend=backend)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests each batch of steps got."""
    seen: list[int] = []
    run = StepProgram.run

    def watched(self: StepProgram, requests: Any, *more: Any) -> Any:
        seen.append(len(requests))
        return run(self, requests, *more)

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
    def failing(self: StepProgram, requests: Any, *more: Any) -> Any:
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


def test_a_listener_to_commits_hears_every_token_once_in_graph_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each look at the device, also where the driver has to run a request again."""
    seen, wanted = counted(monkeypatch), [session("torch").run(r) for r in ASKED]
    made = session("triton")
    for request, want in zip(ASKED, wanted, strict=True):
        heard: list[Any] = []
        got = made.run(request, listener=Commits(heard.append), keep_events=False)
        assert got.tokens == want.tokens and got.mode == "graph mode" and got.events == []
        *told, last = heard
        assert [t for e in told for t in e.tokens] == list(want.tokens) and len(told) > 1 and last == Stopped(want.reason)
    assert seen == [1] * len(ASKED)
    for items in (made.stream(ASKED[0], commits_only=True), (i for _, i in made.stream_many(ASKED[:1], commits_only=True))):
        *told, result = items
        assert result.mode == "graph mode" and [t for e in told[:-1] for t in e.tokens] == list(result.tokens)

    over, looks = StepProgram.over, [0]

    def failing(self: StepProgram) -> bool:
        looks[0] += 1
        if looks[0] == 4:
            raise RuntimeError("the device went away")
        return over(self)

    monkeypatch.setattr(StepProgram, "over", failing)
    heard = []
    got = made.run(ASKED[0], listener=Commits(heard.append), keep_events=False)
    assert got.mode == "eager mode: the device went away" and got.tokens == wanted[0].tokens
    assert [t for e in heard[:-1] for t in e.tokens] == list(got.tokens)


def test_eager_mode_says_why() -> None:
    made = session("triton")
    assert "every draft" in made.run(ASKED[0]).mode
    assert "penalties" in made.run(replace(ASKED[0], repetition_penalty=1.2), keep_events=False).mode
    assert session("torch").run(ASKED[0]).mode == ""


def test_a_consumer_that_stops_early_ends_a_run_in_graph_mode() -> None:
    made = session("triton")
    items = made.stream(replace(ASKED[0], limit=40), commits_only=True)
    first = next(items)
    items.close()
    assert made.run(ASKED[0], keep_events=False).tokens[: len(first.tokens)] == first.tokens


def test_compiled_kernels_do_not_read_a_model_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to do is said before anything runs, whatever the request."""
    made = load("autoregressive").session(backend="triton")
    monkeypatch.setattr(placement, "interpreted", lambda: False)
    with pytest.raises(DecError, match="`target` lies on the CPU") as told:
        made.run(ASKED[0])
    assert "--device cuda" in told.value.hint and "TRITON_INTERPRET=1" in told.value.hint


def test_a_graph_that_recorded_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the model is not on the device that is captured: replaying it would never end."""
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "device", lambda *_: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: None))
    monkeypatch.setattr(captured, "_side", lambda _: (None, SimpleNamespace(id=None)))
    monkeypatch.setattr(captured, "warm", lambda iteration, _: iteration())
    for module in (canvas_run, program):
        monkeypatch.setattr(module, "captures", lambda _: True)
    masked = TableModel(3, 1, kind="masked", name="model")
    for made in (session("triton"), load("fast_dllm").session({"model": masked}, backend="triton", length=5, block=5, tau=1)):
        got = made.run(replace(ASKED[1], limit=8), keep_events=False)
        assert got.reason == "error" and "recorded nothing" in str(got.error)


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
