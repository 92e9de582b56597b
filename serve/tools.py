"""Calls of tools, as the chat templates of open models have them written: `FORMATS` has an entry for each way, and the template
says which one a model knows. `Reader` takes calls out of an answer's text, `grammar_of` binds an answer to them.
"""

from __future__ import annotations

import ast
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from decgraph.errors import DecError
from decgraph.serve import arguments as read
from decgraph.serve.wire import Tool

Call = tuple[str, str]
"""A function's name, and its arguments as JSON."""


@dataclass(frozen=True)
class Format:
    """A way to write calls: `open`, then for each call `begin`, the call and `end`, with `between` between calls, then `close`.

    marks: what a template that knows the format has in it, all of them. style: what a call is. "object": a JSON object with the
    function's name and its arguments under `keys`; "list": one JSON list of such objects; "named": the name, `middle`, and the
    arguments as JSON; "channels": the same as a message of harmony; "tags": the name and a tag for each argument (`tags`);
    "python": a list of Python calls.
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
    tags: read.Tags = read.Tags(re.compile(""), re.compile(""), "", "", re.compile(""), False)

    @property
    def marks_of_answers(self) -> str:
        """All marks of calls and thoughts that an answer may have."""
        calls = (self.open, self.begin, self.middle, self.end, self.close, self.between, *self.more)
        return "\n".join((*calls, *THOUGHTS, *THOUGHTS.values(), *(CHANNELS if self.style == "channels" else ())))

    @property
    def starts(self) -> tuple[str, ...]:
        """What the text of a call may begin with; where there is nothing, it is the text's own beginning."""
        found = ((self.open + self.begin).strip(), self.begin.strip(), *self.more)
        return tuple(dict.fromkeys(one for one in found if one))


HERMES = Format("hermes", ("<tool_call>",), begin="<tool_call>\n", end="\n</tool_call>", between="\n")
HARMONY = Format("harmony", ("<|channel|>", "<|message|>"), "channels", begin="<|channel|>commentary to=functions.",
                 middle=" <|constrain|>json<|message|>", end="<|call|>", between="<|start|>assistant")  # fmt: skip
FORMATS = (
    HARMONY,
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
           tags=read.Tags(re.compile(r"<tool_call>\s*([\w.:-]+)\s*(?=<)"),
                          re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>"),
                          "<arg_value>", "</arg_value>", re.compile("</tool_call>"), False)),
    Format("qwen coder", ("<function=", "<parameter="), "tags", begin="<tool_call>", end="</tool_call>", more=("<function=",),
           tags=read.Tags(re.compile(r"(?:<tool_call>\s*)?<function=([\w.:-]+)>\s*"), re.compile(r"<parameter=([^>\n]+)>\n?"),
                     "<parameter=", "</parameter>", re.compile(r"</function>(?:\s*</tool_call>)?"), True)),
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


def format_of(template: str) -> Format:
    """The format that a chat template has calls written in; Hermes' for one without tools, which is told of them."""
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


THOUGHTS = {
    "<think>": "</think>", "[THINK]": "[/THINK]", "<|START_THINKING|>": "<|END_THINKING|>", "<seed:think>": "</seed:think>",
    "<|channel>thought": "<channel|>",
}  # fmt: skip
"""What thoughts at the beginning of an answer stand between."""

CHANNELS = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")
"""The marks of harmony, in which an answer is several messages: thoughts in the channel analysis, calls to `functions.NAME`."""

_HEADER = re.compile(r"(?:<\|start\|>[^<]*| to=[^<]*)?(?:<\|channel\|>([^<]*))?(?:<\|constrain\|>[^<]*)?<\|message\|>")
_CHANNEL_END = re.compile(r"<\|end\|>|(?=<\|(?:start|channel|return|call)\|>)")
_KEYS = ("name", "type", "id", "function", "arguments", "parameters", "tool_name", "tool_call_id")
_OBJECT = rf'\{{\s*(?:$|"(?:\w*$|(?:{"|".join(_KEYS)})"))'
_BARE = re.compile(rf"{_OBJECT}|\[\s*(?:$|{_OBJECT})")
_BARE_PYTHON = re.compile(rf"{_BARE.pattern}|\[\s*[^\W\d][\w.]*\s*(?:$|\()")
"""How a call begins that stands without a mark."""


