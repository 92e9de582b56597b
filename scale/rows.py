"""Rows of prompts: a line of a JSONL file with an id, and the key of the noise that its run draws."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decgraph.errors import DecError
from decgraph.runtime import prompt_files
from decgraph.runtime.prompt_files import Text, digest

Id = int | str
"""What a row is called: an integer in 0..2**64 - 1, or a text that is not empty."""


@dataclass(frozen=True)
class PromptLine:
    """A prompt to decode. id: the line's `id`, or its place among the lines that are not empty, counted from 0. prompt: None
    for a line that cannot be decoded, and `error` says why. line: as it stood in the file. noise_of: the id that keys its
    noise, where that is another one."""

    id: Id
    line: str
    prompt: Text | None
    error: str = ""
    noise_of: Id | None = None


def noise_key(id: Id) -> int:
    """The `request_id` of a row's request, which with the seed is the key of all its noise: the id itself, or 64 bits of the
    BLAKE2b digest of a text. So what a row commits depends on no other row, and on no worker, order or batch."""
    if isinstance(id, int):
        return id
    return int.from_bytes(hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def key_of(id: Id) -> str:
    """An id as a text that tells 5 from "5"."""
    return json.dumps(id)


def prompt_digest(row: PromptLine) -> str:
    """A row's prompt in a word; "" for a row that has none."""
    said = row.prompt
    return "" if said is None else digest(json.dumps([said.text, said.messages, said.ids], sort_keys=True).encode())[:16]


def read(file: Path) -> list[PromptLine]:
    """The rows of a file of prompts, as `decgraph run --prompts` reads it: .jsonl with {"prompt": text}, {"messages": [...]} or
    {"ids": [...]}, and perhaps an "id", on every line; of any other file every line that is not empty is a prompt.

    A line that is no row is a row with an error, called by its id or, without one that can be read, "line 7". Raises DecError
    for a file that cannot be read or has no prompts, and for an id that two rows have.
    """
    try:
        data = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise DecError(f"cannot read {file}: {error.strerror or error}") from None
    json_lines = file.suffix in prompt_files.JSON_LINES
    rows: list[PromptLine] = []
    lines: dict[str, int] = {}
    for number, raw in enumerate(data.split(b"\n"), 1):  # bytes: str.splitlines also breaks at characters inside of JSON texts
        if not raw.strip():
            continue
        row = _row(file, number, len(rows), raw, json_lines)
        first = lines.setdefault(key_of(row.id), number)
        if first != number:
            raise DecError(
                f"{file}:{number}: the id {key_of(row.id)} is that of line {first} too",
                hint="an id of its own for every row, or none at all: rows without an id are called by their place",
            )
        rows.append(row)
    if not rows:
        raise DecError(f"{file} has no prompts", hint=prompt_files.FORMS)
    return rows


def is_id(id: Any) -> bool:
    """Whether a value can be what a row is called."""
    return (type(id) is int and 0 <= id < 2**64) or (isinstance(id, str) and bool(id))


def of_line(where: str, line: str, place: int) -> PromptLine:
    """The row of a line of JSON. Raises DecError, with the place in the file, for a line that is none."""
    text = prompt_files.of_line(where, line)
    given = json.loads(line)
    id = given.get("id", place) if isinstance(given, dict) else place
    if not is_id(id):
        raise DecError(f"{where}: {json.dumps(id)} is no id", hint="an integer in 0..2**64 - 1, or a text that is not empty")
    return PromptLine(id, line, text)


def packed(row: PromptLine) -> str:
    """A row as one text, to be sent to a worker."""
    return json.dumps([row.id, row.line, "" if row.prompt is None else row.prompt.where, _is_text(row)])


def unpacked(text: str) -> PromptLine:
    """The row that was packed."""
    id, line, where, plain = json.loads(text)
    return PromptLine(id, line, Text("prompts", line, where=where) if plain else prompt_files.of_line(where, line))


def of_fields(id: Any, fields: Mapping[str, Any]) -> PromptLine:  # Any: a value of somebody's table
    """The row of a record of a table: `prompt`, `messages` or `ids` beside an id. What is None is left out. Raises DecError."""
    fields = {name: fields[name] for name in ("prompt", "messages", "ids") if fields.get(name) is not None}
    return of_line(f"row {id}", json.dumps({"id": id, **fields}), 0)


def failed(id: Id, error: str) -> dict[str, Any]:
    """The record of a row that could not be decoded."""
    return {"id": id, "text": "", "tokens": [], "reason": "error", "target_calls": 0, "error": error}


def _row(file: Path, number: int, place: int, raw: bytes, json_lines: bool) -> PromptLine:
    where, line = f"{file}:{number}", ""
    try:
        line = raw.decode("utf-8").removesuffix("\r")
        return of_line(where, line, place) if json_lines else PromptLine(place, line, Text("prompts", line, where=where))
    except UnicodeDecodeError as error:
        problem = f"error: {where} is not UTF-8 text (byte {error.start} of the line)"
    except (DecError, RecursionError) as error:  # RecursionError: JSON nested a thousand deep
        problem = str(error)
    return PromptLine(_id_in(line, f"line {number}"), "", None, problem)


_ID = re.compile(r'\s*\{\s*"id"\s*:\s*(\d{1,20}|"[^"\\]+")\s*,')


def _id_in(line: str, otherwise: Id) -> Id:
    """The id of a line that is no row, so that its error can be told apart."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        found = _ID.match(line)  # a line that was cut short, say
        given = {"id": json.loads(found[1])} if found else None
    return given["id"] if isinstance(given, dict) and is_id(given.get("id")) else otherwise


def _is_text(row: PromptLine) -> bool:
    """Whether a row's line is the prompt itself, and not JSON."""
    return row.prompt is not None and row.prompt.text == row.line
