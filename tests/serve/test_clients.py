"""What clients, chat pages and proxies send and need beside a plain request: histories as servers answered them, fields of
other servers, pages of other origins, HEAD and OPTIONS, HTTP/1.0, lines; and what is said of a client that goes away."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from lib.lazily import httpx
from lib.server import served
from lib.waiting import SECONDS, until

import decgraph
from decgraph.cli.main import main
from decgraph.serve.catalogue import Catalogue
from decgraph.serve.generation import Limits

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }}"
    "{% if m['reasoning_content'] %} ({{ m['reasoning_content'] }}){% endif %}\n{% endfor %}<assistant> "
)
USER = {"role": "user", "content": "Hello"}
LIMIT = 24
LOCAL = "http://localhost:3000"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The shipped target with a chat template, for pages of one foreign origin."""
    home = tmp_path_factory.mktemp("models") / "parrot"
    home.mkdir()
    for file in decgraph.zoo.path("target").iterdir():
        (home / file.name).symlink_to(file)
    (home / "chat_template.jinja").write_text(TEMPLATE)
    limits = Limits(tokens=LIMIT)
    with served(Catalogue(["autoregressive"], str(home)), limits=limits, origins=["https://ui.example"], key="k") as server:
        yield server


@pytest.fixture(scope="module")
def http(running: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, timeout=SECONDS, headers={"authorization": "Bearer k"}) as made:
        yield made


def chat(http: httpx.Client, *messages: Any, **fields: Any) -> httpx.Response:
    body = {"model": "parrot", "max_tokens": 4, "temperature": 0, "messages": list(messages), **fields}
    return http.post("/v1/chat/completions", json=body)


def read(http: httpx.Client, *messages: Any) -> tuple[int, str]:
    """What came of a conversation: how many tokens were read, and the answer."""
    answer = chat(http, *messages)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens"], answer.json()["choices"][0]["message"]["content"]


def said(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", **fields}


DUMPED = {"refusal": None, "annotations": None, "audio": None, "function_call": None, "tool_calls": None}
ALIKE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "null": (said(content=None), said(content="")),
    "no content": (said(), said(content="")),
    "no parts": (said(content=[]), said(content="")),
    "null of a user": ({"role": "user", "content": None}, {"role": "user", "content": ""}),
    "null of a system": ({"role": "system", "content": None}, {"role": "system", "content": ""}),
    "null of a tool": ({"role": "tool", "content": None, "tool_call_id": "c"}, {"role": "tool", "content": ""}),
    "model_dump": (said(content="Hi", **DUMPED), said(content="Hi")),
    "no tool calls": (said(content="Hi", tool_calls=[]), said(content="Hi")),
    "refusal": (said(content=None, refusal="No."), said(content="No.")),
    "refusal's part": (said(content=[{"type": "refusal", "refusal": "No."}]), said(content="No.")),
    "other servers": (said(content="Hi", reasoning=None, reasoning_details=[{"a": 1}], provider_specific_fields={}, id="7"),
                      said(content="Hi")),
    "a part's mark": ({"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
                      {"role": "user", "content": "Hi"}),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_messages_are_read_as_their_texts(http: httpx.Client, name: str) -> None:
    given, plain = ALIKE[name]
    assert read(http, USER, given, USER) == read(http, USER, plain, USER)


def test_reasoning_is_the_templates_to_read(http: httpx.Client) -> None:
    with_it = read(http, USER, said(content="Hi", reasoning_content="so"), USER)
    assert with_it == read(http, USER, said(content="Hi (so)"), USER) != read(http, USER, said(content="Hi"), USER)


def test_an_answer_that_goes_on_from_nothing_is_a_new_one(http: httpx.Client) -> None:
    assert read(http, USER, said(content=None)) == read(http, USER)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user"}, "messages.1.content"),
        (said(content=None, tool_calls=[{"id": "c", "type": "function"}]), "messages"),
        (said(content=None, function_call={"name": "f", "arguments": "{}"}), "messages.1.function_call"),
        (said(content=None, audio={"id": "a"}), "messages.1.audio"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "messages"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages"),
    ],
)
def test_what_would_be_lost_from_a_conversation_is_refused(http: httpx.Client, message: Any, param: str) -> None:
    answer = chat(http, USER, message, USER)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "tool_choice": "none", "parallel_tool_calls": True},
        {"tools": None, "functions": None, "logit_bias": None, "stop": None, "never_heard_of": None},
        {"modalities": ["text"], "audio": None, "prediction": {"type": "content", "content": "x"}, "store": False},
        {"ignore_eos": False, "min_tokens": 0, "skip_special_tokens": True, "chat_template_kwargs": {}, "length_penalty": 1.0},
        {"stream": False, "stream_options": None, "reasoning_effort": "low", "service_tier": "auto"},
    ],
)
def test_fields_that_want_nothing_else_are_taken(http: httpx.Client, fields: dict[str, Any]) -> None:
    plain, more = chat(http, USER), chat(http, USER, **fields)
    assert more.status_code == 200, more.text
    assert more.json()["choices"] == plain.json()["choices"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"typical_p": 0.5}, "`typical_p` is not supported, except as 0: no algorithm has it"),
        ({"functions": [{}]}, "`functions` is not supported, except as []: send `tools` and `tool_choice`"),
        ({"bad_words": ["x"]}, "`bad_words` is not supported, except as []: say it by `logit_bias` or a grammar"),
        ({"web_search_options": {}}, "`web_search_options` is not supported, except as []: the models read and write texts"),
    ],
)
def test_other_fields_are_refused_by_name(http: httpx.Client, fields: dict[str, Any], words: str) -> None:
    answer = chat(http, USER, **fields)
    assert answer.status_code == 400 and answer.json()["error"]["message"] == words
    assert answer.json()["error"]["param"] == next(iter(fields))


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_limit_is_cut_to_what_fits(http: httpx.Client, running: Any, name: str) -> None:
    window = running.service.catalogue.sessions["autoregressive"].models["target"].context
    body = {"model": "parrot", "logit_bias": {"0": -100}, "temperature": 0}
    answer = http.post("/v1/chat/completions", json={**body, name: 32_000, "messages": [USER]}).json()
    assert answer["usage"]["completion_tokens"] == LIMIT == answer["decgraph"][0]["max_tokens"]
    assert answer["choices"][0]["finish_reason"] == "length"
    if name == "max_tokens":
        answer = http.post("/v1/completions", json={**body, name: 32_000, "prompt": [5] * (window - 3)}).json()
        assert answer["usage"]["completion_tokens"] == 3 and answer["choices"][0]["finish_reason"] == "length"
        full = http.post("/v1/completions", json={**body, name: 32_000, "prompt": [5] * window})
        assert full.json()["error"]["code"] == "context_length_exceeded"


