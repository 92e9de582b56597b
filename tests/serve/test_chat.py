"""Chat completions: messages go through the model's template, turns reuse each other's cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lib.server import client, served

import decgraph
from decgraph.serve.catalogue import Catalogue

TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'king' %}{{ raise_exception('no kings') }}{% endif %}"
    "<{{ m['role'] }}> {{ m['content'] }}\n{% endfor %}<assistant> "
)
HELLO = {"role": "user", "content": "hello there, how are you today?"}


@pytest.fixture(scope="module")
def chatting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The shipped target with a chat template."""
    home = tmp_path_factory.mktemp("models") / "parrot"
    home.mkdir()
    for file in decgraph.zoo.path("target").iterdir():
        (home / file.name).symlink_to(file)
    (home / "chat_template.jinja").write_text(TEMPLATE)
    with served(Catalogue(["prompt_lookup"], str(home))) as running, client(running) as api:
        running.api, running.home = api, home
        yield running


def alone(home: Path, messages: list[Any], **fields: Any) -> str:
    return decgraph.run("prompt_lookup", messages, {"target": str(home)}, **fields).text


def test_a_conversation(chatting: Any) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be short."}, HELLO]
    for turn in range(2):
        fields: Any = {"seed": turn, "temperature": 0.7}
        got = chatting.api.chat.completions.create(model="parrot", messages=messages, max_completion_tokens=12, **fields)
        (choice,) = got.choices
        assert choice.message.role == "assistant"
        assert choice.message.content == alone(chatting.home, messages, max_tokens=12, **fields)
        assert (got.usage.prompt_tokens_details.cached_tokens > 16) == (turn > 0)
        messages += [{"role": "assistant", "content": choice.message.content}, {"role": "user", "content": "and now?"}]


def test_a_stream(chatting: Any) -> None:
    fields: Any = {"model": "parrot", "messages": [HELLO], "max_tokens": 12, "seed": 3, "n": 2}
    chunks = list(chatting.api.chat.completions.create(stream=True, **fields))
    whole = chatting.api.chat.completions.create(**fields)
    for choice in whole.choices:
        mine = [c.choices[0] for c in chunks if c.choices[0].index == choice.index]
        assert mine[0].delta.role == "assistant" and mine[-1].finish_reason == choice.finish_reason
        assert "".join(c.delta.content or "" for c in mine) == choice.message.content


def test_log_probabilities(chatting: Any) -> None:
    fields: Any = {"model": "parrot", "messages": [HELLO], "max_tokens": 5, "temperature": 0}
    got = chatting.api.chat.completions.create(logprobs=True, top_logprobs=3, **fields).choices[0]
    rows = got.logprobs.content
    assert b"".join(bytes(row.bytes) for row in rows).decode() == got.message.content
    assert all(len(row.top_logprobs) == 3 and row.top_logprobs[0].logprob == row.logprob for row in rows)
    streamed = list(chatting.api.chat.completions.create(logprobs=True, top_logprobs=3, stream=True, **fields))
    (told,) = [c.choices[0].logprobs for c in streamed if c.choices[0].logprobs]
    assert [row.token for row in told.content] == [row.token for row in rows]


def test_parts_and_a_json_object(chatting: Any) -> None:
    parts = {"role": "developer", "content": [{"type": "text", "text": "Answer "}, {"type": "text", "text": "as JSON."}]}
    got = chatting.api.chat.completions.create(
        model="parrot", messages=[parts, HELLO], max_tokens=40, seed=1, temperature=0.5, response_format={"type": "json_object"}
    )
    text = got.choices[0].message.content
    assert text.lstrip().startswith("{")
    if got.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)


def test_without_a_limit_an_answer_ends_at_the_context(chatting: Any) -> None:
    window = chatting.service.catalogue.sessions["prompt_lookup"].models["target"].context
    prompt = [{"role": "user", "content": "x y z " * ((window - 40) // 3)}]
    tokens = chatting.api.chat.completions.create(model="parrot", messages=prompt, logit_bias={"0": -100}, temperature=0)
    assert tokens.choices[0].finish_reason == "length" and tokens.usage.total_tokens == window


@pytest.mark.slow
@pytest.mark.budget(36)
def test_a_real_chat_model() -> None:
    try:
        folder = decgraph.zoo.path("smollm2")
    except decgraph.DecError:
        pytest.skip("smollm2 was not fetched")
    with served(Catalogue(["autoregressive", "prompt_lookup"], "smollm2")) as running, client(running) as api:
        question = [{"role": "user", "content": "What is the capital of France?"}]
        for model in ("smollm2", "smollm2:prompt_lookup"):
            got = api.chat.completions.create(model=model, messages=question, temperature=0, max_tokens=16)
            assert got.choices[0].message.content == "The capital of France is Paris.", folder
            assert got.choices[0].finish_reason == "stop"
