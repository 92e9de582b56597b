"""A model that is asked at no nodes: it has no rows, and that is no call."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.trace import ModelCall

TEXT = """
algorithm none_then_one(target: causal):
    draft t:
        now = t.drafted
        rows, tokens, scores = best(t.logprob[now] + log(target(now).raw) - 0.5 * zeros(vocab), 2)
        grow point(tokens) at now[rows] with logprob = scores
    x = argmax(target(ctx))
    commit x
"""


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_no_rows(backend: str) -> None:
    session = decgraph.parse(TEXT).session({"target": TableModel(5, 1)}, backend=backend)
    events: list[Any] = []
    result = session.run(Request((1, 2), max_tokens=3), listener=events.append)
    assert result.error is None, result.error
    assert len(result.tokens) == 1
    assert sum(isinstance(e, ModelCall) for e in events) == 1
