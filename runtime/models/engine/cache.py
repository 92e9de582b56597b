"""Preallocated keys, values and last states of many sequences: [slots, heads, rows, size] per layer, in place.

A sequence has one slot; row i of it belongs to one token. Slots and rows grow by doubling, within a budget in
bytes. Unwritten rows are zeros: they are masked, and zero times a masked weight is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from decgraph.runtime.models.engine.layout import Layout

ROWS = 64  # capacities are multiples of this
LENGTH = 16  # lengths handed to a forward are: attention costs what they say, and each new one is a view of every layer
_PARTS = 64  # views that are remembered
_CPU_BUDGET = 4 << 30
_GPU_SHARE = 0.8  # of the memory free when the store is created


class CacheTooLarge(Exception):
    """The budget does not allow that many slots of that many rows."""

    def __init__(self, slots: int, rows: int, needed: int, budget: int) -> None:
        super().__init__(f"{slots} sequences of {rows} tokens need {needed} bytes, the budget is {budget}")
        self.slots, self.rows, self.needed, self.budget = slots, rows, needed, budget


@dataclass(frozen=True)
class SlotStates:
    """Some slots' keys and values [B, heads, rows, size] by layer, and last states [B, rows, width]."""

    keys: list[Tensor]
    values: list[Tensor]
    last: Tensor


