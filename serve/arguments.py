"""The arguments of a call in an answer's text: JSON, or a text for each between tags."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

BROKEN = (ValueError, SyntaxError, RecursionError, MemoryError)
"""What reading raises for a text that is no call, or not whole."""

Members = dict[str, tuple[int, int, Any]]
"""Of a JSON object: where the value of each key begins and ends in the text, and the value."""


class Tags(NamedTuple):
    """How calls are written that have a tag for each argument. call: how one begins, with its name. key: how an argument does,
    with its name, and `opened` and `closed` the tags of its text. end: of a call. lines: whether the text has lines of its own.
    """

    call: re.Pattern[str]
    key: re.Pattern[str]
    opened: str
    closed: str
    end: re.Pattern[str]
    lines: bool


class Nesting:
    """Finds where a JSON value ends whose text comes in pieces."""

    def __init__(self) -> None:
        self._depth, self._quoted, self._pending = 0, False, ""

    def end(self, text: str) -> int | None:
        """Where in this piece, if it does."""
        before, text, self._pending = len(self._pending), self._pending + text, ""
        for found in re.finditer(r'\\.?|["{}\[\]]', text, re.S):
            mark = found[0]
            if mark == "\\":  # what it escapes comes next
                self._pending = mark
            elif mark == '"':
                self._quoted = not self._quoted
            elif mark in "{}[]" and not self._quoted:
                self._depth += 1 if mark in "{[" else -1
            if self._depth <= 0 and not self._quoted:
                return found.end() - before
        return None


def any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """One of the texts, the longest first; nothing where there are none."""
    return re.compile("|".join(map(re.escape, sorted(filter(None, texts), key=len, reverse=True))) or "(?!)")


def spaced(text: str) -> str:
    """A text as a regular expression, with any blanks for its blanks."""
    return r"\s*".join(map(re.escape, re.split(r"\s+", text)))


def partial(text: str, marks: Iterable[str]) -> int:
    """How many of the last characters may be the beginning of a mark."""
    return max((n for mark in marks for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), default=0)


def blank(text: str, at: int) -> int:
    """Where the blanks end that begin there."""
    while text[at : at + 1].isspace():
        at += 1
    return at


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _finite(text: str) -> float:
    return value if math.isfinite(value := float(text)) else _refuse(text)


_JSON = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def value_of(text: str, at: int) -> tuple[Any, int]:
    """A value of JSON that begins there, and where it ends. Raises ValueError for none, and for numbers that are not finite."""
    return _JSON.raw_decode(text, blank(text, at))


def members_of(text: str, at: int) -> tuple[Members, int]:
    """The members of the JSON object that begins there, and where it ends. Raises ValueError for none."""
    value, end = value_of(text, at)
    if not isinstance(value, dict):
        raise ValueError("no object")
    members: Members = {}
    at = blank(text, blank(text, at) + 1)
    while not text.startswith("}", at):
        key, at = value_of(text, at)
        begin = blank(text, blank(text, at) + 1)
        value, at = value_of(text, begin)
        members[key] = begin, at, value
        at = blank(text, at)
        at = blank(text, at + text.startswith(",", at))
    return members, end


def tagged(text: str, at: int, tags: Tags, schema: Mapping[str, Any]) -> tuple[str, int]:
    """The arguments, as JSON, of a call that has a tag for each, and where it ends. Raises ValueError for what is none.

    An argument ends at the first tag behind which another one begins, or the call ends. One that has the beginning of another
    in it may have its end as well: that is no call.
    """
    written: dict[str, str] = {}
    kinds, closed = object_of(schema.get("properties")), re.compile(re.escape(tags.closed) + r"\s*")
    while not (found := tags.end.match(text, at)):
        key = tags.key.match(text, at)
        begin = key.end() if key else at
        follows = (
            tag for tag in closed.finditer(text, begin) if any(one.match(text, tag.end()) for one in (tags.key, tags.end))
        )
        end = next(follows, None)
        body = text[begin : end.start()] if end else tags.opened
        if key is None or end is None or tags.opened in body or (name := key[1].strip()) in written:
            raise ValueError("no argument")
        written[name] = _argument(body.removesuffix("\n") if tags.lines else body, _types(kinds.get(name), schema))
        at = end.end()
    return "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in written.items()) + "}", found.end()


_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}
_ANY = frozenset(_KINDS.values())


def _types(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The types of JSON that a client's schema allows."""
    found = _ANY
    if not isinstance(schema, dict) or depth > 16:
        return found
    if isinstance(place := schema.get("$ref"), str):
        target: Any = root
        for part in place.split("/")[1:]:
            target = object_of(target).get(part.replace("~1", "/").replace("~0", "~"))
        found &= _types(target, root, depth + 1)
    for word in ("anyOf", "oneOf", "allOf"):
        if isinstance(parts := schema.get(word), list) and parts:
            types = [_types(part, root, depth + 1) for part in parts]
            found &= frozenset.intersection(*types) if word == "allOf" else frozenset.union(*types)
    kinds = schema.get("type", ())
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else ()
    for limit in ([kinds] if isinstance(kinds, str) else kinds, [_KINDS[type(value)] for value in values]):
        found &= frozenset(map(str, limit)) if isinstance(limit, list) and limit else _ANY
    return found


def _argument(text: str, types: frozenset[str]) -> str:
    """An argument's text as JSON: as it stands where the schema allows that, else a text. Where a text is allowed as well, a
    number is one."""
    words = {"True": "true", "False": "false", "None": "null"}
    bare = text.strip() if types == _ANY else words.get(text.strip(), text.strip())
    try:
        value, end = value_of(bare, 0)
        kind = "integer" if isinstance(value, float) and value.is_integer() else _KINDS[type(value)]
    except BROKEN:
        kind, end = "string", 0
    if kind in ("integer", "number"):
        known = types & {kind, "number"} and (types == _ANY or "string" not in types)
    else:
        known = kind in types and (kind != "string" or types == _ANY)
    return bare if known and end == len(bare) else json.dumps(text, ensure_ascii=False)


def object_of(part: Any) -> dict[str, Any]:
    """A part of a client's schema that should be an object; empty for anything else."""
    return part if isinstance(part, dict) else {}
