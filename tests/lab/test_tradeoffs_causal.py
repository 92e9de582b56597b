"""Sweeps of lossy causal programs: each has one, the page is what the results say, and some shapes are measured again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import decgraph
from decgraph import stdlib
from lab import tradeoffs_causal as tradeoffs
from lab import tradeoffs_causal_measures as measures
from lab import tradeoffs_causal_page as page
from lab import tradeoffs_causal_standins as standins
from lab.tradeoffs_causal_entries import LEFT_OUT, Entry, entries

ENTRIES = {e.name: e for e in entries()}


def lossy() -> set[str]:
    """Programs of the standard library that call causal models alone and do not claim to be another one at every setting."""
    out = set()
    for name in stdlib.names():
        algorithm = decgraph.load(name)
        exact = any(c.kind == "refines" and not c.when for c in algorithm.claims)
        if not exact and "causal" in algorithm.models.values() and "masked" not in algorithm.models.values():
            out.add(name)
    return out


def test_every_lossy_causal_program_is_swept_or_left_out() -> None:
    swept = {e.program for e in entries()}
    assert lossy() - swept == set(LEFT_OUT)
    assert not swept & set(LEFT_OUT) and swept <= set(stdlib.names())


def test_the_results_are_those_of_the_entries() -> None:
    rows = {(r["program"], r["model"]): r for r in tradeoffs.load()}
    assert list(rows) == [(e.program, e.model) for e in entries()]
    for e in entries():
        row = rows[e.program, e.model]
        assert row["values"] == list(e.values) and row["knob"] == e.knob and row["family"] == e.family
        assert set(row["points"][0]) == {m for m, _, _ in e.shape} | set(e.also)


def test_a_verdict_follows_from_its_points() -> None:
    for row, e in zip(tradeoffs.load(), entries(), strict=True):
        failed = [shape[0] for shape in e.shape if not tradeoffs.holds(shape, row["points"])]
        assert failed == row["failed"] and row["shown"] == (not failed)
        assert bool(e.why) == bool(failed), f"{e.name}: a reason where the shape is not shown, and only there"


def test_the_page_is_what_the_results_say() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text(tradeoffs.load(), entries(), tradeoffs.CORRELATION)
    assert all((page.DOCS / "images" / f"tradeoffs-causal-{name}.png").is_file() for name in page.PLOTS)


def ends(name: str, **changes: Any) -> Entry:
    """An entry at the first and the last value of its knob, with fewer tokens."""
    e = ENTRIES[name]
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
    row = tradeoffs.swept(ends(name, **changes))
    assert row["shown"], (row["failed"], row["points"])


def test_without_an_effect_no_shape_is_shown() -> None:
    """The same setting twice, under the names of the first and the last value."""
    e = ENTRIES["unified_skip"]
    row = tradeoffs.swept(replace(e, values=(1.0, 1.0), limit=4))
    assert row["failed"] == ["layers", "greedy"] and not row["shown"]


@pytest.mark.parametrize(
    ("shape", "values", "true"),
    [
        (("m", "rises", 1.0), (0, 0.5, 1), True),
        (("m", "rises", 1.0), (0, 0.5, 0.9), False),
        (("m", "rises", 0.5), (0, 3, 2.5, 1), False),
        (("m", "falls", 0.5), (1, 0.2, 0.3), True),
        (("m", "stays", 0.1), (1, 1.05, 1), True),
        (("m", "stays", 0.1), (1, 1.2, 1), False),
        (("m", "rises", 0.0), (1, 1, 1), False),
        (("m", "exceeds", 0.0), (0.1, 0.2, 0.1), True),
        (("m", "exceeds", 0.0), (0.1, 0.0), False),
    ],
)
def test_what_holds(shape: Any, values: tuple[float, ...], true: bool) -> None:
    assert tradeoffs.holds(shape, [{"m": v} for v in values]) == true


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
