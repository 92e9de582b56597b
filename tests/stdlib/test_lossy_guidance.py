"""Guidance and contrast at the settings at which they are known to change nothing, and at others, where they do. Programs that
tests/fidelity replays against their authors' code are left to it."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.letters import Letters
from lib.stdlib.table_models import module, run, tables

from decgraph.backends.registry import machine
from decgraph.check.worlds import pieces_of
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

OTHER = [3, 1, 2]
LETTERS: Any = Letters(pieces_of(4))
EQUAL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "adversarial_contrastive": ({"alpha": 0, "adversary": OTHER}, {"alpha": 1, "adversary": OTHER}),
    "diver": ({"eta": 0}, {"eta": 1, "k": 4, "span": 1, "weight": 4}),
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


@pytest.mark.parametrize("place", [-5, 99])
def test_a_place_that_is_none_is_the_nearest(place: int) -> None:
    """Who is named first is ranked last, also where the caller's function names nobody."""
    items = [3, 2, 1, 0]
    bound = Session(
        module("iterative_elimination"),
        {"target": tables()["target"]},
        {"items": items, "reach": 2},
        machine=machine("reference"),
        tokenizer=LETTERS,
        externs={"asked": lambda left: [3, *map(int, left)], "named": lambda reply, left: place},
    )
    done = bound.run(Request(prompt=(0, 1, 2), max_tokens=8))
    assert done.error is None, done.error
    assert sorted(done.tokens) == sorted(items) and done.tokens[-1] == items[min(max(place, 0), 3)]


def scored(name: str, score: Any, temperature: float = 1, **params: Any) -> list[tuple[int, ...]]:
    """Texts of a program with a score of the caller's."""
    extern = {"controlled_decoding": "prefix_score", "transfer_q": "reward"}[name]
    have = tables()
    models = {p.name: have[p.name] for p in module(name).entry.params if p.value.type.elem == "model"}
    bound = Session(module(name), models, params, machine=machine("reference"), tokenizer=LETTERS, externs={extern: score})
    done = [bound.run(Request(prompt=p, max_tokens=9, seed=n, temperature=temperature)) for n, p in enumerate(PROMPTS)]
    assert all(d.error is None for d in done), [str(d.error) for d in done]
    return [d.tokens for d in done]


def counts(letter: int) -> Any:
    """How often a letter stands in a text."""
    return lambda text: float(text.count(LETTERS.decode([letter])))


def test_a_score_chooses_the_block() -> None:
    """With a scorer that counts a letter, the best of eight blocks have more of it than one draw."""
    one, eight = (scored("controlled_decoding", counts(2), k=k, block=3) for k in (1, 8))
    assert sum(t.count(2) for t in eight) > sum(t.count(2) for t in one)


def test_a_scorer_reads_the_text_from_its_beginning() -> None:
    """Of every block after the first the prompt and what is committed, not the block alone."""
    for name, more in (("controlled_decoding", {"block": 2}), ("transfer_q", {"horizon": 1})):
        heard: list[str] = []

        def score(text: str, heard: list[str] = heard) -> float:
            heard.append(text)
            return float(len(text))

        done = scored(name, score, k=2, **more)
        for prompt, tokens in zip(PROMPTS, done, strict=True):
            whole = LETTERS.decode([*prompt, *tokens])
            assert any(text.startswith(whole[: len(prompt) + 4]) for text in heard), name
        assert all(any(text.startswith(LETTERS.decode(prompt)) for prompt in PROMPTS) for text in heard), name