ALLOW = "access-control-allow-origin"


def preflight(running: Any, origin: str) -> httpx.Response:
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    return httpx.options(f"{running.url}/v1/chat/completions", headers={"origin": origin, **asks})


@pytest.mark.parametrize("origin", [LOCAL, "http://127.0.0.1:8080", "https://[::1]", "https://ui.example"])
def test_pages_of_this_machine_and_named_ones_may_call(running: Any, http: httpx.Client, origin: str) -> None:
    answer = preflight(running, origin)  # without a key: browsers send none
    assert answer.status_code == 200 and answer.headers[ALLOW] == origin
    assert "authorization" in answer.headers["access-control-allow-headers"]
    got = http.get("/v1/models", headers={"origin": origin})
    assert got.headers[ALLOW] == origin and "x-request-id" in got.headers["access-control-expose-headers"].lower()
    refused = httpx.get(f"{running.url}/v1/models", headers={"origin": origin}, timeout=SECONDS)
    assert refused.status_code == 401 and refused.headers[ALLOW] == origin, "a page must be able to read why"


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost.evil.example", "null"])
def test_other_pages_may_not(running: Any, http: httpx.Client, origin: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "decgraph.serve"):
        answer = preflight(running, origin)
    assert answer.status_code == 400 and ALLOW not in answer.headers
    assert caplog.records[-1].fields["try"] == f"--cors {origin}"  # type: ignore[attr-defined]
    assert ALLOW not in http.get("/v1/models", headers={"origin": origin}).headers


def test_all_pages(running: Any) -> None:
    with served(running.service.catalogue, origins=["*"]) as open_to_all:
        assert preflight(open_to_all, "https://any.example").headers[ALLOW] == "*"


