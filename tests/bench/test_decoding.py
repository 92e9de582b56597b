"""Comparisons on small models: both sides really run, and what must not be is noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import decgraph
from decgraph.bench import baselines, decoding, measure, shares, table, weights
from decgraph.bench.contenders import Agreement, greedy_is_exact, params_for, request_of, run, session_on
from decgraph.bench.measure import Settings
from decgraph.errors import DecError

TINY = Settings(requests=2, limit=8, rounds=1, warm=0, batch=3)


@pytest.fixture(scope="module")
def small() -> weights.Weights:
    """A random Llama far smaller than the benchmark's own, made in the same way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(weights.SIZES, "tiny", (32, 3, 1, 4, 64))
        return weights.random_llama("tiny")


def test_the_drafter_is_the_targets_first_layers(small: weights.Weights) -> None:
    below, above = small.drafter.state_dict(), small.target.state_dict()
    assert all(torch.equal(below[key], above[key]) for key in below)
    assert small.facts()["layers"] == 3 and small.facts()["dtype"] == "float32"
    assert weights.count(small.drafter) < weights.count(small.target)


@pytest.mark.quick("speculative-assisted")
@pytest.mark.parametrize(
    ("name", "baseline"),
    [
        ("autoregressive", "generate"),
        ("speculative", "assisted"),
        ("prompt_lookup", "prompt_lookup"),
        ("speculative", "autoregressive"),
    ],
)
def test_a_row(name: str, baseline: str, small: weights.Weights) -> None:
    row = measure.against_transformers(name, small, TINY, usual=baseline)
    assert (row["algorithm"], row["baseline"], row["models"], row["mode"]) == (name, baseline, "tiny", "greedy")
    assert row["tokens_equal"] == {"same": 2, "near_ties": 0, "different": 0}
    assert row["timed"] == 2
    assert row["tokens_per_second"]["ours"] > 0 and row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
    assert row["tokens_per_call"] >= 1 and row["baseline_tokens_per_call"] >= 1
    assert 0 < row["outside_models"]["median"] < 1
    assert not decoding.wrong(row)
    assert dict(zip([h for h, _ in table.EVERY], table.cells(table.EVERY, row), strict=True))["same tokens"] == "2 of 2"


def test_assisted_generation_takes_as_many_calls_as_the_program(small: weights.Weights) -> None:
    """The same drafter and draft length: a larger difference would mean that the baseline is not what it is said to be."""
    row = measure.against_transformers("speculative", small, replace(TINY, limit=24), given={"gamma": 3})
    assert row["baseline_settings"]["num_assistant_tokens"] == 3 == row["params"]["gamma"]
    assert row["baseline_tokens_per_call"] == pytest.approx(row["tokens_per_call"], rel=0.15)


def test_sampled_runs_compare_no_tokens(small: weights.Weights) -> None:
    row = measure.against_transformers("autoregressive", small, TINY, sampled=True)
    assert row["mode"] == "sampled" and "tokens_equal" not in row and row["ratio"]["median"] > 0


def test_a_batch_commits_the_tokens_of_one_at_a_time(small: weights.Weights) -> None:
    row = measure.batched("autoregressive", small, TINY)
    assert row["batch"] == 3 and row["tokens_equal"]["same"] + row["tokens_equal"]["near_ties"] == 3
    assert row["generate_batched"]["ratio"]["median"] > 0


def test_padding_does_not_change_the_baselines_tokens(small: weights.Weights) -> None:
    theirs = baselines.baseline("generate", small, {})
    prompts = [p[: 20 + 9 * n] for n, p in enumerate(small.prompts(3))]
    assert theirs(prompts, 6) == [theirs([p], 6)[0] for p in prompts]


def test_other_tokens_are_noticed(small: weights.Weights) -> None:
    (prompt,) = small.prompts(1)
    tokens = baselines.baseline("generate", small, {})([prompt], 6)[0]
    agreement = Agreement(small)
    agreement.compare(prompt, tokens, tokens)
    other = [*tokens[:2], (tokens[2] + 7) % 64, *tokens[3:]]
    agreement.compare(prompt, other, tokens)
    found = agreement.to_json()
    assert (found["same"], found["different"]) == (1, 1)
    assert str(found["first"]).startswith("token 2: ")
    row: dict[str, Any] = {"algorithm": "a", "baseline": "b", "tokens_equal": found}
    assert "1 of 2 differ" in decoding.wrong(row)
    agreement.gap = lambda *_: 1e-4  # type: ignore[method-assign]
    agreement.compare(prompt, other, tokens)
    assert agreement.to_json()["near_ties"] == 1


def test_calls_that_the_interpreter_does_not_make_are_noticed() -> None:
    row = {"algorithm": "a", "baseline": "b", "interpreter": {"calls": 5, "interpreter_calls": 4, "tokens_equal": True}}
    assert "5 calls, 4 by the interpreter" in decoding.wrong(row)
    row["interpreter"] = {"calls": 4, "interpreter_calls": 4, "tokens_equal": False}
    assert "other tokens" in decoding.wrong(row)


def test_time_outside_models_is_the_rest(small: weights.Weights) -> None:
    algorithm = decgraph.load("speculative")
    session = session_on(algorithm, small, params_for(algorithm, {"gamma": 2}))
    request = request_of(small.prompts(1)[0], 6)
    expected = run(session, request).tokens
    engines = shares.engines(session)
    assert len(engines) >= 2
    before = [(e.step, e.head) for e in engines]
    share, seconds, entered = shares.outside(session, lambda: run(session, request))
    assert 0 < share < 1 and seconds > 0 and entered >= 2 * len(expected) / 3
    assert [(e.step, e.head) for e in engines] == before
    assert run(session, request).tokens == expected


def test_which_algorithms_promise_the_targets_tokens() -> None:
    assert all(greedy_is_exact(decgraph.load(name)) for name in ("autoregressive", "speculative", "eagle2", "medusa_match"))
    assert not greedy_is_exact(decgraph.load("beam_patience"))


@pytest.mark.parametrize(("name", "baseline", "message"), [
    ("speculative", "nothing", "no baseline 'nothing'"),
    ("eagle2", None, "needs features trained on tiny"),
    ("medusa_match", None, "needs heads trained on tiny"),
])  # fmt: skip
def test_what_cannot_be_compared(name: str, baseline: str | None, message: str, small: weights.Weights) -> None:
    with pytest.raises(DecError, match=message):
        measure.against_transformers(name, small, TINY, usual=baseline)


def test_a_masked_row() -> None:
    """On the shipped masked model, with a small canvas: as many calls as the interpreter makes, and its tokens."""
    from decgraph.bench.masked import against_another

    row = against_another("fast_dllm", TINY, given={"length": 16, "block": 8})
    assert row["params"]["length"] == 16 and row["baseline"] == "fast_dllm_uncached"
    meant = row["interpreter"]
    assert meant["tokens_equal"] and meant["calls"] == meant["interpreter_calls"] > 0
    assert not decoding.wrong(row)
    with pytest.raises(DecError, match="the same kind of model"):
        against_another("fast_dllm", TINY, usual="speculative")
