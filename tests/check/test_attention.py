"""Attention in claims: one that stops drafts is lossless whatever it says; what it prunes depends on draws."""

from __future__ import annotations

import pytest

import decgraph
from decgraph.errors import DecError

HEAD = """
algorithm attended(target: causal, drafter: causal, eta: prob = 0.5, gamma: int in 1..4 = 2):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
"""
TAIL = """
        verify t by rejection against target(t)
        commit t.accepted
"""


def test_stopping_by_attention_is_lossless_whatever_it_says() -> None:
    stop = "                break if sum(target.attention(t.leaves[0])[:1]) > eta"
    report = decgraph.parse(HEAD + stop + TAIL).check(models=3, derive=False)
    assert report.verdict == "holds"


def test_pruning_by_attention_depends_on_the_draws() -> None:
    prune = "            prune t to t.drafted if sum(target.attention(t.leaves[0])[:1]) > eta else t.new"
    with pytest.raises(DecError, match="E031"):
        decgraph.parse(HEAD + prune + TAIL)
