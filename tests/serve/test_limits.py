"""What is refused and how: OpenAI's error shape, sizes, the queue, the API key; nobody else is harmed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lib.lazily import httpx
from lib.server import client, served
from lib.waiting import SECONDS, ended, until

PROMPT = "def main():\n"
GOOD = {"model": "target", "prompt": PROMPT, "max_tokens": 4}
CHAT = {"model": "target", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def http(server: Any) -> Any:
    with httpx.Client(base_url=server.url, timeout=SECONDS) as made:
        yield made


def check_error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    assert "Traceback" not in answer.text
    return error


WRONG: dict[str, tuple[dict[str, Any], str | None]] = {
    "temperature": ({"temperature": -0.5}, "temperature"),
    "no whole number": ({"max_tokens": 4.5}, "max_tokens"),
    "temperature_text": ({"temperature": "hot"}, "temperature"),
    "n": ({"n": 0}, "n"),
    "too_many": ({"n": 128}, "n"),
    "limit": ({"max_tokens": -3}, "max_tokens"),
    "stop": ({"stop": ""}, "stop"),
    "empty": ({"prompt": ""}, "prompt"),
    "no_prompts": ({"prompt": []}, "prompt"),
    "mixed": ({"prompt": ["a", 1]}, "prompt"),
    "ids": ({"prompt": [1, 10**6]}, "prompt"),
    "negative_id": ({"prompt": [-1]}, "prompt"),
    "bias": ({"logit_bias": {"x": 1}}, "logit_bias"),
    "bias_token": ({"logit_bias": {"999999": 1}}, "logit_bias"),
    "seed": ({"seed": 2**64}, "seed"),
    "likeliest": ({"logprobs": -2}, "logprobs"),
    "all of many": ({"prompt": [5] * 900, "prompt_logprobs": -1, "n": 2, "best_of": 2}, "logprobs"),
    "alias": ({"repeat_penalty": "x"}, "repeat_penalty"),
    "two names": ({"n_predict": 3, "max_tokens": 4}, None),
    "two grammars": ({"regex": "a", "choice": ["a"]}, None),
    "bad grammar": ({"grammar": "root ::= ("}, "structured_outputs.grammar"),
    "bad regex": ({"guided_regex": "("}, None),
    "min_tokens and stop": ({"min_tokens": 3, "stop": "x"}, "min_tokens"),
    "stop token": ({"stop_token_ids": [10**6]}, "stop_token_ids"),
    "algorithm_type": ({"algorithm": 3}, "algorithm"),
    "param": ({"params": {"gamma": 0}}, "params"),
    "param_name": ({"params": {"gama": 2}}, "params"),
    "param_type": ({"params": {"gamma": "/etc/passwd"}}, "params"),
    "best_of": ({"best_of": 3}, "best_of"),
    "suffix": ({"suffix": "x"}, "suffix"),
    "options": ({"stream_options": {"include_usage": True}}, "stream_options"),
    "format": ({"response_format": {"type": "xml"}}, "response_format"),
    "no_schema": ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    "bad_schema": ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "x"}}}}, None),
    "tiny penalty": ({"repetition_penalty": 5e-324}, "repetition_penalty"),
    "endless schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#"}}}}, None),
    "long": ({"prompt": "a b c " * 2000}, "prompt"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"stop": [""]}, "`stop.0` must not be empty"),
        ({"params": {"gamma": "two"}}, "`params.gamma` must be true or false or must be a whole number or must be a number"),
        ({"n": 1.5}, "`n` must be a whole number"),
        ({"prompt": []}, "`prompt` must not be empty"),
        ({"logit_bias": 3}, "`logit_bias` must be an object"),
        ({"logit_bias": {"x": 1}}, "`logit_bias` maps token ids to amounts, and 'x' is no token id"),
        ({"logit_bias": {"9" * 5000: 1}}, "is no token id"),
        ({"regex": "(" * 3000}, "the regular expression cannot be read: unclosed group"),
        ({"response_format": {"type": "xml"}}, "'json_schema', and is 'xml'"),
        ({"params": {"gama": 3}}, "(try: did you mean gamma?)"),
    ],
)
def test_messages_name_the_field_and_no_types_of_ours(http: httpx.Client, body: dict[str, Any], message: str) -> None:
    error = check_error(http.post("/v1/completions", json={"model": "target:speculative", "prompt": "a", **body}), 400)
    assert message in error["message"] and "constrained" not in error["message"] and " = try" not in error["message"]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_field_is_a_400_that_names_it(http: Any, name: str) -> None:
    more, param = WRONG[name]
    error = check_error(http.post("/v1/completions", json={**GOOD, **more}), 400)
    assert error["type"] == "invalid_request_error"
    assert param is None or error["param"] == param, error


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"model": "target"}', b"[" * 100_000, b'"\\ud800"'])
def test_what_is_no_request_is_a_400(http: Any, body: bytes) -> None:
    check_error(http.post("/v1/completions", content=body, headers={"content-type": "application/json"}), 400)


@pytest.mark.parametrize("text", ["\\ud800", "a\\u0000b"])
def test_odd_characters_in_a_prompt(http: Any, text: str) -> None:
    body = f'{{"model": "target", "max_tokens": 2, "prompt": "{text}"}}'.encode()
    answer = http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400) and answer.json()
    body = f'{{"model": "{text}", "prompt": "a"}}'.encode()
    answer = http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 404) and answer.json()["error"]


def test_a_name_may_have_colons() -> None:
    """Many models are called as `qwen:7b` by their clients."""
    from decgraph.serve.app import _model
    from decgraph.serve.catalogue import Catalogue, UnknownName
    from decgraph.serve.service import Service

    offered = Catalogue(["autoregressive", "prompt_lookup"], name="qwen:7b")
    service = Service(offered)
    for name, algorithm in zip(offered.ids(), ["autoregressive", "autoregressive", "prompt_lookup"], strict=True):
        assert offered.session(name) is offered.sessions[algorithm]
        assert _model(service, name)["algorithm"] == algorithm
    for name in ("qwen", "qwen:autoregressive", "qwen:7b:x", "qwen:7"):
        with pytest.raises(UnknownName):
            offered.session(name)


def test_heads_are_those_of_the_algorithms_that_call_them() -> None:
    from decgraph.serve.catalogue import Catalogue

    offered = Catalogue(["autoregressive", "medusa"], "target", models={"target.heads": "medusa"}, name="m")
    assert [offered.session(name).function.name for name in offered.ids()[1:]] == ["autoregressive", "medusa"]


def test_unknown_models_paths_and_methods(http: Any) -> None:
    assert check_error(http.post("/v1/completions", json={**GOOD, "model": "gpt-9"}), 404)["code"] == "model_not_found"
    check_error(http.post("/v1/completions", json={**GOOD, "algorithm": "medusa"}), 404)
    check_error(http.get("/v1/models/other"), 404)
    check_error(http.get("/nothing"), 404)
    check_error(http.get("/v1/completions"), 405)
    both = {**GOOD, "model": "target:speculative", "algorithm": "autoregressive"}
    check_error(http.post("/v1/completions", json=both), 400)


def test_a_chat_needs_a_template(http: Any) -> None:
    assert "chat template" in check_error(http.post("/v1/chat/completions", json=CHAT), 400)["message"]
    check_error(http.post("/v1/chat/completions", json={**CHAT, "messages": [{"role": "king", "content": "a"}]}), 400)
    check_error(http.post("/v1/chat/completions", json={**CHAT, "messages": [{"role": "user"}]}), 400)
    check_error(http.post("/v1/chat/completions", json={**CHAT, "tools": [{}]}), 400)


def test_the_context_length(http: Any, catalogue: Any) -> None:
    window = catalogue.sessions["speculative"].models["target"].context
    error = check_error(http.post("/v1/completions", json={**GOOD, "prompt": [5] * window}), 400)
    assert error["code"] == "context_length_exceeded" and str(window) in error["message"]


def test_health_metrics_and_the_schema(http: Any) -> None:
    assert http.get("/health").json() == {"status": "ok"} and http.get("/ready").json() == {"status": "ready"}
    assert http.post("/v1/completions", json={**GOOD, "algorithm": "speculative"}).status_code == 200
    page = http.get("/metrics").text
    assert 'decgraph_requests_total{route="/v1/completions",status="200"}' in page
    for name in ("generated_tokens_total", "target_calls_total", "time_to_first_token_seconds_count", "acceptance_ratio"):
        (line,) = [line for line in page.splitlines() if line.startswith(f'decgraph_{name}{{algorithm="speculative"')]
        assert float(line.split()[-1]) > 0, line
    assert 'decgraph_kv_bytes{where="engines"}' in page and "decgraph_queue_depth 0.0" in page
    assert "422" not in json.dumps(http.get("/openapi.json").json())


def test_limits_of_a_server(catalogue: Any) -> None:
    """One place, no queue, a key, and short bodies."""
    import openai

    from decgraph.serve.generation import Limits

    with served(catalogue, key="secret", width=1, queue=0, limits=Limits(tokens=400, answers=4, body=2000)) as running:
        with client(running) as wrong, pytest.raises(openai.AuthenticationError):
            wrong.models.list()
        head = {"authorization": "Bearer secret"}
        with httpx.Client(base_url=running.url, timeout=SECONDS, headers=head) as http:
            check_error(http.post("/v1/completions", json={**GOOD, "prompt": "a" * 3000}), 413)

            def parts() -> Any:
                yield from [b"x" * 500] * 6

            check_error(http.post("/v1/completions", content=parts(), headers={"content-type": "application/json"}), 413)
            assert http.get("/health").status_code == 200
            long = {**GOOD, "max_tokens": 400, "stream": True, "logit_bias": {"0": -100}}
            for _ in range(20):  # on a busy machine the long answer may have ended before the second request arrives
                with http.stream("POST", "/v1/completions", json=long) as first:
                    next(first.iter_lines())  # it runs
                    answer = http.post("/v1/completions", json=GOOD)
                if answer.status_code == 429:
                    break
            check_error(answer, 429)
            assert int(answer.headers["retry-after"]) >= 1
            until("the client that went away has left its place", lambda: not len(running.service.worker))
            assert http.post("/v1/completions", json=GOOD).status_code == 200
            check_error(http.post("/v1/completions", json={**GOOD, "n": 2}), 429)


def test_a_client_that_goes_away_frees_its_run(server: Any, catalogue: Any) -> None:
    from decgraph.runtime.models.engine.of import engine_of

    engine = engine_of(catalogue.sessions["speculative"].models["target"])
    cancelled = server.service.metrics.cancelled._value.get
    body = {**GOOD, "max_tokens": 400, "logit_bias": {"0": -100}, "stream": True, "n": 3}
    nothing_left = lambda: not len(server.service.worker) and not engine._slots and not server.service.open
    for _ in range(5):  # on a busy machine a long answer may have ended before it is heard that its client is gone
        before = cancelled()
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=SECONDS) as stream:
            lines = stream.iter_lines()
            for _ in range(4):
                next(lines)
            assert engine._slots
        until("nothing is left of the run", nothing_left)
        if cancelled() == before + 3:
            break
    assert cancelled() == before + 3
    with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=server.url, timeout=0.2) as http:  # no stream
        http.post("/v1/completions", json={**body, "stream": False})
    until("nothing is left of the run", nothing_left)


@pytest.mark.parametrize("patience", [30.0, 0.0])
def test_draining(catalogue: Any, patience: float) -> None:
    """What runs may end, within the time; new work is refused."""
    with (
        served(catalogue, width=2, queue=2, patience=patience) as running,
        httpx.Client(base_url=running.url, timeout=SECONDS) as http,
    ):
        http.get("/health")  # a connection that stays open
        body = {**GOOD, "max_tokens": 200, "logit_bias": {"0": -100}, "stream": True}
        with (
            httpx.Client(base_url=running.url, timeout=SECONDS) as other,
            other.stream("POST", "/v1/completions", json=body) as stream,
        ):
            lines = stream.iter_lines()
            first = next(lines)
            running.drain()
            if patience:
                check_error(http.post("/v1/completions", json=GOOD), 503)
                check_error(http.get("/ready"), 503)
            rest = [line for line in [first, *lines] if line]
        if patience:
            assert rest[-1] == "data: [DONE]"
        else:
            assert "shutting down" in rest[-1]
        ended("the server", running.thread)
