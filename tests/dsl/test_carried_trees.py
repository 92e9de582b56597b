"""Trees that a step verifies without having drafted in them: what others drafted, or nothing."""

from __future__ import annotations

import pytest

from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.dsl.lower import load_text
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

PROGRAM = """algorithm waits(target: causal, drafter: causal):
    refines autoregressive(target) in distribution
    state t: tree[4] per sequence = empty
    state n: int per sequence = 0

    while not done:
        verify t by rejection against target(t)
        n += 1
{body}
"""
BODIES = {
    "at once": "        commit t.accepted",
    "in both branches": "        if n > 2:\n            commit t.accepted\n        else:\n            commit t.accepted",
    "after another commit": "        if n > 2:\n            commit argmax(target(ctx))\n            commit t.accepted\n"
    "        else:\n            commit t.accepted",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_verified_without_a_draft(body: str) -> None:
    models = {"target": TableModel(5, seed=1, name="target"), "drafter": TableModel(5, seed=2, name="drafter")}
    m = ReferenceMachine(
        load_text(PROGRAM.format(body=body)), "waits", models, {}, Request(prompt=(1, 2), max_tokens=6, seed=3)
    )
    m.run()
    assert len(m.committed_tokens()) == 6