def test_head_and_options(http: httpx.Client) -> None:
    for path in ("/health", "/ready", "/metrics", "/v1/models", "/v1/models/parrot"):
        head, whole = http.head(path), http.get(path)
        assert head.status_code == 200 and not head.content
        if path != "/metrics":
            assert head.headers["content-length"] == str(len(whole.content))
    assert http.head("/v1/models/none").status_code == 404 and http.head("/v1/completions").status_code == 405
    asked = http.options("/v1/completions")
    assert asked.status_code == 204 and asked.headers["allow"] == "POST"


@pytest.mark.parametrize("route", ["chat/completions", "completions"])
def test_streams_pass_proxies(http: httpx.Client, route: str) -> None:
    body = {"model": "parrot", "max_tokens": 2, "stream": True, "prompt": "a", "messages": [USER]}
    del body["prompt" if route.startswith("chat") else "messages"]
    with http.stream("POST", f"/v1/{route}", json=body) as stream:
        assert stream.headers["x-accel-buffering"] == "no"
        assert set(stream.headers["cache-control"].split(", ")) == {"no-cache", "no-transform"}


def test_http_1_0_has_no_chunks(running: Any) -> None:
    data = json.dumps({"model": "parrot", "prompt": "a", "max_tokens": 2, "stream": True}).encode()
    head = "POST /v1/completions HTTP/1.0\r\nauthorization: Bearer k\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])), 20) as raw:
        raw.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        heard = b""
        while part := raw.recv(4096):
            heard += part
    head_, _, events = heard.partition(b"\r\n\r\n")
    assert b" 200" in head_.splitlines()[0] and b"chunked" not in head_.lower()
    assert events.startswith(b"data: {") and events.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_no_character_of_a_text_ends_a_line_of_a_stream(http: httpx.Client, char: str) -> None:
    body = {"model": "parrot", "prompt": f"a{char}b", "max_tokens": 2, "echo": True, "stream": True}
    with http.stream("POST", "/v1/completions", json=body) as stream:
        lines = [line for line in stream.read().decode().splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    first = json.loads(lines[0].removeprefix("data: "))["choices"][0]["text"]
    assert first == f"a{char}b"


def test_a_client_that_goes_away_is_logged_and_counted(
    running: Any, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def count(name: str) -> float:
        found = re.findall(rf"^{name} (\S+)$", http.get("/metrics").text, re.M)
        return float(found[0]) if found else 0.0

    algorithm = '{algorithm="autoregressive"}'
    tokens, prompts = f"decgraph_generated_tokens_total{algorithm}", f"decgraph_prompt_tokens_total{algorithm}"
    gone = 'decgraph_requests_total{route="/v1/completions",status="499"}'
    ended = 'decgraph_answers_total{algorithm="autoregressive",reason="cancelled"}'
    names = (tokens, prompts, gone, ended, "decgraph_cancelled_answers_total")
    body = {"model": "parrot", "prompt": "def main():\n", "max_tokens": 400, "logit_bias": {"0": -100}, "n": 2}
    with (
        served(running.service.catalogue, limits=Limits(), width=2, queue=8) as server,
        httpx.Client(base_url=server.url, timeout=SECONDS) as http,
        caplog.at_level(logging.INFO, "decgraph.serve"),
    ):
        before = [count(name) for name in names]
        with http.stream("POST", "/v1/completions", json={**body, "stream": True}) as stream:
            lines = (line for line in stream.iter_lines() if line)
            for _ in range(6):  # two chunks with the texts before them, and some tokens
                next(lines)
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/completions", json=body, timeout=0.3)

        def told() -> list[Any]:
            return [r.fields for r in caplog.records if r.message == "request" and r.fields["status"] == 499]  # type: ignore[attr-defined]

        until("both disconnected requests are in the log", lambda: len(told()) == 2)
        after = [count(name) for name in names]
    streamed, whole = told()
    assert streamed["ended"] == whole["ended"] == "disconnected"
    assert streamed["completion_tokens"] >= 4 and streamed["first_token_seconds"]
    written, asked, times, answers, cancelled = (b - a for a, b in zip(before, after, strict=True))
    assert written == streamed["completion_tokens"] + whole["completion_tokens"]
    assert asked == 2 * (streamed["prompt_tokens"] + whole["prompt_tokens"])  # of two answers each
    assert (times, answers, cancelled) == (2, 4, 4)


@pytest.mark.parametrize("origin", ["ui.example", "https://ui.example/chat", "https://ui.example/"])
def test_the_origin_of_a_page_is_checked(origin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--cors", origin]) == 2
    assert "no origin of a page" in capsys.readouterr().err
