"""Decoders whose model reads other texts than the request: what they read, and the settings at which that changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.table_models import module, run, tables

from decgraph.backends.registry import machine
from decgraph.check.worlds import detokenizer_for
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

SOURCE = [2, 0, 3, 1, 1, 2]
PROMPTS = [(0, 1), (3,), (2, 2, 1)]


@pytest.mark.parametrize("temperature", [0, 1])
def test_wait_k_is_the_model_behind_the_source_where_all_of_it_is_read(temperature: float) -> None:
    for prompt in PROMPTS:
        done = run("wait_k", None, {"source": SOURCE, "k": 6}, prompt=prompt, max_tokens=5, temperature=0)
        assert done.tokens == run("autoregressive", prompt=(*SOURCE, *prompt), max_tokens=5, temperature=0).tokens
        none = run("wait_k", None, {"source": [], "k": 1}, prompt=prompt, max_tokens=5, temperature=temperature)
        assert none.tokens == run("autoregressive", prompt=prompt, max_tokens=5, temperature=temperature).tokens


def test_wait_k_writes_each_token_from_one_more_of_the_source() -> None:
    model = tables()["target"]
    for k in (1, 3):
        done = run("wait_k", {"target": model}, {"source": SOURCE, "k": k}, prompt=(0, 1), max_tokens=5, temperature=0)
        for n, token in enumerate(done.tokens):
            row = model.eval([(*SOURCE[: k + n], 0, 1, *done.tokens[:n])])[0].weights
            assert row is not None
            assert token == max(range(4), key=lambda t: row[t])
    texts = [run("wait_k", None, {"source": SOURCE, "k": k}, prompt=(0, 1), max_tokens=5, temperature=0).tokens for k in (1, 6)]
    assert texts[0] != texts[1]


class Letters:
    """A tokenizer whose tokens are letters."""

    detokenizer = detokenizer_for(4)

    def encode(self, text: str) -> list[int]:
        return [0]

    def decode(self, tokens: Any) -> str:
        return "".join(self.detokenizer.text([t]) for t in tokens)


def refined(reward: Any, prompt: tuple[int, ...], **params: Any) -> tuple[int, ...]:
    """What iterative_agent commits with a verifier of the caller's."""
    letters: Any = Letters()
    bound = Session(
        module("iterative_agent"),
        {"target": tables()["target"]},
        {"reach": 4, "good": [1, 3], "bad": [0], **params},
        machine=machine("reference"),
        tokenizer=letters,
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

    text = Letters().decode
    first = refined(lambda t: 1.0, prompt)
    got = refined(least_of_the_first_letter, prompt, rounds=6)
    assert len(seen) in range(2, 8)  # equal texts are scored once
    assert seen[0] == text(first)
    assert text(got) == max(seen, key=lambda t: -t.count(t[0]))
    seen.clear()
    assert refined(least_of_the_first_letter, prompt, rounds=0) == first
    assert len(seen) == 1
