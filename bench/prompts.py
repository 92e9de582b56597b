"""The prompts of benchmarks: a user's file, or fixed texts that were written for this and are in no training data.

Code is what the shipped causal models know. Some of it repeats names and lines, as code does, which is what retrieval
(prompt lookup and its kin) lives on; half of it hardly does. chat_prompts.jsonl has those for models that chat.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from decgraph.errors import DecError
from decgraph.runtime import chat as templates
from decgraph.runtime.arguments import is_chat
from decgraph.runtime.prompt_files import PromptSource, Text, digest, read
from decgraph.runtime.text import Tokenizer, has_tokenizer

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


def of_ids(size: int, count: int, length: int = 48, seed: int = 0) -> list[tuple[int, ...]]:
    """`count` prompts of random ids below `size`, for models that were never trained. The second half repeats the first."""
    rng = random.Random(seed)
    halves = [tuple(rng.randrange(4, size) for _ in range(length // 2)) for _ in range(count)]
    return [half + half for half in halves]


@dataclass(frozen=True)
class BenchPrompt:
    """A prompt as token ids, and its kind."""

    kind: str
    tokens: tuple[int, ...]


def built_in() -> PromptSource:
    """The prompts by kind for models that chat, in a file as a user would write it. How much of the answer stands in the prompt
    differs by kind, and with it what retrieval gains: hardly any of `chat`, nearly all of `copy-edit`."""
    return replace(read(CHAT), name="built in, for chat")


def code() -> PromptSource:
    """The beginnings of code for the shipped models."""
    return PromptSource("built in, code", digest(repr(CODE).encode()), tuple(Text("code", text) for text in CODE))


def taken(texts: Sequence[Text], most: int | None) -> list[Text]:
    """At most so many prompts of each kind, in their order; None: all."""
    counts: dict[str, int] = {}
    out = []
    for text in texts:
        counts[text.kind] = counts.get(text.kind, 0) + 1
        if most is None or counts[text.kind] <= most:
            out.append(text)
    return out


def encoded(texts: Sequence[Text], folder: Path | None, *, chat: bool, size: int | None = None) -> list[BenchPrompt]:
    """Prompts as token ids, by the tokenizer of a model's folder. chat: through its chat template, as are messages always.
    size: of the vocabulary, for prompts that are token ids.

    Raises DecError where the folder has no tokenizer, no chat template where one is needed, or a text that is no token; and for
    ids that are no tokens.
    """
    tokenizer: Any = None
    if folder is not None and has_tokenizer(folder):
        tokenizer = Tokenizer(folder)
    elif not all(text.ids for text in texts):
        raise DecError("prompts that are texts need a tokenizer, and the model has none", hint="a folder with a tokenizer.json")
    made = []
    for text in texts:
        given: Any = text.prompt(chat=chat)
        if is_chat(given):
            given = templates.tokens_of(tokenizer, given)
        elif isinstance(given, str):
            given = tokenizer.encode(given)
        elif size is not None:
            text.check_ids(size)
        made.append(BenchPrompt(text.kind, tuple(given)))
    return made
