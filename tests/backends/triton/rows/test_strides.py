"""Inputs of a row kernel that repeat themselves in memory, as `expand` makes them, are read for what they are."""

from __future__ import annotations

import numpy as np
import torch

from decgraph.backends.triton.rows import functions
from decgraph.runtime import noise


def test_a_seed_for_all_rows() -> None:
    logits = torch.from_numpy(np.random.default_rng(1).normal(size=(4, 33)))
    keys = [noise.Key(77, 0, "here", (1,), (i,)) for i in range(4)]
    words = torch.from_numpy(np.array([k.words() for k in keys], dtype=np.uint32).view(np.int32))
    seeds = torch.tensor([[77, 0]])[:, None].expand(1, 4, 2).reshape(-1, 2)
    assert seeds.stride(0) == 0
    got = functions.draw(torch.softmax(logits, -1), words, seeds)
    want = [noise.race(p, noise.exponentials(k, 33)) for p, k in zip(torch.softmax(logits, -1).numpy(), keys, strict=True)]
    assert got.tolist() == want


def test_tokens_of_all_rows() -> None:
    logits = torch.from_numpy(np.random.default_rng(2).normal(size=(5, 40)))
    tokens = torch.tensor([7]).expand(5)
    assert torch.allclose(functions.confidence(logits, tokens), torch.softmax(logits, -1)[:, 7])
