"""One line about each function, type and method of the language, as docs/ has it: what hovers, completions and signatures show.

    python -m decgraph.editor.function_lines     # reads docs/functions.md and docs/language.md, writes function_lines.json

The wheel has no docs/, so the lines are packed as JSON; a test compares it with the pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from decgraph.editor.words import TYPES, functions

FILE = Path(__file__).with_name("function_lines.json")
PAGES = [Path(__file__).resolve().parents[1] / "docs" / name for name in ("functions.md", "language.md")]
RECEIVERS = {
    "target": "model", "model": "model", "drafter": "model", "head": "model", "m": "memory", "m[l]": "memory", "q": "dist",
    "c": "canvas", "index": "index", "g": "automaton", "t": "tree", "ctx": "context", "x": "draw", "b": "position",
}  # fmt: skip
"""What the names stand for that the tables of docs/language.md call methods of."""
_RECEIVER = "|".join(re.escape(name) for name in RECEIVERS)
_METHOD = re.compile(rf"(?:(?<![\w.(])|(?<=best_first\())({_RECEIVER})\.(\w+)")
_CALLED = re.compile(rf"({_RECEIVER})\(.*\)")


class Line(NamedTuple):
    """How a function is called, and what each of the calls gives."""

    calls: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def value(self) -> str:
        """What it returns, without repetitions."""
        return "; ".join(dict.fromkeys(self.values))


@cache
def _packed() -> dict[str, dict[str, Line]]:
    data = json.loads(files("decgraph.editor").joinpath("function_lines.json").read_text(encoding="utf-8"))
    return {
        kind: {name: Line(*(tuple(part) for part in zip(*uses.items(), strict=True))) for name, uses in lines.items()}
        for kind, lines in data.items()
    }


def function_lines() -> dict[str, Line]:
    """The functions by name."""
    return _packed()["functions"]


def type_lines() -> dict[str, Line]:
    """The types by name: how they are written, and what their values are."""
    return _packed()["types"]


def method_lines() -> dict[str, Line]:
    """The methods by kind of value and name (`index.path`); a call of the value itself has no name (`model.`)."""
    return _packed()["methods"]


def options(name: str) -> tuple[str, ...]:
    """The named options of a function, from how its page calls it."""
    found = function_lines().get(name)
    return tuple(dict.fromkeys(re.findall(r"\b(\w+) =", " ".join(found.calls)))) if found else ()


def read(pages: str) -> dict[str, dict[str, dict[str, str]]]:
    """The rows of the pages' tables, by the functions, types and methods that they are about: each use with its value."""
    found: dict[str, dict[str, dict[str, str]]] = {"functions": {}, "methods": {}, "types": {}}
    columns: str | None = None
    for line in pages.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            columns = None
        elif columns is None:
            columns = cells[0]
        if not line.startswith("| `") or len(cells) != 2:
            continue
        value = re.sub(r",? see \[[^\]]*\]\([^)]*\)", "", cells[1])
        value = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", value)
        pieces = re.findall(r"`([^`]+)`", cells[0])
        parts = value.split("; ") if not columns else []  # a part for each piece of code, in their order, or all of it for all
        parts = parts if len(parts) == len(pieces) else [value] * len(pieces)
        for piece, part in zip(pieces, parts, strict=True):
            for kind, name, call in _about(piece, columns or ""):
                uses = found[kind].setdefault(name, {})
                said = uses.get(call, part) if kind == "methods" else part
                uses[call] = part if said == part else f"{said}; {part}"
    return {kind: dict(sorted(lines.items())) for kind, lines in found.items()}


def _about(call: str, columns: str) -> Iterator[tuple[str, str, str]]:
    """What a piece of code in a row's first cell shows the use of: the kind, the name, and the use itself."""
    if columns in ("type", "declared"):
        name = re.match(r"\w+", call)
        if name and name[0] in TYPES:
            yield "types", name[0], call
    elif columns == "function":
        for found in re.findall(r"(?:^|~ |\.)(\w+)(?=\(|$)", call):
            if found in functions():
                yield "functions", found, call
    elif not columns:
        for use in _METHOD.finditer(call):
            yield "methods", f"{RECEIVERS[use[1]]}.{use[2]}", _whole(call, use.start(), use.end())
        if call.startswith("table["):
            yield "methods", "lru.", call
        if (called := _CALLED.fullmatch(call)) is not None:
            yield "methods", f"{RECEIVERS[called[1]]}.", call


def _whole(text: str, start: int, end: int) -> str:
    """A method's name with the arguments after it."""
    depth = 0
    for at in range(end, len(text)):
        depth += (text[at] in "([") - (text[at] in ")]")
        if depth == 0:
            return text[start : at + 1] if at > end else text[start:end]
    return text[start:end]


def text() -> str:
    """The file as it is committed."""
    pages = "\n\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    return json.dumps(read(pages), indent=0, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
