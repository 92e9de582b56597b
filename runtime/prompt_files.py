"""Files of prompts: a text on every line, or JSON lines of texts, messages or token ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decgraph.errors import DecError

if TYPE_CHECKING:
    from decgraph.runtime.arguments import Prompt

JSON_LINES = (".jsonl", ".ndjson", ".json")
FORMS = ('{"prompt": "..."}, {"messages": [{"role": "user", "content": "..."}]}, {"ids": [1, 2, 3]} or a JSON string, "...", '
         "on every line")  # fmt: skip


@dataclass(frozen=True)
class Text:
    """A prompt before it is tokens: a text, messages of {"role", "content"}, or the ids of its tokens. `kind` groups prompts in
    results; `where` is the file and the line that it came from."""

    kind: str
    text: str = ""
    messages: tuple[Mapping[str, object], ...] = ()
    ids: tuple[int, ...] = ()
    where: str = field(default="", compare=False)

    def as_messages(self) -> tuple[Mapping[str, object], ...]:
        """Its messages; a text is one of the user's."""
        return self.messages or ({"role": "user", "content": self.text},)

    def prompt(self, *, chat: bool = False, system: str | None = None) -> Prompt:
        """What a session decodes: token ids, messages, or a text, with `chat` as a user's message. system: a message before.

        Raises DecError for token ids with `chat`, and for a second system message.
        """
        if self.ids:
            if chat:
                raise DecError(f"{self._named()}token ids go through no chat template", hint="leave --chat out")
            return self.ids
        if not (chat or self.messages):
            return self.text
        said = list(self.as_messages())
        if system is not None and any(message["role"] == "system" for message in said):
            raise DecError(f"{self._named()}the messages have a system message of their own", hint="leave --system out")
        return said if system is None else [{"role": "system", "content": system}, *said]

    def shown(self) -> str:
        """The prompt in a line for people: its text, its last message, its ids."""
        return self.text or " ".join(map(str, self.ids)) or str(self.messages[-1]["content"])

    def check_ids(self, size: int) -> None:
        """Raises DecError for a token id that a vocabulary of `size` tokens does not have."""
        bad = next((token for token in self.ids if not 0 <= token < size), None)
        if bad is not None:
            raise DecError(f"{self._named()}{bad} is no token: the vocabulary has {size}", hint=f"ids in 0..{size - 1}")

    def _named(self) -> str:
        return f"{self.where}: " if self.where else ""


@dataclass(frozen=True)
class PromptSource:
    """Where prompts came from: what a result file says of it. digest: sha256 of their texts, or of the file."""

    name: str
    digest: str
    texts: tuple[Text, ...]


def read(file: Path) -> PromptSource:
    """The prompts of a file: .jsonl with {"prompt": text}, {"messages": [...]} or {"ids": [...]}, and perhaps a "kind", or with
    a JSON text on every line; any other file has a prompt on every line that is not empty.

    Raises DecError, with file and line, for a line that is none of these, and for a file that cannot be read or has none.
    """
    try:
        data = file.read_bytes()
        # Not `splitlines`, which also ends a line at characters that may stand within a prompt, such as U+2028.
        lines = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    except OSError as error:
        raise DecError(f"cannot read {file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DecError(f"{file} is not UTF-8 text (byte {error.start})") from None
    json_lines = file.suffix in JSON_LINES
    texts = tuple(
        of_line(f"{file}:{number}", line) if json_lines else Text("prompts", line, where=f"{file}:{number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    )
    if not texts:
        raise DecError(f"{file} has no prompts", hint="a prompt on every line")
    return PromptSource(str(file), digest(data), texts)


def of_ids(text: str, where: str = "") -> Text:
    """A prompt of token ids as people write them: `1 2 3`, `1,2,3` or `[1, 2, 3]`. Raises DecError for others."""
    words = text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()
    bad = next((word for word in words if not (word.isascii() and word.isdigit())), None)
    if bad is not None or not words:
        what = "there are no ids" if bad is None else f"{bad!r} is no token id"
        raise DecError(f"{where}: {what}" if where else what, hint='--ids "1 2 3"')
    return Text("prompts", ids=tuple(map(int, words)), where=where)


def digest(data: bytes) -> str:
    """sha256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def of_line(where: str, line: str) -> Text:
    """The prompt of a line of JSON, or of the body of a request to OpenAI's API, also in a line of a batch file; other keys
    than the three and "kind" are not read. where: file and line, for errors.

    Raises DecError, with the place, for a line that is no prompt.
    """
    try:
        given = json.loads(line)
    except json.JSONDecodeError as error:
        raise DecError(f"{where} is not JSON: {error.msg} at column {error.colno}", hint=FORMS) from None
    except ValueError:
        raise DecError(f"{where} has a number that is too long", hint=FORMS) from None
    except RecursionError:
        raise DecError(f"{where} is nested too deeply", hint=FORMS) from None
    if isinstance(given, str):
        given = {"prompt": given}
    if isinstance(given, dict) and isinstance(given.get("body"), dict):
        given = given["body"]
    keys = [key for key in ("prompt", "messages", "ids") if isinstance(given, dict) and key in given]
    if len(keys) != 1:
        logged = isinstance(given, dict) and str(given.get("logger", "")).startswith("decgraph.serve")
        hint = "a log of `decgraph serve` has no prompts: record the bodies of requests" if logged else FORMS
        raise DecError(f"{where} has neither a prompt nor messages nor ids, or more than one of them", hint=hint)
    kind, value = given.get("kind", "prompts"), given[keys[0]]
    if not isinstance(kind, str) or not kind:
        raise DecError(f"{where}: the kind must be a text", hint=FORMS)
    if keys == ["prompt"]:
        if not isinstance(value, str) or not value:
            raise DecError(f"{where}: the prompt must be a text that is not empty", hint=FORMS)
        return Text(kind, value, where=where)
    if keys == ["ids"]:
        if not isinstance(value, list) or not value or not all(type(token) is int and token >= 0 for token in value):
            raise DecError(f"{where}: ids must be a list of token ids that is not empty", hint=FORMS)
        return Text(kind, ids=tuple(value), where=where)
    said = [_with_text(message) for message in value] if isinstance(value, list) else []
    if not said or not all(_is_message(message) for message in said):
        raise DecError(f"{where}: a message must have a role and a content", hint=FORMS)
    return Text(kind, messages=tuple(said), where=where)


def _with_text(message: Any) -> Any:
    """A message whose content is one text, where it is a list of texts alone."""
    parts = message.get("content") if isinstance(message, dict) else None
    texts = (
        [part["text"] for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        if isinstance(parts, list)
        else []
    )
    return {**message, "content": "".join(texts)} if parts and len(texts) == len(parts) else message


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and isinstance(message.get("role"), str) and isinstance(message.get("content"), str)
