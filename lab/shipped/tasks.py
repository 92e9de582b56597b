"""Synthetic tasks with answers that a program can check.

A task is a prompt that ends in " =" and the one right answer, which follows after a blank. Everything follows
from `(kind, seed)`: the same pair yields the same task on every machine. Whether a task is held out is a hash
of its prompt, so no prompt that the models were trained on is ever measured, however it was drawn.

Prompts are short and their vocabulary small on purpose: the models are a few million parameters, and what is
measured with them is decoding, not reasoning.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

NAMES = ("ada", "alan", "bob", "eve", "grace", "ken", "lin", "max", "mia", "tom", "una", "zoe")
CITIES = ("bern", "cairo", "lima", "oslo", "paris", "quito", "rome", "seoul", "tokyo", "turin")
COLORS = ("black", "blue", "brown", "gray", "green", "pink", "red", "white")
HELD_OUT_ONE_IN = 20


@dataclass(frozen=True)
class Task:
    """One task: `prompt` is the model's input, `answer` the only correct text."""

    kind: str
    prompt: str
    answer: str

    def check(self, answer: str) -> bool:
        """Whether `answer`, up to surrounding blanks, is the right one."""
        return answer.strip() == self.answer

    @property
    def text(self) -> str:
        """Prompt and answer as one line, the form causal models are trained on."""
        return f"{self.prompt} {self.answer}\n"


def _digits(rng: random.Random) -> str:
    return "".join(rng.choice("0123456789") for _ in range(rng.randint(3, 5)))


def _add(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(0, 99), rng.randint(0, 9)
    return f"add {a} {b} =", str(a + b)


def _sub(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(0, 99), rng.randint(0, 9)
    return f"sub {a} {b} =", str(a - b)


def _copy(rng: random.Random) -> tuple[str, str]:
    word = _digits(rng)
    return f"copy {word} =", word


def _reverse(rng: random.Random) -> tuple[str, str]:
    word = _digits(rng)
    return f"reverse {word} =", word[::-1]


def _sort(rng: random.Random) -> tuple[str, str]:
    word = _digits(rng)
    return f"sort {word} =", "".join(sorted(word))


def _record(rng: random.Random) -> dict[str, object]:
    fields: dict[str, object] = {
        "name": rng.choice(NAMES),
        "age": rng.randint(10, 99),
        "city": rng.choice(CITIES),
        "color": rng.choice(COLORS),
    }
    keys = rng.sample(sorted(fields), 2)
    return {key: fields[key] for key in keys}


def _field(rng: random.Random) -> tuple[str, str]:
    record = _record(rng)
    key = rng.choice(sorted(record))
    return f"get {key} {json.dumps(record)} =", str(record[key])


def _json(rng: random.Random) -> tuple[str, str]:
    record = _record(rng)
    pairs = " ".join(f"{key}={value}" for key, value in record.items())
    return f"json {pairs} =", json.dumps(record)


_MAKERS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "add": _add,
    "sub": _sub,
    "copy": _copy,
    "reverse": _reverse,
    "sort": _sort,
    "get": _field,
    "json": _json,
}
KINDS = tuple(_MAKERS)


def make(kind: str, seed: int) -> Task:
    """The task of this kind and seed. Raises KeyError for an unknown kind; `KINDS` lists them."""
    prompt, answer = _MAKERS[kind](random.Random(f"decgraph-zoo {kind} {seed}"))
    return Task(kind, prompt, answer)


def held_out(task: Task) -> bool:
    """Whether this task is held out for measuring: a fixed hash of its prompt, one in `HELD_OUT_ONE_IN`."""
    digest = hashlib.sha256(task.prompt.encode()).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0


def stream(seed: int, *, held: bool = False, kinds: tuple[str, ...] = KINDS) -> Iterator[Task]:
    """Endless tasks of the given kinds in turn, all from the held-out side or all from the training side."""
    index = seed * 1_000_003
    while True:
        for kind in kinds:
            task = make(kind, index)
            while held_out(task) != held:
                index += 1
                task = make(kind, index)
            yield task
            index += 1
