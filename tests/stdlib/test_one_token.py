"""Prompts of one token: the context before it is empty, and its memory holds nothing. Every causal algorithm decodes from one,
with equal tokens on the reference and on torch."""

from __future__ import annotations

import pytest
from lib.stdlib.requests import V
from lib.stdlib.sessions import session_of
from lib.stdlib.table_models import SHELF

import decgraph
from decgraph import stdlib
from decgraph.check.worlds import models_for, params_for
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result

CAUSAL = [n for n in SHELF if ": causal" in stdlib.text(n)]  # not lowered: every worker of pytest-xdist collects
READS_A_MEMORY = ("clasp", "kv_evict", "magicdec", "sparse_to_dense", "tandem")
"""Some of those that read the memory of the context before the prompt's token."""


def results(algorithm: decgraph.Algorithm, *, free: bool, **asked: object) -> list[Result]:
    """What the reference does, and torch with all passes."""
    params = params_for(algorithm.function, int(free))
    models = models_for(algorithm.function, V, int(free), free=free)
    request = Request(prompt=(1,), max_tokens=4, seed=5, **asked)  # type: ignore[arg-type]
    return [session_of(algorithm, models, params, backend).run(request) for backend in ("reference", "torch")]


@pytest.mark.quick(*READS_A_MEMORY)
@pytest.mark.parametrize("name", CAUSAL)
def test_a_prompt_of_one_token(name: str) -> None:
    for free in (False, True):
        wanted, got = results(decgraph.load(name), free=free)
        assert wanted.error is None and got.error is None, (wanted.error, got.error)
        assert wanted.tokens
        assert (got.tokens, got.reason) == (wanted.tokens, wanted.reason)


def test_an_empty_memory_holds_nothing() -> None:
    """On the memory of no tokens a call computes the whole path; on another memory it is that memory."""
    algorithm = decgraph.parse(
        "algorithm empty(target: causal):\n"
        "    m = target.memory(ctx.parent)\n"
        "    held = target.memory(prompt[:0], given = m)\n"
        "    while not done:\n"
        "        x ~ target(ctx, given = held.join(m)) as output\n"
        "        commit x\n"
    )
    for free in (False, True):
        for temperature in (0, 1):
            alone = results(decgraph.load("autoregressive"), free=free, temperature=temperature)
            assert [r.tokens for r in results(algorithm, free=free, temperature=temperature)] == [r.tokens for r in alone]
