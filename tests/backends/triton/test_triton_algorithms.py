"""Every algorithm of stdlib/ on the triton backend, its kernels in Triton's interpreter: the reference's tokens, results, ends
and events, under requests of every sort, eager mode and, where a step can run on the device, by steps."""

from __future__ import annotations

import pytest
from lib.stdlib.requests import ENTER_DEAD_ENDS, GRAMMAR, WORLDS, world
from lib.stdlib.table_models import FEW, NAMES

from decgraph.passes.plan import Plan
from decgraph.runtime.request import Request

SOME = (0, 1, 2, 4, 6)
"""Sampled, greedy, truncated and penalised, constrained with ends, with stop strings."""


@pytest.mark.quick(("eagle2", "free"), ("fast_dllm_factor", "free"))
@pytest.mark.parametrize(("seed", "free"), WORLDS, ids=["table", "free"])
@pytest.mark.parametrize("name", NAMES)
def test_commits_what_the_reference_commits(name: str, seed: int, free: bool) -> None:
    w = world(name, seed, free)
    plan = Plan() if free else Plan(passes=())
    got = {r.request_id: w.session("triton", plan).run(r) for r in w.requests if r.request_id in SOME}
    w.compare([got.get(r.request_id, want) for r, want in zip(w.requests, w.wanted)], "in kernels", passes=free)


@pytest.mark.nightly
@pytest.mark.parametrize(("seed", "free"), WORLDS, ids=["table", "free"])
@pytest.mark.parametrize("name", NAMES)
def test_all_requests_alone_and_in_a_batch(name: str, seed: int, free: bool) -> None:
    w = world(name, seed, free)
    for plan in (Plan(passes=()), Plan()):
        passes = plan.passes is None
        w.compare([w.session("triton", plan).run(r) for r in w.requests], "in kernels", passes=passes)
        w.compare(
            w.session("triton", plan).generate(w.requests, batch=8, keep_events=True),
            "in a batch",
            passes=passes,
            together=True,
        )


@pytest.mark.quick(*FEW[:2])
@pytest.mark.parametrize("name", NAMES)
def test_grammars(name: str) -> None:
    w = world(name, *WORLDS[0])
    masked = "masked" in w.algorithm.models.values()
    for seed in range(2):
        request = Request(prompt=(1, 2, 3), max_tokens=7, seed=seed, allow=GRAMMAR, temperature=(1, 0)[seed])
        want = w.session("reference").run(request)
        got = w.session("triton", Plan()).run(request)
        assert (got.tokens, got.reason) == (want.tokens, want.reason), (got.error, want.error)
        assert want.error is None or "constraints leave no token" in str(got.error)
        assert want.error is None or masked or name in ENTER_DEAD_ENDS, want.error
