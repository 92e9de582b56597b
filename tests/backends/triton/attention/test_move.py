"""The gather of an accepted path in place, against copies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import examples
from torch import Tensor

from decgraph.backends.triton.attention.move import Mover, move
from decgraph.errors import DecError


def moved(cache: Tensor, held: list[int], source: list[list[int]], count: list[int]) -> Tensor:
    """What a cache [B, ..., S, D] is to be."""
    out = cache.clone()
    for b, n in enumerate(held):
        for k in range(count[b]):
            out[b, ..., n + k, :] = cache[b, ..., n + source[b][k], :]
    return out


def check(caches: list[Tensor], held: list[int], source: list[list[int]], count: list[int]) -> None:
    want = [moved(c, held, source, count) for c in caches]
    move(caches, torch.tensor(held, dtype=torch.int32), torch.tensor(source), torch.tensor(count, dtype=torch.int32))
    for got, right in zip(caches, want, strict=True):
        assert got.numpy().tobytes() == right.numpy().tobytes()  # NaN as well


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.float64])
def test_keys_values_and_states(dtype: torch.dtype) -> None:
    caches = [(torch.randn(2, 3, 30, 20) * 9).to(dtype) for _ in range(5)] + [(torch.randn(2, 30, 33) * 9).to(dtype)]
    check(caches, [4, 0], [[0, 2, 3, 7, 11], [1, 2, 5, 0, 0]], [5, 3])


def test_rows_that_are_read_after_they_are_written() -> None:
    """Every row but the first goes where another one was."""
    check([torch.randn(1, 2, 20, 16)], [3], [[1, 2, 3, 4, 5, 6, 7, 8]], [8])


def test_nothing_to_do() -> None:
    nan = torch.full((2, 1, 10, 16), float("nan"))
    check([nan.clone(), torch.randn(2, 1, 10, 16)], [2, 9], [[0, 1, 2], [5, 6, 7]], [3, 0])
    move([nan], torch.zeros(2, dtype=torch.int32), torch.zeros(2, 0, dtype=torch.int64), torch.zeros(2, dtype=torch.int32))


def test_what_lies_past_count_or_the_cache_is_left_alone() -> None:
    """Sources past a count are whatever they are."""
    check([torch.randn(2, 2, 12, 16)], [8, 2], [[2, 3, 99, -5], [1, 99, 99, 99]], [2, 1])


def test_one_launch_for_caches_of_a_kind() -> None:
    layers = [torch.randn(1, 2, 8, 16) for _ in range(6)]
    assert Mover(layers).launches == 1
    assert Mover([*layers, torch.randn(1, 8, 64)]).launches == 2
    assert Mover([layers[0], layers[1][:, :, :7]]).launches == 2


def test_a_mover_is_used_again() -> None:
    cache = torch.randn(1, 1, 16, 8)
    mover = Mover([cache])
    for held in (0, 3):
        want = moved(cache, [held], [[1, 3]], [2])
        mover(torch.tensor([held], dtype=torch.int32), torch.tensor([[1, 3]]), torch.tensor([2], dtype=torch.int32))
        assert torch.equal(cache, want)


def test_views_of_a_store() -> None:
    """Other slots and rows of the block that a cache is cut from stay as they are."""
    block = torch.randn(4, 2, 30, 16)
    before = block.clone()
    check([block[1:3, :, :20]], [2, 5], [[0, 3], [4, 6]], [2, 2])
    before[1:3, :, :20] = block[1:3, :, :20]
    assert torch.equal(block, before)


def test_wide_states() -> None:
    """More columns than one program takes."""
    check([torch.randn(1, 90, 1200)], [1], [sorted(np.random.default_rng(0).choice(80, 12, replace=False).tolist())], [12])


def test_caches_of_other_shapes() -> None:
    with pytest.raises(DecError, match="last axis"):
        Mover([torch.zeros(2, 3)])


@settings(max_examples=examples(20))
@given(data=st.data())
def test_any_path(data: st.DataObject) -> None:
    batch, depth = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    paths = [sorted(data.draw(st.sets(st.integers(0, 12), min_size=depth, max_size=depth))) for _ in range(batch)]
    counts = [data.draw(st.integers(0, depth)) for _ in range(batch)]
    held = [data.draw(st.integers(0, 5)) for _ in range(batch)]
    check([torch.randn(batch, data.draw(st.integers(1, 2)), 20, 5)], held, paths, counts)
