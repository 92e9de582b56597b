"""Top-k, top-p and min-p against backends/torch/shaping.py, which sorts."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import examples
from torch import Tensor

from decgraph.backends.torch import shaping
from decgraph.backends.triton.rows import functions
from decgraph.backends.triton.rows.truncate import truncate


def sorted_shaping(x: Tensor, temperature: float, k: Any, p: Any, m: Any) -> Tensor:
    request = SimpleNamespace(temperature=temperature, top_k=k, top_p=p, min_p=m, penalised=False)
    return shaping.shaped(SimpleNamespace(request=request, adjusted=lambda: x))


def compare(x: Tensor, k: Any, p: Any, m: Any) -> None:
    got = functions.shaped(x, temperature=0.8, top_k=k, top_p=p, min_p=m)
    want = sorted_shaping(x, 0.8, k, p, m)
    assert (got > 0).equal(want > 0)
    torch.testing.assert_close(got, want, atol=1e-15 if x.dtype == torch.float64 else 1e-6, rtol=1e-6)


@pytest.mark.parametrize("size", (3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (31, 33, 129, 300))))
@pytest.mark.parametrize("kind", (torch.float64, torch.float32), ids=str)
def test_all_combinations(size: int, kind: torch.dtype) -> None:
    g = np.random.default_rng(size)
    for k in (None, 1, size // 2 or 1, size + 1):
        for p in (None, 1e-9, 0.3, 0.9):
            x = torch.tensor(g.normal(size=(2, size)) * 2)
            x[1] = x[1].round()
            compare(x.to(kind), k, p, [None, 0.05, 0.5][int(g.integers(3))])


@settings(max_examples=examples(8), deadline=None)
@given(
    st.lists(st.integers(-3, 3), min_size=3, max_size=40),
    st.integers(1, 12),
    st.sampled_from((0.1, 0.35, 0.6, 0.85)),
    st.sampled_from((None, 0.2)),
    st.booleans(),
)
def test_ties(levels: list[int], k: int, p: float, m: Any, wide: bool) -> None:
    compare(torch.tensor([levels], dtype=torch.float64 if wide else torch.float32), k, p, m)


def test_rational_rows_are_cut_where_the_reference_cuts_them() -> None:
    """Masses that reach top_p exactly in rational arithmetic: floats decide, the same ones."""
    g = np.random.default_rng(0)
    for size in (3, 5, 9, 17):
        for _ in range(4):
            weights = g.integers(1, 9, size)
            x = torch.from_numpy(np.log(np.array([float(Fraction(int(w), int(weights.sum()))) for w in weights])))[None]
            cut = float(Fraction(int(np.sort(weights)[::-1][:2].sum()), int(weights.sum())))
            assert functions.shaped(x, temperature=1.0, top_p=cut).equal(sorted_shaping(x, 1.0, None, cut, None))


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("kind", (torch.float64, torch.float32), ids=str)
def test_long_rows_are_searched(kind: torch.dtype, monkeypatch: Any) -> None:
    """Blocks and scratch smaller than the row: reads of the row, a collection, and the end in registers."""
    import decgraph.backends.triton.rows.truncate as module

    monkeypatch.setattr(module, "WIDEST", dict.fromkeys(module.WIDEST, 0))
    monkeypatch.setattr(module, "BLOCK", 16)
    monkeypatch.setattr(module, "FEW", 8)
    g = np.random.default_rng(3)
    x = torch.from_numpy(g.normal(size=(2, 35)) * 2)
    x[1] = x[1].round()  # more ties than the scratch holds
    for k, p, m in ((9, 0.7, 0.1), (6, None, None), (None, 0.8, None)):
        compare(x.to(kind), k, p, m)


def test_in_place_and_a_row_that_never_reaches_the_mass() -> None:
    p = torch.tensor([[0.25, 0.0, 0.25], [0.0, 0.0, 0.0]])
    truncate(p, top_p=0.9)
    assert p.tolist() == [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]
