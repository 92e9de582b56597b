"""Scores and logits of `generate` with decgraph.hf: transformers' own, where the tokens are its own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import decgraph

BATCH = torch.tensor([[0, 0, 3, 9], [7, 5, 2, 8]])
MASK = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])


def both(target: Any, **asked: Any) -> tuple[Any, Any]:
    """What transformers returns, and decgraph."""
    given: dict[str, Any] = {
        "attention_mask": MASK, "max_new_tokens": 10, "do_sample": False, "repetition_penalty": 1.3, "pad_token_id": 0,
        "return_dict_in_generate": True, **asked,
    }  # fmt: skip
    return target.generate(BATCH, **given), target.generate(BATCH, custom_generate=decgraph.hf("prompt_lookup"), **given)


def test_scores_and_logits(target: Any) -> None:
    theirs, ours = both(target, output_scores=True, output_logits=True)
    assert torch.equal(theirs.sequences, ours.sequences)
    assert len(ours.scores) == len(theirs.scores) == len(ours.logits) == 10
    for name in ("scores", "logits"):
        for mine, other in zip(getattr(ours, name), getattr(theirs, name), strict=True):
            torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)
    wanted = target.compute_transition_scores(theirs.sequences, theirs.scores, normalize_logits=True)
    torch.testing.assert_close(target.compute_transition_scores(ours.sequences, ours.scores, normalize_logits=True), wanted,
                               atol=1e-4, rtol=1e-4)  # fmt: skip
    assert not torch.equal(ours.scores[-1], ours.logits[-1]), "the penalty is in the scores alone"


def test_only_what_is_asked_for(target: Any) -> None:
    _, ours = both(target, output_logits=True)
    assert ours.scores is None and len(ours.logits) == 10
    _, ours = both(target)
    assert ours.scores is None and ours.logits is None


def test_a_row_that_ends_early(target: Any) -> None:
    plain = target.generate(
        BATCH, attention_mask=MASK, max_new_tokens=10, do_sample=False, repetition_penalty=1.3, pad_token_id=0
    )
    end = int(plain[0, 6])
    theirs, ours = both(target, output_logits=True, eos_token_id=end)
    assert torch.equal(theirs.sequences, ours.sequences)
    torch.testing.assert_close(ours.logits[0], theirs.logits[0], atol=1e-4, rtol=1e-4)
    if len(ours.logits) > 3:
        assert not ours.logits[-1][0].any()


@pytest.mark.parametrize("name", ["prompt_lookup", "autoregressive"])
def test_a_prefix_is_reused(target: Any, name: str) -> None:
    from decgraph.runtime.models.engine.of import engine_of

    target = copy.deepcopy(target)  # an engine of its own: other tests' calls are not counted
    door = decgraph.hf(name, reuse_prefix=True)
    prompt = torch.tensor([[*range(4, 24)]])
    for step in range(3):
        made = target.generate(prompt, max_new_tokens=6, do_sample=False, custom_generate=door, pad_token_id=0)
        assert torch.equal(made, target.generate(prompt, max_new_tokens=6, do_sample=False, pad_token_id=0)), step
        prompt = torch.cat((made, torch.tensor([[5 + step, 9]])), dim=1)
    engine = engine_of(door._session_for(target).models["target"])
    if name == "autoregressive":
        assert engine.counted.computed == prompt.shape[1] - 3  # the last token of the last run, and what was added after it
    with torch.no_grad():
        target.get_output_embeddings().weight.mul_(-1)
    try:
        made = target.generate(prompt, max_new_tokens=6, do_sample=False, custom_generate=door, pad_token_id=0)
        assert torch.equal(made, target.generate(prompt, max_new_tokens=6, do_sample=False, pad_token_id=0)), "other weights"
    finally:
        with torch.no_grad():
            target.get_output_embeddings().weight.mul_(-1)