class SlotStore:
    """Keys, values and last states by slot and row. `slots` and `rows` say how many there are.

    budget: the most bytes to allocate; None takes 4 GiB on the CPU and 80 % of the free memory of a GPU.
    """

    def __init__(self, layout: Layout, budget: int | None = None) -> None:
        self.layout = layout
        if budget is None:
            on_gpu = layout.device.type == "cuda"
            budget = int(_GPU_SHARE * torch.cuda.mem_get_info(layout.device)[0]) if on_gpu else _CPU_BUDGET
        self.budget = budget
        self.slots = self.rows = 0
        # Tensors of one size are one block [n, slots, heads, rows, size], so that moving rows is one operation.
        sizes = [(h, k) for h, k, _ in layout.shapes] + [(h, v) for h, _, v in layout.shapes]
        kinds = list(dict.fromkeys(sizes))
        self._where = [(kinds.index(size), sizes[:n].count(size)) for n, size in enumerate(sizes)]
        self._blocks = [layout.zeros(sizes.count(kind), 0, kind[0], 0, kind[1]) for kind in kinds]
        self._last = layout.zeros(0, 0, layout.width)
        self._parts: dict[tuple[int, int, int], SlotStates] = {}

    def need(self, slots: int, rows: int) -> None:
        """Makes room for that many slots of that many rows. Raises TooLarge, or what the allocator raises; cached
        rows are kept either way. A slot past `slots` may be lost where the budget has no room for it."""
        rows = -(-rows // ROWS) * ROWS
        if slots <= self.slots and rows <= self.rows:
            return
        for wanted in (
            (_doubled(self.slots, slots), _doubled(self.rows, rows)),
            (_doubled(self.slots, slots), max(self.rows, rows)),
            (max(self.slots, slots), max(self.rows, rows)),
            (slots, max(self.rows, rows)),
            (slots, rows),
        ):
            if self._bytes(*wanted) <= self.budget:
                break
        else:
            raise CacheTooLarge(slots, rows, self._bytes(slots, rows), self.budget)
        kept = (min(self.slots, wanted[0]), min(self.rows, wanted[1]))
        # If the allocator fails half way, the blocks already enlarged do no harm: `slots` and `rows` say what is used.
        self._parts = {}
        for n, block in enumerate(self._blocks):
            if block.shape[1] != wanted[0] or block.shape[3] != wanted[1]:
                made = self.layout.zeros(block.shape[0], wanted[0], block.shape[2], wanted[1], block.shape[4])
                made[:, : kept[0], :, : kept[1]] = block[:, : kept[0], :, : kept[1]]
                self._blocks[n] = made
        last = self.layout.zeros(*wanted, self.layout.width)
        last[: kept[0], : kept[1]] = self._last[: kept[0], : kept[1]]
        self._last = last
        self.slots, self.rows = wanted

    def _bytes(self, slots: int, rows: int) -> int:
        return slots * rows * self.layout.cell_bytes

    def _layers(self, blocks: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values by layer, of blocks cut like this store's."""
        every = [blocks[block][place] for block, place in self._where]
        half = len(every) // 2
        return every[:half], every[half:]

    def part(self, first: int, count: int, rows: int) -> SlotStates:
        """Views of neighbouring slots, cut to that many rows."""
        made = self._parts.get((first, count, rows))
        if made is None:
            slots = slice(first, first + count)
            keys, values = self._layers([block[:, slots, :, :rows] for block in self._blocks])
            made = SlotStates(keys, values, self._last[slots, :rows])
            if len(self._parts) >= _PARTS:
                self._parts.clear()
            self._parts[first, count, rows] = made
        return made

    def taken(self, slots: Sequence[int], rows: int) -> tuple[SlotStates, Callable[[Tensor], None]]:
        """Copies of slots that are not neighbours, and what writes their rows int64[B, T] back."""
        index = torch.tensor(slots, device=self.layout.device)
        blocks = [block[:, :, :, :rows].index_select(1, index) for block in self._blocks]
        last = self._last[:, :rows].index_select(0, index)

        def back(write: Tensor) -> None:
            here, there = torch.arange(len(index), device=index.device)[:, None], index[:, None]
            for block, copy in zip(self._blocks, blocks, strict=True):
                block[:, there, :, write] = copy[:, here, :, write]
            self._last[there, write] = last[here, write]

        return SlotStates(*self._layers(blocks), last), back

    def state(self, slot: int, row: int, count: int = 1) -> Tensor:
        """A view of last states [count, width]."""
        return self._last[slot, row : row + count]

    def keep(self, slot: int, row: int, states: Tensor) -> None:
        """Last states [count, width] of rows from `row` on."""
        self._last[slot].narrow(0, row, states.shape[0]).copy_(states)

    def states(self, slot: int, rows: Sequence[int]) -> Tensor:
        """A copy of last states [n, width]."""
        return self._last[slot].index_select(0, torch.tensor(rows, device=self.layout.device))

    def read(self, slot: int, layer: int, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Views of a layer's keys and values [heads, n, size] in some rows."""
        keys, values = self._layers([block[:, slot, :, first:end] for block in self._blocks])
        return keys[layer], values[layer]

    def write(self, slot: int, layer: int, first: int, keys: Tensor, values: Tensor) -> None:
        """Makes rows of a layer, from `first` on, these keys and values [heads, n, size]."""
        for mine, theirs in zip(self.read(slot, layer, first, first + keys.shape[1]), (keys, values), strict=True):
            mine.copy_(theirs)

    def move(self, slot: int, source: Sequence[int], first: int) -> None:
        """The rows `source` of a slot become its rows `first`, `first + 1`, ..."""
        index = torch.tensor(source, device=self.layout.device)
        end = first + len(source)
        for block in self._blocks:
            one = block[:, slot]
            one[:, :, first:end] = one.index_select(2, index)
        one = self._last[slot]
        one[first:end] = one.index_select(0, index)

    def copy(self, source: int, target: int, rows: int) -> None:
        """One slot's first rows become another's; the rest of that one's are zeros."""
        for block in self._blocks:
            block[:, target, :, :rows] = block[:, source, :, :rows]
            block[:, target, :, rows:] = 0
        self._last[target, :rows] = self._last[source, :rows]
        self._last[target, rows:] = 0

    def copied(self, slot: int, rows: int) -> tuple[list[Tensor], Tensor]:
        """Copies of a slot's first rows: by block [n, heads, rows, size], and last states [rows, width]."""
        return [block[:, slot, :, :rows].clone() for block in self._blocks], self._last[slot, :rows].clone()

    def put(self, slot: int, blocks: Sequence[Tensor], last: Tensor, rows: int) -> None:
        """What `copied` gave, blocks [n, heads, rows, size] and last states [rows, width], becomes the first rows of a slot, as
        many as are asked for."""
        for mine, theirs in zip(self._blocks, blocks, strict=True):
            mine[:, slot, :, :rows] = theirs[:, :, :rows]
        self._last[slot, :rows] = last[:rows]

    def clear(self, slot: int) -> None:
        """Zeros a slot: a NaN that a model left there would propagate through a mask."""
        if slot < self.slots:
            for block in self._blocks:
                block[:, slot] = 0
            self._last[slot] = 0


def _doubled(have: int, want: int) -> int:
    """At least `want`, by doubling what there is."""
    size = max(have, 1)
    while size < want:
        size *= 2
    return size if have else want
