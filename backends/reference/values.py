"""Small values that the reference interpreter passes around: memories with their place, and indexes of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from decgraph.backends.indexes import ROOM, forgotten
from decgraph.ir import machine
from decgraph.ir.data.dist import Ints
from decgraph.ir.data.numbers import Number
from decgraph.ir.machine import Datum
from decgraph.runtime.models.attention_logits import AttentionLogits, check_layer, read_logits
from decgraph.runtime.models.interface import Memory


@dataclass(frozen=True)
class ReferenceMemory:
    """A model's memory, or a layer of it, and where a canvas starts in it. `only` and `without` speak of canvas positions, and
    `without` of those below 0 too, which are the context's. attention_logits: see `read_logits`; which: the layer."""

    memory: Any  # Any: a `Memory`, or one layer of it, which have most methods in common
    base: int
    attention_logits: AttentionLogits | None = None
    which: int | None = None

    def restrict(self, positions: Sequence[int], kind: str) -> ReferenceMemory:
        """The memory with the canvas positions `positions` kept ("only") or dropped ("without")."""
        absolute = {self.base + int(i) for i in positions}
        context = range(self.base)
        if kind == "only":
            return replace(self, memory=self.memory.only(absolute | set(context)))
        return replace(self, memory=self.memory.without(absolute))

    def quantized(self, bits: Ints) -> ReferenceMemory:
        """The memory with its keys and values rounded to so many bits."""
        return replace(self, memory=self.memory.quantized(bits))

    def merged(self, groups: Sequence[Sequence[int]]) -> ReferenceMemory:
        """The memory with one row of keys and values for the positions of a group."""
        return replace(self, memory=self.memory.merged([[self.base + i for i in group] for group in groups]))

    def join(self, other: machine.Memory) -> ReferenceMemory:
        """The positions of both."""
        assert isinstance(other, ReferenceMemory)
        return replace(self, memory=self.memory.join(other.memory))

    def layer(self, index: int) -> ReferenceMemory:
        """One layer, to be cut and put back. Raises DecError for one that it does not have."""
        check_layer(index, 0 if self.which is not None else len(self.memory.layers), self.which)
        return replace(self, memory=self.memory[index], which=index)

    def put(self, part: machine.Memory, index: int) -> ReferenceMemory:
        """With one layer replaced, by a layer or by that layer of a memory. Raises DecError for one that it does not have."""
        check_layer(index, 0 if self.which is not None else len(self.memory.layers), self.which)
        assert isinstance(part, ReferenceMemory)
        put = part.layer(index) if part.which is None else part
        return replace(self, memory=self.memory.with_layer(index, put.memory))

    def scores(self, queries: Datum, at: Datum) -> list[Number]:
        """The meaning of `memory.scores`."""
        return [*read_logits(self.attention_logits, self.which, self.base, queries, at)]


def memory_of(value: Datum) -> Memory | None:
    """The model's memory in the one that a program gives a call; None where it gives none."""
    found: object = value
    return found.memory if isinstance(found, ReferenceMemory) else cast("Memory | None", value)


@dataclass(frozen=True)
class SuffixSearch:
    """An index of the texts learned so far: looked up by at most `depth` tokens, it returns what followed them. Immutable.

    texts: the number and the tokens of each, oldest first; of more than `room` tokens the oldest are forgotten. learned: how
    many texts there were. This is the meaning, by search; backends/torch/suffixes.py has the automaton that finds the same.
    """

    depth: int = 64
    room: int = ROOM
    texts: tuple[tuple[int, tuple[int, ...]], ...] = ()
    learned: int = 0

    def learn(self, tokens: Sequence[int]) -> SuffixSearch:
        """With another text, whose number is `learned` before."""
        if not len(tokens):
            return self
        text = (self.learned, tuple(int(t) for t in tokens))
        return replace(self, texts=(*self.texts, text), learned=self.learned + 1).trimmed()

    def extend(self, tokens: Sequence[int], number: int | None = None) -> SuffixSearch:
        """With a text continued, the last one by default; with another one if it is forgotten."""
        number = self.learned - 1 if number is None else number
        if all(n != number for n, _ in self.texts):
            return self.learn(tokens)
        more = tuple(int(t) for t in tokens)
        return replace(self, texts=tuple((n, t + more) if n == number else (n, t) for n, t in self.texts)).trimmed()

    def trimmed(self) -> SuffixSearch:
        """Without what there is no room for."""
        drop = forgotten(sum(len(t) for _, t in self.texts), self.room)
        kept = []
        for n, t in self.texts:
            cut = min(drop, len(t))
            drop -= cut
            if cut < len(t):
                kept.append((n, t[cut:]))
        return replace(self, texts=tuple(kept))

    def find(self, key: tuple[int, ...], pick: str) -> tuple[int, ...] | None:
        """What follows an occurrence of `key`: the first or the last one that something follows, by text and place."""
        n = len(key)
        for _, text in self.texts if pick == "first" else reversed(self.texts):
            starts = range(len(text) - n)
            for i in starts if pick == "first" else reversed(starts):
                if text[i : i + n] == key:
                    return text[i + n :]
        return None

    def has(self, key: tuple[int, ...]) -> bool:
        """Whether something followed these tokens, `depth` of them at most."""
        return len(key) <= self.depth and self.find(key, "last") is not None

    def matched(self, context: Sequence[int]) -> int:
        """How long the longest end of `context` is that something followed, of at most `depth` tokens."""
        lengths = range(min(self.depth, len(context)), 0, -1)
        return next((n for n in lengths if self.find(tuple(context[-n:]), "last") is not None), 0)

    def path(self, context: Sequence[int], at_least: int, at_most: int, pick: str = "last") -> tuple[int, ...]:
        """At most `at_most` tokens that followed the longest end of `context`, of `at_least` to `depth` tokens. pick "first" or
        "last": where it stands. pick "likeliest": token by token what followed most often, the smaller of equals; a token is
        part of the context of the next."""
        if pick == "likeliest":
            found: list[int] = []
            while len(found) < at_most and (n := self.matched([*context, *found])) >= max(at_least, 1):
                counts = self.counts(tuple([*context, *found][-n:]))
                found.append(min(counts, key=lambda t: (-counts[t], t)))
            return tuple(found)
        n = self.matched(context)
        return (self.find(tuple(context[-n:]), pick) or ())[:at_most] if n >= max(at_least, 1) else ()

    def occurs(self, key: tuple[int, ...]) -> int:
        """How often `key` occurs, of at most `depth` tokens."""
        n = len(key) if len(key) <= self.depth else ROOM
        return sum(text[i : i + n] == key for _, text in self.texts for i in range(len(text) - n + (n > 0)))

    def counts(self, key: tuple[int, ...]) -> dict[int, int]:
        """How often each token followed `key`; nothing is known of more than `depth` tokens."""
        out: dict[int, int] = {}
        n = len(key)
        for _, text in self.texts if n <= self.depth else ():
            for i in range(len(text) - n):
                if text[i : i + n] == key:
                    out[text[i + n]] = out.get(text[i + n], 0) + 1
        return out
