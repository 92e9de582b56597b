"""Canvases: a run of cells after the committed context, each masked, decided (a token or a draw), or soft. Immutable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from decgraph.ir.data.dist import Draw
from decgraph.ir.opdef import OpError


@dataclass(frozen=True)
class Soft:
    """What a cell or an edge of a tree holds in place of a token: an embedding, in coordinates (`model.embed`). Such a cell
    counts as masked."""

    value: tuple[Any, ...]

    def __int__(self) -> int:
        raise OpError("a soft node has no token", hint="read the nodes that have one; a model may be called at all of them")


@dataclass(frozen=True)
class Canvas:
    """`base`: tokens before it. `cells[i]` is None (masked), an int, a Draw, or Soft."""

    base: tuple[Any, ...]
    cells: tuple[Any, ...]
    capacity: int | None = None

    @staticmethod
    def start(base: tuple[Any, ...], length: int, capacity: int | None = None) -> Canvas:
        return Canvas(base, (None,) * length, capacity if capacity is not None else length)

    def __len__(self) -> int:
        return len(self.cells)

    def masked(self, i: int) -> bool:
        return self.cells[i] is None or isinstance(self.cells[i], Soft)

    def put(self, positions: Sequence[int], values: Sequence[Any]) -> Canvas:
        cells = list(self.cells)
        for i, v in zip(positions, values):
            cells[i] = v
        return replace(self, cells=tuple(cells))

    def extend(self, k: int) -> Canvas:
        room = k if self.capacity is None else max(0, min(k, self.capacity - len(self.cells)))
        return replace(self, cells=self.cells + (None,) * room)

    def decided_count(self) -> int:
        return sum(not self.masked(i) for i in range(len(self.cells)))

    def decided_prefix(self) -> list[Any]:
        """Cells before the first masked one."""
        out: list[Any] = []
        for i, cell in enumerate(self.cells):
            if self.masked(i):
                break
            out.append(cell)
        return out

    def key(self) -> tuple[Any, ...]:
        """Cells as plain data: token, None, or Soft."""
        return tuple(c.token if isinstance(c, Draw) else c for c in self.cells)


@dataclass(frozen=True)
class Edit:
    """An edge of a tree of canvases: decide `position` with `value`."""

    position: int
    value: Any

    def apply(self, canvas: Canvas) -> Canvas:
        return canvas.put([self.position], [self.value])

    @property
    def token(self) -> int:
        return self.value.token if isinstance(self.value, Draw) else int(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edit) and self.position == other.position and self.token == other.token

    def __hash__(self) -> int:
        return hash((self.position, self.token))
