"""Calls of tools: every format that a template may have is read, written by its grammar, and streamed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from decgraph.runtime.grammars import Grammar, matcher
from decgraph.runtime.text import Detokenizer
from decgraph.serve import tools
from decgraph.serve.wire import Tool

PLACE = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": PLACE}}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
TOOLS = [Tool.model_validate(one) for one in (WEATHER, CLOCK)]
BOTH = [("get_weather", {"city": "Oslo", "days": 2}), ("clock", {})]

WRITTEN: dict[str, str] = {
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}\n</tool_call>\n'
    '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>',
    "qwen coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
    "<parameter=days>\n2\n</parameter>\n"
    "</function>\n</tool_call>\n<tool_call>\n<function=clock>\n</function>\n</tool_call>",
    "glm": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>clock\n</tool_call>",
    "llama": '<|python_tag|>{"name": "get_weather", "parameters": {"city":'
    ' "Oslo", "days": 2}}; {"name": "clock", "parameters": {}}',
    "mistral": '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": '
    '"Oslo", "days": 2}}, {"name": "clock", "arguments": {}}]',
    "mistral 11": '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo", "days": 2}[TOO'
    'L_CALLS]clock[ARGS]{}',
    "granite": '<|tool_call|>[{"name": "get_weather", "arguments": {"city": '
    '"Oslo", "days": 2}}, {"name": "clock", "arguments": {}}]',
    "command": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Oslo", "days": 2}}, '
    '{"tool_call_id": "1", "tool_name": "clock", "parameters": {}}]<|END_ACTION|>',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
    '{"city": "Oslo", "days": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek 3.1": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Oslo", "days": 2}'
    "<｜tool▁call▁end｜><｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city": "Oslo", "days": 2}<|tool_call_end|><|tool_call_begin|>functions.clock:1<|tool_call_argument_begin|>{}'
    "<|tool_call_end|><|tool_calls_section_end|>",
    "harmony": '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo", "days": 2}<|call|>'
    "<|start|>assistant<|channel|>commentary to=functions.clock <|constrain|>json<|message|>{}<|call|>",
    "functionary": '<function=get_weather>{"city": "Oslo", "days": 2}</function>\n<function=clock>{}</function>',
    "xlam": '[{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}, {"name": "clock", "arguments": {}}]',
    "python": "[get_weather(city='Oslo', days=2), clock()]",
}  # fmt: skip


def format_named(name: str) -> tools.Format:
    return next(one for one in tools.FORMATS if one.name == name)


def test_every_format_has_an_example() -> None:
    assert set(WRITTEN) == {one.name for one in tools.FORMATS}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_calls_are_read_whatever_the_pieces(name: str, size: int) -> None:
    bare = name in ("llama", "xlam", "python")  # these begin the text
    for before in ("", "Let me see. ") if not bare or name == "llama" else ("",):
        text = before + WRITTEN[name]
        reader = tools.Reader(format_named(name), TOOLS, ("<|python_tag|>", "<|call|>"))
        shown = "".join(reader.feed(text[at : at + size]) for at in range(0, len(text), size))
        left, calls = reader.finish()
        assert (shown + left).strip() == before.strip()
        assert [(called, json.loads(given)) for called, given in calls] == BOTH


@pytest.mark.parametrize("parameters", [{"properties": [1]}, {"properties": {"city": "string"}}, {"$defs": [1]}])
def test_a_schema_that_is_none_breaks_nothing(parameters: Any) -> None:
    """A client's schema is any JSON object: its parts need not be objects."""
    wrong = [Tool.model_validate({"type": "function", "function": {"name": "get_weather", "parameters": parameters}})]
    for name in ("qwen coder", "glm"):
        reader = tools.Reader(format_named(name), wrong)
        reader.feed(WRITTEN[name].replace("clock", "get_weather"))
        assert reader.finish()[1][0] == ("get_weather", '{"city": "Oslo", "days": 2}')
    assert "get_weather" in tools.grammar_of(tools.HERMES, wrong, parallel=True, special={})


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize(
    "text", ["Hello <b>", "1 < 2 [sic]", "{not JSON}", "[1, 2]", "<tool", '<tool_call>\n{"name": "get_wea']
)
def test_what_is_no_call_is_content(name: str, text: str) -> None:
    reader = tools.Reader(format_named(name), TOOLS, ())
    shown = "".join(map(reader.feed, text))
    left, calls = reader.finish()
    assert not calls and shown + left == text


