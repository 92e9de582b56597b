"""Conversations: each answer is that of a request with the whole conversation, and only what is new is computed."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph import zoo
from decgraph.errors import DecError
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.prompts import request_for
from decgraph.runtime.session import Result, Session

TEMPLATE = """{% for m in messages %}# {{ m['role'] }}
{{ m['content'] }}
{% endfor %}{% if add_generation_prompt %}# assistant
{% endif %}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped target with a chat template."""
    made = shutil.copytree(zoo.path("target"), tmp_path_factory.mktemp("chat") / "chat")
    (made / "chat_template.jinja").write_text(TEMPLATE)
    return made


@pytest.fixture
def session(folder: Path) -> Session:
    return decgraph.load("prompt_lookup").session(target=folder)


def engine(session: Session) -> Any:
    return engine_of(session.models["target"])


def alone(session: Session, messages: list[dict[str, str]], **fields: Any) -> Result:
    return session.run(request_for(session, messages, **fields))


def test_answers_are_those_of_the_whole_conversation(session: Session) -> None:
    computed = []
    with session.chat("Write code.", max_tokens=24) as chat:
        for text in ("def add(a, b):", "def main():\n    for", "import os"):
            before, count = [dict(m) for m in chat.messages], engine(session).counted.computed
            result = chat.say(text)
            computed.append(engine(session).counted.computed - count)
            assert result.error is None and result.text
            assert result.tokens == alone(session, [*before, {"role": "user", "content": text}], max_tokens=24).tokens
            assert chat.messages == [*before, {"role": "user", "content": text}, {"role": "assistant", "content": result.text}]
        prompt = len(request_for(session, chat.messages[:-1]).prompt)
    assert not engine(session)._slots
    assert computed[2] < prompt / 2 + 24 * 3, "the third prompt was computed again"


def test_a_history_may_be_edited(session: Session) -> None:
    chat = session.chat(max_tokens=12)
    chat.say("def add(a, b):")
    chat.messages[-1]["content"] = "    return a - b"
    asked = [*chat.messages, {"role": "user", "content": "class A:"}]
    assert chat.say("class A:").tokens == alone(session, asked, max_tokens=12).tokens
    assert (
        chat.say("x", max_tokens=3, temperature=1, seed=5).tokens
        == alone(session, chat.messages[:-1], max_tokens=3, temperature=1, seed=5).tokens
    )
    del chat
    gc.collect()
    session.run("x", max_tokens=1)  # a finalizer runs in the middle of anything, so the next use frees the cache
    assert not engine(session)._slots


def test_answers_stream(session: Session) -> None:
    chat = session.chat(max_tokens=10)
    *events, result = chat.stream("def add(a, b):")
    assert events and isinstance(result, Result) and chat.messages[-1]["content"] == result.text


def test_an_error_leaves_the_conversation_as_it_was(session: Session) -> None:
    def bad(path: tuple[int, ...]) -> bool:
        raise ValueError("mine")

    chat = session.chat(max_tokens=10)
    assert "mine" in str(chat.say("def", until=(bad,)).error) and chat.messages == []
    assert chat.say("def").error is None
    for text in ("", 3):
        with pytest.raises(decgraph.DecError, match="a message is a text"):
            chat.say(text)  # type: ignore[arg-type]


def test_a_model_without_a_template() -> None:
    with pytest.raises(decgraph.DecError, match="no chat template"):
        decgraph.load("autoregressive").session().chat().say("hi")


@pytest.mark.parametrize("prompt", ["a\ud800", [{"role": "user", "content": "\udc00b"}]])
def test_half_of_a_surrogate_pair_is_told(session: Session, prompt: Any) -> None:
    with pytest.raises(DecError, match="half of a surrogate pair"):
        request_for(session, prompt)
