"""All of stdlib/, also what the suites of many cases leave out: each algorithm is run on torch as on the reference, alone and
in a ragged batch, with passes and without, on small models and on the shipped ones; and no claim is refuted."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.requests import World
from lib.stdlib.table_models import NAMES, SHELF

import decgraph
from decgraph.check.validation import outside
from decgraph.models import request_for
from decgraph.passes.plan import Plan

OTHERS = [name for name in SHELF if name not in NAMES]
"""Every other suite of stdlib/ runs NAMES."""
SAMPLE = 10
"""How many of the others `make test` runs; `make slow` runs all on small models, and of what takes longer one in `EVERY`; the
rest runs at night."""
EVERY = 8
PART = [pytest.param(name, marks=pytest.mark.slow if n % EVERY == 0 else pytest.mark.nightly) for n, name in enumerate(OTHERS)]
WITHOUT_MODELS: dict[str, str] = {
    "self_contrast_moe": "a mixture of experts; tests/runtime/test_experts.py runs it on random ones",
    "specdec_pp": "a head on the drafter that was trained to judge its drafts",
}
"""What no shipped model fits, and what it needs."""


@pytest.mark.budget(28)
@pytest.mark.quick(first=SAMPLE)
@pytest.mark.parametrize("name", OTHERS)
def test_torch_commits_what_the_reference_commits(name: str) -> None:
    compare(name, free=OTHERS.index(name) % 2 == 1)


@pytest.mark.nightly
@pytest.mark.parametrize("name", OTHERS)
def test_torch_commits_what_the_reference_commits_in_the_other_world(name: str) -> None:
    compare(name, free=OTHERS.index(name) % 2 == 0)


def compare(name: str, *, free: bool) -> None:
    """All requests in a ragged batch without passes, half of them alone with all passes; on table models or on free ones."""
    w = World(name, 3 if free else 0, free)
    assert all(r.error is None and r.tokens for r in w.wanted), [str(r.error) for r in w.wanted]
    few = w.requests[int(free) :: 2]
    w.compare([w.session("torch", Plan()).run(r) for r in few], "with all passes", passes=True, of=few)
    together = w.session("torch", Plan(passes=())).generate(w.requests, batch=8, keep_events=True)
    w.compare(together, "without passes, in a batch", passes=False, together=True)


@pytest.mark.budget(16)
@pytest.mark.parametrize("name", PART)
def test_on_shipped_models(name: str) -> None:
    if name in WITHOUT_MODELS:
        pytest.skip(WITHOUT_MODELS[name])
    algorithm = decgraph.load(name)
    got: dict[str, Any] = {}
    for backend in ("reference", "torch"):
        session = algorithm.session(backend=backend, externs=outside(algorithm.module)["externs"])
        got[backend] = session.run(request_for(session, prompt="def mean(values):\n    ", max_tokens=6, seed=3))
        assert got[backend].error is None, got[backend].error
    assert got["torch"].tokens == got["reference"].tokens
    assert got["torch"].tokens


@pytest.mark.budget(20)
@pytest.mark.parametrize("name", PART)
def test_no_claim_is_refuted(name: str) -> None:
    """One world, no mutants: a claim that is plainly wrong shows. `decgraph check --all` proves."""
    algorithm = decgraph.load(name)
    report = algorithm.check(models=1, seconds=2)
    assert report.verdict != "refuted", str(report)
    assert not report.faults


def test_lists_are_of_this_shelf() -> None:
    assert set(NAMES) <= set(SHELF)
    assert set(WITHOUT_MODELS) <= set(OTHERS)
