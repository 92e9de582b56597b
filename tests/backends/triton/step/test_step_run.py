"""The door: machines are decoded on the device and filled as their driver would have; what cannot be is left, with why."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from step_runs import Runs, assert_stats, parameters, requests

from decgraph.backends.registry import machine
from decgraph.backends.torch.machine import TorchMachine
from decgraph.backends.triton.rules import compile
from decgraph.backends.triton.step import run
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session


def machines(runs: Runs, asked: list[Request], **more: Any) -> list[TorchMachine]:
    return [TorchMachine(runs.module, runs.module.main, runs.models, runs.params, r, **more) for r in asked]


def test_machines_are_filled_as_by_the_driver() -> None:
    runs = Runs("speculative")
    asked = [
        *requests(count=2),
        Request(prompt=(1, 2), limit=3, seed=4, repetition_penalty=1.2),
        Request(prompt=(3,), limit=2, seed=4, request_id=8),
    ]
    made = machines(runs, asked)
    left = run.run_steps(made, width=2)
    assert left == [(made[2], "the request has penalties")] and not made[2].committed_tokens()
    driver = Session(runs.module, runs.models, runs.params, machine=machine("torch"))
    for m, request in zip(made, asked, strict=True):
        if m is made[2]:
            continue
        want = driver.run(request, keep_events=False)
        assert (m.committed_tokens(), m.reason) == (want.tokens, want.reason)
        assert_stats(m.tally.stats(), want.stats)
        assert m.stop_state.count == len(want.tokens)
    assert len(run.kept(runs.models["target"]).programs) == 1, "two batches of one program"
    run.forget(runs.models["target"])
    assert not run.kept(runs.models["target"]).programs


def test_rule_kernels_are_generated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    write = compile.write
    monkeypatch.setattr(compile, "write", lambda op, *rest: written.append(op) or write(op, *rest))
    runs = Runs("speculative")
    for asked in (requests(count=2), requests(count=1)):
        assert not run.run_steps(machines(runs, asked))
    assert len(written) <= sum(op.opcode == "tree.walk" for op in runs.module.functions[runs.module.main].body.walk())


def test_models_that_nobody_has_are_gone() -> None:
    runs = Runs("autoregressive")
    assert not run.run_steps(machines(runs, [Request(prompt=(1, 2), limit=1)]))
    target = weakref.ref(runs.models["target"])
    del runs
    gc.collect()
    assert target() is None


def test_what_a_session_keeps_goes_on() -> None:
    runs, asked = Runs("token_recycling"), requests(count=2)
    shared: dict[Any, Any] = {}
    made = machines(runs, asked, shared=shared)
    assert not run.run_steps(made)
    driver = Session(runs.module, runs.models, runs.params, machine=machine("torch"))
    for m, request in zip(made, asked, strict=True):
        want = driver.run(request, keep_events=False)
        assert m.committed_tokens() == want.tokens
        assert_stats(m.tally.stats(), want.stats)
    assert (shared["token_recycling", "next"] == driver.shared["token_recycling", "next"]).all()


def test_what_is_left() -> None:
    runs = Runs("speculative")
    asked = requests(count=1)
    heard = machines(runs, asked, listener=lambda event: None)
    ((m, why),) = run.run_steps(heard)
    assert m is heard[0] and "its listener hears of every draft" in why
    whole: dict[str, Model] = {**runs.models, "target": TableModel(5, 3, name="target")}
    runs.models = whole
    made = machines(runs, asked)
    ((m, why),) = run.run_steps(made)
    assert m is made[0] and "needs a `window`" in why
    runs.models = {**whole, "target": TableModel(5, 3, name="target", window=2, context=9)}
    made = machines(runs, asked)
    assert [why for _, why in run.run_steps(made)] == ["a tree may not fit into the context of 9 tokens"]


def test_requests_that_lose_their_way_are_the_drivers() -> None:
    """The drafter has two tokens of mass, and three different ones are drawn of it: the driver grows two nodes then."""
    runs = Runs("recursive_sd", params=parameters("recursive_sd", shape="3"))
    rows = {(t,): (1, 1, 0, 0, 0) for t in range(5)}
    runs.models["drafter"] = TableModel(5, table={**rows, (): (1, 1, 0, 0, 0)}, window=1, name="drafter")
    made = machines(runs, requests(count=2))
    left = run.run_steps(made)
    assert [m for m, _ in left] == made and not any(m.committed_tokens() for m in made)
    for m, _ in left:
        assert m.run()
