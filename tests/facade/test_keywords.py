"""Misspelt keyword arguments: the word is named, the right one suggested, and no model is read before."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.errors import DecError


def session(**more: Any) -> None:
    decgraph.load("speculative").session(**more)


def run(**more: Any) -> None:
    decgraph.run("speculative", "import os", **more)


def hf(**more: Any) -> None:
    decgraph.hf("speculative", **more)


@pytest.mark.parametrize(("door", "word", "meant"), [
    (hf, "drafer", "did you mean drafter"),
    (hf, "gama", "did you mean gamma"),
    (hf, "bakend", "did you mean backend"),
    (hf, "reuse_prefixes", "did you mean reuse_prefix"),
    (hf, "mask_tokn", "did you mean mask_token"),
    (session, "traget", "did you mean target"),
    (session, "gama", "did you mean gamma"),
    (session, "modles", "did you mean models"),
    (session, "tokeniser", "did you mean tokenizer"),
    (run, "max_token", "did you mean max_tokens"),
    (run, "modles", "did you mean models"),
    (run, "temprature", "did you mean temperature"),
    (run, "gamma", 'params={"gamma": ...}'),
    (run, "drafter", 'models={"drafter": ...}'),
    (run, "zzz", "it has prompt"),
])  # fmt: skip
def test_the_word_is_named_and_the_right_one_suggested(
    door: Any, word: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decgraph.models.bind", lambda *_, **__: pytest.fail("models were read"))
    with pytest.raises(DecError, match=f"has no `{word}`") as found:
        door(**{word: 3})
    assert meant in found.value.hint


def test_what_a_session_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from decgraph.models import request_for

    made = decgraph.load("autoregressive").session()
    for ask in (lambda: made.generate(["a"], max_token=3), lambda: request_for(made, "a", max_token=3)):  # type: ignore[call-arg]
        with pytest.raises(DecError, match="a request has no `max_token`") as found:
            ask()
        assert "did you mean max_tokens" in found.value.hint
