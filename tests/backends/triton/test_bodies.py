"""Bodies of loops that the host runs, recorded: replays commit what the bodies themselves do. A graph of torch.fx stands for
the CUDA graph, which records without running: what was written while it was traced is put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import decgraph
from decgraph.backends.triton import bodies, graph, program
from decgraph.check.worlds import models_for
from decgraph.runtime.request import Request

SIZES = {"length": 24, "block": 8, "steps": 12}


class Recorded:
    """Records bodies of one program's loops, and counts replays."""

    def __init__(self) -> None:
        self.step: Any = None
        self.replays = 0

    def __call__(self, body: Callable[[], Any], device: torch.device) -> Callable[[], None]:
        made: list[Tensor] = []

        def run() -> list[Tensor]:
            made.clear()
            bodies.flattened(body(), made)
            return made

        held = list(graph.tensors_of(self.step).values())
        before = [t.clone() for t in held]
        recorded = make_fx(run)()
        out = list(made)
        for there, was in zip(held, before, strict=True):
            there.copy_(was)

        def replay() -> None:
            self.replays += 1
            for there, new in zip(out, recorded(), strict=True):
                there.copy_(new)

        return replay


@pytest.mark.parametrize("name", ["llada", "fast_dllm", "klass", "remdm_loop", pytest.param("d2f", marks=pytest.mark.slow)])
def test_replayed_bodies_commit_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, made = Recorded(), program.settle

    def settle(step: Any) -> bool:
        hosted = made(step)
        recorded.step, step.bodies = step, bodies.Bodies(step, recorded) if hosted else None
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
    assert recorded.replays > 10
