"""Every algorithm of stdlib/ on the torch backend: the reference's tokens, results, ends and events, under requests of every
sort, alone and in a ragged batch, with all passes, with none, and with each one off."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lib.stdlib.requests import ENTER_DEAD_ENDS, GRAMMAR, WORLDS, World, world
from lib.stdlib.table_models import FEW, NAMES

from decgraph.passes.manager import ORDER
from decgraph.passes.plan import Plan
from decgraph.runtime.refused import unread
from decgraph.runtime.request import Request


@pytest.mark.quick("free")
@pytest.mark.parametrize(("seed", "free"), WORLDS, ids=["table", "free"])
@pytest.mark.parametrize("name", NAMES)
def test_commits_what_the_reference_commits(name: str, seed: int, free: bool) -> None:
    w = world(name, seed, free)
    assert all(r.error is None and r.tokens for r in w.wanted), [str(r.error) for r in w.wanted]
    alone = {"without passes": Plan(passes=()), "with all passes": Plan()}
    for how, plan in alone.items():
        w.compare([w.session("torch", plan).run(r) for r in w.requests], how, passes=bool(plan.passes is None))
        w.compare(
            w.session("torch", plan).generate(w.requests, batch=8, keep_events=True),
            f"{how}, in a batch",
            passes=plan.passes is None,
            together=True,
        )
    quiet, heard = (w.session("torch", Plan(passes=())).run(w.requests[0], keep_events=k) for k in (False, True))
    assert quiet.tokens == w.wanted[0].tokens and not quiet.events and quiet.stats == heard.stats
    if free:
        w.compare(
            w.session("torch", Plan()).generate(w.requests, batch=3, keep_events=True),
            "three at a time",
            passes=True,
            together=True,
        )


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("name", NAMES)
def test_grammars(name: str) -> None:
    w = world(name, *WORLDS[0])
    masked = "masked" in w.algorithm.models.values()
    for seed in range(3):
        request = Request(prompt=(1, 2, 3), max_tokens=9, seed=seed, allow=GRAMMAR, temperature=(1, 0, 0.5)[seed])
        if "temperature" in unread(w.algorithm.function):
            request = replace(request, temperature=1)
        want = w.session("reference").run(request)
        for plan in (Plan(passes=()), Plan()):
            got = w.session("torch", plan).run(request)
            assert (got.tokens, got.reason) == (want.tokens, want.reason), (got.error, want.error)
            assert (got.error is None) == (want.error is None), (got.error, want.error)
            assert want.error is None or "constraints leave no token" in str(got.error)
            assert want.error is None or masked or name in ENTER_DEAD_ENDS, want.error


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5, 13))
@pytest.mark.parametrize("name", NAMES)
def test_commits_what_the_reference_commits_in_more_worlds(name: str, seed: int) -> None:
    w = World(name, seed, seed % 2 == 1)
    assert all(r.error is None and r.tokens for r in w.wanted), [str(r.error) for r in w.wanted]
    for plan in (Plan(passes=()), Plan()):
        passes = plan.passes is None
        w.compare([w.session("torch", plan).run(r) for r in w.requests], str(plan.passes), passes=passes)
        w.compare(
            w.session("torch", plan).generate(w.requests, batch=4, keep_events=True),
            "four at a time",
            passes=passes,
            together=True,
        )


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("off", ORDER)
@pytest.mark.parametrize("name", NAMES)
def test_no_pass_changes_a_token(name: str, off: str) -> None:
    w = world(name, *WORLDS[1])
    plan = Plan(passes=tuple(p for p in ORDER if p != off))
    few = w.requests[ORDER.index(off) % 3 :: 3]
    got = {r.request_id: w.session("torch", plan).run(r) for r in few}
    w.compare([got.get(r.request_id, want) for r, want in zip(w.requests, w.wanted)], f"without {off}", passes=True)