@dataclass
class AnswerPart:
    """A part of an answer: "reasoning", "content" or "call". text: of a call, the arguments. whole: whether it has ended."""

    kind: str
    text: str
    name: str = ""
    whole: bool = True
    id: str = field(default_factory=lambda: secrets.token_hex(12))


class Reader:
    """Divides an answer's text into thoughts, content and calls.

    A call is whole, and of a function that was offered; all other text is content. Only an answer that a grammar binds to calls
    shows them as they are written: of any other one it is not known before a call's end whether it is one.

    hidden: spellings of special tokens, which are no content. forced: the answer is bound to calls. thinking: what ends the
    thoughts that the answer begins in. bare: whether a call may stand without the format's marks.
    """

    def __init__(
        self,
        format: Format,
        tools: Sequence[Tool],
        hidden: Sequence[str] = (),
        *,
        forced: bool = False,
        thinking: str = "",
        bare: bool = True,
    ) -> None:
        self.format, self.parts = format, list[AnswerPart]()
        self.schemas = {tool.function.name: tool.function.parameters or {} for tool in tools}
        self._forced, self._bare, self._channels = forced, bare and bool(tools), format.style == "channels"
        self._rest, self._tried, self._sound = "", 0, False
        self._place = "thought" if thinking else "opening"  # or behind a "call", or in "content"
        self._closing = re.compile(re.escape(thinking)) if thinking else None
        self._value: read.Nesting | None = None  # the JSON value that is being read
        self._apart = False  # whether what comes next is another message
        marks = CHANNELS if self._channels else format.starts if tools else ()
        self._marks, self._hidden = read.any_of(marks), read.any_of(hidden)
        self._partial = (*marks, *hidden)
        tails = CHANNELS[-3:] if self._channels else (format.end.strip(), format.close.strip(), format.between.strip())
        self._tails = tuple(filter(None, tails))
        begins = "|".join(read.spaced(text) for text in sorted((format.begin.strip(), *format.more), key=len, reverse=True))
        lead = rf"(?:{read.spaced(format.open.strip())}\s*)?(?:{begins})"
        self._lead = re.compile(rf"{lead}\s*")
        self._named = re.compile(rf"{lead}([\w.:-]+?)\s*{read.spaced(format.middle).replace(':0', ':[0-9]+')}\s*")
        name, arguments = format.keys
        self._head = re.compile(rf'\{{\s*"{name}"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"{arguments}"\s*:\s*(?=\{{)')
        if format.style in ("named", "channels"):
            self._head = re.compile(rf"{re.escape(format.begin)}([\w.:-]+?){re.escape(format.middle)}(?=\{{)")

    @property
    def calls(self) -> list[Call]:
        """The calls so far."""
        return [(part.name, part.text) for part in self.parts if part.kind == "call"]

    def feed(self, text: str) -> str:
        """More of the text; the content that is certain now."""
        return self._read(text, last=False)

    def finish(self) -> tuple[str, list[Call]]:
        """The rest of the content, when no text follows, and the calls."""
        return self._read("", last=True), self.calls

    def _read(self, text: str, *, last: bool) -> str:
        before = len(content_of(self.parts))
        self._rest += text
        while self._rest and self._step(last):
            pass
        return content_of(self.parts)[before:]

    def _step(self, last: bool) -> bool:
        """Read what comes next; whether that is certain, and more may follow."""
        if self._forced:
            return self._write_call()
        if self._closing:
            return self._think(last)
        if self._value is not None:  # JSON that is no call: what looks like a mark in it is none
            end = self._value.end(self._rest)
            self._value = self._value if end is None else None
            return self._show(end)
        if self._place != "content" and (known := self._begin(last)) is not None:
            return known
        found = self._marks.search(self._rest)
        end = found.start() if found else len(self._rest) - (0 if last else read.partial(self._rest, self._partial))
        if self._place != "content" and not self._rest[:end].strip():
            if found is None:
                return False
        elif end or found is None:
            return self._show(end)
        return self._message(end, last) if self._channels else self._attempt(end, last)

    def _begin(self, last: bool) -> bool | None:
        """What may stand only at the beginning, or behind thoughts or a call; None where that is something else."""
        rest = self._rest.lstrip()
        if self._place == "call":  # what ends a call is no content
            if tail := next((tail for tail in self._tails if rest.startswith(tail)), ""):
                self._rest = rest.removeprefix(tail)
                return True
            if read.partial(rest, self._tails) == len(rest):
                self._rest = "" if last else self._rest
                return False
        if self._place == "thought":
            self._rest = rest
        if not rest:
            return last and self._show(None)
        if self._place == "opening":
            if mark := next((mark for mark in THOUGHTS if rest.startswith(mark)), ""):
                self._rest, self._place = rest.removeprefix(mark), "thought"
                self._closing = re.compile(re.escape(THOUGHTS[mark]))
                return True
            if not last and read.partial(rest, THOUGHTS) == len(rest):
                return False
            if self._channels and self._rest.startswith(" to=") and _HEADER.match(self._rest):
                return self._message(0, last)
            if self._channels and not last and " to=".startswith(self._rest[:4]) and "<|message|>" not in self._rest:
                return False
        if (
            not self._bare
            or rest[0] not in "{["
            or self._marks.match(rest)
            or read.partial(rest, self._partial) == len(rest) > 1
        ):
            return None
        blanks = len(self._rest) - len(rest)
        if (_BARE_PYTHON if self.format.style == "python" else _BARE).match(rest):
            return self._attempt(blanks, last)
        self._value = read.Nesting()
        return self._show(blanks) or True

    def _show(self, end: int | None, kind: str = "content") -> bool:
        """Move text from the rest to a part; whether there was any."""
        text = self._rest[:end]
        self._rest = self._rest[len(text) :]
        if shown := self._hidden.sub("", text):
            if self.parts and self.parts[-1].kind == kind:
                self.parts[-1].text += "\n" * self._apart + shown
            else:
                self.parts.append(AnswerPart(kind, shown))
            self._place, self._apart = "content", False
        return bool(text)

    def _think(self, last: bool) -> bool:
        """Read thoughts, without the blanks around them."""
        assert self._closing is not None
        if self._place == "thought":
            self._rest = self._rest.lstrip()
        found = self._closing.search(self._rest)
        marks = CHANNELS if self._closing is _CHANNEL_END else tuple(THOUGHTS.values())
        end = found.start() if found else len(self._rest) - (0 if last else read.partial(self._rest, marks))
        after = self._rest[found.end() :] if found else ""
        self._show(len(self._rest[:end].rstrip()), "reasoning")
        if found or last:
            self._rest, self._closing, self._place = after, None, "thought"
        return found is not None

    def _message(self, at: int, last: bool) -> bool:
        """Read the head of a message of harmony, or the mark of its end."""
        text = self._rest = self._rest[at:]
        found, mark = _HEADER.match(text), self._marks.match(text)
        if found is None:
            if mark and mark[0] in CHANNELS[-3:]:
                self._rest = text[mark.end() :]
                return True
            going = "<|message|>" not in text
            if going and (not last or "to=" in text):
                return last and self._show(None)
            self._rest = "" if going or mark is None else text[mark.end() :]
            return True
        thinks = (found[1] or "").strip().startswith("analysis")
        if recipient := _RECIPIENT.search(found[0]):
            if recipient[1] in self.schemas:
                return self._attempt(0, last)
            if not thinks:
                return self._show(found.end())
        kind = "reasoning" if thinks else "content"
        self._apart = bool(self.parts) and self.parts[-1].kind == kind
        self._rest, self._place = text[found.end() :], "thought" if thinks else "content"
        self._closing = _CHANNEL_END if thinks else None
        return True

    def _attempt(self, at: int, last: bool) -> bool:
        """Read a call that begins there; content, up to what ends a call, where it turns out to be none."""
        text = self._rest
        if self.format.style == "tags" and text[at] not in "{[" and not self._sound:
            if not last:
                return False
            self._sound = self._is_sound()
            if not self._sound:
                return self._show(None)
        tried, self._tried = self._tried, len(text)
        if not last and not re.search(r"[}\]]", text[tried:]):
            return False
        try:
            calls, end = self._calls(text, at, tried)
        except read.BROKEN:
            if not last:
                return False
            mark = self._tails[0] if self._tails else ""
            found = text.find(mark, at) if mark else -1
            calls, end = [], found + len(mark) if found >= 0 else len(text)
        self._tried = 0
        if not calls:
            return self._show(end)
        self.parts += [AnswerPart("call", arguments, name) for name, arguments in calls]
        self._rest, self._place = text[end:], "call"
        return True

    def _is_sound(self) -> bool:
        """Whether the rest is calls, and texts without the marks of one. Arguments between tags are not escaped: where these
        tags do not match, an argument may have them."""
        text, at, stray = self._rest, 0, self.format.tags.closed
        while found := self._marks.search(text, at):
            try:
                _, end = self._calls(text, found.start())
            except read.BROKEN:
                return False
            if stray in text[at : found.start()]:
                return False
            at = end
        return stray not in text[at:]

    def _calls(self, text: str, at: int, tried: int = 0) -> tuple[list[Call], int]:
        """The calls that begin there, none where one is of no function that was offered, and where they end. Raises one of
        `BROKEN` for what is no call, or not whole. tried: up to where their end has been looked for."""
        style = self.format.style
        head = _HEADER if style == "channels" else self._named
        if style in ("channels", "named") and (found := head.match(text, at)):
            named = _RECIPIENT.search(found[0]) if style == "channels" else found
            if named is not None:
                _, end = read.members_of(text, found.end())
                return [(named[1], text[found.end() : end].strip())] * (named[1] in self.schemas), end
        if style == "tags" and (found := self.format.tags.call.match(text, at)):
            name = found[1]
            arguments, end = read.tagged(text, found.end(), self.format.tags, self.schemas.get(name, {}))
            return [(name, arguments)] * (name in self.schemas), end
        lead = self._lead.match(text, at)
        begin = lead.end() if lead else at
        if style == "python" and not re.match(r"\[?\s*\{", text[begin:]):
            return self._python(text, begin, tried)
        calls, many = list[Call | None](), text.startswith("[", begin)
        end = begin + many
        while not calls or many and text.startswith(",", end):
            members, end = read.members_of(text, end + bool(calls))
            calls.append(self._call(text, members, begin == at))
            end = read.blank(text, end) if many else end
        if many and not text.startswith("]", end):
            raise ValueError("no list")
        return ([one for one in calls if one] if all(calls) else []), end + many

    def _call(self, text: str, members: read.Members, bare: bool) -> Call | None:
        """The call that a JSON object is, if it is one."""
        if "function" in members and isinstance(members["function"][2], dict):
            members, _ = read.members_of(text, members["function"][0])
        words, keys = self.format.keys
        name = next((members[key][2] for key in (words, "name", "function") if key in members), None)
        begin, end, value = next((members[key] for key in (keys, "arguments", "parameters") if key in members), (0, 0, None))
        written = text[begin:end]
        if not end and not bare:
            value, written = {}, "{}"
        if isinstance(value, str):
            written, value = value, read.value_of(value, 0)[0]
        known = isinstance(name, str) and name in self.schemas and isinstance(value, dict)
        return (str(name), written) if known and not (bare and members.keys() - _KEYS) else None

    def _python(self, text: str, at: int, tried: int) -> tuple[list[Call], int]:
        """A list of Python calls, up to the first bracket that makes it one."""
        for found in re.compile(r"\]").finditer(text, max(at, tried)):
            try:
                tree = ast.parse(text[at : found.end()], mode="eval").body
            except SyntaxError:
                continue
            if not isinstance(tree, ast.List):
                break
            calls = [self._called(one) for one in tree.elts]
            return ([one for one in calls if one] if all(calls) else []), found.end()
        raise ValueError("no list")

    def _called(self, call: ast.expr) -> Call | None:
        """A Python call; its positional arguments are the schema's properties, in order."""
        if not isinstance(call, ast.Call) or (name := ast.unparse(call.func)) not in self.schemas:
            return None
        named = [(word.arg or "", word.value) for word in call.keywords]
        order = list(read.object_of(self.schemas[name].get("properties")))
        pairs = [*zip(order, call.args, strict=False), *named]
        keys = [key for key, _ in pairs]
        if len(call.args) > len(order) or "" in keys or len(set(keys)) < len(keys):
            return None
        try:
            written = {key: ast.literal_eval(value) for key, value in pairs}
            return name, json.dumps(written, allow_nan=False)
        except (ValueError, TypeError):
            return None

    def _write_call(self) -> bool:
        """Read a call of an answer that is bound to calls, as far as it is written."""
        if self._value is None:
            if (found := self._head.search(self._rest)) is None:
                return False
            self.parts.append(AnswerPart("call", "", json.loads(f'"{found[1]}"'), whole=False))
            self._rest, self._value = self._rest[found.end() :], read.Nesting()
        end, part = self._value.end(self._rest), self.parts[-1]
        part.text += self._rest[:end]
        self._rest = self._rest[end:] if end is not None else ""
        if end is not None:
            part.whole, self._value = True, None
        return end is not None