@pytest.mark.parametrize("name", [one for one in WRITTEN if format_named(one).style not in ("tags", "python")])
def test_the_grammar_of_a_format_takes_what_the_reader_reads(name: str) -> None:
    """With special tokens for what a tokenizer has as such."""
    special = {f"<|{word}|>": number for number, word in enumerate(("python_tag", "call", "constrain", "message"), 256)}
    special["[TOOL_CALLS]"] = 260
    pieces = [bytes([n]) for n in range(256)] + [b""] * len(special)
    lark = tools.grammar_of(format_named(name), TOOLS, parallel=True, special=special)
    parser = matcher(Grammar.lark(lark), Detokenizer(tuple(pieces)), len(pieces))
    text = WRITTEN[name].removeprefix("<|python_tag|>").replace(":1<", ":0<")  # a grammar does not count
    text = re.sub(r'"tool_call_id": "\d", ', "", text)
    for part in re.split("(" + "|".join(map(re.escape, special)) + ")", text):
        for token in [special[part]] if part in special else part.encode():
            assert parser.try_consume_tokens([token]), (text, part)
    assert parser.is_accepting()
    one = tools.grammar_of(format_named(name), TOOLS[:1], parallel=False, special=special)
    assert "clock" not in one and "call)*" not in one


ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_call_that_is_required_comes(parrot: Any, choice: Any) -> None:
    place = {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    kinds = {"name": "get_weather", "parameters": place}
    fields: Any = {
        "model": "parrot",
        "messages": ASK,
        "tools": [{"type": "function", "function": kinds}],
        "tool_choice": choice,
    }
    fields |= {"max_tokens": 120, "temperature": 0, "parallel_tool_calls": False}
    got = parrot.api.chat.completions.create(**fields).choices[0]
    assert got.finish_reason == "tool_calls" and got.message.content is None
    (call,) = got.message.tool_calls
    given = json.loads(call.function.arguments)
    assert call.type == "function" and call.id and call.function.name == "get_weather" and given["city"] in ("Oslo", "Rome")
    chunks = [c.choices[0] for c in parrot.api.chat.completions.create(stream=True, **fields)]
    told = [one for c in chunks for one in c.delta.tool_calls or ()]
    assert told[0].id and told[0].function.name == "get_weather" and {one.index for one in told} == {0} and len(told) > 2
    assert "".join(one.function.arguments for one in told) == call.function.arguments
    assert chunks[-1].finish_reason == "tool_calls" and not any(c.delta.content for c in chunks)


def test_a_conversation_with_calls_is_the_templates(parrot: Any) -> None:
    called = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    said = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    got = parrot.api.post(
        "/../tokenize", body={"messages": said, "tools": [WEATHER], "chat_template_kwargs": {"mood": "!"}}, cast_to=object
    )
    text = parrot.api.post("/../detokenize", body={"tokens": got["tokens"]}, cast_to=object)["prompt"]
    assert text == (
        f"get_weather as <tool_call>\n<user> {ASK[0]['content']}\n<assistant> (get_weather Oslo)\n<tool> 3\n<assistant>!"
    )
    asked: Any = {"model": "parrot", "messages": said, "max_tokens": 4}
    plain = parrot.api.chat.completions.create(**asked)
    auto = parrot.api.chat.completions.create(tools=[WEATHER], **asked)
    none = parrot.api.chat.completions.create(tools=[WEATHER], tool_choice="none", **asked)
    assert auto.usage.prompt_tokens == len(got["tokens"]) - 1
    assert plain.usage.prompt_tokens == none.usage.prompt_tokens < auto.usage.prompt_tokens


def test_a_template_without_tools_is_told_of_them() -> None:
    said = [*ASK, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "clock", "arguments": {}}}]},
            {"role": "tool", "content": "noon"}]  # fmt: skip
    made = tools.told(said, [WEATHER])
    assert [m["role"] for m in made] == ["system", "user", "assistant", "user"] and "get_weather" in made[0]["content"]
    reader = tools.Reader(tools.HERMES, TOOLS)
    reader.feed(made[2]["content"])
    assert reader.finish() == ("", [("clock", "{}")]) and "noon" in made[3]["content"]
    assert tools.told(ASK, []) == ASK and tools.format_of("{{ messages }}") is tools.HERMES


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"tool_choice": "required"}, "tool_choice", "there are no `tools`"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tool_choice",
            "no function 'f'",
        ),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools", "must be a name"),
        ({"tools": [{"type": "code_interpreter"}]}, "tools", "must be 'function'"),
        (
            {"tools": [WEATHER], "tool_choice": "required", "structured_outputs": {"regex": "a"}},
            "tool_choice",
            "one grammar",
        ),
        ({"chat_template_kwargs": {"tokenize": False}}, "chat_template_kwargs", "`tokenize`"),
        ({"continue_final_message": True}, "continue_final_message", "last message"),
    ],
)
def test_what_does_not_go_is_refused(parrot: Any, fields: dict[str, Any], param: str, words: str) -> None:
    import openai

    with pytest.raises(openai.BadRequestError) as told:
        parrot.api.post("/chat/completions", body={"model": "parrot", "messages": ASK, **fields}, cast_to=object)
    assert told.value.param == param and words in str(told.value)
