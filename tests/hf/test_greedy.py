"""At temperature 0 the tokens are those of `generate(do_sample=False)`, whatever is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lib.lazily import processors, transformers
from lib.models.hf_models import MASK, PROMPT, RAGGED, V

import decgraph

Make = Callable[..., Any]


def both(model: Any, door: Any, ids: torch.Tensor, **settings: Any) -> torch.Tensor:
    """What the door gives, having asserted that generate gives the same."""
    settings = {"do_sample": False, "max_new_tokens": 24, **settings}
    expected = model.generate(ids, **settings)
    got = model.generate(ids, custom_generate=door, **settings)
    assert got.dtype == expected.dtype
    assert got.tolist() == expected.tolist()
    return got


SETTINGS = {
    "plain": {},
    "no end": {"eos_token_id": None},
    "repetition penalty": {"repetition_penalty": 1.7, "eos_token_id": None},
    "rewarded repetition": {"repetition_penalty": 0.8, "eos_token_id": None},
    "suppressed": {"suppress_tokens": [50, 12, 31, 7], "eos_token_id": None},
    "bad words": {"bad_words_ids": [[50], [31], [7]]},
    "bad words of two tokens": {"bad_words_ids": [[50, 31], [7]], "eos_token_id": None},
    "bias": {"sequence_bias": [[[12], 4.0], [[31], -3.0]], "eos_token_id": None},
    "bias and penalty": {"sequence_bias": [[[12], 4.0], [[31], -3.0]], "repetition_penalty": 1.5, "eos_token_id": None},
    "no repeated pairs": {"no_repeat_ngram_size": 2, "eos_token_id": None},
    "no pair of the prompt": {"encoder_no_repeat_ngram_size": 2, "eos_token_id": None},
    "hallucination penalty": {"encoder_repetition_penalty": 1.6, "eos_token_id": None},
    "forced end": {"forced_eos_token_id": 2, "eos_token_id": None},
    "length penalty": {"exponential_decay_length_penalty": (4, 1.3)},
    "first token": {"begin_suppress_tokens": list(range(30))},
    "normalised": {"renormalize_logits": True, "repetition_penalty": 1.4},
    "without invalid values": {"remove_invalid_values": True},
    "max_length": {"max_new_tokens": None, "max_length": 19},
    "one token": {"max_new_tokens": 1},
    "max_time": {"max_time": 3600.0},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_padded_batch(name: str, target: Any, drafter: Any) -> None:
    """On the backend that is used where none is named."""
    door = decgraph.hf("speculative", drafter=drafter, gamma=3)
    both(target, door, RAGGED, attention_mask=MASK, **SETTINGS[name])


@pytest.mark.parametrize("name", ["repetition penalty", "no repeated pairs", "one token"])
def test_one_prompt(name: str, target: Any, made: Make) -> None:
    both(target, made(), PROMPT, **SETTINGS[name])


@pytest.mark.parametrize("least", [{"min_new_tokens": 16}, {"min_length": 18}])
def test_several_ends_and_a_least_length(least: dict[str, int], target: Any, made: Make) -> None:
    free = target.generate(RAGGED, attention_mask=MASK, do_sample=False, max_new_tokens=24, eos_token_id=None)
    ends = sorted({int(free[0, 9]), int(free[1, 14]), int(free[2, 11])})
    got = both(target, made(), RAGGED, attention_mask=MASK, eos_token_id=ends)
    assert got.shape[1] < RAGGED.shape[1] + 24, "no sequence ran to the limit, or this shows nothing"
    later = both(target, made(), RAGGED, attention_mask=MASK, eos_token_id=ends, **least)
    assert later.shape[1] > got.shape[1]


def test_rows_that_end_early_are_filled_up(target: Any, speculative: Make) -> None:
    free = target.generate(RAGGED, attention_mask=MASK, do_sample=False, max_new_tokens=24, eos_token_id=None)
    end = int(free[1, RAGGED.shape[1] + 3])
    got = both(target, speculative(), RAGGED, attention_mask=MASK, eos_token_id=end, pad_token_id=60)
    assert (got[1] == 60).any()


def test_padding_is_inferred_as_generate_infers_it(target: Any, speculative: Make) -> None:
    both(target, speculative(), RAGGED)


def test_several_copies(target: Any, speculative: Make) -> None:
    got = target.generate(RAGGED, attention_mask=MASK, custom_generate=speculative(), do_sample=True, num_return_sequences=2,
                          max_new_tokens=8, top_k=1)  # fmt: skip
    expected = target.generate(RAGGED, attention_mask=MASK, do_sample=False, max_new_tokens=8)
    assert got.tolist() == expected.repeat_interleave(2, 0).tolist()


def test_processors_of_ones_own(target: Any, speculative: Make) -> None:
    own = transformers.LogitsProcessorList([processors.Even(), transformers.TopKLogitsWarper(5)])
    settings = {"logits_processor": own, "repetition_penalty": 1.3, "eos_token_id": None}
    got = both(target, speculative(), RAGGED, attention_mask=MASK, **settings)
    assert got.tolist() != both(target, speculative(), RAGGED, attention_mask=MASK, eos_token_id=None).tolist()
    both(target, speculative(), PROMPT, logits_processor=[lambda ids, scores: scores.roll(1, dims=-1)], min_new_tokens=20)


def test_a_constraint_by_prefix_and_row(target: Any, speculative: Make) -> None:
    def allowed(row: int, ids: torch.Tensor) -> list[int]:
        return [t for t in range(3, V) if (t + int(ids[-1])) % (row + 2) == 0]

    both(target, speculative(), RAGGED, attention_mask=MASK, prefix_allowed_tokens_fn=allowed)


def test_stopping_criteria_of_ones_own(target: Any, made: Make) -> None:
    free = target.generate(RAGGED, attention_mask=MASK, do_sample=False, max_new_tokens=24, eos_token_id=None)
    own = transformers.StoppingCriteriaList([processors.At(int(free[0, 12]), int(free[1, 9]))])
    got = both(target, made(), RAGGED, attention_mask=MASK, stopping_criteria=own)
    assert (got[:, -1] == 0).any(), "a row ended early"
    one = both(target, made(), PROMPT, stopping_criteria=[lambda ids, scores: ids.shape[1] >= 11], eos_token_id=None)
    assert one.shape[1] == 11


def test_another_architecture(gpt2: Any, backend: str) -> None:
    for door in (decgraph.hf("autoregressive", backend=backend), decgraph.hf("prompt_lookup", backend=backend, k=4)):
        both(gpt2, door, RAGGED, attention_mask=MASK)
        both(gpt2, door, PROMPT, repetition_penalty=1.3, eos_token_id=None)


def test_a_dict_is_returned_where_one_is_asked_for(target: Any, speculative: Make) -> None:
    settings = {"do_sample": False, "max_new_tokens": 5, "return_dict_in_generate": True}
    got = target.generate(PROMPT, custom_generate=speculative(), **settings)
    expected = target.generate(PROMPT, **settings)
    assert type(got) is type(expected)
    assert got.sequences.tolist() == expected.sequences.tolist()


def test_the_algorithm_did_the_work(target: Any, drafter: Any, backend: str) -> None:
    door = decgraph.hf("speculative", drafter=drafter, gamma=3, backend=backend)
    target.generate(PROMPT, custom_generate=door, do_sample=False, max_new_tokens=24, eos_token_id=None)
    (result,) = door.last
    assert result.stats.drafted > 0
    assert result.stats.tokens_per_call > 1.2
