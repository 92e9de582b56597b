"""A number becomes a token at `point`, `drawn` and `commit`: what is none is an error there, in a draft the draft's end."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.dsl.lower import load_text
from decgraph.runtime.models.table import TableModel

DRAFT = """draft t:
            grow point(ctx.length)
        verify t by match against target(t)
        commit t.accepted"""
PROGRAMS = {
    "commit": ("commit [ctx.length]", (1,), "2 is no token: the vocabulary has 2 tokens"),
    "negative": ("commit [1 - ctx.length]", (0,), "-1 is no token"),
    "point": (DRAFT, (0, 0, 1, 0), ""),
    "drawn": (
        "xs = [ctx.length]\n        q = uniform(vocab)\n        d = drawn(xs[0], q)\n        commit d",
        (1,),
        "2 is no token",
    ),
}
HEAD = "algorithm numbers(target: causal):\n    while not done:\n        "


@pytest.mark.parametrize("backend", ["reference", "torch", "triton"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_that_is_no_token_is_an_error_where_it_becomes_one(name: str, backend: str) -> None:
    body, tokens, said = PROGRAMS[name]
    session = decgraph.Algorithm(load_text(HEAD + body + "\n")).session(
        {"target": TableModel(2, 1, name="target")}, backend=backend
    )
    result = session.run(decgraph.Request((0,), 4, temperature=1), keep_events=False)
    assert (result.tokens, said in str(result.error or "")) == (tokens, True)
    assert result.reason == ("error" if said else "limit")
