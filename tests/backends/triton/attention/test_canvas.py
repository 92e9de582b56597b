"""Attention of canvas positions over a whole canvas, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from decgraph.backends.triton.attention.attend import attend_canvas
from decgraph.errors import DecError


def made(lengths: list[int], rows: int, size: int = 16, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor, np.ndarray]:
    """q, keys, values, length and what is in use, bool[B, 1, S]. Slots behind a length are NaN."""
    rng = torch.Generator().manual_seed(seed)
    slots = max(lengths) + 5
    q = torch.randn(len(lengths), rows, 4, size, generator=rng)
    keys, values = (torch.randn(len(lengths), 2, slots, size, generator=rng) for _ in range(2))
    for b, n in enumerate(lengths):
        keys[b, :, n:] = values[b, :, n:] = float("nan")
    visible = np.arange(slots)[None, None] < np.array(lengths)[:, None, None]
    return q, keys, values, torch.tensor(lengths, dtype=torch.int32), visible


def check(got: Tensor, q: Tensor, keys: Tensor, values: Tensor, visible: np.ndarray, dense: Any, **more: Any) -> None:
    rows = np.broadcast_to(visible, (len(q), q.shape[1], keys.shape[2]))
    assert torch.isfinite(got).all()
    assert np.abs(got.numpy() - dense(q, keys, values, rows, 0.25, **more)).max() < 3e-6


@pytest.mark.parametrize("splits", [1, 4, None])
@pytest.mark.parametrize(("lengths", "rows"), [([64], 8), ([70, 3, 33], 5), ([40, 0], 1)])
def test_every_row_sees_every_slot(lengths: list[int], rows: int, splits: int | None, dense: Any) -> None:
    """A length of zero gives zeros."""
    q, keys, values, length, visible = made(lengths, rows)
    check(attend_canvas(q, keys, values, length, scale=0.25, splits=splits), q, keys, values, visible, dense)


@pytest.mark.parametrize("share", [0.1, 0.9, 1.0])
def test_evicted_slots(share: float, dense: Any) -> None:
    """They hold NaN, and whole blocks of keys may be evicted."""
    q, keys, values, length, visible = made([130, 64], 6, seed=3)
    hidden = torch.rand(2, 135, generator=torch.Generator().manual_seed(1)) < share
    hidden[0, 32:64] = True
    for b in range(2):
        keys[b, :, hidden[b]] = values[b, :, hidden[b]] = float("nan")
    got = attend_canvas(q, keys, values, length, scale=0.25, hidden=hidden, splits=3)
    check(got, q, keys, values, visible & ~hidden.numpy()[:, None], dense)


@pytest.mark.parametrize("evicted", [False, True])
def test_blocks(evicted: bool, dense: Any) -> None:
    """A row sees its own block and those before it."""
    q, keys, values, length, visible = made([90, 48], 9, seed=5)
    slot_blocks = (torch.arange(95) // 16).to(torch.int32).expand(2, -1)
    row_blocks = torch.tensor([[0, 0, 1, 1, 2, 5, 4, 3, 0], [2, 2, 1, 0, 0, 0, 2, 1, 1]], dtype=torch.int32)
    hidden = torch.zeros(2, 95, dtype=torch.bool)
    hidden[:, 20:30] = evicted
    visible = visible & (slot_blocks.numpy()[:, None] <= row_blocks.numpy()[:, :, None]) & ~hidden.numpy()[:, None]
    got = attend_canvas(
        q,
        keys,
        values,
        length,
        scale=0.25,
        row_blocks=row_blocks,
        slot_blocks=slot_blocks,
        splits=5,
        hidden=hidden if evicted else None,
    )
    check(got, q, keys, values, visible, dense)


def test_soft_caps(dense: Any) -> None:
    q, keys, values, length, visible = made([50], 4)
    check(attend_canvas(q * 9, keys, values, length, scale=0.25, softcap=2.0), q * 9, keys, values, visible, dense, softcap=2.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden": torch.zeros(1, 4, dtype=torch.bool)}, "hidden"),
        ({"row_blocks": torch.zeros(1, 3, dtype=torch.int32)}, "or for neither"),
        ({"length": torch.zeros(1)}, "lengths"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], words: str) -> None:
    q, keys, values, length, _ = made([20], 3)
    with pytest.raises(DecError, match=words):
        attend_canvas(**{"q": q, "keys": keys, "values": values, "length": length, "scale": 1.0, **change})
