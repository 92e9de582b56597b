"""The prompts of benchmarks: a user's file, or fixed texts that were written for this and are in no training data.

Code is what the shipped causal models know. Some of it repeats names and lines, as code does, which is what retrieval
(prompt lookup and its kin) lives on; half of it hardly does. chat_prompts.jsonl has those for models that chat.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from decgraph.errors import DecError
from decgraph.runtime import chat as templates
from decgraph.runtime.text import Tokenizer

CHAT = Path(__file__).parent / "chat_prompts.jsonl"
CODE = (
    (
        "def mean(values):\n    total = 0\n    for value in values:\n        total += value\n    return total / len(values)\n\n"
        "def variance(values):\n    "
    ),
    "import os\nimport sys\n\nclass Reader:\n    def __init__(self, path):\n        self.path = path\n",
    (
        "class Stack:\n    def __init__(self):\n        self.items = []\n\n"
        "    def push(self, item):\n        self.items.append(item)\n\n"
        "    def pop(self):\n        return self.items.pop()\n\n    def "
    ),
    "def parse(text):\n    if not isinstance(text, str):\n        raise TypeError(",
    "try:\n    import json\nexcept ImportError:\n    json = None\n\ndef load(name):\n    with open(name) as file:\n        ",
    "    def __repr__(self):\n        return ",
    (
        "def read_header(self, data):\n    self.size = data[0]\n    self.kind = data[1]\n    self.flags = data[2]\n\n"
        "def write_header(self, data):\n    data[0] = self.size\n    "
    ),
    "for i in range(10):\n    for j in range(10):\n        print(i, j)\n\n",
)


def of_text(tokenizer: Any, count: int) -> list[tuple[int, ...]]:  # Any: a runtime.text.Tokenizer
    """`count` prompts as token ids, the fixed texts over and over."""
    return [tuple(tokenizer.encode(CODE[n % len(CODE)])) for n in range(count)]


def of_ids(size: int, count: int, length: int = 48, seed: int = 0) -> list[tuple[int, ...]]:
    """`count` prompts of random ids below `size`, for models that were never trained. The second half repeats the first."""
    rng = random.Random(seed)
    halves = [tuple(rng.randrange(4, size) for _ in range(length // 2)) for _ in range(count)]
    return [half + half for half in halves]


@dataclass(frozen=True)
class Text:
    """A prompt before it is tokens: a text, or messages of {"role", "content"}. `kind` groups prompts in results."""

    kind: str
    text: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()

    def as_messages(self) -> tuple[Mapping[str, Any], ...]:
        """Its messages; a text is one of the user's."""
        return self.messages or ({"role": "user", "content": self.text},)


@dataclass(frozen=True)
class Prompt:
    """A prompt as token ids, and its kind."""

    kind: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Source:
    """Where prompts came from: what a result file says of it. digest: sha256 of their texts, or of the file."""

    name: str
    digest: str
    texts: tuple[Text, ...]


def built_in() -> Source:
    """The prompts by kind for models that chat, in a file as a user would write it. How much of the answer stands in the prompt
    differs by kind, and with it what retrieval gains: hardly any of `chat`, nearly all of `copy-edit`."""
    return replace(read(CHAT), name="built in, for chat")


def code() -> Source:
    """The beginnings of code for the shipped models."""
    return Source("built in, code", _digest(repr(CODE).encode()), tuple(Text("code", text) for text in CODE))


def read(file: Path) -> Source:
    """The prompts of a file: .jsonl with {"prompt": text} or {"messages": [...]} a line, and perhaps a "kind"; any other
    file has a prompt on every line that is not empty. Raises DecError for a file that cannot be read or has none."""
    try:
        data = file.read_bytes()
        lines = data.decode("utf-8").splitlines()
    except OSError as error:
        raise DecError(f"cannot read {file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DecError(f"{file} is not UTF-8 text (byte {error.start})") from None
    json_lines = file.suffix in (".jsonl", ".ndjson", ".json")
    texts = tuple(
        _line(f"{file}, line {number}", line) if json_lines else Text("prompts", line)
        for number, line in enumerate(lines, 1)
        if line.strip()
    )
    if not texts:
        raise DecError(f"{file} has no prompts", hint="a prompt on every line")
    return Source(str(file), _digest(data), texts)


def _line(where: str, line: str) -> Text:
    hint = '{"prompt": "...", "kind": "chat"} or {"messages": [{"role": "user", "content": "..."}]} on every line'
    try:
        given = json.loads(line)
    except json.JSONDecodeError as error:
        raise DecError(f"{where} is not JSON: {error}", hint=hint) from None
    if not isinstance(given, dict) or ("prompt" in given) == ("messages" in given):
        raise DecError(f"{where} has neither a prompt nor messages, or both", hint=hint)
    kind = given.get("kind", "prompts")
    if not isinstance(kind, str) or not kind:
        raise DecError(f"{where}: the kind must be a text", hint=hint)
    if "prompt" in given:
        if not isinstance(given["prompt"], str) or not given["prompt"]:
            raise DecError(f"{where}: the prompt must be a text that is not empty", hint=hint)
        return Text(kind, given["prompt"])
    messages = given["messages"]
    if not isinstance(messages, list) or not messages or not all(_is_message(message) for message in messages):
        raise DecError(f"{where}: a message must have a role and a content", hint=hint)
    return Text(kind, messages=tuple(messages))


def _is_message(message: Any) -> bool:  # Any: what stood in the file
    return isinstance(message, dict) and isinstance(message.get("role"), str) and isinstance(message.get("content"), str)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def taken(texts: Sequence[Text], most: int | None) -> list[Text]:
    """At most so many prompts of each kind, in their order; None: all."""
    counts: dict[str, int] = {}
    out = []
    for text in texts:
        counts[text.kind] = counts.get(text.kind, 0) + 1
        if most is None or counts[text.kind] <= most:
            out.append(text)
    return out


def encoded(texts: Sequence[Text], folder: Path | None, *, chat: bool) -> list[Prompt]:
    """Prompts as token ids, by the tokenizer of a model's folder. chat: through its chat template, as are messages always.

    Raises DecError where the folder has no tokenizer, no chat template where one is needed, or a text that is no token.
    """
    if folder is None or not (folder / "tokenizer.json").is_file():
        raise DecError("prompts that are texts need a tokenizer, and the model has none", hint="a folder with a tokenizer.json")
    tokenizer = Tokenizer(folder)
    through = [chat or bool(text.messages) for text in texts]
    return [
        Prompt(text.kind, templates.tokens_of(tokenizer, text.as_messages()) if talk else tuple(tokenizer.encode(text.text)))
        for text, talk in zip(texts, through, strict=True)
    ]
