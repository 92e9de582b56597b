"""One line about each function of the language, as docs/functions.md has it: what hovers and completions show.

    python -m decgraph.editor.function_lines     # reads docs/functions.md, writes function_lines.json

The wheel has no docs/, so the lines are packed as JSON; a test compares it with the page.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from decgraph.editor.words import functions

FILE = Path(__file__).with_name("function_lines.json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "functions.md"


class Line(NamedTuple):
    """How a function is called, and what it gives."""

    calls: tuple[str, ...]
    value: str


@cache
def function_lines() -> dict[str, Line]:
    """The functions by name."""
    data = json.loads(files("decgraph.editor").joinpath("function_lines.json").read_text(encoding="utf-8"))
    return {name: Line(tuple(calls), value) for name, (calls, value) in data.items()}


def options(name: str) -> tuple[str, ...]:
    """The named options of a function, from how its page calls it."""
    found = function_lines().get(name)
    return tuple(dict.fromkeys(re.findall(r"\b(\w+) =", " ".join(found.calls)))) if found else ()


def read(page: str) -> dict[str, tuple[list[str], str]]:
    """The rows of the page's tables, by the functions that they are about."""
    found: dict[str, tuple[list[str], str]] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("| `") or len(cells) != 2:
            continue
        calls = re.findall(r"`([^`]+)`", cells[0])
        value = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cells[1])
        for call in calls:
            for name in re.findall(r"(?:^|~ |\.)(\w+)(?=\(|$)", call):
                if name in functions():
                    entry = found.setdefault(name, ([], value))
                    entry[0].append(call)
    return dict(sorted(found.items()))


def text(page: str) -> str:
    """The file as it is committed."""
    return json.dumps(read(page), indent=0, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
