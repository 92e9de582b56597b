"""A server whose answers are whole steps: algorithms mixed, streamed, stopped and cancelled, each as it would be alone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from lib.server import client, served
from lib.waiting import until

from decgraph import load
from decgraph.serve.catalogue import Catalogue

ALGORITHMS = ("speculative", "autoregressive", "eagle2")
PROMPT = "The quick brown fox jumps over the lazy dog and runs away from the"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue(ALGORITHMS, "target", drafter="drafter", backend="triton")


@pytest.fixture(scope="module")
def server(catalogue: Catalogue) -> Iterator[Any]:
    with served(catalogue, width=4, queue=32, chunk=8) as running:
        yield running


@pytest.fixture(scope="module")
def api(server: Any) -> Iterator[Any]:
    with client(server) as made:
        yield made


def alone(number: int, **fields: Any) -> str:
    """The text of one request on the torch backend, by itself."""
    session = load(ALGORITHMS[number % 3]).session(backend="torch")
    return session.generate([PROMPT[number:]], request_id=0, **fields)[0].text


@pytest.mark.budget(10)
def test_answers_of_mixed_algorithms_are_those_of_each_alone(api: Any) -> None:
    def ask(number: int) -> str:
        fields: dict[str, Any] = {"temperature": 0.5 + number / 4, "seed": number, "max_tokens": 4 + number}
        if number % 2:
            fields |= {"top_p": 0.9, "presence_penalty": 0.5, "stop": ["e"]}
        made = api.completions.create(model=f"target:{ALGORITHMS[number % 3]}", prompt=PROMPT[number:], **fields)
        return str(made.choices[0].text)

    with ThreadPoolExecutor(7) as pool:
        texts = list(pool.map(ask, range(7)))
    for number, text in enumerate(texts):
        fields: dict[str, Any] = {"temperature": 0.5 + number / 4, "seed": number, "max_tokens": 4 + number}
        if number % 2:
            fields |= {"top_p": 0.9, "presence_penalty": 0.5, "stop": ["e"]}
        assert text == alone(number, **fields).split("e")[0] if number % 2 else alone(number, **fields), number


def test_a_stream_says_its_text_piece_by_piece(api: Any) -> None:
    fields: dict[str, Any] = {"model": "target:autoregressive", "prompt": PROMPT, "max_tokens": 12, "temperature": 0, "seed": 1}
    whole = api.completions.create(**fields).choices[0].text
    pieces = [chunk.choices[0].text for chunk in api.completions.create(**fields, stream=True) if chunk.choices]
    assert "".join(pieces) == whole and len(pieces) > 6


def test_prompts_go_on_from_what_lanes_know(api: Any) -> None:
    fields: dict[str, Any] = {"model": "target:eagle2", "max_tokens": 4, "temperature": 0, "seed": 1}
    text = "Once upon a time, in a town by the sea, there lived" * 6
    first = api.completions.create(prompt=text, **fields)
    again = api.completions.create(prompt=f"{text} a", **fields)
    reused = again.usage.prompt_tokens_details.cached_tokens
    assert 0 < reused < again.usage.prompt_tokens and not reused % 64, "whole pages"
    assert first.usage.prompt_tokens_details.cached_tokens < reused


def test_whoever_leaves_frees_a_lane(server: Any, api: Any) -> None:
    stream = api.completions.create(model="target:speculative", prompt=PROMPT, max_tokens=200, temperature=1, stream=True)
    next(iter(stream))
    stream.close()
    until("its lane is free", lambda: not len(server.service.worker))
    assert api.completions.create(model="target:speculative", prompt=PROMPT, max_tokens=3).usage.completion_tokens == 3
