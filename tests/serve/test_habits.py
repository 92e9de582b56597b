"""What clients of OpenAI's, vLLM's and llama.cpp's servers take for granted of any server."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from lib.lazily import httpx
from lib.server import client, served
from lib.waiting import SECONDS, until

from decgraph.serve.generation import Limits
from decgraph.serve.refusals import Refusal

PROMPT = "def main():\n"
BODY = {"prompt": PROMPT, "max_tokens": 4, "seed": 1}
HELLO = {"role": "user", "content": "hello there"}
ROUTES = {
    "completions": BODY,
    "chat/completions": {"messages": [HELLO], "max_tokens": 4, "seed": 1},
    "responses": {"input": "hello there", "max_output_tokens": 4, "seed": 1},
}


@pytest.fixture
def http(parrot: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=parrot.url, timeout=SECONDS) as made:
        yield made


def events(http: httpx.Client, route: str, **fields: Any) -> list[tuple[float, dict[str, Any]]]:
    """The events of a stream, and when each came."""
    began, made = time.perf_counter(), []
    with http.stream("POST", f"/v1/{route}", json={**ROUTES[route], "stream": True, **fields}) as stream:
        assert stream.status_code == 200, stream.read()
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                made.append((time.perf_counter() - began, json.loads(line[6:])))
    return made


def logged(caplog: pytest.LogCaptureFixture, **wanted: Any) -> list[dict[str, Any]]:
    """The lines of the log that say so."""
    lines: list[Any] = [record.fields for record in caplog.records if record.message == "request"]  # type: ignore[attr-defined]
    return [line for line in lines if wanted.items() <= line.items()]


def line_of(caplog: pytest.LogCaptureFixture, request: str) -> dict[str, Any]:
    """The line of a request, which is written when its answer has been sent."""
    until("it is in the log", lambda: logged(caplog, request_id=request))
    (line,) = logged(caplog, request_id=request)
    return line


@pytest.mark.parametrize("route", ROUTES)
def test_the_model_may_be_left_out(http: httpx.Client, route: str) -> None:
    for more in ({}, {"model": None}, {"model": ""}):
        answer = http.post(f"/v1/{route}", json={**ROUTES[route], **more})
        assert answer.status_code == 200 and answer.json()["model"] == "parrot", answer.text
    assert http.post(f"/v1/{route}", json={**ROUTES[route], "model": "other"}).status_code == 404


@pytest.mark.parametrize("base", ["", "/v1/v1", "//v1", "/v1"])
def test_a_base_url_without_v1_or_with_two(http: httpx.Client, base: str) -> None:
    for route, body in ROUTES.items():
        for end in ("", "/"):
            assert http.post(f"{http.base_url}{base}/{route}{end}", json=body).status_code == 200
    assert http.get(f"{http.base_url}{base}/models").json()["data"][0]["id"] == "parrot"
    assert http.get(f"{http.base_url}{base}/models/parrot").json()["id"] == "parrot"
    assert http.get("/chat").status_code == 404


def test_keys_guard_every_path_and_may_stand_in_either_header(parrot: Any) -> None:
    with served(parrot.service.catalogue, key="secret") as locked, httpx.Client(base_url=locked.url, timeout=SECONDS) as http:
        for path in ("/v1/completions", "/completions", "//completions/", "/v1/v1/completions"):
            for head, status in (({}, 401), ({"x-api-key": "wrong"}, 401), ({"x-api-key": "secret"}, 200)):
                assert http.post(f"{locked.url}{path}", json=BODY, headers=head).status_code == status
        assert http.get("/models", headers={"authorization": "Bearer no", "x-api-key": "secret"}).status_code == 401


@pytest.mark.parametrize("route", ["completions", "chat/completions"])
def test_the_first_event_with_a_choice_comes_with_the_first_token(
    parrot: Any, http: httpx.Client, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Load generators take it for the first token. The prompt waits here until the test lets it go."""
    worker, begin = parrot.service.worker, parrot.service.worker._begin
    begun: list[float] = []

    def late(*more: Any) -> None:
        time.sleep(0.5)
        begun.append(time.perf_counter())
        begin(*more)

    monkeypatch.setattr(worker, "_begin", late)
    began = time.perf_counter()
    seen = events(http, route, echo=True) if route == "completions" else events(http, route)
    assert seen[0][1]["choices"] and began + seen[0][0] >= begun[0]
    told = http.post(f"/v1/{route}", json=ROUTES[route]).json()["decgraph"][0]
    assert told["first_token_seconds"] >= 0.5  # from the arrival
    if route != "completions":
        assert seen[0][1]["choices"][0]["delta"] == {"role": "assistant", "content": ""}


