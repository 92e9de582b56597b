"""Nodes of a tree are places and no tokens: where tokens are read, nodes are refused, and the other way round. A node's number
would pass for a token's id at run time."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.errors import DecError

TEXT = """algorithm a(target: causal, drafter: causal):
    state seen: ngrams(3) per sequence = prompt
    state table: token[vocab] per sequence = 0
    y ~ target(ctx)
    draft t:
        repeat 2:
            grow topk(drafter(t.leaves), 2)
        n = t.leaves[0]
        w = {}
        z = w
    commit y
"""
REFUSED = (
    "seen(t.leaves)",
    "seen.matched(t.drafted)",
    "seen.has(t.drafted)",
    "seen.path(t.leaves, at_least = 1, at_most = 4)",
    "seen([n, y])",
    "prompt ++ t.leaves",
    "prompt ++ n",
    "t.nodes ++ prompt[:0]",
    "target(ctx ++ [n])",
    "counts(t.leaves)",
    "table[n]",
    "y in t.leaves",
    "n in prompt",
    "n == y",
    "n + 1",
    "t.token[y]",
    "t.depth[y]",
    "point(n)",
    "[n, y]",
    "target.embed(t.leaves)",
    "ctx.last(n)",
)
TAKEN = (
    "seen(t.token[t.leaves])",
    "seen.path(n, at_least = 1, at_most = 4)",
    "prompt ++ t.token[t.leaves]",
    "ctx ++ t.token[t.path[n]]",
    "counts(t.token[t.leaves])",
    "table[y]",
    "y in t.token[t.leaves]",
    "y in [3, 4]",
    "3 in prompt",
    "n in t.leaves",
    "t.token[n]",
    "t.leaves ++ t.leaves",
)


@pytest.mark.parametrize("expression", REFUSED)
def test_nodes_are_no_tokens(expression: str) -> None:
    with pytest.raises(DecError) as refused:
        decgraph.parse(TEXT.format(expression))
    assert refused.value.diagnostics[0].span.line == 9


@pytest.mark.parametrize("expression", TAKEN)
def test_their_tokens_are(expression: str) -> None:
    decgraph.parse(TEXT.format(expression))
