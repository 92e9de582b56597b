"""Every program at the ends of every parameter's range, one parameter at a time: it decodes, or the call is refused and the
message names a parameter. Nothing ends in the middle of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lib.stdlib.sessions import session_of

import decgraph
from decgraph import stdlib
from decgraph.api import Algorithm
from decgraph.check.worlds import models_for, params_for
from decgraph.errors import DecError
from decgraph.ir.values import Param
from decgraph.runtime.request import Request

SIZES = (5, 31)
"""Vocabularies: one that is smaller than what most programs choose from, and one that is larger."""
SHAPES = ("1", "16x1", [[n] for n in range(13)])
REQUESTS = (Request(prompt=(1, 2, 3, 1, 2), max_tokens=6, temperature=0), Request(prompt=(2,), max_tokens=4, seed=3))
QUICK = (("token_recycling", "31"), ("tr_jacobi", "5"), ("graft", "5"), ("medusa", "5"))


def values(p: Param) -> tuple[Any, ...]:
    """The ends of a parameter's range; a shape for each way in which one can be extreme."""
    t = p.value.type
    if t.dims:
        return ()
    if t.elem == "prob":
        return (0 if p.low is None else p.low, 1 if p.high is None else p.high)
    named: dict[str, tuple[Any, ...]] = {"bool": (True, False), "topology": SHAPES, "set": ([], [0])}
    return named.get(t.elem, tuple(v for v in (p.low, p.high) if v is not None))


def settings(algorithm: Algorithm) -> Iterator[dict[str, Any]]:
    """Defaults, and defaults with one parameter at an end of its range; what has no default, or one in words that the small
    vocabulary lacks, has some value."""
    f = algorithm.function
    some = params_for(f, 1, vocab=SIZES[0])
    others = [p for p in f.params if p.value.type.elem != "model"]
    base = {p.name: some[p.name] for p in others if not p.has_default or p.value.type.elem == "automaton"}
    yield base
    for p in others:
        for value in values(p):
            yield {**base, p.name: value}


@pytest.mark.budget(18)
@pytest.mark.quick(*QUICK)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", stdlib.names())
def test_it_decodes_or_is_refused_at_the_call(name: str, size: int) -> None:
    algorithm = decgraph.load(name)
    models = models_for(algorithm.function, size, 1, layers=9, heads=5)
    decoded = 0
    for params in settings(algorithm):
        try:
            session = session_of(algorithm, models, params, "torch")
        except DecError as refusal:
            assert any(f"`{p.name}`" in str(refusal) for p in algorithm.function.params), (params, refusal)
            continue
        for request in REQUESTS:
            result = session.run(request, keep_events=False)
            assert result.error is None, (params, str(result.error))
            assert result.tokens, (params, result.reason)
        decoded += 1
    assert decoded