_RECIPIENT = re.compile(r"to=(?:functions\.)?([^\s<]+)")


def content_of(parts: Sequence[AnswerPart], kind: str = "content") -> str:
    """The text of the parts of a kind."""
    return "".join(part.text for part in parts if part.kind == kind)


SPACED = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}
"""JSON as templates write it, for llguidance: a small model might write blanks for ever."""


def grammar_of(format: Format, tools: Sequence[Tool], *, parallel: bool, special: Mapping[str, int], answer: str = "") -> str:
    """A Lark grammar, in llguidance's dialect, of one call of one of the tools or more. special: spellings of special tokens
    and their ids. answer: a JSON schema of texts that are answers too. Raises DecError where arguments are not JSON."""
    if format.style in ("tags", "python"):
        raise DecError(
            f"calls of this model ({format.name}) are not JSON, and cannot be bound to a schema",
            hint='tool_choice: "auto" without a response_format',
        )
    schemas = [(t.function.name, {**(t.function.parameters or {}), "type": "object"}) for t in tools]
    write = lambda text: _written(text, special)
    if format.style in ("named", "channels"):
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
    alike = json.dumps({**json.loads(answer), **SPACED}) if answer else ""  # blanks as in calls, which may begin as it does
    start = f"start: answer | calls\nanswer: %json {alike}\n" if answer else "start: calls\n"
    return f"{start}calls: {write(format.open)} call{rest} {write(format.close)}\ncall: {one}\n"


def _definitions(schemas: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The definitions that schemas refer to from their roots, which are no roots any more."""
    found = {
        word: {k: v for _, schema in schemas for k, v in read.object_of(schema.get(word)).items()}
        for word in ("$defs", "definitions")
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
