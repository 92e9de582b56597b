"""Small values that the reference interpreter passes around: memories with their place, and indexes of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class ReferenceMemory:
    """A model's memory, and where a canvas starts in it. Positions before `base` (the context) are never evicted by a
    canvas program: `only` and `without` speak of canvas positions."""

    memory: Any
    base: int

    def restrict(self, positions: Sequence[int], kind: str) -> ReferenceMemory:
        """The memory with the canvas positions `positions` kept ("only") or dropped ("without")."""
        absolute = {self.base + int(i) for i in positions}
        context = range(self.base)
        if kind == "only":
            return replace(self, memory=self.memory.only(absolute | set(context)))
        return replace(self, memory=self.memory.without(absolute))

    def join(self, other: ReferenceMemory) -> ReferenceMemory:
        return replace(self, memory=self.memory.join(other.memory))


@dataclass(frozen=True)
class Suffixes:
    """An index of the texts learned so far: looked up by a context's last tokens, it returns what followed them. Immutable."""

    depth: int = 64
    texts: tuple[tuple[int, ...], ...] = ()

    def learn(self, tokens: Sequence[int]) -> Suffixes:
        """With another text."""
        return replace(self, texts=(*self.texts, tuple(tokens))) if len(tokens) else self

    def extend(self, tokens: Sequence[int]) -> Suffixes:
        """With the last text continued."""
        if not self.texts:
            return self.learn(tokens)
        return replace(self, texts=(*self.texts[:-1], self.texts[-1] + tuple(tokens)))

    def find(self, key: tuple[int, ...], pick: str) -> tuple[int, ...] | None:
        """What follows an occurrence of `key`: the first or the last one that something follows."""
        n = len(key)
        texts = self.texts if pick == "first" else tuple(reversed(self.texts))
        for text in texts:
            starts = range(len(text) - n)
            for i in starts if pick == "first" else reversed(starts):
                if text[i : i + n] == key:
                    return text[i + n :]
        return None

    def path(self, context: Sequence[int], at_least: int, at_most: int, pick: str = "last") -> tuple[int, ...]:
        """At most `at_most` tokens that followed the longest suffix of `context` of `at_least` to `depth` tokens."""
        for n in range(min(self.depth, len(context)), at_least - 1, -1):
            found = self.find(tuple(context[-n:]), pick) if n else None
            if found:
                return found[:at_most]
        return ()

    def counts(self, key: tuple[int, ...]) -> dict[int, int]:
        """How often each token followed `key`."""
        out: dict[int, int] = {}
        n = len(key)
        for text in self.texts:
            for i in range(len(text) - n):
                if text[i : i + n] == key:
                    out[text[i + n]] = out.get(text[i + n], 0) + 1
        return out
