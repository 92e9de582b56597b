"""An index that is asked at a node of a tree reads the text up to it: its number was read as a token."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.passes.plan import Plan
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

ASKS = {
    "share": "g = grams(n)\n            x = argmax(g)",
    "path": 'x = grams.path(n, at_least = 1, at_most = 1, pick = "likeliest")[0].token',
}
PROGRAM = """algorithm asks(target: causal):
    state grams: suffixes(3) per sequence = prompt
    draft t:
        grow topk(target(root).raw, 1)
        for n in t.leaves:
            {ask}
            grow point([x]) at n
    commit t.leaves[0]
"""


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("ask", list(ASKS))
def test_what_followed_a_node_is_what_followed_its_text(ask: str, backend: str) -> None:
    """After the prompt comes 4, and behind 4 stood 3."""
    row: dict[Any, Any] = {(x,): [0, 0, 0, 0, 1] for x in range(5)}
    model = TableModel(5, table=row, window=1)
    session = decgraph.parse(PROGRAM.format(ask=ASKS[ask])).session({"target": model}, plan=Plan(backend=backend))
    done = session.run(Request((1, 4, 3, 1, 2), max_tokens=2, temperature=0))
    assert done.error is None and tuple(done.tokens) == (4, 3), (done.error, done.tokens)
