"""Clients that mean harm, or know no better: nobody else waits for them."""

from __future__ import annotations

import gc
import json
import linecache
import signal
import socket
import threading
import time
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.lazily import httpx
from lib.server import served
from lib.waiting import SECONDS, ended, until
from pydantic import ValidationError
from quick import examples

from decgraph.backends.torch.program import program_of
from decgraph.runtime import text as texts
from decgraph.runtime.prompts import request_for
from decgraph.serve.catalogue import Catalogue
from decgraph.serve.generation import Limits
from decgraph.serve.wire import ChatRequest, CompletionRequest

GOOD = {"model": "target", "prompt": "def main():\n", "max_tokens": 4}
JSON: dict[str, str] = {"content-type": "application/json"}
MANY = 5000
HOSTILE: dict[str, Any] = {
    "objects": [{"a": 1}] * MANY,
    "lists": [[1]] * MANY,
    "empty lists": [[]] * MANY,
    "nested": [[{"a": 1}] * MANY],
    "numbers": [1.5] * MANY,
    "nulls": [None] * MANY,
    "late": ["a", *[{}] * MANY],
    "fields": {f"f{i}": [] for i in range(MANY)},
    "messages": [{"role": "user", "content": [{"type": "text"}] * MANY}],
    "fields of messages": [{"role": "user", "content": "a", **{f"f{i}": 1 for i in range(MANY)}}],
    "schema": {"type": "json_schema", "json_schema": {f"f{i}": 1 for i in range(MANY)}},
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", [CompletionRequest, ChatRequest])
def test_a_body_that_is_wrong_everywhere_is_told_once(kind: Any, name: str) -> None:
    """In every field: the time of a refusal grows with the errors, and the event loop spends it."""
    good: dict[str, Any] = {"model": "m"} | ({"prompt": "a"} if kind is CompletionRequest else {"messages": []})
    for field in [*kind.model_fields, "no field"]:
        try:
            kind.model_validate({**good, field: HOSTILE[name]})
        except ValidationError as wrong:
            assert wrong.error_count() < 10, (field, wrong.errors()[:4])


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        (["a"] * 129, "`prompt` must have 128 items or less"),
        (["a", 1], "`prompt.1` must be a text"),
        ([[1], ["a"]], "`prompt.1.0` must be a whole number"),
        ({"text": "a"}, "`prompt` must be a text, token ids, or a list of either"),
    ],
)
def test_a_wrong_prompt_is_told_by_the_type_that_it_has(server: Any, prompt: Any, said: str) -> None:
    answer = httpx.post(f"{server.url}/v1/completions", json={**GOOD, "prompt": prompt}, timeout=SECONDS)
    assert answer.status_code == 400 and answer.json()["error"]["message"].startswith(said), answer.text


@pytest.mark.parametrize(
    ("body", "headers", "said"),
    [
        (b"", JSON, "the body is empty"),
        (b'{"model": "target", "prompt": "a"}', {"content-type": "text/plain"}, "Content-Type: application/json"),
        (b"[" * 100_000, JSON, "nested too deeply"),
        (b'{"seed": ' + b"9" * 5000 + b"}", JSON, "a number that is too long"),
    ],
)
def test_what_is_no_json_says_why(server: Any, body: bytes, headers: dict[str, str], said: str) -> None:
    answer = httpx.post(f"{server.url}/v1/completions", content=body, headers=headers, timeout=SECONDS)
    assert answer.status_code == 400 and said in answer.json()["error"]["message"], answer.text


