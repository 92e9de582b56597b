"""A decoding loop that asks at random: chains and trees, level by level or at once, commits of accepted paths."""

from __future__ import annotations

import random
from collections.abc import Callable

from decgraph.runtime.models.engine.forward_call import ForwardCall


class Sequence:
    """One sequence: its committed tokens and marks, its present tree, and how many cells it should have cost."""

    def __init__(self, name: int, prompt: int, size: int, rng: random.Random) -> None:
        self.name, self.size, self.rng = name, size, rng
        self.context = [rng.randrange(size) for _ in range(prompt)]
        self.marks = [-1] * prompt
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.uids: list[int] = []
        self._next = 0
        self._held_context = 0
        self._held: set[int] = set()
        self.cells = 0  # that a perfect engine computes

    def ask(self) -> ForwardCall:
        """The present tree, some of its rows; counts what is new."""
        count = len(self.tokens)
        rows = [n for n in range(-1, count) if self.rng.random() < 0.6] or [-1]
        self.rng.shuffle(rows)
        self.cells += len(self.context) - self._held_context
        self._held_context = len(self.context)
        needed: set[int] = set()
        for row in rows:
            while row >= 0:
                needed.add(self.uids[row])
                row = self.parents[row]
        self.cells += len(needed - self._held)
        self._held |= needed
        return ForwardCall(self.name, self.context, self.marks, self.tokens, self.parents, self.uids, rows)

    def grow(self, cells: int, *, chain: bool = False) -> None:
        """More nodes below the present ones."""
        for _ in range(cells):
            count = len(self.tokens)
            self.parents.append(count - 1 if chain else self.rng.randrange(-1, count))
            self.tokens.append(self.rng.randrange(self.size))
            self.uids.append(self._next)
            self._next += 1

    def commit(self) -> None:
        """Accept a path of the tree, and often a token that is no node of it."""
        node, path = self.rng.randrange(-1, len(self.tokens)), []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        path.reverse()
        held = True
        for node in path:
            self.context.append(self.tokens[node])
            self.marks.append(self.uids[node])
            held = held and self.uids[node] in self._held
            self._held_context += held
        if path and held and self.rng.random() < 0.3:
            self._continue_below(path[-1])  # the rest of the tree hangs on below the new end
            return
        if self.rng.random() < 0.8:
            self.context.append(self.rng.randrange(self.size))
            self.marks.append(-1)
            self._held = set()
        self.tokens, self.parents, self.uids = [], [], []
        if path:
            self._held = set()

    def _continue_below(self, end: int) -> None:
        kept = {end: -1}
        for node, parent in enumerate(self.parents):
            if parent in kept:
                kept[node] = len(kept) - 1
        del kept[end]
        self.tokens = [self.tokens[n] for n in kept]
        self.parents = [-1 if self.parents[n] == end else kept[self.parents[n]] for n in kept]
        self.uids = [self.uids[n] for n in kept]
        self._held &= set(self.uids)

    def step(self) -> None:
        """One random change."""
        act = self.rng.random()
        if act < 0.5 and len(self.tokens) < 24:
            self.grow(self.rng.randrange(1, 6), chain=self.rng.random() < 0.4)
        else:
            self.commit()


def run(
    seed: int,
    size: int,
    longest: int,
    steps: int,
    answer: Callable[[list[ForwardCall]], None],
    close: Callable[[int], None],
    sequences: int = 4,
) -> int:
    """Sequences of different lengths join, are asked in changing company, and leave. Returns the number of cells
    that all of it has to cost."""
    rng = random.Random(seed)
    live: list[Sequence] = []
    gone = 0
    names = 0
    for _ in range(steps):
        if len(live) < sequences and (not live or rng.random() < 0.5):
            live.append(Sequence(names, rng.randrange(1, longest // 2), size, rng))
            names += 1
        company = [s for s in live if rng.random() < 0.8] or live[:1]
        rng.shuffle(company)
        answer([s.ask() for s in company])
        for s in company:
            s.step()
        for s in list(live):
            if len(s.context) + len(s.tokens) > longest - 8 or rng.random() < 0.05:
                live.remove(s)
                gone += s.cells
                close(s.name)
    return gone + sum(s.cells for s in live)
