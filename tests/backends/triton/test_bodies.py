"""Bodies of loops that the host runs, recorded: replays commit what the bodies themselves do. A graph of torch's
operations stands for the CUDA graph: what was written by a run that stands for a capture is put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

import decgraph
from decgraph.backends.triton import program
from decgraph.backends.triton.bodies import Bodies
from decgraph.backends.triton.graph import tensors_of
from decgraph.backends.triton.replay import Replayed
from decgraph.backends.triton.state import Step
from decgraph.check.worlds import models_for
from decgraph.runtime.request import Request

SIZES = {"length": 24, "block": 8, "steps": 12}


class Recorded(Replayed):
    """A recorded body. replays: of all of them."""

    replays = 0

    def __init__(self, body: Callable[[], list[Tensor]], step: Step) -> None:
        held = list(tensors_of(step).values())
        before = [t.clone() for t in held]
        try:
            body()  # a capture, which writes nothing
        finally:
            for there, was in zip(held, before, strict=True):
                there.copy_(was)
        super().__init__(body, step, step.device)

    def __call__(self) -> None:
        Recorded.replays += 1
        super().__call__()


@pytest.mark.parametrize("name", ["llada", "fast_dllm", "klass", "remdm_loop", pytest.param("d2f", marks=pytest.mark.slow)])
def test_replayed_bodies_commit_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, Recorded.replays = program.settle, 0

    def settle(step: Step) -> Any:
        hosted = made(step)
        step.bodies = Bodies(step, Recorded) if hosted else None
        return hosted

    monkeypatch.setattr(program, "settle", settle)
    algorithm = decgraph.load(name)
    params = {k: v for k, v in SIZES.items() if k in {p.name for p in algorithm.function.params}}
    models = models_for(algorithm.function, 7, 3)
    runs = [
        [
            algorithm.session(models, backend=backend, **params).run(
                Request((1, 2, 3), max_tokens=24, temperature=t, seed=5), keep_events=False
            )
            for t in (0, 1)
        ]
        for backend in ("reference", "triton")
    ]
    for want, got in zip(*runs, strict=True):
        assert got.mode == "graph mode" and got.tokens == want.tokens
        assert got.stats.target_calls == want.stats.target_calls
    assert Recorded.replays > 10