def test_a_text_that_cannot_fit_is_refused_unread(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts.Tokenizer, "encode", lambda *_: pytest.fail("it was encoded"))
    for prompt in ("a" * 1_000_000, ["b", "a " * 500_000]):
        answer = httpx.post(f"{server.url}/v1/completions", json={**GOOD, "prompt": prompt}, timeout=SECONDS)
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded", answer.text


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.sampled_from([" ", "\n", "a", "def ", "#", "\u6f22", "\U0001f600", "    ", "<eos>"]), max_size=40),
    st.integers(1, 60),
)
def test_the_fewest_tokens_of_a_text_are_no_more_than_it_has(catalogue: Catalogue, parts: list[str], times: int) -> None:
    tokenizer: Any = catalogue.sessions["speculative"].tokenizer
    text = "".join(parts) * times
    assert tokenizer.fewest(text) <= len(tokenizer.encode(text))
    assert tokenizer.fewest("a" * 10_000) > 10


def test_threads_go_on_while_a_long_text_is_encoded(catalogue: Catalogue) -> None:
    tokenizer: Any = catalogue.sessions["speculative"].tokenizer
    text = "def main(): return 5\n" * 5000
    done, ticks = threading.Event(), [0]

    def tick() -> None:
        while not done.wait(0.002):
            ticks[0] += 1

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    tokens = tokenizer.encode(text)
    done.set()
    ended("the thread that counts", thread)
    assert ticks[0] >= 5, "the encoder kept the interpreter for itself"
    assert tokens[:14] == tokenizer.encode("def main(): return 5\n" * 2)[:14]


