"""Calls of tools, as the chat templates of open models have them written: `FORMATS` has an entry for each way, and the template
says which one a model knows. `Reader` takes calls out of an answer's text, `grammar_of` binds an answer to them.
"""

from __future__ import annotations

import ast
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decgraph.errors import DecError
from decgraph.serve.wire import Tool

Call = tuple[str, str]
"""A function's name, and its arguments as JSON."""


@dataclass(frozen=True)
class Format:
    """A way to write calls: `open`, then for each call `begin`, the call and `end`, with `between` between calls, then `close`.

    marks: what a template that knows the format has in it, all of them. style: what a call is. "object": a JSON object with the
    function's name and its arguments under `keys`; "list": one JSON list of such objects; "named": the name, `middle`, and the
    arguments as JSON; "tags": the name and a tag for each argument (`tags`); "python": a list of Python calls.
    """

    name: str
    marks: tuple[str, ...]
    style: str = "object"
    open: str = ""
    begin: str = ""
    middle: str = ""
    end: str = ""
    close: str = ""
    between: str = ""
    keys: tuple[str, str] = ("name", "arguments")
    more: tuple[str, ...] = ()
    """Other texts that calls begin with."""
    tags: tuple[str, str, str] = ("", "", "")
    """Regular expressions of a call's name, of an argument, and what ends a call."""

    @property
    def starts(self) -> tuple[str, ...]:
        """What the text of a call may begin with; where there is nothing, it is the text's own beginning."""
        found = ((self.open + self.begin).strip(), self.begin.strip(), *self.more)
        return tuple(dict.fromkeys(one for one in found if one))


