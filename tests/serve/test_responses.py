"""The Responses API by OpenAI's client: what a chat answers, as items and as events."""

from __future__ import annotations

import json
from typing import Any

import pytest

PLACE = {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"], "additionalProperties": False}
TOOL: Any = {"type": "function", "name": "weather", "parameters": PLACE, "strict": True}
FIELDS: Any = {"model": "parrot", "input": "Hello", "max_output_tokens": 8, "temperature": 0}


@pytest.fixture
def api(parrot: Any) -> Any:
    return parrot.api


def chat(api: Any, *messages: Any, **fields: Any) -> Any:
    return api.chat.completions.create(model="parrot", messages=list(messages), max_tokens=8, temperature=0, **fields)


def test_a_response_is_the_chats_answer(api: Any) -> None:
    got = api.responses.create(instructions="Be short.", top_logprobs=2, include=["message.output_text.logprobs"], **FIELDS)
    wanted = chat(api, {"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}, logprobs=True)
    assert got.output_text == wanted.choices[0].message.content
    assert (got.usage.input_tokens, got.usage.output_tokens) == (wanted.usage.prompt_tokens, wanted.usage.completion_tokens)
    cut = wanted.choices[0].finish_reason == "length"
    assert got.status == ("incomplete" if cut else "completed") and got.id.startswith("resp_")
    told = [row.token for row in got.output[0].content[0].logprobs]
    assert told == [row.token for row in wanted.choices[0].logprobs.content]


def test_a_conversation_of_items(api: Any) -> None:
    items: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "message", "role": "assistant", "id": "m", "status": "completed",
         "content": [{"type": "output_text", "text": "Hi", "annotations": []}]},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": '{"city": "Oslo"}'},
        {"type": "function_call_output", "call_id": "c", "output": "3 degrees"},
    ]  # fmt: skip
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    wanted = chat(
        api, {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "3 degrees"},
    )  # fmt: skip
    got = api.responses.create(**{**FIELDS, "input": items})
    assert (got.usage.input_tokens, got.output_text) == (wanted.usage.prompt_tokens, wanted.choices[0].message.content)


def test_the_events_of_a_stream(api: Any) -> None:
    wanted: Any = {"format": {"type": "json_schema", "name": "a", "schema": {"enum": ["\u00e4"]}}}
    whole = api.responses.create(text=wanted, **FIELDS)
    with api.responses.stream(text=wanted, **FIELDS) as stream:  # the client checks the order, and puts the response together
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == whole.output_text == "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == f"response.{whole.status}"


@pytest.mark.parametrize("stream", [False, True])
def test_a_call(api: Any, stream: bool) -> None:
    fields: Any = {**FIELDS, "max_output_tokens": 80, "tools": [TOOL], "tool_choice": {"type": "function", "name": "weather"}}
    if stream:
        with api.responses.stream(**fields) as events:
            for _ in events:
                pass
            got = events.get_final_response()
    else:
        got = api.responses.create(**fields)
    (item,) = got.output
    assert (item.type, item.name, json.loads(item.arguments)) == ("function_call", "weather", {"city": "Oslo"}) and item.call_id
    assert got.status == "completed"


def test_a_format(api: Any) -> None:
    wanted: Any = {
        "format": {"type": "json_schema", "name": "a", "schema": {"enum": ["x"]}, "strict": True},
        "verbosity": "low",
    }
    assert json.loads(api.responses.create(text=wanted, **FIELDS).output_text) == "x"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": [{"type": "function_call"}]}, "input.0"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"n": 2}, "n"),
    ],
)
def test_what_is_refused_is_named(api: Any, fields: dict[str, Any], param: str) -> None:
    import openai

    with pytest.raises(openai.BadRequestError) as told:
        api.post("/responses", body={**FIELDS, **fields}, cast_to=object)
    assert told.value.param == param, told.value
