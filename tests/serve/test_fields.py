"""Fields of load generators, harnesses and other servers' clients: what each one does, by HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from lib.lazily import httpx
from lib.waiting import SECONDS

import decgraph
from decgraph.serve.catalogue import Catalogue

PROMPT = "def main():\n"
MODELS = {"target": "target", "drafter": "drafter"}


@pytest.fixture(scope="module")
def http(server: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=SECONDS) as made:
        yield made


def complete(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    body = {"model": "target", "prompt": PROMPT, "max_tokens": 6, "seed": 1, **fields}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def run(**fields: Any) -> Any:
    return decgraph.run("speculative", PROMPT, MODELS, max_tokens=6, seed=1, **fields)


@pytest.mark.parametrize("most", [0, 1])
def test_a_prompt_is_scored(http: httpx.Client, catalogue: Any, most: int) -> None:
    """What lm_eval's `local-completions` sends: token ids, and the log-probabilities of their own."""
    session = catalogue.sessions["speculative"]
    prompts = [session.tokenizer.encode(PROMPT * 12), session.tokenizer.encode("import os\n")]
    got = complete(http, prompt=[list(one) for one in prompts], max_tokens=most, echo=True, logprobs=1, temperature=0)
    assert got["usage"]["completion_tokens"] == most * 2
    for prompt, choice in zip(prompts, got["choices"], strict=True):
        request = decgraph.Request(prompt, max_tokens=1, temperature=0, logprobs=1)
        wanted = decgraph.load("autoregressive").session(backend="reference", target="target")
        alone, told = wanted.run(request), choice["logprobs"]
        rows = [wanted.models["target"].eval([prompt[:n]])[0].to_float().logits for n in (1, len(prompt) // 2, len(prompt) - 1)]
        assert told["token_logprobs"][0] is None and told["top_logprobs"][0] is None
        assert len(told["tokens"]) == len(told["token_logprobs"]) == len(told["text_offset"]) == len(prompt) + most
        for n, row in zip((1, len(prompt) // 2, len(prompt) - 1), rows, strict=True):
            import numpy as np

            chosen = row[prompt[n]] - row.max() - np.log(np.exp(row - row.max()).sum())
            assert told["token_logprobs"][n] == pytest.approx(chosen, abs=1e-4)
            assert max(told["top_logprobs"][n].values()) >= told["token_logprobs"][n] - 1e-6
        assert choice["text"] == session.tokenizer.decode((*prompt, *(alone.tokens if most else ())))
        assert "".join(told["tokens"]) == choice["text"] and choice["finish_reason"] == "length"


def test_log_probabilities_of_a_prompt_as_vllm_has_them(http: httpx.Client) -> None:
    got = complete(http, prompt_logprobs=2, return_token_ids=True)["choices"][0]
    rows, ids = got["prompt_logprobs"], got["prompt_token_ids"]
    assert rows[0] is None and len(rows) == len(ids) and got["token_ids"] == list(run().tokens)
    for token, row in zip(ids[1:], rows[1:], strict=True):
        best = sorted(row.values(), key=lambda one: one["rank"])
        assert (
            str(token) in row
            and best[0]["rank"] == 1
            and [b["logprob"] for b in best] == sorted(b["logprob"] for b in best)[::-1]
        )


def test_an_end_of_text_in_log_probabilities(http: httpx.Client, catalogue: Any) -> None:
    """A harness cuts the last token off: it must be the answer's, not the prompt's."""
    end = catalogue.sessions["speculative"].tokenizer.token("<|eos|>")
    told = complete(http, max_tokens=1, echo=True, logprobs=1, logit_bias={str(end): 100})["choices"][0]
    assert told["finish_reason"] == "stop" and told["logprobs"]["text_offset"][-1] == len(PROMPT) == len(told["text"])
    assert len(told["logprobs"]["tokens"]) == len(catalogue.sessions["speculative"].tokenizer.encode(PROMPT)) + 1


def test_ends_of_text(http: httpx.Client, catalogue: Any) -> None:
    tokenizer = catalogue.sessions["speculative"].tokenizer
    end = str(tokenizer.token("<|eos|>"))
    assert complete(http, logit_bias={end: 100})["usage"]["completion_tokens"] == 1
    ignored = complete(http, logit_bias={end: 100}, ignore_eos=True, skip_special_tokens=False)
    assert ignored["usage"]["completion_tokens"] == 6 and ignored["choices"][0]["text"] == "<|eos|>" * 6
    assert complete(http, logit_bias={end: 100}, ignore_eos=True)["choices"][0]["text"] == ""
    assert complete(http, logit_bias={end: 50}, min_tokens=4)["usage"]["completion_tokens"] == 5
    tokens = run().tokens
    cut = complete(http, stop_token_ids=[tokens[2]])
    assert cut["usage"]["completion_tokens"] == tokens.index(tokens[2]) + 1
    assert cut["choices"][0]["stop_reason"] == tokens[2] and cut["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_may_be_shown(http: httpx.Client, stream: bool) -> None:
    text = run().text
    stop = text[2:5]
    body = {"model": "target", "prompt": PROMPT, "max_tokens": 6, "seed": 1, "stop": stop, "include_stop_str_in_output": True}
    answer = http.post("/v1/completions", json={**body, "stream": stream})
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    choices = [one["choices"][0] for one in events] if stream else answer.json()["choices"]
    assert "".join(one["text"] for one in choices) == text[: text.index(stop) + 3]
    assert choices[-1]["stop_reason"] == stop


OFF: list[dict[str, Any]] = [
    {"top_k": -1, "top_p": 1, "min_p": 0, "repetition_penalty": 1.0, "presence_penalty": 0, "frequency_penalty": 0.0},
    {"top_k": 0, "repeat_penalty": 0, "typical_p": 1.0, "mirostat": 0, "cache_prompt": True, "id_slot": -1, "samplers": None},
    {
        "n_predict": 6,
        "max_tokens": None,
        "best_of": None,
        "stop": [],
        "grammar": "",
        "json_schema": {},
        "timings_per_token": True,
    },
    {
        "min_tokens": 0,
        "priority": 3,
        "use_beam_search": False,
        "length_penalty": 1.0,
        "truncate_prompt_tokens": -1,
        "user": "u",
    },
    {
        "max_completion_tokens": 6,
        "logprobs": None,
        "store": True,
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "n": 1,
        "best_of": 1,
    },
]


@pytest.mark.parametrize("fields", OFF)
def test_what_is_off_changes_nothing(http: httpx.Client, fields: dict[str, Any]) -> None:
    plain, more = complete(http, temperature=0.9), complete(http, temperature=0.9, **fields)
    assert more["choices"] == plain["choices"]


def test_as_many_tokens_as_fit(http: httpx.Client, server: Any) -> None:
    window = server.service.catalogue.sessions["speculative"].models["target"].context
    got = complete(http, prompt=[5] * (window - 3), max_tokens=-1, ignore_eos=True)
    assert got["usage"]["completion_tokens"] == 3
    scored = complete(http, prompt=[5] * window, max_tokens=0, prompt_logprobs=0)
    assert len(scored["choices"][0]["prompt_logprobs"]) == window


def test_seeds(http: httpx.Client) -> None:
    assert len({complete(http, seed=-1, temperature=1.5)["decgraph"][0]["seed"] for _ in range(3)}) == 3


GRAMMARS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"guided_choice": ["yes (1)", "no"]}, ("yes (1)", "no")),
    ({"structured_outputs": {"choice": ["red", "green"]}}, ("red", "green")),
    ({"guided_regex": "[ab]c"}, ("ac", "bc")),
    ({"regex": "xy"}, ("xy",)),
    ({"grammar": 'root ::= "left" | "right"'}, ("left", "right")),
    ({"guided_grammar": 'start: "up" | "down"'}, ("up", "down")),
    ({"json_schema": {"enum": ["a", 1]}}, ('"a"', "1")),
    ({"guided_json": '{"const": 7}'}, ("7",)),
    (
        {
            "structured_outputs": {
                "json": {"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 2},
                "disable_any_whitespace": True,
            }
        },
        ("[1, 1]",),
    ),
    ({"response_format": {"type": "json_object", "schema": {"const": True}}}, ("true",)),
]


@pytest.mark.parametrize(("fields", "texts"), GRAMMARS)
def test_grammars_of_every_kind(http: httpx.Client, fields: dict[str, Any], texts: tuple[str, ...]) -> None:
    got = complete(http, max_tokens=16, **fields)["choices"][0]
    assert got["text"] in texts and got["finish_reason"] == "stop"


def test_the_numbers_of_tokens_in_every_chunk(http: httpx.Client) -> None:
    body = {"model": "target", "prompt": PROMPT, "max_tokens": 6, "seed": 1, "stream": True, "ignore_eos": True}
    answer = http.post(
        "/v1/completions", json={**body, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    )
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert events[-1]["usage"]["completion_tokens"] == 6 and not events[-1]["choices"]
    assert events[-1]["decgraph"][0]["first_token_seconds"] > 0


def test_texts_and_token_ids(http: httpx.Client, catalogue: Any) -> None:
    tokenizer = catalogue.sessions["speculative"].tokenizer
    got = http.post("/tokenize", json={"model": "target", "prompt": PROMPT, "return_token_strs": True}).json()
    assert got["tokens"] == list(tokenizer.encode(PROMPT)) and got["count"] == len(got["tokens"]) == len(got["token_strs"])
    assert got["max_model_len"] == catalogue.sessions["speculative"].models["target"].context
    assert http.post("/tokenize", json={"content": PROMPT}).json()["tokens"] == list(tokenizer.encode_part(PROMPT))
    assert http.post("/detokenize", json={"tokens": got["tokens"]}).json()["prompt"] == PROMPT
    for route, body in (("/tokenize", {}), ("/detokenize", {"tokens": [10**6]}), ("/detokenize", {"tokens": [1.5]})):
        assert http.post(route, json=body).status_code == 400
    for route in ("/", "/version", "/ping"):
        assert http.get(route).status_code == http.head(route).status_code == 200


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        ({}, {}),
        ({"temperature": 0.6, "top_p": 0.9}, {"top_p": 0.9}),  # greedy without do_sample
        ({"do_sample": True}, {"temperature": 1, "top_k": 50}),
        ({"do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.9}, {"temperature": 0.7, "top_k": 5, "top_p": 0.9}),
        ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
    ],
)
def test_one_default_at_every_door(settings: dict[str, Any], same: dict[str, Any], tmp_path: Any, capsys: Any) -> None:
    """The model's generation settings, as in `generate`; what the caller says counts more."""
    from decgraph.cli.main import main
    from decgraph.serve.generation import Limits, read_request
    from decgraph.serve.wire import CompletionRequest

    home = tmp_path / "own"
    home.mkdir()
    for file in decgraph.zoo.path("target").iterdir():
        if file.name != "generation_config.json":
            (home / file.name).symlink_to(file)
    (home / "generation_config.json").write_text(json.dumps({"eos_token_id": 0, **settings}))
    wanted = decgraph.run("autoregressive", PROMPT, {"target": "target"}, max_tokens=6, seed=1, eos=(0,), **same).text
    assert decgraph.run("autoregressive", PROMPT, {"target": str(home)}, max_tokens=6, seed=1).text == wanted
    assert main(["run", "autoregressive", "-m", str(home), "-p", PROMPT, "-n", "6", "--seed", "1", "--quiet"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == wanted.rstrip("\n")
    body = CompletionRequest.model_validate({"model": "own", "prompt": PROMPT, "max_tokens": 6, "seed": 1})
    for generation, fields in (("auto", same), ("none", {})):
        catalogue = Catalogue(["autoregressive"], str(home), generation=generation)
        (request,) = read_request(body, catalogue, Limits()).requests
        plain = decgraph.Request(request.prompt, **{"temperature": 0, **fields})
        for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty"):
            assert getattr(request, name) == getattr(plain, name)
    hot = body.model_copy(update={"temperature": 0.0, "top_p": 1.0})
    (request,) = read_request(hot, Catalogue(["autoregressive"], str(home)), Limits()).requests
    assert request.temperature == 0 and request.top_p is None


def test_generation_settings_that_are_none(tmp_path: Any) -> None:
    home = tmp_path / "own"
    home.mkdir()
    for file in decgraph.zoo.path("target").iterdir():
        if file.name != "generation_config.json":
            (home / file.name).symlink_to(file)
    (home / "generation_config.json").write_text(json.dumps({"top_p": "high"}))
    with pytest.raises(decgraph.DecError, match="top_p is 'high'"):
        Catalogue(["autoregressive"], str(home))
    with pytest.raises(decgraph.DecError, match="no generation_config"):
        Catalogue(["autoregressive"], "target", generation=str(tmp_path))
