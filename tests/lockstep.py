"""Random decoding in lockstep through a `DeviceModel`: trees computed in several forwards, accepted paths moved, ragged."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from unread import nothing_read

Check = Callable[[list[tuple[int, ...]], Tensor], None]
Path = tuple[int, ...]


@dataclass
class Lane:
    """One sequence: `committed` tokens, of which the first `held` are in the caches; the tail of the present step."""

    committed: list[int]
    held: int
    tokens: list[int] = field(default_factory=list)  # by tail index, as are the following
    parents: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)

    def path(self, cell: int) -> Path:
        """The tokens up to a tail cell."""
        found: list[int] = []
        while cell >= 0:
            found.append(self.tokens[cell])
            cell = self.parents[cell]
        return (*self.committed[: self.held], *reversed(found))

    def sees(self, cell: int) -> list[int]:
        """The cell and its ancestors in the tail."""
        found = []
        while cell >= 0:
            found.append(cell)
            cell = self.parents[cell]
        return found


@dataclass
class Lockstep:
    """Decodes `steps` steps with a model of `size` tokens; `check` is called with paths and their scores [n, V].

    begun: called after the prompts are computed, and after each move, with the lanes' held cells: to poison what nobody may
    look at.
    """

    model: Any
    size: int
    seed: int
    check: Check
    begun: Callable[[list[int]], None] = lambda held: None
    reads: Callable[[list[Lane], int], None] = lambda lanes, cells: None

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.moved: list[int] = []
        self.shifted = 0  # cells that did not lie where they were kept

    def token(self) -> int:
        return self.rng.randrange(self.size)

    def run(self, prompts: list[int], steps: int, nodes: int) -> None:
        """Prompts of these lengths; trees of up to `nodes` nodes."""
        lanes = [Lane([self.token() for _ in range(n)], n - 1) for n in prompts]
        self.model.begin([lane.committed for lane in lanes])
        for _ in range(steps):
            self.begun([lane.held for lane in lanes])
            self.step(lanes, nodes)

    def step(self, lanes: list[Lane], nodes: int) -> None:
        rng = self.rng
        for lane in lanes:
            lane.tokens = lane.committed[lane.held :]
            lane.parents = list(range(-1, len(lane.tokens) - 1))
            last = len(lane.tokens) - 1
            for _ in range(rng.randrange(nodes + 1)):
                lane.parents.append(rng.randrange(last, len(lane.tokens)))
                lane.tokens.append(self.token())
        # In lockstep a forward has the same tail indices in all lanes: the shorter tails are padded.
        end, first = max(len(lane.tokens) for lane in lanes), 0
        while first < end:
            count = rng.randint(1, end - first)
            self.forward(lanes, first, count)
            first += count
        self.accept(lanes)

    def forward(self, lanes: list[Lane], first: int, count: int) -> None:
        rng, width = self.rng, -(-self.model.tail // 32)
        tokens, positions, bits = [], [], []
        for lane in lanes:
            for cell in range(first, first + count):
                word = [0] * width
                if cell < len(lane.tokens):
                    for other in (seen := lane.sees(cell)):
                        word[other // 32] |= 1 << (other % 32)
                    tokens.append(lane.tokens[cell])
                    positions.append(lane.held + len(seen) - 1)
                else:  # padding: nothing here may matter
                    tokens.append(rng.choice([-5, 0, 1 << 40]))
                    positions.append(rng.choice([-1, 3, 1 << 40]))
                bits.append([w - (1 << 32) if w >> 31 else w for w in word])
        shape = (len(lanes), count)
        rows = None
        picked = [list(range(count)) for _ in lanes]
        if rng.random() < 0.6:
            wanted = rng.randint(1, 3)
            picked = [[rng.randrange(count) for _ in range(wanted)] for _ in lanes]
            rows = torch.tensor(picked)
        given = (torch.tensor(tokens).view(shape), torch.tensor(positions).view(shape), first, self.held(lanes),
                 torch.tensor(bits, dtype=torch.int32).view(*shape, width), rows)  # fmt: skip
        with nothing_read():
            scores = self.model.forward(*given)
        assert scores.shape == (len(lanes), len(picked[0]), self.model.vocab_size)
        asked = [(b, r) for b in range(len(lanes)) for r in range(len(picked[0]))
                 if first + picked[b][r] < len(lanes[b].tokens)]  # fmt: skip
        if asked:
            paths = [lanes[b].path(first + picked[b][r]) for b, r in asked]
            self.check(paths, torch.stack([scores[b, r] for b, r in asked]))
        self.reads(lanes, first + count)

    def accept(self, lanes: list[Lane]) -> None:
        """Nothing, a part of a path, or a path down to a leaf; then often a token more."""
        rng = self.rng
        width = max(len(lane.tokens) for lane in lanes)
        source, count = [], []
        for lane in lanes:
            path = sorted(lane.sees(rng.randrange(len(lane.tokens))))
            fresh = len(lane.committed) - lane.held  # cells that were committed before
            if rng.random() < 0.2:
                path = []
            elif rng.random() < 0.3:
                path = path[: rng.randint(1, len(path))]
            lane.committed = [*lane.committed[: lane.held], *(lane.tokens[c] for c in path), *lane.tokens[len(path) : fresh]]
            source.append(path + [rng.choice([-9, 0, 1 << 40]) for _ in range(width - len(path))])
            count.append(len(path))
            self.shifted += sum(cell != place for place, cell in enumerate(path))
        self.moved += count
        given = self.held(lanes), torch.tensor(source), torch.tensor(count, dtype=torch.int32)
        with nothing_read():
            self.model.move(*given)
        for lane, kept in zip(lanes, count):
            lane.held += kept
            if lane.held == len(lane.committed) or (rng.random() < 0.3 and len(lane.committed) - lane.held < 3):
                lane.committed.append(self.token())

    @staticmethod
    def held(lanes: list[Lane]) -> Tensor:
        return torch.tensor([lane.held for lane in lanes], dtype=torch.int32)
