"""What callers hand over in the place of a prompt, models, parameters ...: whatever it is, a message says what is wanted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import decgraph
from decgraph.api import Algorithm
from decgraph.errors import DecError
from decgraph.runtime.keywords import keywords_of
from decgraph.runtime.request import RequestFields
from decgraph.runtime.session import Session

OTHERS: tuple[Any, ...] = (
    *(5, 1.5, "x y", b"ab", None, object(), [object()], [1.5], ["a", "b"], {"a": 1}, {1, 2}, [[1], [2]], True),
)
FIELDS = (*RequestFields.__annotations__, *set(keywords_of(Algorithm.run)) - {"prompt"})


def ended(result: decgraph.Result) -> None:
    assert result.error is None or isinstance(result.error, DecError)


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("field", sorted(FIELDS))
def test_arguments_of_a_run(field: str, value: Any) -> None:
    with contextlib.suppress(DecError):  # anything else fails
        ended(decgraph.run("autoregressive", (1, 2), **{"max_tokens": 1, "temperature": 0, field: value}))


@pytest.fixture(scope="module")
def session() -> Session:
    return decgraph.load("autoregressive").session()


DOORS: dict[str, Callable[[Session, Any], Any]] = {
    "run": lambda s, p: ended(s.run(p, max_tokens=1)),
    "stream": lambda s, p: list(s.stream(p, max_tokens=1)),
    "generate": lambda s, p: s.generate(p, max_tokens=1),
    "stream_many": lambda s, p: list(s.stream_many(p, max_tokens=1)),
    "load": lambda s, p: decgraph.load(p),
    "parse": lambda s, p: decgraph.parse(p),
    "check": lambda s, p: decgraph.check(p),
    "hf": lambda s, p: decgraph.hf(p),
    "masked": lambda s, p: decgraph.masked(p),
}


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("door", DOORS)
def test_things_in_the_place_of_a_prompt_or_a_program(door: str, value: Any, session: Session) -> None:
    with contextlib.suppress(DecError):
        DOORS[door](session, value)


def test_a_session_runs_and_streams_a_prompt(session: Session) -> None:
    result = session.run("import os", max_tokens=4, temperature=0)
    assert len(result.tokens) == 4
    *_, last = session.stream("import os", max_tokens=4, temperature=0)
    assert last.tokens == result.tokens == session.generate(["import os"], max_tokens=4, temperature=0)[0].tokens
    with pytest.raises(DecError, match="beside a Request"):
        session.run(decgraph.Request((1, 2)), max_tokens=4)


def test_one_text_is_no_list_of_prompts(session: Session) -> None:
    with pytest.raises(DecError, match="not a list of prompts"):
        session.generate("import os", max_tokens=4)
    with pytest.raises(DecError, match="several prompts"):
        session.run(["import os", "def"], max_tokens=4)