HERMES = Format("hermes", ("<tool_call>",), begin="<tool_call>\n", end="\n</tool_call>", between="\n")
FORMATS = (
    Format("harmony", ("<|channel|>", "to=functions."), "named", begin="<|channel|>commentary to=functions.",
           middle=" <|constrain|>json<|message|>", end="<|call|>",
           between="<|start|>assistant", more=("<|start|>assistant to=functions.", "to=functions.")),
    Format("deepseek 3.1", ("<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>'+tool['function']['arguments']"), "named",
           "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
    Format("deepseek", ("<｜tool▁calls▁begin｜>",), "named", "<｜tool▁calls▁begin｜>",
           "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>",
           "<｜tool▁calls▁end｜>", "\n"),
    Format("kimi", ("<|tool_call_begin|>",), "named", "<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.",
           ":0<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"),
    Format("mistral 11", ("[TOOL_CALLS]", "[ARGS]"), "named", begin="[TOOL_CALLS]", middle="[ARGS]"),
    Format("mistral", ("[TOOL_CALLS]",), "list", open="[TOOL_CALLS] "),
    Format("command", ("<|START_ACTION|>",), "list", open="<|START_ACTION|>", close="<|END_ACTION|>",
           keys=("tool_name", "parameters")),
    Format("granite", ("<|tool_call|>",), "list", open="<|tool_call|>"),
    Format("glm", ("<arg_key>",), "tags", begin="<tool_call>", end="</tool_call>",
           tags=(r"\s*([\w.:-]+)\s*", r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", "</tool_call>")),
    Format("qwen coder", ("<function=", "<parameter="), "tags", begin="<tool_call>", end="</tool_call>", more=("<function=",),
           tags=(r"(?:\s*<function=)?([\w.:-]+)>\s*", r"<parameter=([^>]+)>\n?(.*?)\n?</parameter>", "</function>")),
    Format("functionary", ("<function=",), "named", begin="<function=", middle=">", end="</function>", between="\n"),
    HERMES,
    Format("xlam", ("tool_call_argument", "tool_calls"), "list"),
    Format("llama", ('"parameters":',), keys=("name", "parameters"), between="; ", more=("<|python_tag|>",)),
    Format("python", ("tools", "[func_name1("), "python"),
    Format("python", ("<|python_start|>",), "python", more=("<|python_start|>",)),
)  # fmt: skip
"""The first one whose marks a template has is its own. Those who share marks stand with the one of more marks first."""

TOLD = """You may call functions to assist with the user's query. The functions are given as JSON within <tools></tools>:
<tools>
%s
</tools>
To call a function, answer with a JSON object of its name and its arguments within <tool_call></tool_call>:
<tool_call>
{"name": <function's name>, "arguments": <arguments as a JSON object>}
</tool_call>"""
"""The system prompt for a model whose template has no tools."""


def format_of(template: str) -> Format | None:
    """The format that a chat template has calls written in; None for one without tools."""
    if "tools" not in template:
        return None
    return next((one for one in FORMATS if all(mark in template for mark in one.marks)), HERMES)


def told(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> list[dict[str, Any]]:
    """The messages for a template that knows no tools: they stand in the system message, calls and results in texts."""
    out: list[dict[str, Any]] = []
    for message in messages:
        made = {name: value for name, value in message.items() if name in ("role", "content", "reasoning_content")}
        for call in message.get("tool_calls") or ():
            said = {name: call["function"][name] for name in ("name", "arguments")}
            made["content"] = f"{made['content']}\n<tool_call>\n{json.dumps(said)}\n</tool_call>".lstrip("\n")
        if message["role"] == "tool":
            made = {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
        out.append(made)
    if tools:
        text = TOLD % "\n".join(json.dumps(tool) for tool in tools)
        if out[0]["role"] == "system":
            out[0] = {**out[0], "content": f"{out[0]['content']}\n\n{text}"}
        else:
            out.insert(0, {"role": "system", "content": text})
    return out


class Reader:
    """Divides an answer's text, which has special tokens as they are spelled, into what is content and what are calls.

    hidden: spellings of special tokens, which are no content. forced: the answer is bound to calls.
    """

    def __init__(self, format: Format, tools: Sequence[Tool], hidden: Sequence[str], *, forced: bool = False) -> None:
        self.format, self.tools, self.forced = format, tools, forced
        self._hidden = re.compile("|".join(map(re.escape, sorted(hidden, key=len, reverse=True))) or "(?!)")
        self._text, self._shown, self._content = "", 0, ""

    def feed(self, text: str) -> str:
        """More of the text; the content that is certain now."""
        self._text += text
        at = self._call()
        return self._show(at if at is not None else len(self._text) - self._held())

    def finish(self) -> tuple[str, list[Call]]:
        """The rest of the content, when no text follows, and the calls."""
        at = self._call()
        calls = read(self._text[at:], self.format, self.tools) if at is not None else []
        return self._show(len(self._text) if not calls else at or 0), calls

    def _call(self) -> int | None:
        """Where the calls begin, if they do."""
        found = [at for start in self.format.starts if (at := self._text.find(start)) >= 0]
        if found:
            return min(found)
        first = self._hidden.sub("", self._text).lstrip()[:1]
        bare = self.format.style in ("python", "list") and first == "[" or first == "{" and self.format.name != "python"
        return 0 if self.forced or bare else None

    def _held(self) -> int:
        """How many of the last characters may be the beginning of a call."""
        if not self._text.strip():
            return len(self._text)
        most = max(map(len, self.format.starts), default=1) - 1
        ends = (
            n
            for n in range(min(most, len(self._text)), 0, -1)
            if any(s.startswith(self._text[-n:]) for s in self.format.starts)
        )
        return next(ends, 0)

    def _show(self, end: int) -> str:
        out = self._hidden.sub("", self._text[self._shown : max(end, self._shown)])
        self._shown = max(end, self._shown)
        return out


def read(text: str, format: Format, tools: Sequence[Tool] = ()) -> list[Call]:
    """The calls in a text; none of one that is cut off or is no call. tools: whose schemas say which arguments are texts."""
    if format.style == "tags" and (found := _tags(text, format, {t.function.name: t.function.parameters or {} for t in tools})):
        return found
    styles = {"named": _named, "python": _python}
    return styles.get(format.style, _objects)(text, format) or _objects(text, format)


def _objects(text: str, format: Format) -> list[Call]:
    """The JSON objects of a text that name a function, also in lists."""
    decoder, out, at = json.JSONDecoder(), [], 0
    while (opened := re.compile(r"[{\[]").search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, opened.start())
        except (ValueError, RecursionError):
            at = opened.end()
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict) and (made := _made(one, format)) is not None:
                out.append(made)
    return out


def _made(one: dict[str, Any], format: Format) -> Call | None:
    one = one["function"] if isinstance(one.get("function"), dict) else one
    name = next((one[key] for key in (format.keys[0], "name", "function") if isinstance(one.get(key), str)), None)
    given: Any = next((one[key] for key in (format.keys[1], "arguments", "parameters") if key in one), {})
    if name is None or not isinstance(given, dict | str):
        return None
    return name, given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _named(text: str, format: Format) -> list[Call]:
    decoder, out = json.JSONDecoder(), []
    middle = re.escape(format.middle).replace(":0", r":\d+").replace(r"\ ", r"\s*").replace(r"\n", r"\s*")
    begin = "|".join(map(re.escape, (format.begin, *format.more)))
    for found in re.finditer(
        rf"(?:{begin})([\w.:-]+?)\s*(?:{middle}|(?:<\|channel\|>\w+)?\s*(?:<\|constrain\|>)?\w*<\|message\|>)\s*", text
    ):
        try:
            value, _ = decoder.raw_decode(text, found.end())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            out.append((found[1], json.dumps(value, ensure_ascii=False)))
    return out


def _tags(text: str, format: Format, schemas: Mapping[str, Any]) -> list[Call]:
    name, argument, end = format.tags
    out: list[Call] = []
    for part in re.split("|".join(map(re.escape, (format.begin, *format.more))), text)[1:]:
        if end in part and (found := re.match(name, part)) is not None:
            kinds = _object(schemas.get(found[1], {}).get("properties"))
            given: dict[str, Any] = {
                key.strip(): value if _object(kinds.get(key.strip())).get("type") == "string" else _value(value)
                for key, value in re.findall(argument, part[: part.index(end)], re.S)
            }
            out.append((found[1], json.dumps(given, ensure_ascii=False)))
    return out


def _object(part: Any) -> dict[str, Any]:
    """A part of a client's schema that should be an object; empty for anything else."""
    return part if isinstance(part, dict) else {}


def _value(text: str) -> Any:
    """What an argument's text says: JSON where it is some, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _python(text: str, format: Format) -> list[Call]:
    try:
        tree = ast.parse(text[text.index("[") : text.rindex("]") + 1], mode="eval").body
        items = tree.elts if isinstance(tree, ast.List) else []
        calls = [one for one in items if isinstance(one, ast.Call)]
        return [
            (ast.unparse(one.func), json.dumps({word.arg: ast.literal_eval(word.value) for word in one.keywords if word.arg}))
            for one in calls
        ]
    except (ValueError, SyntaxError, RecursionError, TypeError, MemoryError):
        return []


SPACED = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}
"""JSON as templates write it, for llguidance: a small model might write blanks for ever."""


def grammar_of(format: Format, tools: Sequence[Tool], *, parallel: bool, special: Mapping[str, int]) -> str:
    """A Lark grammar, in llguidance's dialect, of one call of one of the tools or more. special: spellings of special tokens
    and their ids. Raises DecError for a format whose arguments are not JSON."""
    if format.style in ("tags", "python"):
        raise DecError(
            f"calls of this model ({format.name}) are not JSON, and cannot be bound to a schema", hint='tool_choice: "auto"'
        )
    schemas = [(t.function.name, t.function.parameters or {"type": "object"}) for t in tools]
    write = lambda text: _written(text, special)
    if format.style == "named":
        one = " | ".join(
            f"{write(format.begin + name + format.middle)} %json {json.dumps({**schema, **SPACED})} {write(format.end)}"
            for name, schema in schemas
        )
    else:
        name, given = format.keys
        shapes = [
            {"type": "object", "properties": {name: {"const": called}, given: schema}, "required": [name, given],
             "additionalProperties": False}
            for called, schema in schemas
        ]  # fmt: skip
        shape: dict[str, Any] = {"anyOf": shapes} if len(shapes) > 1 else shapes[0]
        if format.style == "list":
            shape = {"type": "array", "items": shape, "minItems": 1, **({} if parallel else {"maxItems": 1})}
        one = f"{write(format.begin)} %json {json.dumps({**shape, **_definitions(schemas), **SPACED})} {write(format.end)}"
    many = parallel and format.style != "list"
    rest = f" ({write(format.between)} call)*" if many else ""
    return f"start: {write(format.open)} call{rest} {write(format.close)}\ncall: {one}\n"


def _definitions(schemas: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The definitions that schemas refer to from their roots, which are no roots any more."""
    found = {
        word: {k: v for _, schema in schemas for k, v in _object(schema.get(word)).items()} for word in ("$defs", "definitions")
    }
    return {word: made for word, made in found.items() if made}


def _written(text: str, special: Mapping[str, int]) -> str:
    """A text in Lark: special tokens by their ids."""
    known = [one for one in special if one and one in text]
    if not known:
        return json.dumps(text, ensure_ascii=False) if text else ""
    parts = re.split("(" + "|".join(map(re.escape, sorted(known, key=len, reverse=True))) + ")", text)
    return " ".join(
        f"<[{special[part]}]>" if part in special else json.dumps(part, ensure_ascii=False) for part in parts if part
    )


def identified(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Calls as OpenAI's clients read them, each with an id."""
    return [
        {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": {"name": name, "arguments": given}}
        for name, given in calls
    ]
