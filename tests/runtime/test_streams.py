"""Streams of many requests: every event under its number, every result at its end, and an end when the reader leaves."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.trace import Committed

PROMPTS: list[Any] = [(0, 1), (2,), (3, 3, 1), (1,)]


@pytest.fixture
def session() -> Session:
    models = {"target": TableModel(4, seed=1, name="target"), "drafter": TableModel(4, seed=2, name="drafter")}
    return decgraph.load("speculative").session(models)


def test_every_request_streams(session: Session) -> None:
    committed: dict[int, tuple[int, ...]] = dict.fromkeys(range(4), ())
    results: dict[int, Result] = {}
    for number, item in session.stream_many(PROMPTS, batch=3, max_tokens=12, temperature=1, seed=4):
        assert number not in results, "an event after the result"
        if isinstance(item, Result):
            results[number] = item
        elif isinstance(item, Committed):
            committed[number] += item.tokens
    whole = session.generate(PROMPTS, max_tokens=12, temperature=1, seed=4)
    assert [results[n].tokens for n in range(4)] == [r.tokens for r in whole] == [committed[n] for n in range(4)]


def test_a_reader_may_leave(session: Session) -> None:
    stream = session.stream_many(PROMPTS, max_tokens=100_000)
    next(stream)
    stream.close()  # type: ignore[attr-defined]


def test_nothing_to_stream(session: Session) -> None:
    assert list(session.stream_many([])) == []


def test_what_cannot_begin_is_refused(session: Session) -> None:
    with pytest.raises(decgraph.DecError, match="below the vocabulary's size"):
        list(session.stream_many([(0,), (9,)]))


def test_one_that_fails_does_not_end_the_others(session: Session) -> None:
    def bad(path: tuple[int, ...]) -> bool:
        raise ValueError("mine")

    asked = [Request((0,), max_tokens=4), Request((1,), max_tokens=4, until=(bad,))]
    ends = {n: item for n, item in session.stream_many(asked) if isinstance(item, Result)}
    assert ends[0].error is None and len(ends[0].tokens) == 4
    assert ends[1].error is not None and "mine" in str(ends[1].error)
