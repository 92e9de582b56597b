"""The text before a row of scores, and what penalties and constraints ask of it, without reading all of it again.

A run's committed text only grows. Its distinct tokens, their counts and the states of an automaton after each token are
kept up to date as it does, so that a row costs its draft tokens and the distinct tokens, not the length of the text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from decgraph.runtime.automaton import Automaton

_START = 64


class CommittedText:
    """The tokens of a run, of which the first `base` were given. `tokens` is the run's own list, which grows."""

    def __init__(self, tokens: list[int], base: int) -> None:
        self.tokens, self.base = tokens, base
        self._read = 0  # how many tokens are counted
        self._place: dict[int, int] = {}
        self._first: list[int] = []  # where each distinct token stands first, in that order
        self._ids = np.zeros(_START, dtype=np.int64)
        self._counts = np.zeros(_START, dtype=np.int64)  # in what was generated
        self._states: list[int] = []
        self._automaton: Automaton | None = None

    def _follow(self) -> None:
        for position in range(self._read, len(self.tokens)):
            token = self.tokens[position]
            place = self._place.get(token)
            if place is None:
                place = self._place[token] = len(self._first)
                if place == len(self._ids):
                    self._ids, self._counts = np.resize(self._ids, 2 * place), np.resize(self._counts, 2 * place)
                self._first.append(position)
                self._ids[place], self._counts[place] = token, 0
            self._counts[place] += position >= self.base
        self._read = len(self.tokens)

    def distinct(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """The distinct tokens of the first `length` tokens, and how often each was generated among them: int64[n] both, to be
        read before the text grows."""
        self._follow()
        n = bisect_left(self._first, length)
        counts = self._counts[:n]
        later = self.tokens[max(length, self.base) :]
        if later:  # a row of an earlier step, read now
            counts = counts.copy()
            for token in later:
                place = self._place[token]
                if place < n:
                    counts[place] -= 1
        return self._ids[:n], counts

    def place(self, token: int, length: int) -> int:
        """Where a token stands in `distinct(length)`, which was called before; -1 where it does not."""
        place = self._place.get(token, -1)
        return place if place >= 0 and self._first[place] < length else -1

    def state(self, automaton: Automaton, length: int) -> int:
        """The state of an automaton after what was generated among the first `length` tokens."""
        if self._automaton is not automaton:
            self._automaton, self._states = automaton, [automaton.start]
        wanted = max(length - self.base, 0)
        while len(self._states) <= wanted:
            self._states.append(automaton.step(self._states[-1], self.tokens[self.base + len(self._states) - 1]))
        return self._states[wanted]


@dataclass(frozen=True)
class Context:
    """The first `length` committed tokens of a run."""

    tokens: list[int]
    length: int

    def ids(self) -> tuple[int, ...]:
        return tuple(self.tokens[: self.length])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and self.ids() == other.ids()

    __hash__ = None  # type: ignore[assignment]  # tokens go on growing


class Prefixes:
    """The text before each row of a model call: the first `length` committed tokens, and the draft tokens below them, which
    `drafted` gives by row. Called with a row, all tokens. soft: rows with a soft node before them, which are of no text."""

    __slots__ = ("drafted", "length", "soft", "text")

    def __init__(
        self,
        text: CommittedText,
        length: int,
        drafted: Callable[[int], Sequence[int]],
        soft: Collection[int] = (),
    ) -> None:
        self.text, self.length, self.drafted, self.soft = text, length, drafted, soft

    def __call__(self, row: int) -> tuple[int, ...]:
        return (*self.text.tokens[: self.length], *self.drafted(row))

    def generated(self, row: int) -> Sequence[int]:
        """The draft tokens before a row, but for those that a text shorter than the prompt begins with."""
        drafted = self.drafted(row)
        missing = self.text.base - self.length
        return drafted[missing:] if missing > 0 else drafted

    def count(self, row: int) -> int:
        """How many tokens were generated before a row, its draft tokens among them."""
        return max(self.length + len(self.drafted(row)) - self.text.base, 0)

    def state(self, automaton: Automaton, row: int) -> int:
        """The state of an automaton after what was generated before a row."""
        return automaton.run(self.generated(row), self.text.state(automaton, self.length))


def alone(path: Sequence[int], base: int) -> Prefixes:
    """The prefixes of a row by itself, whose whole text is given; `base` tokens of it are the prompt."""
    tokens = [int(token) for token in path]
    return Prefixes(CommittedText(tokens, base), len(tokens), lambda _: ())
