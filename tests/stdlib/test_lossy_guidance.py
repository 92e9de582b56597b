"""Guidance and contrast at the settings at which they are known to change nothing, and at others, where they do."""

from __future__ import annotations

from typing import Any

import pytest
from shelf import run, tables

from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

OTHER = [3, 1, 2]
EQUAL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cfg": ({"scale": 1, "negative": OTHER}, {"scale": 3, "negative": OTHER}),
    "instructive_decoding": ({"epsilon": 0, "noisy": OTHER}, {"epsilon": 1, "noisy": OTHER}),
    "context_aware_decoding": ({"alpha": 0, "context": 2}, {"alpha": 4, "context": 2}),
    "contrastive_decoding": ({"alpha": 0, "weight": 0}, {"alpha": 0, "weight": 4}),
    "adversarial_contrastive": ({"alpha": 0, "adversary": OTHER}, {"alpha": 1, "adversary": OTHER}),
    "alignment_enhanced": ({"bias": 64, "system": OTHER}, {"bias": 0, "system": OTHER, "top_p": 0.5}),
    "uscd": ({"weight": 0, "sure": 1, "least": 0, "lame": OTHER}, {"weight": 1, "sure": 1, "least": 0, "lame": OTHER}),
    "diver": ({"eta": 0}, {"eta": 1, "k": 4, "span": 1, "weight": 4}),
    "self_infilling": ({"tau": 0}, {"tau": 1, "length": 3, "suffix": [3], "middle": [2]}),
    "anchored": ({"budget": 16}, {"budget": 0}),
}
"""Parameters with which a program commits what the target would, and with which some text is another one."""
PROMPTS = [(0, 1, 2), (3, 3), (1, 0, 2, 1), (2, 2, 1)]


def texts(name: str, models: dict[str, Model] | None = None, **params: Any) -> list[tuple[int, ...]]:
    """Drawn ones, then greedy ones."""
    asked = [(p, n, t) for t in (1, 0) for n, p in enumerate(PROMPTS)]
    return [run(name, models, params, prompt=p, limit=7, seed=n, temperature=t).tokens for p, n, t in asked]


@pytest.mark.parametrize("name", EQUAL)
def test_equals_the_target_at_a_setting_and_differs_at_another(name: str) -> None:
    """Also with noise: the token is read from the noise of the position, as the target's own is."""
    same, other = EQUAL[name]
    assert texts(name, **same) == texts("autoregressive")
    assert texts(name, **other) != texts("autoregressive")


def test_without_a_budget_the_safe_model_decodes() -> None:
    assert texts("anchored", budget=0) == texts("autoregressive", {"target": tables()["drafter"]})


@pytest.mark.parametrize("items", [[2, 0, 3], [1], [3, 2, 1, 0]])
def test_a_ranking_has_every_candidate_once(items: list[int]) -> None:
    target = tables()["target"]
    for prompt in PROMPTS:
        done = run("iterative_elimination", None, {"items": items}, prompt=prompt, limit=8)
        assert sorted(done.tokens) == sorted(items)
        row = target.eval([(*prompt, *items)])[0].to_float().logits  # type: ignore[index]
        assert done.tokens[-1] == max(items, key=lambda t: row[t])  # who is named first is ranked last


def test_a_score_chooses_the_block() -> None:
    """With a scorer that counts a letter, blocks have at least as many of it as those of one draw."""
    from shelf import module

    from decgraph.backends.registry import machine
    from decgraph.check.worlds import detokenizer_for

    class Letters:
        detokenizer = detokenizer_for(4)

        def encode(self, text: str) -> list[int]:
            return [0]

        def decode(self, tokens: Any) -> str:
            return "".join(self.detokenizer.text([t]) for t in tokens)

    letter = Letters().decode([2])
    counts = {}
    for k in (1, 8):
        bound = Session(
            module("controlled_decoding"),
            {"target": tables()["target"]},
            {"k": k, "block": 3},
            machine=machine("reference"),
            tokenizer=Letters(),  # type: ignore[arg-type]
            externs={"prefix_score": lambda text: float(text.count(letter))},
        )
        done = [bound.run(Request(prompt=p, limit=9, seed=n)) for n, p in enumerate(PROMPTS)]
        assert all(d.error is None for d in done), [str(d.error) for d in done]
        counts[k] = sum(d.tokens.count(2) for d in done)
    assert counts[8] > counts[1]