def test_others_go_on_while_a_grammar_is_compiled(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that take for ever, so that no thread of theirs is free: a request without a grammar is answered meanwhile."""
    release, begun = threading.Event(), threading.Semaphore(0)

    def compiling(*_: Any) -> None:
        begun.release()
        release.wait(SECONDS)

    monkeypatch.setattr("decgraph.serve.generation.automaton_of", compiling)
    with served(catalogue) as running:
        url = f"{running.url}/v1/completions"
        post = lambda **more: httpx.post(url, json={**GOOD, **more}, timeout=SECONDS)
        waiting = [threading.Thread(target=post, kwargs={"regex": "a" * n}, daemon=True) for n in (1, 2)]
        try:
            for thread in waiting:
                thread.start()
                assert begun.acquire(timeout=SECONDS)
            assert post().status_code == 200
        finally:
            release.set()
            ended("the requests with a grammar", *waiting)


CYCLE = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["x"]}
UNFIT: dict[str, dict[str, Any]] = {
    "a circle": {"guided_json": CYCLE},
    "a circle as a format": {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": CYCLE}}},
    "one below": {"guided_json": {"type": "array", "items": CYCLE, "minItems": 1}},
    "no value": {"guided_json": {"type": "object", "properties": {"x": {"enum": []}}, "required": ["x"]}},
    "too long": {"guided_json": {"type": "string", "pattern": "^a{5}$", "maxLength": 2}},
    "multiples": {"guided_json": {"type": "integer", "multipleOf": 99999999}},
    "repetitions": {"regex": "((((a{1,100}){1,100}){1,100}){1,100})"},
    "no character": {"regex": "[a&&b]"},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", UNFIT)
def test_a_grammar_that_fails_is_the_clients_mistake(server: Any, name: str, stream: bool) -> None:
    """At once, or where the answer has come to."""
    body = {**GOOD, "max_tokens": 60, "stream": stream, **UNFIT[name]}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=SECONDS)
    if answer.status_code == 200:
        assert stream
        error = json.loads(answer.text.split("data: ")[-1])["error"]
    else:
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
    assert error["type"] == "invalid_request_error" and error["param"] and len(error["message"]) < 250, error
    assert ".dec" not in error["message"] and "request " not in error["message"]


def test_long_choices_and_characters_of_several_tokens(server: Any) -> None:
    """Greedy and drawn, with the algorithms that draft."""
    choices = ["été", "naïve", "日本", "🙂", *(f"label {n} {'x' * 60}" for n in range(100))]
    for algorithm in ("speculative", "autoregressive", "prompt_lookup"):
        body = {**GOOD, "model": f"target:{algorithm}", "max_tokens": 90, "choice": choices, "n": 4, "temperature": 1}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=SECONDS)
        assert answer.status_code == 200 and {one["text"] for one in answer.json()["choices"]} <= {*choices}, answer.text
        only = {**body, "choice": ["日本"], "n": 1}
        assert httpx.post(f"{server.url}/v1/completions", json=only, timeout=SECONDS).json()["choices"][0]["text"] == "日本"


def test_a_body_that_does_not_arrive(catalogue: Catalogue) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with served(catalogue, limits=Limits(seconds=1.0)) as running:
        with socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])), SECONDS) as slow:
            slow.sendall(head)
            said = b""
            while part := slow.recv(4096):  # until the server closes it
                said += part
        assert said.startswith(b"HTTP/1.1 408") and json.loads(said.partition(b"\r\n\r\n")[2])["error"]["type"]
        assert httpx.post(f"{running.url}/v1/completions", json=GOOD, timeout=SECONDS).status_code == 200  # a run of any length


def test_a_head_that_does_not_arrive(server: Any) -> None:
    look = lambda after: server.service._loop.call_soon_threadsafe(server._close_idle, time.monotonic() + after)
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    body = {**GOOD, "max_tokens": 60, "logit_bias": {"0": -100}, "stream": True}
    with (
        socket.create_connection(address, SECONDS) as half,
        httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=SECONDS) as long,
    ):
        half.sendall(b"POST /v1/comp")
        lines = long.iter_lines()
        next(lines)  # connections are accepted in their order, so the server has both
        look(0)
        look(server.head - 1)
        look(server.head + 1)
        assert half.recv(100) == b""
        assert [line for line in lines if line][-1] == "data: [DONE]", "an answer that runs is not idle"


def test_a_second_signal_ends_what_runs_with_an_error(catalogue: Catalogue) -> None:
    body = {**GOOD, "max_tokens": 800, "logit_bias": {"0": -100}}
    with served(catalogue, width=2, queue=2, patience=60) as running:
        whole: list[httpx.Response] = []
        ask = lambda: whole.append(httpx.post(f"{running.url}/v1/completions", json=body, timeout=SECONDS))
        other = threading.Thread(target=ask, daemon=True)
        other.start()
        with httpx.stream("POST", f"{running.url}/v1/completions", json={**body, "stream": True}, timeout=SECONDS) as stream:
            lines = stream.iter_lines()
            next(lines)
            until("both answers are being computed", lambda: len(running.service.worker) == 2)
            running.handle_exit(signal.SIGTERM, None)
            assert not running.should_exit
            running.handle_exit(signal.SIGTERM, None)
            assert "shutting down" in [line for line in lines if line][-1]
        ended("the request without a stream", other)
        assert whole[0].status_code == 503 and "shutting down" in whole[0].json()["error"]["message"]


def test_a_masked_model_has_no_response_format() -> None:
    with served(Catalogue(["llada"])) as running:
        body = {"model": "decgraph", "prompt": "x = ", "response_format": {"type": "json_object"}}
        answer = httpx.post(f"{running.url}/v1/completions", json=body, timeout=SECONDS)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "response_format", answer.text


def test_values_of_parameters_do_not_pile_up(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a module and a program of its own: a client who sends ever new ones must not fill the memory."""
    monkeypatch.setattr("decgraph.serve.catalogue.SESSIONS", 2)
    monkeypatch.setattr("decgraph.api.MODULES", 2)
    functions, programs = [], []
    for gamma in range(10, 15):
        session = catalogue.session("target:speculative", None, {"gamma": gamma})
        assert len(session.run(request_for(session, "def main():\n", max_tokens=2)).tokens) == 2
        functions.append(weakref.ref(session.function))
        programs.append(program_of(session.module, session.function.name).filename)
    assert catalogue.session("target:speculative", None, {"gamma": 14}) is session
    gc.collect()  # the functions,
    gc.collect()  # and their programs, which are a cycle of their own and hang on them by a weak table
    assert [made() is not None for made in functions] == [False] * 3 + [True] * 2
    assert [name in linecache.cache for name in programs] == [False] * 3 + [True] * 2
