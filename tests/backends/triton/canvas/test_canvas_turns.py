"""Turns of canvas loops can be captured: nothing is read back in one, and replays do what running them would."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from canvas_programs import NAMES, hf_model, machines, parameters
from replayed import TapeRecorder
from torch import Tensor
from unread import Unread

from decgraph.backends.triton.step import canvas_run
from decgraph.backends.triton.step.canvas_graphs import write_back
from decgraph.backends.triton.step.canvas_model import HFCanvas
from decgraph.backends.triton.step.canvas_step import CanvasEvaluator
from decgraph.backends.triton.step.canvas_symbols import Symbol
from decgraph.runtime.request import Request


def requests(count: int, shift: int = 0, **more: Any) -> list[Request]:
    prompts = ((1, 2), (2, 0, 1, 1), (2,))
    return [
        Request(**{"prompt": prompts[i], "limit": 20, "seed": 7 + i + shift, "request_id": i, **more}) for i in range(count)
    ]


def tokens(name: str, asked: list[Request], params: dict[str, Any]) -> list[tuple[int, ...]]:
    ms = machines(name, hf_model(), params, asked)
    for m in ms:
        m.run()
    return [m.committed_tokens() for m in ms]


def lasting(e: CanvasEvaluator) -> list[Tensor]:
    """Everything of an evaluator that a turn may write to."""
    out = [e.bad, *e.calls.values(), *(t for kept in e._buffers.values() for t in kept)]
    for model in e.models.values():
        assert isinstance(model, HFCanvas)
        out += [t for t in (model._scratch, model._store.block if model._store is not None else None) if t is not None]
    return out


@pytest.mark.parametrize("name", NAMES)
def test_replays_are_runs(name: str) -> None:
    """Three runs of three sequences, with other seeds each: in the first every kind of turn is run, in the second captured."""
    params = parameters(name, length=8, block=4, tau=0.3, steps=4)
    found: list[CanvasEvaluator] = []
    recorder = TapeRecorder(lambda: lasting(found[0]))
    records = []
    for shift in range(3):
        asked = requests(3, 100 * shift)
        ms = machines(name, hf_model(), params, asked)
        e = canvas_run.evaluator_for(ms, 1, recorder)
        found[:] = [e]
        canvas_run.begin(e, ms)
        canvas_run.run_body(e, ms[0])
        canvas_run.finish(e, ms)
        assert [m.committed_tokens() for m in ms] == tokens(name, asked, params)
        records.append(recorder.records)
    assert records[2] == records[1] <= 5
    assert recorder.replays > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_turn_reads_nothing_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only flags and, at the end, the canvases come back."""
    reads: list[int] = []
    look = CanvasEvaluator._look

    def looked(self: CanvasEvaluator, active: Tensor) -> tuple[bool, bool]:
        with torch.utils._python_dispatch._disable_current_modes():
            reads.append(1)
            return look(self, active)

    monkeypatch.setattr(CanvasEvaluator, "_look", looked)
    params = parameters(name, length=8, block=4, tau=0.3, steps=4)
    asked = requests(2)
    ms = machines(name, hf_model(), params, asked)
    e = canvas_run.evaluator_for(ms)
    canvas_run.begin(e, ms)
    with Unread():
        canvas_run.run_body(e, ms[0])
    (ran, _) = canvas_run.finish(e, ms)
    assert len(reads) == ran.reads <= ran.iterations + 2 * 2 + 1
    assert name not in ("llada", "dream", "dream_confidence", "dream_margin", "dream_origin") or not reads


@pytest.mark.parametrize("symbols", [False, True])
def test_carried_values_may_change_places(symbols: bool) -> None:
    """Each of three tensors becomes the next; what is yet to be computed reads them before any is overwritten."""
    a, b, c = (torch.full((2, 3), n) for n in (1, 2, 3))
    wanted = [(b, a), (c, b), (a, c)]
    if symbols:
        wanted = [(Symbol.leaf(b) * 10, a), (Symbol.leaf(c), b), (Symbol.leaf(a), c)]
    write_back(wanted)
    assert [int(t[0, 0]) for t in (a, b, c)] == ([20, 3, 1] if symbols else [2, 3, 1])


def test_what_is_kept_goes_with_the_model() -> None:
    """Caches and captured turns are remembered on the model, and copies of it do not share them."""
    model = copy.copy(hf_model())
    model.__dict__.pop("_canvas_evaluators", None)
    params = parameters("fast_dllm", length=8, block=4, tau=0.3)
    (m,) = machines("fast_dllm", model, params, requests(1))
    e = canvas_run.evaluator_for([m])
    assert canvas_run.evaluator_for([m]) is e
    other = copy.copy(model)
    (n,) = machines("fast_dllm", other, params, requests(1))
    assert canvas_run.evaluator_for([n]) is not e
    gone = weakref.ref(e)
    del e, m, n, model, other
    gc.collect()
    assert gone() is None


def test_prompts_of_one_length_and_of_several_are_captured_apart() -> None:
    """Both have the width of the longest; only the second has padding that is seen by nobody."""
    params = parameters("fast_dllm", length=8, block=4, tau=0.3)
    found: list[CanvasEvaluator] = []
    recorder = TapeRecorder(lambda: lasting(found[0]))
    for turn, prompts in enumerate([((1, 2, 3), (4, 5, 6))] * 3 + [((1, 2, 3), (4,))] * 3):
        asked = [Request(prompt=p, limit=20, seed=7 + turn, request_id=i) for i, p in enumerate(prompts)]
        ms = machines("fast_dllm", hf_model(), params, asked)
        e = canvas_run.evaluator_for(ms, 1, recorder)
        found[:] = [e]
        canvas_run.begin(e, ms)
        canvas_run.run_body(e, ms[0])
        canvas_run.finish(e, ms)
        assert [m.committed_tokens() for m in ms] == tokens("fast_dllm", asked, params)
    assert recorder.replays > 0
