"""How often a run waits for the device: counted where values come back, compared with a step's calls and with the report."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

import decgraph
from decgraph.api import load as load_algorithm
from decgraph.backends.registry import machine
from decgraph.backends.torch import transfer
from decgraph.backends.torch.ops.selection import best_tokens
from decgraph.check.worlds import models_for
from decgraph.passes.placement import waits
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

ROOM = Path(decgraph.__file__).parent.parent / "backends" / "torch"
HOSTED = {"shaping.py": {"softmax", "total"}, "transfer.py": {"fetched"}}
"""Functions that read tensors where these are known to be on the CPU."""


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor counts as one on a device."""
    monkeypatch.setattr(transfer, "HOST", "another")


def run(name: str, params: dict[str, Any], batch: int = 0, **request: Any) -> tuple[list[int], list[Result], Any]:
    """(waits of each run, results, the module)."""
    made: list[Any] = []

    class Watched(machine("torch")):  # type: ignore[misc]
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            made.append(self)

    algorithm = load_algorithm(name)
    module = algorithm.optimised()
    session = Session(module, models_for(algorithm.function, 7, 0), params, machine=Watched)
    asked = [Request(prompt=(1, 2, 3), max_tokens=12, request_id=i, seed=1, **request) for i in range(max(1, batch))]
    results = session.generate(asked, batch=batch) if batch else [session.run(asked[0], keep_events=False)]
    assert all(r.error is None for r in results)
    return [m.syncs for m in made], results, module


@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("temperature", [0, 1])
def test_one_wait_a_token_without_drafts(temperature: int, batch: int, far: None) -> None:
    """The report names two places, the committed tokens and the stop test: both read the one draw that came back."""
    counts, results, module = run("autoregressive", {}, batch, temperature=temperature)
    assert counts == [len(r.tokens) for r in results]
    assert len(waits(module.entry)) == 2


@pytest.mark.parametrize("batch", [0, 4])
def test_greedy_speculation_waits_once_a_model_call(batch: int, far: None) -> None:
    """Of every call one token a row comes back; the walk reads what is on the host by then."""
    counts, results, module = run("speculative", {"gamma": 4}, batch, temperature=0)
    for count, r in zip(counts, results):
        assert count == sum(r.stats.calls.values())
    # the report says the walk and the stop test; a chain of drafts adds one wait a draft, since the next call's token is told
    # to the engine by the host
    steps = results[0].stats.target_calls
    assert counts[0] == steps * (len(waits(module.entry)) - 1) + results[0].stats.draft_calls


def test_sampled_speculation_waits_for_each_test_and_each_draw(far: None) -> None:
    """A draft that is tested reads p[x] and q[x]; a step draws once more at its end."""
    (count,), (result,), _ = run("speculative", {"gamma": 4}, temperature=1)
    s = result.stats
    assert count == s.draft_calls + 2 * sum(s.tested) + s.target_calls


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_masked_step_waits_for_its_draws_and_its_confidences(temperature: int, far: None) -> None:
    """The report: how many pass the test, whether the loop goes on, and the commit; all three read these two."""
    (count,), (result,), module = run("fast_dllm", {"length": 12, "block": 6}, temperature=temperature)
    assert count == 2 * result.stats.calls["model"]
    assert len(waits(module.entry)) == 3


def test_on_the_cpu_nothing_is_counted() -> None:
    counts, _, _ = run("speculative", {}, temperature=1)
    assert counts == [0]


@pytest.mark.parametrize("k", [1, 2, 5])
def test_choosing_is_the_same_near_and_far(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    scores = torch.randint(0, 6, (8, 9)).to(torch.float32)  # many ties
    near = best_tokens(scores, k)
    monkeypatch.setattr("decgraph.backends.torch.ops.selection.HOST", "another")
    assert (best_tokens(scores, k) == near).all()
    assert (near == torch.sort(scores, dim=-1, descending=True, stable=True).indices[:, :k].numpy()).all()


def test_values_come_back_through_one_door() -> None:
    """No `.cpu()` or `.numpy()` of a tensor outside of transfer.py, where waits are counted."""
    for path in sorted(ROOM.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inside = {n: f.name for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("cpu", "numpy"):
                assert inside.get(node, "") in HOSTED.get(path.name, ()), f"{path.name}:{node.lineno}: use transfer.fetched"
