"""What attention means, in float64, and memory that holds NaN until somebody writes it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import decgraph.backends.triton  # noqa: F401  (before triton)

Dense = Callable[..., np.ndarray]


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory is NaN, or -77."""
    fresh = torch.empty

    def empty(*shape: object, **kwargs: object) -> Tensor:
        made = fresh(*shape, **kwargs)  # type: ignore[call-overload]
        return made.fill_(float("nan") if made.is_floating_point() else -77)

    monkeypatch.setattr(torch, "empty", empty)


def _dense(
    q: Tensor, keys: Tensor, values: Tensor, visible: np.ndarray, scale: float, softcap: float | None = None
) -> np.ndarray:
    """Attention of q [B, T, Hq, Dk] over [B, H, S, D] where visible[b, t, s]; rows that see nothing are zeros."""
    query, key, value = (t.double().numpy() for t in (q, keys, values))
    batch, cells, heads, _ = query.shape
    group = heads // key.shape[1]
    out = np.zeros((batch, cells, heads, value.shape[3]))
    for b in range(batch):
        for t in range(cells):
            seen = np.flatnonzero(visible[b, t])
            for h in range(heads if len(seen) else 0):
                scores = key[b, h // group, seen] @ query[b, t, h] * scale
                if softcap:
                    scores = softcap * np.tanh(scores / softcap)
                weights = np.exp(scores - scores.max())
                out[b, t, h] = weights @ value[b, h // group, seen] / weights.sum()
    return out


@pytest.fixture(scope="session")
def dense() -> Dense:
    return _dense
