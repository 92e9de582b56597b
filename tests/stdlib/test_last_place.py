"""What a program says it decodes as `autoregressive` does, it decodes to the same end: at and around the place where the text
fills the context of its model, where a limit cuts it and where the context does."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.sessions import session_of

import decgraph
from decgraph import stdlib
from decgraph.api import Algorithm
from decgraph.check.worlds import models_for, params_for
from decgraph.dsl.lower import load_text
from decgraph.ir.settings import of_request, settings
from decgraph.ir.values import Claim
from decgraph.runtime.request import Request

V, C = 5, 9
LIMITS = (C - 3, C - 2, C - 1, 100)
"""With a prompt of two tokens: one before the context is full, exactly full, with the one token more that follows from the
last position, and a limit behind the context's end."""
LONGER = {
    "discriminator_guided": "its head reads steps to their last token, which the target never reads",
    "universal_assisted": "the drafter's text is longer in its own tokens than the target's is in the target's",
}
"""Programs of which the other models have no end of context here, and why."""
ONE_TEXT: dict[str, dict[str, Any]] = {
    "adaptive_compute": {"most": 1},
    "arithmetic_sampling": {"n": 1},
    "awrs": {"tries": 1},
    "beam": {"k": 1},
    "beam_patience": {"k": 1, "limit": 100, "patience": 1.0},
    "best_first_beam": {"k": 1},
    "constrained_beam": {"k": 1, "words": []},
    "diverse_beam": {"k": 1, "groups": 1},
    "first_finish": {"n": 1},
    "lattice": {"budget": 1, "k": 1},
    "mbr": {"n": 1},
    "poisson_beam": {"k": 1, "mass": 0.0},
}
"""Searches that keep one text with these parameters: the likeliest tokens one by one, in greedy requests."""


def claimed(name: str) -> list[Claim]:
    """The claims of a program by which its tokens are the target's in greedy requests."""
    entry = load_text(stdlib.text(name), f"stdlib/{name}.dec").entry
    same = (("target", ("param", "target")),)
    return [c for c in entry.claims if c.kind == "refines" and c.spec == "autoregressive" and c.args == same]


NAMED = [n for n in stdlib.names() if "    refines autoregressive(target) " in stdlib.text(n).rpartition("\nalgorithm ")[2]]
"""By their text: to lower them all would take seconds wherever tests are collected."""


def compare(name: str, more: dict[str, Any], backend: str, *, free: bool = True) -> None:
    algorithm: Algorithm = decgraph.load(name)
    f = algorithm.function
    params = {**params_for(f, 1), **more}
    models = models_for(f, V, 1, free=free, context=None if name in LONGER else C)
    models["target"].context = C
    spec = decgraph.load("autoregressive")
    for limit in LIMITS:
        request = Request(prompt=(1, 2), max_tokens=limit, temperature=0)
        got = session_of(algorithm, models, params, backend).run(request)
        want = session_of(spec, {"target": models["target"]}, {}).run(request)
        assert got.error is None, (limit, str(got.error))
        assert got.tokens == want.tokens, (limit, params)
        assert len(want.tokens) == min(limit, C - 1)


@pytest.mark.quick(("first_finish", "reference"), ("mbr", "torch"))
@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("name", ONE_TEXT)
def test_a_search_of_one_text_ends_where_decoding_does(name: str, backend: str) -> None:
    compare(name, ONE_TEXT[name], backend)


@pytest.mark.quick(("speculative", "torch"), ("controlled_decoding", "reference"))
@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("name", NAMED)
def test_what_refines_decoding_ends_where_it_does(name: str, backend: str) -> None:
    f = decgraph.load(name).function
    assert claimed(name)
    for claim in claimed(name):
        compare(name, settings(f, claim.setting, of_request(2, max(LIMITS)))[0] if claim.setting else {}, backend)
