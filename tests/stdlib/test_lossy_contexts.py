"""Decoders whose model reads other texts than the request: what they read, and the settings at which that changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.letters import Letters
from lib.stdlib.table_models import module, run, tables

from decgraph.backends.registry import machine
from decgraph.check.worlds import pieces_of
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

PROMPTS = [(0, 1), (3,), (2, 2, 1)]
LETTERS: Any = Letters(pieces_of(4))


def test_wait_k_without_a_source_is_the_model() -> None:
    for prompt in PROMPTS:
        none = run("wait_k", None, {"source": [], "k": 1}, prompt=prompt, max_tokens=5)
        assert none.tokens == run("autoregressive", prompt=prompt, max_tokens=5).tokens


def refined(reward: Any, prompt: tuple[int, ...], **params: Any) -> tuple[int, ...]:
    """What iterative_agent commits with a verifier of the caller's."""
    bound = Session(
        module("iterative_agent"),
        {"target": tables()["target"]},
        {"reach": 4, "good": [1, 3], "bad": [0], **params},
        machine=machine("reference"),
        tokenizer=LETTERS,
        externs={"reward": reward},
    )
    done = bound.run(Request(prompt=prompt, max_tokens=4, seed=5, temperature=params.pop("temperature", 1)))
    assert done.error is None, done.error
    return done.tokens


@pytest.mark.parametrize("prompt", PROMPTS)
def test_an_answer_is_refined_until_the_verifier_likes_it_better(prompt: tuple[int, ...]) -> None:
    """The first answer is committed where all are worth the same, and else the best of the texts that the verifier saw."""
    seen: list[str] = []

    def least_of_the_first_letter(text: str) -> float:
        seen.append(text)
        return -text.count(text[0])

    text = LETTERS.decode
    first = refined(lambda t: 1.0, prompt)
    got = refined(least_of_the_first_letter, prompt, rounds=6)
    assert len(seen) in range(2, 8)  # equal texts are scored once
    assert seen[0] == text(first)
    assert text(got) == max(seen, key=lambda t: -t.count(t[0]))
    seen.clear()
    assert refined(least_of_the_first_letter, prompt, rounds=0) == first
    assert len(seen) == 1
