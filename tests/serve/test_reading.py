"""What a model writes: whatever the arguments, the cut or the pieces, a call is whole and offered, and all else is content."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import examples

from decgraph.serve.tools import FORMATS, HARMONY, HERMES, Format, Reader
from decgraph.serve.wire import Tool

OPTIONAL = {"anyOf": [{"type": "string"}, {"type": "null"}]}
PARAMETERS = {
    "type": "object",
    "properties": {
        "text": {"type": "string"}, "code": {"type": ["string", "null"]}, "zip": OPTIONAL, "place": {"$ref": "#/$defs/Place"},
        "days": {"type": "integer"}, "more": {"type": "array"},
    },
    "$defs": {"Place": OPTIONAL},
}  # fmt: skip
TOOLS = [
    Tool.model_validate({"type": "function", "function": {"name": name, "parameters": PARAMETERS}})
    for name in ("write", "get-it")
]
Calls = list[tuple[str, dict[str, Any]]]


def objects(name: str, arguments: str) -> Callable[[Calls], list[str]]:
    return lambda calls: [json.dumps({name: called, arguments: given}, ensure_ascii=False) for called, given in calls]


def dumped(calls: Calls) -> list[tuple[str, str]]:
    return [(called, json.dumps(given, ensure_ascii=False)) for called, given in calls]


def tagged(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


usual = objects("name", "arguments")
RENDERED: dict[str, Callable[[Calls], str]] = {
    "hermes": lambda calls: "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in usual(calls)),
    "llama": lambda calls: "; ".join(objects("name", "parameters")(calls)),
    "mistral": lambda calls: f"[TOOL_CALLS] [{', '.join(usual(calls))}]",
    "mistral 11": lambda calls: "".join(f"[TOOL_CALLS]{name}[ARGS]{given}" for name, given in dumped(calls)),
    "granite": lambda calls: f"<|tool_call|>[{', '.join(usual(calls))}]",
    "command": lambda calls: f"<|START_ACTION|>[{', '.join(objects('tool_name', 'parameters')(calls))}]<|END_ACTION|>",
    "xlam": lambda calls: f"[{', '.join(usual(calls))}]",
    "functionary": lambda calls: "\n".join(f"<function={name}>{given}</function>" for name, given in dumped(calls)),
    "deepseek": lambda calls: "<｜tool▁calls▁begin｜>" + "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{given}\n```<｜tool▁call▁end｜>"
        for name, given in dumped(calls)
    ) + "<｜tool▁calls▁end｜>",
    "deepseek 3.1": lambda calls: "<｜tool▁calls▁begin｜>" + "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{given}<｜tool▁call▁end｜>" for name, given in dumped(calls)
    ) + "<｜tool▁calls▁end｜>",
    "kimi": lambda calls: "<|tool_calls_section_begin|>" + "".join(
        f"<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>{given}<|tool_call_end|>"
        for n, (name, given) in enumerate(dumped(calls))
    ) + "<|tool_calls_section_end|>",
    "harmony": lambda calls: "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{given}<|call|>"
        for name, given in dumped(calls)
    ),
    "qwen coder": lambda calls: "\n".join(
        f"<tool_call>\n<function={name}>\n" + "".join(f"<parameter={k}>\n{tagged(v)}\n</parameter>\n" for k, v in given.items())
        + "</function>\n</tool_call>"
        for name, given in calls
    ),
    "glm": lambda calls: "\n".join(
        f"<tool_call>{name}\n"
        + "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{tagged(v)}</arg_value>\n" for k, v in given.items())
        + "</tool_call>"
        for name, given in calls
    ),
    "python": lambda calls: "[" + ", ".join(
        f"{name}({', '.join(f'{k}={v!r}' for k, v in given.items())})" for name, given in calls
    ) + "]",
}  # fmt: skip
MARKS = ["</function>", "</tool_call>", "<tool_call>", "<function=write>", "<parameter=text>", "</parameter>",
         "</arg_value>", "<arg_key>",
         "<think>", "</think>", "[TOOL_CALLS]", "<|call|>", "<|message|>", "<|end|>", '{"name": "write", "arguments": {}}',
         "\\", '"', "'", "{", "}", "[", "]", "\n", "12345", "ü", "🙂", "\u2028", " "]  # fmt: skip
PIECES = [" to=functions.write", "<|channel|>analysis", "<|start|>assistant", "<parameter=text>\n", "<function=write>\n",
          "[write(", "text=", ")]", "[ARGS]"]  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(MARKS), st.text(max_size=3)), max_size=6).map("".join)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXTS, "code": TEXTS, "zip": TEXTS, "place": TEXTS, "days": st.integers(-(10**30), 10**30),
        "more": st.lists(st.one_of(TEXTS, st.booleans(), st.none(), st.floats(-9, 9)), max_size=3),
    },
)  # fmt: skip
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=20)


def format_named(name: str) -> Format:
    return next(one for one in FORMATS if one.name == name)


def divided(
    format: Format, text: str, sizes: list[int] | None = None, **settings: Any
) -> tuple[str, str, list[tuple[str, str]]]:
    """Thoughts, content and calls. sizes: of the pieces, in turn; None for one piece."""
    reader, shown, at, turn = Reader(format, settings.pop("tools", TOOLS), **settings), "", 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)] if sizes else len(text)
        shown += reader.feed(text[at : at + size])
        at, turn = at + size, turn + 1
    left, calls = reader.finish()
    kinds = {kind: "".join(part.text for part in reader.parts if part.kind == kind) for kind in ("reasoning", "content")}
    assert shown + left == kinds["content"]
    return kinds["reasoning"], kinds["content"], calls


def clear(name: str, calls: Calls) -> bool:
    """Whether no argument can be taken for another: texts between tags are not escaped."""
    if format_named(name).style != "tags":
        return True
    texts = [tagged(v) for _, given in calls for v in given.values()]
    return not any("<" in one or ">" in one for one in texts)


def test_every_format_is_tried() -> None:
    assert set(RENDERED) == {one.name for one in FORMATS}


@pytest.mark.parametrize("name", RENDERED)
@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_calls_of_any_arguments(name: str, data: st.DataObject) -> None:
    """They are read back as they are, whatever the pieces; a text between tags that has such tags may be content."""
    names = st.sampled_from(["write"] if name == "python" else ["write", "get-it"])
    calls = data.draw(st.lists(st.tuples(names, VALUES), min_size=1, max_size=3))
    text = RENDERED[name](calls)
    whole = divided(format_named(name), text)
    assert divided(format_named(name), text, data.draw(SIZES)) == whole
    reasoning, content, found = whole
    read = [(called, json.loads(arguments)) for called, arguments in found]
    if clear(name, calls):
        assert (reasoning, content) == ("", "") and read == calls
    else:  # content, or the other calls that are written so
        assert content == text or RENDERED[name](read).split() == text.split()
    nobody = Tool.model_validate({"type": "function", "function": {"name": "nobody"}})
    assert divided(format_named(name), text, tools=[nobody])[2] == []


@pytest.mark.parametrize("name", RENDERED)
@settings(max_examples=examples(20), deadline=None)
@given(st.data())
def test_a_cut_leaves_whole_calls_and_content(name: str, data: st.DataObject) -> None:
    calls = data.draw(st.lists(st.tuples(st.just("write"), VALUES), min_size=1, max_size=2))
    text = RENDERED[name](calls)
    if not clear(name, calls):
        return
    for end in data.draw(st.lists(st.integers(0, len(text) - 1), min_size=1, max_size=8)):
        cut = text[:end]
        _, content, found = divided(format_named(name), cut)
        assert [(called, json.loads(arguments)) for called, arguments in found] == calls[: len(found)]
        if not found and name != "harmony":  # whose heads are no text
            assert content == cut
        assert divided(format_named(name), cut, [3]) == ("", content, found)


@pytest.mark.parametrize("name", RENDERED)
@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.one_of(st.sampled_from([*MARKS, *PIECES]), TEXTS), max_size=9).map("".join), SIZES)
def test_any_text_in_any_pieces(name: str, text: str, sizes: list[int]) -> None:
    whole = divided(format_named(name), text)
    assert divided(format_named(name), text, sizes) == whole
    assert all(called == "write" and isinstance(json.loads(arguments), dict) for called, arguments in whole[2])
    if not whole[0] and not whole[2] and name != "harmony" and "<think>" not in text:
        assert whole[1] == text


CALL = '<tool_call>\n{"name": "write", "arguments": {"text": "a"}}\n</tool_call>'
ANALYSIS, FINAL = "<|channel|>analysis<|message|>Hm.<|end|>", "<|start|>assistant<|channel|>final<|message|>Yes."


@pytest.mark.parametrize(
    ("format", "text", "thinking", "wanted"),
    [
        (HERMES, f"<think>\nMaybe {CALL}?\n</think>\n\nYes.", "", (f"Maybe {CALL}?", "Yes.", 0)),
        (HERMES, f"<think>Hm.</think>\n{CALL}", "", ("Hm.", "", 1)),
        (HERMES, f"Hm.\n</think>\n\n{CALL}\nYes.", "</think>", ("Hm.", "\nYes.", 1)),
        (HERMES, "Hm", "</think>", ("Hm", "", 0)),
        (HERMES, "<think>Hm", "", ("Hm", "", 0)),
        (HERMES, "The mark <think> opens thoughts.", "", ("", "The mark <think> opens thoughts.", 0)),
        (format_named("mistral 11"), '[THINK]Hm.[/THINK][TOOL_CALLS]write[ARGS]{}', "", ("Hm.", "", 1)),
        (format_named("command"), "<|START_THINKING|>Hm.<|END_THINKING|>Yes.", "", ("Hm.", "Yes.", 0)),
        (HARMONY, ANALYSIS + FINAL, "", ("Hm.", "Yes.", 0)),
        (HARMONY, f"{ANALYSIS}<|start|>assistant{ANALYSIS}{FINAL}<|return|>", "", ("Hm.\nHm.", "Yes.", 0)),
        (HARMONY, f"{ANALYSIS}<|start|>assistant to=functions.write<|channel|>commentary json<|message|>{{}}", "",
         ("Hm.", "", 1)),
        (HARMONY, " to=functions.write<|channel|>commentary json<|message|>{}<|call|>", "", ("", "", 1)),
        (HARMONY, "<|channel|>analysis<|message|>functions.write {}<|end|>", "", ("functions.write {}", "", 0)),
        (HARMONY, "Yes.", "", ("", "Yes.", 0)),
        (HARMONY, "<|channel|>fin", "", ("", "", 0)),
        (HARMONY, "<think>Hm.</think>Yes.", "", ("Hm.", "Yes.", 0)),
        (HARMONY, '<|channel|>commentary to=functions.no json<|message|>{"a": 1}', "",
         ("", '<|channel|>commentary to=functions.no json<|message|>{"a": 1}', 0)),
    ],
)  # fmt: skip
def test_thoughts(format: Format, text: str, thinking: str, wanted: tuple[str, str, int]) -> None:
    for sizes in (None, [1], [3], [7]):
        reasoning, content, calls = divided(format, text, sizes, thinking=thinking)
        assert (reasoning, content, len(calls)) == wanted


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '{"name": "Bingo", "age": 30}'),
        ("hermes", '{"name": "write", "age": 30}'),
        ("hermes", '<tool_call>\n{"name": "no", "arguments": {"file": {"name": "write", "arguments": {}}, "bio": "Bo'),
        ("hermes",
         '<tool_call>\n{"name": "no", "arguments": {"file": {"name": "write", "arguments": {}}, "to": }}\n</tool_call>'),
        ("hermes", '<tool_call>\n{"name": "write", "arguments": {"days": NaN}}\n</tool_call>'),
        ("hermes", '<tool_call>\n{"name": "write", "arguments": {"days": 1e999}}\n</tool_call>'),
        ("hermes", '<tool_call>\n{"name": "write", "arguments": [1]}\n</tool_call>'),
        ("xlam", '[{"name": "write", "arguments": {}}, {"name": "no", "arguments": {}}]'),
        ("xlam", '[{"name": "write"}]'),
        ("python", "[write('a', 'b', 'c', 'd', 1, [], 2)]"),
        ("python", "[write('a', text='b')]"),
        ("python", "[write(days=1e999)]"),
        ("python", "[write(**{'a': 1})]"),
        ("qwen coder", "<function=write>\n<parameter=text>\na\n</parameter>\n<parameter=text>\nb\n</parameter>\n</function>"),
    ],
)  # fmt: skip
def test_what_is_no_call(name: str, text: str) -> None:
    for sizes in (None, [1], [5]):
        assert divided(format_named(name), text, sizes) == ("", text, [])


@pytest.mark.parametrize(
    ("schema", "text", "wanted"),
    [
        ({"type": "integer"}, "5", 5), ({"type": "integer"}, "five", "five"), ({"type": "number"}, "1e999", "1e999"),
        ({"type": "number"}, "NaN", "NaN"), ({"type": "boolean"}, "True", True), ({"type": "string"}, '"5"', '"5"'),
        ({"type": ["string", "null"]}, "5", "5"), ({"type": ["string", "null"]}, "None", None), ({}, "5", 5), ({}, "x", "x"),
        ({"enum": ["1", "2"]}, "1", "1"), ({"enum": [1, 2]}, "1", 1), ({"const": "true"}, "true", "true"),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, "[1]", [1]), ({"type": "object"}, '{"a": "ü"}', {"a": "ü"}),
        ({"allOf": [{"type": "string"}]}, "5", "5"), ({"oneOf": [{"const": "1"}, {"type": "null"}]}, "1", "1"),
        ({"$ref": "#/properties/x"}, "5", 5), ({"$ref": "#/no/where"}, "x", "x"), ({"type": "array"}, "[1", "[1"),
    ],
)  # fmt: skip
def test_the_type_of_an_argument_is_the_schemas(schema: Any, text: str, wanted: Any) -> None:
    tools = [Tool.model_validate({"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": schema}}}})]
    for name in ("qwen coder", "glm"):
        ((_, given),) = divided(format_named(name), RENDERED[name]([("f", {"x": text})]), tools=tools)[2]
        assert json.loads(given) == {"x": wanted}, name
