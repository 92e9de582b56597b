"""Table-driven automata over tokens: the constraint of a request, and the grammar of grammar-aware algorithms."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from decgraph.errors import DecError

MASKS = 256
"""Most masks that an automaton keeps: those of a vocabulary of 150,000 tokens take 40 MB."""


@dataclass(frozen=True)
class Automaton:
    """A deterministic automaton: `next[state][token]` is the state after, or -1 for a token not allowed.

    States are `0 .. states-1`. A state is live if an accepting state can be reached from it; a token that
    leads to a state that is not live is not allowed, so a walk over allowed tokens never gets stuck before
    accepting. Raises DecError for a table that is not rectangular or names a state it lacks.
    """

    next: tuple[tuple[int, ...], ...]
    accepting: frozenset[int]
    start: int = 0
    source: str = field(default="", repr=False, compare=False)
    """The grammar's text, where it was made of one."""
    masks: dict[tuple[int, int], np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)
    """bool[size] by (state, size): what `mask` answered last; the state -1 follows a forbidden text."""

    def __post_init__(self) -> None:
        n = len(self.next)
        if len({len(row) for row in self.next}) != 1:
            raise DecError("an automaton needs one row per state, all with one entry per token")
        named = self.accepting.union({self.start}, *self.next)
        if any(not -1 <= s < n for s in named) or -1 in self.accepting or self.start < 0:
            raise DecError(f"an automaton with {n} states names a state outside 0..{n - 1}")

    @property
    def states(self) -> int:
        return len(self.next)

    @cached_property
    def live(self) -> frozenset[int]:
        """The states from which an accepting state can be reached."""
        before: dict[int, set[int]] = {}
        for state, row in enumerate(self.next):
            for after in row:
                before.setdefault(after, set()).add(state)
        found, queue = set(self.accepting), deque(self.accepting)
        while queue:
            for state in before.get(queue.popleft(), ()):
                if state not in found:
                    found.add(state)
                    queue.append(state)
        return frozenset(found)

    def step(self, state: int, token: int) -> int:
        """The state after `token`, or -1; -1 leads to -1, and so does a token that the table lacks."""
        return self.next[state][token] if state >= 0 and 0 <= token < len(self.next[state]) else -1

    def run(self, tokens: Iterable[int], state: int | None = None) -> int:
        """The state after `tokens`, from `state` (default: the start), or -1."""
        at = self.start if state is None else state
        for token in tokens:
            at = self.step(at, token)
        return at

    def allowed(self, state: int) -> frozenset[int]:
        """The tokens that lead from `state` to a live state."""
        if state < 0:
            return frozenset()
        return frozenset(v for v, after in enumerate(self.next[state]) if after in self.live)

    def permitted(self, state: int) -> frozenset[int]:
        """The tokens that a request with this automaton permits in a state: the allowed ones, and all after a text that it
        forbids (none where it forbids every text). No draft there is ever accepted, but rules over whole trees read the
        target's distributions below it."""
        if state in self.live:
            return self.allowed(state)
        return frozenset(range(len(self.next[0]))) if self.start in self.live else frozenset()

    def mask(self, state: int, size: int) -> np.ndarray:
        """bool[size]: the permitted tokens. Not to be written to."""
        if (state, size) not in self.masks:
            if len(self.masks) >= MASKS:
                self.masks.clear()
            self.masks[state, size] = self._mask(state, size)
        return self.masks[state, size]

    def _mask(self, state: int, size: int) -> np.ndarray:
        return np.isin(np.arange(size), list(self.permitted(state)))

    def __call__(self, generated: tuple[int, ...]) -> frozenset[int]:
        """The tokens permitted after the generated tokens: an automaton is itself a request's `allow`."""
        return self.permitted(self.run(generated))
