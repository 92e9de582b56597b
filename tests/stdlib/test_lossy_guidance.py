"""Guidance and contrast at the settings at which they are known to change nothing, and at others, where they do."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.table_models import module, run, tables

from decgraph.backends.registry import machine
from decgraph.check.worlds import detokenizer_for
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
    return [run(name, models, params, prompt=p, max_tokens=7, seed=n, temperature=t).tokens for p, n, t in asked]


@pytest.mark.parametrize("name", EQUAL)
def test_equals_the_target_at_a_setting_and_differs_at_another(name: str) -> None:
    """Also with noise: the token is read from the noise of the position, as the target's own is."""
    same, other = EQUAL[name]
    assert texts(name, **same) == texts("autoregressive")
    assert texts(name, **other) != texts("autoregressive")


def test_without_a_budget_the_safe_model_decodes() -> None:
    assert texts("anchored", budget=0) == texts("autoregressive", {"target": tables()["drafter"]})


class Letters:
    """A tokenizer whose tokens are letters."""

    detokenizer = detokenizer_for(4)

    def encode(self, text: str) -> list[int]:
        return [0]

    def decode(self, tokens: Any) -> str:
        return "".join(self.detokenizer.text([t]) for t in tokens)


@pytest.mark.parametrize("items", [[2, 0, 3], [1], [3, 2, 1, 0]])
@pytest.mark.parametrize("place", [-5, 0, 1, 99])
def test_a_ranking_has_every_candidate_once(items: list[int], place: int) -> None:
    """Also where the caller's function names a place that is none: the nearest one goes."""
    letters: Any = Letters()
    bound = Session(
        module("iterative_elimination"),
        {"target": tables()["target"]},
        {"items": items, "reach": 2},
        machine=machine("reference"),
        tokenizer=letters,
        externs={"asked": lambda left: [3, *map(int, left)], "named": lambda reply, left: place},
    )
    for prompt in PROMPTS:
        done = bound.run(Request(prompt=prompt, max_tokens=8))
        assert done.error is None, done.error
        assert sorted(done.tokens) == sorted(items)
        assert (
            len(items) == 1 or done.tokens[-1] == items[min(max(place, 0), len(items) - 1)]
        )  # who is named first is ranked last


def scored(name: str, score: Any, temperature: float = 1, **params: Any) -> list[tuple[int, ...]]:
    """Texts of a program with a score of the caller's."""
    extern = {"controlled_decoding": "prefix_score", "transfer_q": "reward"}[name]
    have = tables()
    models = {p.name: have[p.name] for p in module(name).entry.params if p.value.type.elem == "model"}
    letters: Any = Letters()
    bound = Session(module(name), models, params, machine=machine("reference"), tokenizer=letters, externs={extern: score})
    done = [bound.run(Request(prompt=p, max_tokens=9, seed=n, temperature=temperature)) for n, p in enumerate(PROMPTS)]
    assert all(d.error is None for d in done), [str(d.error) for d in done]
    return [d.tokens for d in done]


def counts(letter: int) -> Any:
    """How often a letter stands in a text."""
    return lambda text: float(text.count(Letters().decode([letter])))


def test_a_score_chooses_the_block() -> None:
    """With a scorer that counts a letter, the best of eight blocks have more of it than one draw."""
    one, eight = (scored("controlled_decoding", counts(2), k=k, block=3) for k in (1, 8))
    assert sum(t.count(2) for t in eight) > sum(t.count(2) for t in one)


def test_a_reward_tilts_the_next_token() -> None:
    """Without a reward the likeliest stays so, a large one is followed, and only the k likeliest are ever drawn."""
    greedy = [run("autoregressive", None, {}, prompt=p, max_tokens=9, temperature=0).tokens for p in PROMPTS]
    assert scored("transfer_q", lambda text: 0.0, 0, k=3, horizon=2) == greedy
    with_it = {t for t in range(4) if Letters().decode([1]) in Letters().decode([t])}
    assert all(set(t) <= with_it != {0, 1, 2, 3} for t in scored("transfer_q", counts(1), 0, k=4, horizon=0, alpha=0.05))
    target = tables()["target"]
    for prompt, tokens in zip(PROMPTS, scored("transfer_q", counts(1), k=2, horizon=1), strict=True):
        for n, token in enumerate(tokens):
            row = target.eval([(*prompt, *tokens[:n])])[0].to_float().logits
            assert row is not None and sum(x > row[token] for x in row) < 2


def test_a_scorer_reads_the_text_from_its_beginning() -> None:
    """Of every block after the first the prompt and what is committed, not the block alone."""
    for name, more in (("controlled_decoding", {"block": 2}), ("transfer_q", {"horizon": 1})):
        heard: list[str] = []

        def score(text: str, heard: list[str] = heard) -> float:
            heard.append(text)
            return float(len(text))

        done = scored(name, score, k=2, **more)
        for prompt, tokens in zip(PROMPTS, done, strict=True):
            whole = Letters().decode([*prompt, *tokens])
            assert any(text.startswith(whole[: len(prompt) + 4]) for text in heard), name
        assert all(any(text.startswith(Letters().decode(prompt)) for prompt in PROMPTS) for text in heard), name