def test_a_stream_that_waits_shows_that_it_lives(parrot: Any, http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from decgraph.serve import app

    begin = parrot.service.worker._begin
    monkeypatch.setattr(app, "SILENCE", 0.1)
    monkeypatch.setattr(parrot.service.worker, "_begin", lambda *more: (time.sleep(0.5), begin(*more)))
    with http.stream("POST", "/v1/completions", json={**BODY, "stream": True}) as stream:
        lines = [line for line in stream.iter_lines() if line]
    assert lines[0].startswith(":") and lines[-1] == "data: [DONE]"
    chunks = list(parrot.api.chat.completions.create(model="parrot", messages=[HELLO], max_tokens=3, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"  # OpenAI's client reads over comments


@pytest.mark.parametrize("route", ["completions", "chat/completions"])
@pytest.mark.parametrize(
    ("options", "every", "last"),
    [
        ({"include_usage": True, "continuous_usage_stats": True}, True, True),
        ({"continuous_usage_stats": True}, True, True),
        ({"include_usage": True}, False, True),
        ({"include_usage": False, "continuous_usage_stats": True}, False, False),
        ({}, False, False),
    ],
)
def test_the_usage_of_a_chunk_is_that_of_its_text(
    http: httpx.Client, parrot: Any, route: str, options: dict[str, bool], every: bool, last: bool
) -> None:
    seen = [
        one for _, one in events(http, route, max_tokens=24, ignore_eos=True, stream_options=options, return_token_ids=True)
    ]
    assert bool(seen[-1].get("usage")) == last and all(bool(one.get("usage")) == every for one in seen[:-1])
    sent: list[int] = []
    for one in seen:
        for choice in one["choices"]:
            sent += choice.get("token_ids", [])
        if every:
            assert one["usage"]["completion_tokens"] == len(sent)
    whole = http.post(
        f"/v1/{route}", json={**ROUTES[route], "max_tokens": 24, "ignore_eos": True, "return_token_ids": True}
    ).json()
    assert sent == whole["choices"][0]["token_ids"] and len(sent) == 24
    place = whole if route.startswith("chat") else whole["choices"][0]
    first = seen[0] if route.startswith("chat") else seen[0]["choices"][0]
    assert first["prompt_token_ids"] == place["prompt_token_ids"]


def test_a_prompt_that_is_cached_has_its_last_token_computed(http: httpx.Client) -> None:
    body = {"prompt": "class Cached:\n" * 8, "max_tokens": 1, "temperature": 0}
    usages = [http.post("/v1/completions", json=body).json()["usage"] for _ in range(3)]
    assert 0 < usages[-1]["prompt_tokens_details"]["cached_tokens"] < usages[-1]["prompt_tokens"]


def test_ready_is_a_server_whose_first_answer_is_as_fast(parrot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates are read and a step has run, whichever ends last."""
    from decgraph.runtime import chat
    from decgraph.serve.worker import Worker

    go, read, seen = [False, False], chat.tokens_of, []

    def slow(*more: Any, **named: Any) -> Any:
        until("the test lets it go", lambda: go[0])
        seen.append("template")
        return read(*more, **named)

    begin = Worker._begin

    def step(worker: Any, schedule: Any, job: Any) -> None:
        until("the test lets it go", lambda: go[1])
        seen.append(job.algorithm)
        begin(worker, schedule, job)

    monkeypatch.setattr(chat, "tokens_of", slow)
    monkeypatch.setattr(Worker, "_begin", step)
    with served(parrot.service.catalogue, width=1, queue=0) as cold, httpx.Client(base_url=cold.url, timeout=SECONDS) as http:
        for place in (0, 1):
            assert http.get("/ready").status_code == 503 and http.get("/health").status_code == 200
            go[place] = True
        until("it is ready", lambda: http.get("/ready").status_code == 200)
        assert sorted(seen) == ["autoregressive", "template"]
        page = http.get("/metrics").text
        assert "decgraph_running 0.0" in page and "decgraph_generated_tokens_total{" not in page  # nobody asked for it


UNKNOWN: dict[str, Any] = {"enable_thinking": False, "thinking": {}, "separate_reasoning": True, "session_id": "secret",
                           "top_a": 0.5, "num_ctx": 4096, "provider": {"order": ["a"]}, "options": [1]}  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
def test_unknown_fields_are_ignored_and_logged(http: httpx.Client, route: str, caplog: pytest.LogCaptureFixture) -> None:
    plain = http.post(f"/v1/{route}", json=ROUTES[route]).json()
    with caplog.at_level(logging.INFO, "decgraph.serve"):
        answer = http.post(f"/v1/{route}", json={**ROUTES[route], **UNKNOWN, "structured_outputs": {"x": 1}})
        assert answer.status_code == 200, answer.text
        text = "output" if route == "responses" else "choices"
        strip = lambda body: [{**one, "id": ""} for one in body[text]]
        assert strip(answer.json()) == strip(plain)
        line = line_of(caplog, answer.headers["x-request-id"])
    assert set(line["ignored_fields"]) == {*UNKNOWN, "structured_outputs.x"} and "secret" not in json.dumps(line)
    many = http.post(f"/v1/{route}", json={**ROUTES[route], **{f"f{n}": 1 for n in range(5000)}})
    assert many.status_code == 200


@pytest.mark.parametrize(
    ("route", "field", "said"),
    [
        ("completions", "temprature", "unrecognised field: temprature (try: did you mean temperature?)"),
        ("completions", "message", "unrecognised field: message"),
        ("chat/completions", "reasoning", "unrecognised field: reasoning (try: did you mean reasoning_effort?)"),
        ("chat/completions", "instruction", "unrecognised field: instruction"),
        ("responses", "messages", "unrecognised field: messages"),
        ("responses", "max_outputs_tokens", "unrecognised field: max_outputs_tokens (try: did you mean max_output_tokens?)"),
    ],
)
def test_strict_servers_refuse_them(strict: httpx.Client, route: str, field: str, said: str) -> None:
    answer = strict.post(f"/v1/{route}", json={**ROUTES[route], field: {}})
    error = answer.json()["error"]
    assert answer.status_code == 400 and (error["message"], error["param"], error["code"]) == (said, field, "unknown_field")


@pytest.fixture(scope="module")
def strict(parrot: Any) -> Iterator[httpx.Client]:
    with (
        served(parrot.service.catalogue, limits=Limits(strict=True)) as running,
        httpx.Client(base_url=running.url, timeout=SECONDS) as http,
    ):
        yield http


def test_tokens_of_strict_servers(strict: httpx.Client) -> None:
    error = strict.post("/tokenize", json={"content": "a", "with_piece": True}).json()["error"]
    assert error["message"] == "unrecognised field: with_piece (try: did you mean with_pieces?)"


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"max_tokens": 4.0, "top_k": 40.0, "seed": 7.0, "n": 1.0}, {"max_tokens": 4, "top_k": 40, "seed": 7}),
        ({"n_predict": 3.0, "max_tokens": None}, {"max_tokens": 3}),
        ({"stop_token_ids": [5.0]}, {"stop_token_ids": [5]}),
        ({"prompt": [5.0, 6.0]}, {"prompt": [5, 6]}),
        ({"temperature": 1e-9}, {"temperature": 0}),
        ({"temperature": 5e-324}, {"temperature": 0}),
        ({"temperature": 0.0000011}, {"temperature": 1.1e-6}),
        ({"temperature": 2.5}, {"temperature": 5 / 2}),
    ],
)
def test_numbers_as_json_has_them(http: httpx.Client, fields: dict[str, Any], same: dict[str, Any]) -> None:
    made = [http.post("/v1/completions", json={**BODY, **one}) for one in (fields, same)]
    assert made[0].status_code == made[1].status_code == 200, made[0].text
    assert made[0].json()["choices"] == made[1].json()["choices"]


def test_negative_seeds_are_seeds_of_their_own(http: httpx.Client) -> None:
    asked = lambda seed: http.post("/v1/completions", json={**BODY, "temperature": 1.5, "seed": seed}).json()
    assert asked(-2)["choices"] == asked(-2)["choices"] and asked(-2)["decgraph"][0]["seed"] == 2**64 - 2
    assert asked(-1)["decgraph"][0]["seed"] != asked(-1)["decgraph"][0]["seed"]


def test_all_likeliest_tokens(http: httpx.Client, parrot: Any) -> None:
    size = parrot.service.catalogue.sessions["autoregressive"].models["target"].vocab.size
    got = http.post("/v1/completions", json={**BODY, "max_tokens": 2, "prompt_logprobs": -1, "logprobs": -1}).json()["choices"][
        0
    ]
    assert [len(row) for row in got["prompt_logprobs"][1:]] == [size] * (len(got["prompt_logprobs"]) - 1)
    chat = {**ROUTES["chat/completions"], "max_tokens": 1, "logprobs": True, "top_logprobs": -1}
    rows = http.post("/v1/chat/completions", json=chat).json()["choices"][0]["logprobs"]["content"]
    assert len(rows[0]["top_logprobs"]) == size
    none = http.post("/v1/completions", json={**BODY, "logprobs": 0}).json()["choices"][0]["logprobs"]
    told = [dict([pair]) for pair in zip(none["tokens"], none["token_logprobs"], strict=True)]
    assert none["top_logprobs"] == told  # the chosen ones, as vLLM has them


def test_a_role_is_the_templates_matter(http: httpx.Client) -> None:
    ask = lambda role: http.post("/v1/chat/completions", json={"messages": [{"role": role, "content": "a"}], "max_tokens": 1})
    assert ask("critic").json()["usage"]["prompt_tokens"] != ask("user").json()["usage"]["prompt_tokens"]
    assert ask("").status_code == ask("a" * 65).status_code == 400


def test_request_ids(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "decgraph.serve"):
        mine = http.post("/v1/completions", json=BODY, headers={"X-Request-Id": "proxy-7"}).headers["x-request-id"]
        assert mine == "proxy-7" and line_of(caplog, "proxy-7")["status"] == 200
        made = {http.post("/v1/completions", json=BODY, headers={"X-Request-Id": bad}).headers["x-request-id"]
                for bad in ("", "a b", "x" * 129)}  # fmt: skip
    assert len(made) == 3 and all(one.startswith("req_") for one in made)


SECRET = "nobody's business"


@pytest.mark.parametrize(
    ("route", "fields", "param", "reason"),
    [
        ("completions", {"prompt": SECRET * 9000}, "prompt", "the context length is 1024 tokens; the prompt has"),
        ("completions", {"temperature": SECRET}, "temperature", "`temperature` must be a number"),
        ("completions", {"stop": [SECRET, 5]}, "stop", "`stop.1` must be a text"),
        ("completions", {"guided_regex": f"({SECRET}"}, None, ""),
        ("completions", {"response_format": {"type": SECRET}}, "response_format", "`response_format.type` must be"),
        ("completions", {"logit_bias": {SECRET: 1}}, "logit_bias", "`logit_bias` maps token ids to amounts"),
        ("completions", {"model": "gpt-9"}, "model", "the model 'gpt-9' does not exist here"),
        ("chat/completions", {"messages": [{"role": "user", "content": {"a": SECRET}}]}, "messages", "`messages.0"),
        ("chat/completions", {"tools": [], "tool_choice": {"type": "function", "function": {"name": SECRET}}}, None, ""),
    ],
)  # fmt: skip
def test_the_log_has_the_reason_of_a_400_and_no_text(
    http: httpx.Client, route: str, fields: Any, param: str | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "decgraph.serve"):
        answer = http.post(f"/v1/{route}", json={**ROUTES[route], **fields})
        assert answer.status_code in (400, 404), answer.text
        line = line_of(caplog, answer.headers["x-request-id"])
    assert line["refused"].startswith(reason) and line["refused"] and "business" not in json.dumps(line)
    assert param is None or line["param"] == param


def test_what_a_template_says_is_not_in_the_log() -> None:
    told = Refusal(400, f"the model's chat template refuses these messages: no {SECRET}", param="messages").logged()
    assert told == {"refused": "the model's chat template refuses these messages", "param": "messages", "code": None}


def test_an_answer_that_its_client_left_has_not_stopped(parrot: Any, caplog: pytest.LogCaptureFixture) -> None:
    body = {**BODY, "max_tokens": 900, "ignore_eos": True, "stream": True}
    with caplog.at_level(logging.INFO, "decgraph.serve"):
        with httpx.stream("POST", f"{parrot.url}/v1/completions", json=body, timeout=SECONDS) as stream:
            next(stream.iter_lines())
        until("it is in the log", lambda: logged(caplog, status=499))
    assert logged(caplog, status=499)[0]["finish_reasons"] == ["cancelled"]


def test_tokens_in_the_words_of_llama_cpp(http: httpx.Client, parrot: Any) -> None:
    """The oracle is the tokenizer's own library."""
    import tokenizers

    own = tokenizers.Tokenizer.from_file(str(parrot.service.catalogue.sessions["autoregressive"].tokenizer.path))
    ask = lambda **fields: http.post("/tokenize", json=fields).json()["tokens"]
    text = "def é(): <|eos|> 漢"
    for special in (True, False):
        assert ask(content=text, add_special=special) == own.encode(text, add_special_tokens=special).ids
    assert ask(content=text) == ask(content=text, parse_special=True) == own.encode(text, add_special_tokens=False).ids
    assert "parse_special" in http.post("/tokenize", json={"content": text, "parse_special": False}).json()["error"]["message"]
    pieces = ask(content=text, with_pieces=True)
    assert [one["id"] for one in pieces] == ask(content=text)
    data = b"".join(bytes(p) if isinstance(p := one["piece"], list) else p.encode() for one in pieces)
    assert data.decode() == text
    assert http.post("/detokenize", json={"tokens": ask(content=text)}).json()["content"] == text


def test_reasoning_items_come_back(parrot: Any) -> None:
    """As agents send what servers of vLLM and gpt-oss wrote."""
    items: list[Any] = [
        {"role": "user", "content": "hello"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": None,
         "content": [{"type": "reasoning_text", "text": "Hm."}], "status": "completed"},
        {"type": "reasoning", "id": "rs_2", "summary": []},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}]},
        {"role": "user", "content": "and now?"},
    ]  # fmt: skip
    fields: Any = {"model": "parrot", "max_output_tokens": 4, "temperature": 0}
    with_, without = (parrot.api.responses.create(input=i, **fields).output_text for i in (items, [items[0], *items[3:]]))
    assert with_ == without


@pytest.mark.parametrize(
    ("route", "body", "said"),
    [
        (
            "responses",
            b'{"input": "a", "tools": [{"type": "web_search"}]}',
            "`tools.0.type` must be 'function', and is 'web_search'",
        ),
        ("responses", b'{"input": [{"type": "item_reference", "id": "x"}]}', "and is 'item_reference'"),
        ("chat/completions", b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "`messages.0.content` has half of a"),
        ("completions", b'{"prompt": "\\ud800"}', "`prompt` has half of a surrogate pair, which is no character"),
        ("completions", b'{"prompt": "a", "stop": "\\udfff"}', "`stop` has half of a surrogate pair, which is no character"),
        ("responses", b'{"input": "a\\ud800"}', "`input` has half of a surrogate pair, which is no character"),
    ],
)
def test_what_is_wrong_is_said_in_words_of_ours(http: httpx.Client, route: str, body: bytes, said: str) -> None:
    answer = http.post(f"/v1/{route}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400 and said in answer.json()["error"]["message"], answer.text


def test_openais_client_reads_what_is_new(parrot: Any) -> None:
    """Fields that are null, ids in chunks, usage in each: nothing that it trips over."""
    with client(parrot) as api:
        more: Any = {"extra_body": {"return_token_ids": True}, "stream_options": {"include_usage": True}}
        with api.chat.completions.stream(model="parrot", messages=[HELLO], max_tokens=4, seed=1, **more) as stream:
            done = [event.content for event in stream if event.type == "content.done"]
        whole = api.chat.completions.create(model="parrot", messages=[HELLO], max_tokens=4, seed=1)
    assert done == [whole.choices[0].message.content]
