"""Bits of trees and chains, against sets of cells."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import examples
from torch import Tensor

from decgraph.backends.triton.attention.tree import ancestors, chains
from decgraph.errors import DecError


def cells(bits: Tensor, b: int, n: int) -> set[int]:
    """The cells that a row names."""
    words = bits[b, n].numpy().view(np.uint32)
    return {w * 32 + i for w, word in enumerate(words) for i in range(32) if int(word) >> i & 1}


def path(parents: list[int], n: int) -> list[int]:
    """A node and those above it."""
    out = [n]
    while parents[out[-1]] >= 0:
        out.append(parents[out[-1]])
    return out


def check(parents: list[list[int]], words: int, offset: int = 0, pending: list[int] | None = None) -> None:
    counts = None if pending is None else torch.tensor(pending, dtype=torch.int32)
    got = ancestors(torch.tensor(parents), words, offset, counts)
    assert got.dtype == torch.int32 and got.shape == (len(parents), len(parents[0]), words)
    for b, own in enumerate(parents):
        chain = set(range(offset if pending is None else pending[b]))
        for n in range(len(own)):
            want = chain | {offset + m for m in path(own, n)} if own[n] >= -1 else set()
            assert cells(got, b, n) == want, (b, n)


@settings(max_examples=examples(25))
@given(data=st.data())
def test_any_tree(data: st.DataObject) -> None:
    batch, nodes, offset = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 70)), data.draw(st.integers(0, 34))
    parents = [[data.draw(st.integers(-1, n - 1)) for n in range(nodes)] for _ in range(batch)]
    for own in parents:
        for n in range(data.draw(st.integers(0, nodes)), nodes):
            own[n] = -2  # padding behind a tree
    words = -(-(nodes + offset) // 32) + data.draw(st.integers(0, 2))
    pending = data.draw(st.none() | st.lists(st.integers(0, offset), min_size=batch, max_size=batch))
    check(parents, words, offset, pending)


@pytest.mark.parametrize("nodes", [1, 32, 33, 300])
def test_chains_and_stars(nodes: int) -> None:
    """The deepest trees, and the flattest; more words than one program takes."""
    check([[n - 1 for n in range(nodes)], [-1] * nodes, [min(n - 1, 0) for n in range(nodes)]], 11, 24)


def test_padding_in_between() -> None:
    check([[-1, -2, 0, -2, 2]], 1, 2, [1])


def test_a_chain_of_committed_tokens() -> None:
    got = chains(torch.tensor([0, 1, 33, 40], dtype=torch.int32), 40, 3)
    assert got.shape == (4, 40, 3)
    for b, count in enumerate((0, 1, 33, 40)):
        for n in range(40):
            assert cells(got, b, n) == (set(range(n + 1)) if n < count else set())


def test_no_nodes() -> None:
    assert ancestors(torch.zeros(2, 0, dtype=torch.int64), 1, 3).shape == (2, 0, 1)
    assert chains(torch.zeros(2, dtype=torch.int32), 0, 1).shape == (2, 0, 1)


def test_too_few_words() -> None:
    with pytest.raises(DecError, match="33 cells"):
        ancestors(torch.zeros(1, 30, dtype=torch.int64), 1, 3)
    with pytest.raises(DecError, match="33 cells"):
        chains(torch.zeros(1, dtype=torch.int32), 33, 1)
