"""Backend triton on models that say they are on a GPU: all inputs of kernels are there too, in eager and graph mode."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from far import Elsewhere, Launched, away

from decgraph.api import load
from decgraph.runtime.models.hf_live import from_module
from decgraph.runtime.request import Request
from lab.gpu import lab, tokens
from lab.gpu.sides import masked_session

CPU = torch.device("cpu")
GREEDY = Request((5, 9, 11, 40), limit=5, temperature=0)
DRAWN = Request((5, 9, 11, 40), limit=5, temperature=0.9, top_p=0.95, seed=3)


class Replayed:
    """Stands for a captured turn."""

    def __init__(self, body: Any) -> None:
        self.replay = body


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of a GPU beside its arithmetic."""
    from decgraph.backends.triton.step.program import StepProgram

    properties = SimpleNamespace(multi_processor_count=4, major=9, minor=0, name="far", total_memory=1 << 30)
    for name, value in {
        "mem_get_info": (1 << 30, 1 << 30),
        "get_device_properties": properties,
        "current_device": 0,
        "synchronize": None,
        "get_device_capability": (9, 0),
        "get_device_name": "far",
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value, **__: value)
    monkeypatch.setattr(StepProgram, "captured", lambda self: Replayed(self.step.body))


def session(name: str, place: Any, backend: str) -> Any:
    models = {"target": place(tokens.module("llama", CPU).requires_grad_(False))}
    if name == "speculative":
        models["drafter"] = place(tokens.noisy(tokens.module("llama", CPU)).requires_grad_(False))
    held = {key: from_module(module, name=key) for key, module in models.items()}
    return load(name).session(held, backend=backend, **({"gamma": 2} if name == "speculative" else {}))


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        pytest.param("autoregressive", DRAWN, marks=pytest.mark.slow),
        pytest.param("autoregressive", GREEDY, marks=pytest.mark.nightly),
        pytest.param("speculative", DRAWN, marks=pytest.mark.nightly),  # half a minute each
        pytest.param("speculative", GREEDY, marks=pytest.mark.nightly),
    ],
)
def test_causal_models(name: str, request_: Request) -> None:
    plain = session(name, lambda x: x, "torch").run(request_)
    with Elsewhere(), Launched() as launched:
        there = session(name, away, "triton")
        driven = there.run(request_)
        assert driven.error is None and driven.tokens == plain.tokens and launched.count
        before = launched.count
        stepped = there.run(request_, keep_events=False)
        assert stepped.error is None and stepped.tokens == plain.tokens and launched.count > before


@pytest.mark.slow
def test_masked_models() -> None:
    sizes = {**lab.SIZES["tiny"].masked, "initializer_range": 0.2}
    request = Request((5, 9, 11, 40), limit=8, temperature=1, seed=3)

    def run(module: Any, backend: str, **more: Any) -> Any:
        return masked_session("fast_dllm", module, backend=backend, length=8, block=4, tau=0.3).run(request, **more)

    near, far = (lab.masked(sizes, CPU, torch.float32) for _ in range(2))
    plain = run(near, "torch")
    with Elsewhere(), Launched() as launched:
        far = away(far)
        for events in (True, False):
            before = launched.count
            got = run(far, "triton", keep_events=events)
            assert got.error is None and got.tokens == plain.tokens and launched.count > before
