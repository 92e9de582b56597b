"""Completions by OpenAI's client: what comes is what the command line prints for the same seed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from lib.waiting import ended

import decgraph

PROMPT = "def main():\n"
ALGORITHMS = ("speculative", "autoregressive", "prompt_lookup")


def text(algorithm: str, prompt: str = PROMPT, **fields: Any) -> str:
    """What `decgraph run` prints."""
    models = {"target": "target", "drafter": "drafter"} if algorithm == "speculative" else {"target": "target"}
    return decgraph.run(algorithm, prompt, models, **fields).text


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_answer_is_the_command_lines(api: Any, algorithm: str) -> None:
    fields: Any = {"temperature": 0.8, "seed": 5, "top_p": 0.9}
    got = api.completions.create(model=f"target:{algorithm}", prompt=PROMPT, max_tokens=24, **fields)
    assert got.choices[0].text == text(algorithm, max_tokens=24, **fields)
    assert (
        got.model == f"target:{algorithm}" and got.usage.total_tokens == got.usage.prompt_tokens + got.usage.completion_tokens
    )


def test_the_algorithm_is_a_field_too_and_takes_parameters(api: Any) -> None:
    more = {"algorithm": "speculative", "params": {"gamma": 2}}
    got = api.completions.create(model="target", prompt=PROMPT, max_tokens=16, seed=3, extra_body=more)
    assert got.choices[0].text == text("speculative", params={"gamma": 2}, max_tokens=16, seed=3)
    assert got.decgraph[0]["algorithm"] == "speculative"


def test_what_an_algorithm_does_not_read_is_refused(api: Any) -> None:
    """A beam search adds up scores: it knows penalties, and no truncation."""
    import openai

    asked: Any = {"prompt": PROMPT, "max_tokens": 4, "seed": 1, "temperature": 0}
    with pytest.raises(openai.BadRequestError, match="beam reads scores before truncation: top_p would change nothing"):
        api.completions.create(model="target:beam", top_p=0.5, **asked)
    assert api.completions.create(model="target:beam", presence_penalty=1.5, **asked).choices[0].text
    assert api.completions.create(model="target:speculative", top_p=0.5, **asked).choices[0].text


def test_a_stream_is_the_answer_in_pieces(api: Any) -> None:
    fields: Any = {"model": "target", "prompt": PROMPT, "max_tokens": 24, "seed": 2}
    chunks = list(api.completions.create(stream=True, stream_options={"include_usage": True}, **fields))
    whole = api.completions.create(**fields)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert sum(bool(c.choices and c.choices[0].text) for c in chunks) > 2
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert not chunks[-1].choices and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_n_answers_of_several_prompts(api: Any) -> None:
    prompts = [PROMPT, "import os\n"]
    got = api.completions.create(model="target", prompt=prompts, n=2, max_tokens=8, seed=9)
    assert [c.index for c in got.choices] == [0, 1, 2, 3]
    wanted = [text("speculative", p, max_tokens=8, seed=9, request_id=k) for p in prompts for k in range(2)]
    assert [c.text for c in got.choices] == wanted


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_are_not_shown(api: Any, stream: bool) -> None:
    free = text("speculative", max_tokens=32, temperature=0)
    stop = free[len(free) // 2 : len(free) // 2 + 3]
    fields: Any = {"model": "target", "prompt": PROMPT, "max_tokens": 32, "temperature": 0, "stop": ["never\x00", stop]}
    got = api.completions.create(stream=stream, **fields)
    choices = [c.choices[0] for c in got] if stream else got.choices
    assert "".join(c.text for c in choices) == free[: free.index(stop)]
    assert choices[-1].finish_reason == "stop"


def test_token_ids_echo_and_the_limit(api: Any, catalogue: Any) -> None:
    ids = list(catalogue.sessions["speculative"].tokenizer.encode(PROMPT))
    got = api.completions.create(model="target", prompt=ids, max_tokens=4, temperature=0, echo=True)
    assert got.choices[0].text == PROMPT + text("speculative", max_tokens=4, temperature=0)
    assert got.choices[0].finish_reason == "length" and got.usage.prompt_tokens == len(ids)


def test_penalties_and_biases(api: Any, catalogue: Any) -> None:
    newline = catalogue.sessions["speculative"].tokenizer.encode("\n")[-1]
    fields: Any = {"frequency_penalty": 0.7, "presence_penalty": 0.3}
    got = api.completions.create(
        model="target", prompt=PROMPT, max_tokens=16, temperature=0, logit_bias={newline: -100}, **fields
    )
    assert got.choices[0].text == text("speculative", max_tokens=16, temperature=0, bias={newline: -100}, **fields)
    assert "\n" not in got.choices[0].text
    more = {"top_k": 5, "min_p": 0.01, "repetition_penalty": 1.3}
    got = api.completions.create(model="target", prompt=PROMPT, max_tokens=16, seed=1, extra_body=more)
    assert got.choices[0].text == text("speculative", max_tokens=16, seed=1, **more)


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities(api: Any, stream: bool) -> None:
    fields: Any = {"model": "target", "prompt": PROMPT, "max_tokens": 6, "temperature": 0, "logprobs": 2}
    got = api.completions.create(stream=stream, **fields)
    (told,) = [c.choices[0].logprobs for c in got if c.choices[0].logprobs] if stream else [got.choices[0].logprobs]
    wanted = decgraph.run("speculative", PROMPT, {"target": "target", "drafter": "drafter"}, max_tokens=6, logprobs=2).logprobs
    assert told.token_logprobs == pytest.approx(list(wanted.tokens), abs=1e-4)
    assert all(max(best.values()) == value for best, value in zip(told.top_logprobs, told.token_logprobs, strict=True))
    assert told.text_offset == [sum(map(len, told.tokens[:n])) for n in range(6)]


def test_without_a_seed_answers_differ(api: Any) -> None:
    got = [api.completions.create(model="target", prompt=PROMPT, max_tokens=24, temperature=1.5) for _ in range(2)]
    assert got[0].choices[0].text != got[1].choices[0].text


def test_clients_at_the_same_time_get_what_they_get_alone(api: Any) -> None:
    asked = [(ALGORITHMS[n % 3], PROMPT * (1 + n % 2), n) for n in range(12)]
    got: dict[int, str] = {}

    def ask(algorithm: str, prompt: str, seed: int) -> None:
        chunks = api.completions.create(model=f"target:{algorithm}", prompt=prompt, max_tokens=20, seed=seed, stream=True)
        got[seed] = "".join(c.choices[0].text for c in chunks)

    threads = [threading.Thread(target=ask, args=one, daemon=True) for one in asked]
    for thread in threads:
        thread.start()
    ended("the clients", *threads)
    assert [got[seed] for _, _, seed in asked] == [text(a, p, max_tokens=20, seed=seed) for a, p, seed in asked]


def test_a_json_schema_is_kept(api: Any) -> None:
    import json

    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    got = api.completions.create(
        model="target", prompt=PROMPT, max_tokens=60, seed=1, temperature=0, extra_body={"response_format": wanted}
    )
    assert got.choices[0].finish_reason == "stop"
    assert set(json.loads(got.choices[0].text)) == {"ok"}


def test_models(api: Any) -> None:
    assert [m.id for m in api.models.list()] == ["target", *(f"target:{a}" for a in (*ALGORITHMS, "beam"))]
    found = api.models.retrieve("target:speculative")
    assert found.id == "target:speculative" and found.max_model_len > 100
