"""Trees that are carried: verified by a step that drafted nothing in them, or drafted in several blocks of a step."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.dsl.lower import load_text
from decgraph.passes.plan import Plan
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


BLOCKS = """algorithm in_blocks(target: causal, drafter: causal):
    refines autoregressive(target) in tokens
    state t: tree[12] per sequence = empty

    while not done:
        {first}
            repeat 3 while t.height < 3:
                grow topk(drafter(t.leaves).raw, 1)
        known = t.nodes
        {second}
            grow topk(drafter(t.leaves).raw, 2)
        verify t by match against target(known)
        commit t.accepted
"""
ONE = BLOCKS.format(first="draft t:", second="").replace("        known", "            known").replace("        \n", "")
SEVERAL = {
    "one after the other": BLOCKS.format(first="draft t:", second="draft t:"),
    "one on a condition": BLOCKS.format(first="if t.size == 0:\n            draft t:", second="draft t:").replace(
        "            repeat 3 while t.height < 3:\n        ", "                repeat 3 while t.height < 3:\n            "
    ),
}


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("text", SEVERAL.values(), ids=SEVERAL)
def test_a_second_block_goes_on_with_the_first_ones_tree(text: str, backend: str) -> None:
    models = {"target": TableModel(5, seed=1, name="target"), "drafter": TableModel(5, seed=2, name="drafter")}
    request = Request(prompt=(1, 2), max_tokens=12, temperature=0)
    both = [decgraph.parse(t).session(models, plan=Plan(backend=backend)).run(request) for t in (ONE, text)]
    assert both[0].error is None and both[1].error is None
    one, several = both
    assert one.tokens == several.tokens and one.stats.target_calls == several.stats.target_calls
    assert several.stats.target_calls < 12
