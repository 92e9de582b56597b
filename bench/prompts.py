"""The prompts of benchmarks: fixed texts of different lengths, written for this and in no training data.

Code is what the shipped causal models know. Some of it repeats names and lines, as code does, which is what retrieval
(prompt lookup and its kin) lives on; half of it hardly does.
"""

from __future__ import annotations

import random
from typing import Any

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
