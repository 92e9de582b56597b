"""Masks that are views of one table are those that comparing positions gives, for windows and however far they reach."""

from __future__ import annotations

import pytest
import torch

from decgraph.runtime.models.engine.batch import MOST, StraightMasks
from decgraph.runtime.models.engine.slots import FULL, SLIDING, Layout


@pytest.mark.parametrize("window", [None, 1, 5, 300])
def test_the_rows_before_a_tokens_own(window: int | None) -> None:
    layout = Layout(((1, 4, 4),), (FULL,), window, 8, torch.float32, torch.device("cpu"))
    masks = StraightMasks(layout)
    for first, count, length in ((0, 1, 64), (3, 5, 64), (63, 1, 64), (200, MOST, 320), (700, 3, 704), (2, 2, 1024)):
        made = masks.of(first, count, length)
        assert set(made) == ({FULL} if window is None else {FULL, SLIDING})
        for kind, mask in made.items():
            assert mask.shape == (1, 1, count, length) and mask.dtype == torch.float32
            for t in range(count):
                low = 0 if kind == FULL else max(first + t - window + 1, 0)  # type: ignore[operator]
                wanted = [low <= row <= first + t for row in range(length)]
                assert (mask[0, 0, t] == 0).tolist() == wanted
                assert all(float(n) in (0.0, torch.finfo(torch.float32).min) for n in mask[0, 0, t])
