"""The causal engine gives the logits of full forwards of the unmodified module, and computes each cell once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from asking import run
from hf_modules import CONFIGS, logits, module

from decgraph.runtime.models.engine.ask import Answer, Ask
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.hf_live import from_module


def check(of: Any, asks: list[Ask], answers: list[Answer]) -> None:
    for ask, answer in zip(asks, answers, strict=True):
        assert isinstance(answer, torch.Tensor), answer
        want = logits(of, ask.paths())
        assert answer.shape == want.shape and answer.dtype == torch.float32
        assert torch.allclose(answer, want, atol=1e-4, rtol=1e-4), (answer - want).abs().max()
        sure = want.topk(2).values.diff().abs()[:, 0] > 1e-4
        assert (answer.argmax(-1) == want.argmax(-1))[sure].all()


@pytest.mark.parametrize("kind", CONFIGS)
def test_random_asks_give_the_modules_own_logits(kind: str) -> None:
    of = module(kind)
    engine = engine_of(from_module(of, name=kind))
    engine.chunk = 16  # prompts go in chunks

    def answer(asks: list[Ask]) -> None:
        check(of, asks, engine.answer(asks))

    cells = run(7, 61, 60, 25, answer, engine.close)
    assert engine.counted.computed == cells
    assert engine.counted.asked > 2 * cells
    assert engine.counted.moved > 0
