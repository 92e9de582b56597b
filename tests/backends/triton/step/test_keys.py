"""Keys of noise made on the device are runtime/noise.py's, word for word."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from decgraph.backends.triton.step.keys import int32_words, site_word, words_for
from decgraph.runtime.noise import Key

REQUESTS = [0, 7, 2**32 + 5, 2**64 - 1]


def words(a: torch.Tensor) -> np.ndarray:
    return a.numpy().view(np.uint32)


@pytest.mark.parametrize("rows", [1, 5, 70])
@pytest.mark.parametrize(("counters", "turn_at"), [((), -1), ((3,), -1), ((0, 4), 0), ((2, 0, 2**31 - 1), 1)])
def test_loop_counters_and_lanes(rows: int, counters: tuple[int, ...], turn_at: int) -> None:
    turns = [0, 9, 2**20, 3]
    request = torch.from_numpy(np.stack([int32_words(r) for r in REQUESTS]))
    turn = torch.tensor(turns, dtype=torch.int32)
    lanes = torch.stack([torch.arange(rows), torch.arange(rows) * 3], -1)[None]
    out = torch.full((4, rows, 3), -77, dtype=torch.int32)
    words_for(
        out,
        request,
        torch.tensor([site_word("speculative.2")]),
        turn,
        torch.tensor(counters, dtype=torch.int64).reshape(1, 1, -1),
        lanes,
        iteration_at=turn_at,
    )
    for b, name in enumerate(REQUESTS):
        here = tuple(turns[b] if i == turn_at else c for i, c in enumerate(counters))
        want = [Key(5, name, "speculative.2", here, (r, 3 * r)).words() for r in range(rows)]
        assert np.array_equal(words(out)[b], np.array(want, dtype=np.uint32))


def test_positions_of_the_stream_output() -> None:
    positions = torch.tensor([[4, 5, 9], [0, 2**31 - 1, 1]])
    request = torch.from_numpy(np.stack([int32_words(3), int32_words(2**63)]))
    out = torch.full((2, 3, 3), -77, dtype=torch.int32)
    words_for(
        out,
        request,
        torch.tensor([site_word("output")]),
        torch.zeros(2, dtype=torch.int32),
        positions[..., None],
        torch.zeros((1, 1, 0), dtype=torch.int64),
    )
    for b, name in enumerate((3, 2**63)):
        want = [Key(0, name, "output", (int(p),)).words() for p in positions[b]]
        assert np.array_equal(words(out)[b], np.array(want, dtype=np.uint32))
