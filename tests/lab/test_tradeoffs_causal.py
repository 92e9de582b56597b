"""Trade-offs of causal programs: what is measured, what stands in for trained parts, and some shapes live."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import decgraph
from lab.tradeoffs import causal_measures as measures
from lab.tradeoffs import causal_standins as standins
from lab.tradeoffs.causal import SWEEPS, Causal, Entry
from lab.tradeoffs.sweeps import load, measured


def test_the_results_have_the_measures_of_the_table() -> None:
    for sweep, row in zip(SWEEPS, load("causal")["rows"], strict=True):
        assert set(row["points"][0]) == {shape.measure for shape in sweep.shapes} | set(sweep.also)


def ends(name: str, **changes: Any) -> Entry:
    """An entry at the first and the last value of its knob, with fewer tokens."""
    (e,) = (e for e in SWEEPS if e.algorithm == name and e.model == "target")
    return replace(e, values=(e.values[0], e.values[-1]), **changes)


@pytest.mark.budget(8)
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("judge_decoding", {}),
        ("unified_skip", {"limit": 16}),
        ("kv_evict", {"limit": 12}),
        ("momentum", {"limit": 48}),
        ("cfg", {"limit": 16}),
        ("kgw_watermark", {"limit": 32, "seeds": 1}),
    ],
)
def test_a_shape_measured_again(name: str, changes: dict[str, Any]) -> None:
    sweep = ends(name, **changes)
    row = measured(sweep, Causal())
    assert not sweep.failed(row), row


def test_without_an_effect_no_shape_is_shown() -> None:
    """The same setting twice, under the names of the first and the last value."""
    sweep = replace(ends("unified_skip"), values=(1.0, 1.0), limit=4)
    assert [shape.measure for shape in sweep.failed(measured(sweep, Causal()))] == ["layers", "greedy"]


def test_text_is_scored_as_decgraph_scores_it() -> None:
    """transformers' forward of the folder, against the log-probabilities that a run returns."""
    session = decgraph.load("autoregressive").session()
    prompt = tuple(session.tokenizer.encode("def main():"))  # type: ignore[union-attr]
    done = session.run(decgraph.Request(prompt, max_tokens=8, temperature=1, logprobs=0))
    logp, best = measures.read("target", prompt, tuple(done.tokens))
    assert done.logprobs is not None
    assert logp == pytest.approx(done.logprobs.tokens, abs=1e-3)
    greedy = session.run(decgraph.Request(prompt, max_tokens=8, temperature=0))
    assert all(measures.read("target", prompt, tuple(greedy.tokens))[1]) and not all(best)


@pytest.mark.parametrize(
    ("call", "layers"),
    [
        ("target", 6),
        ("target.skip({})", 6),
        ("target.skip({1, 2})", 4),
        ("target.skip(attention = {}, mlp = {1, 2, 3})", 4.5),
        ("target.exit(4)", 4),
        ("target.skip({1}).upto(2)", None),
        ("drafter", None),
    ],
)
def test_layers_of_a_call(call: str, layers: float | None) -> None:
    assert measures.layers_of(call, 6) == layers


def test_texts_are_compared() -> None:
    assert measures.distinct((1, 2, 1, 2, 1), 2) == 0.5 and measures.distinct((1,), 2) == 1
    assert measures.likeness(" 123\n", "123") == 1 and measures.likeness("4", "123") == 0


def test_a_watermarks_key_halves_the_vocabulary() -> None:
    assert len(set(standins.green((5,)))) == standins.VOCAB // 2
    assert standins.green((5,)) != standins.green((6,)) and standins.ones((1, 2), 0) != standins.ones((1, 2), 1)


def test_budgets_beyond_the_text_keep_everything() -> None:
    big = {"prefill": 999, "window": 4, "heavy": 999, "recent": 999, "capacity": 999, "sinks": 4}
    assert standins.evicted(big, 20, 5) == standins.compressed(big, 20, 5) == standins.sparsely(big, 20, 5) == 1
    assert standins.parallel({"shared": 4, "length": 999, "question": 2}, 20, 0) == 1
    assert standins.prefilled({"segment": 4, "block": 2, "budget": 999}, 20, 0) == 1
    assert standins.quantized({"bits": 8, "bits_v": 8, "residual": 0}, 20, 5) == 0.25
