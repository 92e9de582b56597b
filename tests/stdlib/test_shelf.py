"""All of stdlib/, also what the suites of many cases leave out: each algorithm is run on torch as on the reference, alone and
in a ragged batch, with passes and without, on small models and on the shipped ones; and no claim is refuted."""

from __future__ import annotations

from typing import Any

import pytest
from shelf import NAMES, SHELF
from worlds import World

import decgraph
from decgraph.check.validation import outside
from decgraph.models import request_for
from decgraph.passes.plan import Plan

OTHERS = [name for name in SHELF if name not in NAMES]
"""Every other suite of stdlib/ runs NAMES."""
SAMPLE = 10
"""How many of the others `make test` runs; CI runs all."""
WITHOUT_MODELS: dict[str, str] = {"specdec_pp": "a head on the drafter that was trained to judge its drafts"}
"""What no shipped model fits, and what it needs."""


@pytest.mark.quick(first=SAMPLE)
@pytest.mark.parametrize("name", OTHERS)
def test_torch_commits_what_the_reference_commits(name: str) -> None:
    for seed, free in ((0, False), (3, True)):
        w = World(name, seed, free)
        assert all(r.error is None and r.tokens for r in w.wanted), [str(r.error) for r in w.wanted]
        for how, plan in (("without passes", Plan(passes=())), ("with all passes", Plan())):
            passes = plan.passes is None
            w.compare(
                [w.session("torch", plan).run(r) for r in w.requests[seed::2]], how, passes=passes, of=w.requests[seed::2]
            )
            together = w.session("torch", plan).generate(w.requests, batch=8, keep_events=True)
            w.compare(together, f"{how}, in a batch", passes=passes, together=True)


@pytest.mark.quick(first=SAMPLE)
@pytest.mark.parametrize("name", OTHERS)
def test_on_shipped_models(name: str) -> None:
    if name in WITHOUT_MODELS:
        pytest.skip(WITHOUT_MODELS[name])
    algorithm = decgraph.load(name)
    got: dict[str, Any] = {}
    for backend in ("reference", "torch"):
        session = algorithm.session(backend=backend, externs=outside(algorithm.module)["externs"])
        got[backend] = session.run(request_for(session, prompt="def mean(values):\n    ", limit=8, seed=3))
        assert got[backend].error is None, got[backend].error
    assert got["torch"].tokens == got["reference"].tokens
    assert got["torch"].tokens


@pytest.mark.quick(first=SAMPLE)
@pytest.mark.parametrize("name", [n for n in OTHERS if decgraph.load(n).function.claims])
def test_no_claim_is_refuted(name: str) -> None:
    """Two worlds, no mutants: a wrong claim shows soon. `decgraph check --all` proves."""
    report = decgraph.load(name).check(models=2, mutants=False)
    assert report.verdict not in ("refuted", "error"), str(report)


def test_lists_are_of_this_shelf() -> None:
    assert set(NAMES) <= set(SHELF)
    assert set(WITHOUT_MODELS) <= set(OTHERS)
