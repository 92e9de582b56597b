"""Canvases: a run of cells after the committed context, each masked, decided (a token or a draw), or soft. Immutable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from decgraph.ir.data.dist import Draw, Soft, Symbol

Cell = Symbol | None
"""What a cell holds; None where it is masked."""


@dataclass(frozen=True)
class Canvas:
    """The tokens before it, and its cells."""

    base: tuple[Symbol, ...]
    cells: tuple[Cell, ...]
    capacity: int | None = None

    @staticmethod
    def start(base: tuple[Symbol, ...], length: int, capacity: int | None = None) -> Canvas:
        return Canvas(base, (None,) * length, capacity if capacity is not None else length)

    def __len__(self) -> int:
        return len(self.cells)

    def masked(self, i: int) -> bool:
        return self.cells[i] is None or isinstance(self.cells[i], Soft)

    def put(self, positions: Sequence[int], values: Sequence[Cell]) -> Canvas:
        cells = list(self.cells)
        for i, v in zip(positions, values):
            cells[i] = v
        return replace(self, cells=tuple(cells))

    def extend(self, k: int) -> Canvas:
        room = k if self.capacity is None else max(0, min(k, self.capacity - len(self.cells)))
        return replace(self, cells=self.cells + (None,) * room)

    def decided_prefix(self) -> list[Symbol]:
        """Cells before the first masked one."""
        out: list[Symbol] = []
        for cell in self.cells:
            if cell is None or isinstance(cell, Soft):
                break
            out.append(cell)
        return out

    def key(self) -> tuple[int | Soft | None, ...]:
        """Cells with every draw read."""
        return tuple(c.token if isinstance(c, Draw) else c for c in self.cells)


@dataclass(frozen=True)
class Edit:
    """An edge of a tree of canvases: decide `position` with `value`."""

    position: int
    value: int | Draw

    def apply(self, canvas: Canvas) -> Canvas:
        return canvas.put([self.position], [self.value])

    @property
    def token(self) -> int:
        return self.value.token if isinstance(self.value, Draw) else int(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edit) and self.position == other.position and self.token == other.token

    def __hash__(self) -> int:
        return hash((self.position, self.token))
