"""Canvases: cells after the committed context, each masked, decided or soft. Immutable: an edit returns a new one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from decgraph.backends.torch.draws import Draws, TorchDraws
from decgraph.backends.torch.prefixes import Context
from decgraph.backends.torch.rows import Ids


@dataclass(frozen=True)
class Canvas:
    """base: the committed tokens before it (a Context). token: int64[n], -1 where masked. soft: position to coordinates, of
    cells that hold an embedding and count as masked. draws: position to the draw that decided a cell, where one did."""

    base: Context
    token: Ids
    capacity: int
    soft: dict[int, np.ndarray] = field(default_factory=dict)
    draws: dict[int, Draws] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.token)

    def masked(self) -> np.ndarray:
        """bool[n]"""
        return self.token < 0

    def put(self, ids: Ids, tokens: Ids, draws: dict[int, Draws] | None = None) -> Canvas:
        """With cells decided (or masked again, by token -1)."""
        token = self.token.copy()
        token[ids] = tokens
        soft, kept = self.soft, self.draws
        gone = set(map(int, ids)) if soft or kept else set()
        if soft:
            soft = {i: v for i, v in soft.items() if i not in gone}
        if kept or draws:
            kept = {i: d for i, d in kept.items() if i not in gone} | (draws or {})
        return replace(self, token=token, soft=soft, draws=kept)

    def put_soft(self, ids: Ids, values: list[np.ndarray]) -> Canvas:
        """With cells that hold an embedding, each float64[vocabulary + 1]. ids: int64[n]."""
        token = self.token.copy()
        token[ids] = -1
        return replace(self, token=token, soft={**self.soft, **{int(i): v for i, v in zip(ids, values, strict=True)}})

    def extend(self, k: int) -> Canvas:
        room = max(0, min(k, self.capacity - len(self.token)))
        return replace(self, token=np.concatenate((self.token, np.full(room, -1, dtype=np.int64))))

    def decided_prefix(self) -> list[int]:
        """Cells before the first masked one."""
        open_cells = np.flatnonzero(self.token < 0)
        end = int(open_cells[0]) if len(open_cells) else len(self.token)
        return [int(t) for t in self.token[:end]]

    def key(self) -> tuple[object, ...]:
        """The key by which canvases are equal."""
        return (self.token.tobytes(), tuple((i, self.soft[i].tobytes()) for i in sorted(self.soft)))


@dataclass(frozen=True)
class Edit:
    """An edge of a tree of canvases: decide `position` with `value` (a draw, or a token)."""

    position: int
    value: TorchDraws | int

    @property
    def token(self) -> int:
        return int(self.value.tokens) if isinstance(self.value, TorchDraws) else int(self.value)

    def apply(self, canvas: Canvas) -> Canvas:
        return canvas.put(np.array([self.position]), np.array([self.token]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edit) and self.position == other.position and self.token == other.token

    def __hash__(self) -> int:
        return hash((self.position, self.token))
