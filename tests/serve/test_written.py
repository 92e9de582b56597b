"""What a served model writes, by OpenAI's client: calls that are cut, formats beside tools, and thoughts."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from decgraph.runtime.grammars import Grammar, matcher
from decgraph.runtime.text import Detokenizer
from decgraph.serve.answers import Answer
from decgraph.serve.generation import Shown
from decgraph.serve.tools import FORMATS, HARMONY, grammar_of
from decgraph.serve.wire import Tool

PLACE = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"enum": [1, 2]}},
         "required": ["city", "days"], "additionalProperties": False}  # fmt: skip
WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": PLACE}}
FLAT: Any = {"type": "function", "name": "weather", "parameters": PLACE}
DOG = {"type": "object", "properties": {"name": {"const": "Bingo"}}, "required": ["name"], "additionalProperties": False}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "dog", "schema": DOG}}
ASK: Any = {"model": "parrot", "messages": [{"role": "user", "content": "What is the weather?"}], "temperature": 0}


@pytest.fixture
def api(parrot: Any) -> Any:
    return parrot.api


def streamed(api: Any, **fields: Any) -> tuple[Any, dict[str, Any]]:
    """The reason of the end, and the message that the deltas add up to."""
    made: dict[str, Any] = {"content": "", "reasoning_content": "", "calls": {}}
    reason = None
    for chunk in api.chat.completions.create(stream=True, **ASK, **fields):
        (choice,) = chunk.choices
        delta, reason = choice.delta.model_dump(), choice.finish_reason
        made["content"] += delta.get("content") or ""
        made["reasoning_content"] += delta.get("reasoning_content") or ""
        for call in delta["tool_calls"] or ():
            made["calls"].setdefault(call["index"], [call["function"]["name"], ""])[1] += call["function"]["arguments"] or ""
    return reason, made


def test_a_forced_call_that_is_cut(api: Any) -> None:
    """The name and the arguments so far, with the reason `length`; no markup as content, in any of the four ways to ask."""
    forced: Any = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
    whole = api.chat.completions.create(**ASK, **forced, max_tokens=120).choices[0]
    (wanted,) = whole.message.tool_calls
    jsonschema.validate(json.loads(wanted.function.arguments), PLACE)
    tokens = api.chat.completions.create(**ASK, **forced, max_tokens=120).usage.completion_tokens
    inside = []  # limits that cut the arguments
    for limit in range(3, tokens, 9):
        got = api.chat.completions.create(**ASK, **forced, max_tokens=limit).choices[0]
        calls = [(call.function.name, call.function.arguments) for call in got.message.tool_calls or ()]
        inside += [limit for _, text in calls if 0 < len(text) < len(wanted.function.arguments)]
        assert not got.message.content and got.finish_reason == "length"
        assert all(name == "weather" and wanted.function.arguments.startswith(text) for name, text in calls)
        reason, made = streamed(api, **forced, max_tokens=limit)
        assert (reason, made["content"], [tuple(call) for call in made["calls"].values()]) == ("length", "", calls)
    fields: Any = {"model": "parrot", "input": ASK["messages"], "temperature": 0, "tools": [FLAT], "tool_choice": "required"}
    fields |= {"parallel_tool_calls": False, "max_output_tokens": inside[-1]}
    got = api.responses.create(**fields)
    (item,) = got.output
    assert (got.status, item.type, item.status) == ("incomplete", "function_call", "incomplete") and item.arguments
    assert wanted.function.arguments.startswith(item.arguments)
    with api.responses.stream(**fields) as stream:
        deltas = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
    assert len(deltas) > 2 and "".join(deltas) == item.arguments


@pytest.mark.parametrize("name", [one.name for one in FORMATS if one.style not in ("tags", "python")])
def test_a_format_beside_tools_is_a_grammar_of_either(name: str) -> None:
    format = next(one for one in FORMATS if one.name == name)
    letters = Detokenizer(tuple(bytes([n]) for n in range(256)))
    lark = grammar_of(format, [Tool.model_validate(WEATHER)], parallel=True, special={}, answer=json.dumps(DOG))
    key, value = format.keys
    call = json.dumps({key: "weather", value: {"city": "Oslo", "days": 2}})
    if format.style in ("named", "channels"):
        call = f'{format.begin}weather{format.middle}{{"city": "Oslo", "days": 2}}'
    else:
        call = format.begin + (f"[{call}]" if format.style == "list" else call)
    for text in ('{"name": "Bingo"}', format.open + call + format.end + format.close):
        parser = matcher(Grammar.lark(lark), letters, 256)
        assert parser.try_consume_tokens(list(text.encode())) == len(text.encode()) and parser.is_accepting(), text
    assert matcher(Grammar.lark(lark), letters, 256).try_consume_tokens(list(b"Hello")) == 0


def test_tools_with_a_format(api: Any) -> None:
    fields: Any = {"tools": [WEATHER], "response_format": FORMAT, "max_tokens": 120}
    got = api.chat.completions.create(**ASK, **fields).choices[0].message
    assert got.tool_calls or json.loads(got.content) == {"name": "Bingo"}
    got = api.chat.completions.create(**ASK, **fields, tool_choice="required").choices[0].message
    assert {call.function.name for call in got.tool_calls} == {"weather"} and not got.content


@pytest.mark.parametrize(
    ("grammar", "mood", "wanted"),
    [
        ("<think>Hm.</think>\n\nYes.", "", ("Hm.", "Yes.", 0)),
        ("Hm.\n</think>\n\nYes.", "<think>\n", ("Hm.", "Yes.", 0)),
        ('Hm.</think><tool_call>{"name": "weather", "arguments": {}}</tool_call>', "<think>\n", ("Hm.", "", 1)),
        ('<think><tool_call>{"name": "weather", "arguments": {}}</tool_call></think>Yes.', "",
         ('<tool_call>{"name": "weather", "arguments": {}}</tool_call>', "Yes.", 0)),
        ('I look.\n<tool_call>{"name": "weather", "arguments": {}}</tool_call> Yes.', "", ("", "I look.\n Yes.", 1)),
        ("Yes.", "<think>\n", ("", "Yes.", 0)),  # a grammar without thoughts
    ],
)  # fmt: skip
def test_thoughts(api: Any, grammar: str, mood: str, wanted: tuple[str, str, int]) -> None:
    more = {"structured_outputs": {"grammar": f"start: {json.dumps(grammar)}"}, "chat_template_kwargs": {"mood": mood}}
    fields: Any = {"tools": [WEATHER], "extra_body": more}
    got = api.chat.completions.create(**ASK, **fields, max_tokens=200)
    message = got.choices[0].message.model_dump()
    calls = len(message["tool_calls"] or ())
    assert (message.get("reasoning_content") or "", message["content"] or "", calls) == wanted
    details = got.usage.completion_tokens_details
    assert bool(wanted[0]) == bool(details and details.reasoning_tokens)
    _, made = streamed(api, **fields, max_tokens=200)
    assert (made["reasoning_content"], made["content"], len(made["calls"])) == wanted
    asked: Any = {"model": "parrot", "input": ASK["messages"], "temperature": 0, "tools": [FLAT], "extra_body": more}
    whole = api.responses.create(**asked, max_output_tokens=200)
    with api.responses.stream(**asked, max_output_tokens=200) as stream:
        events = list(stream)
    final = events[-1].response
    assert [item.type for item in final.output] == [item.type for item in whole.output]
    assert [[c.text for c in getattr(i, "content", None) or ()] for i in final.output] == [
        [c.text for c in getattr(i, "content", None) or ()] for i in whole.output
    ]
    thoughts = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
    assert (thoughts, final.output_text) == wanted[:2] and sum(i.type == "function_call" for i in final.output) == wanted[2]
    back = [*ASK["messages"], *(item.model_dump(exclude_none=True) for item in final.output), *ASK["messages"]]
    assert api.responses.create(**{**asked, "input": back}, max_output_tokens=200).status == "completed"


def test_special_tokens_of_marks_alone_are_read() -> None:
    """A special token is hidden, unless it is a mark; a text that is spelled like one is a text."""
    special = {256: "<|channel|>", 257: "<|message|>", 258: "<|end|>", 259: "<|start|>", 260: "<s>"}
    detokenizer = Detokenizer((*(bytes([n]) for n in range(256)), *[b""] * 5), special)
    generation: Any = SimpleNamespace(shown=Shown(), tools=None, chat=True, format=HARMONY, thinking="")
    request = SimpleNamespace(stop=(), eos=())
    job: Any = SimpleNamespace(
        session=SimpleNamespace(tokenizer=SimpleNamespace(detokenizer=detokenizer)), place=0, request=request
    )
    answer = Answer(generation, job)
    tokens = [256, *b"analysis", 257, *b"Hm.", 258, 259, *b"assistant", 256, *b"final", 257, 260, *b"<s>old</s>"]
    for token in tokens:
        answer.grow(SimpleNamespace(tokens=[token], result=None))  # type: ignore[arg-type]
    answer.grow(SimpleNamespace(tokens=[], result=SimpleNamespace()))  # type: ignore[arg-type]
    assert (answer.reasoning, answer.content) == ("Hm.", "<s>old</s>")
