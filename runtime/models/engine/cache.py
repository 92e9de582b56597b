"""Preallocated keys, values and last states of many sequences: [slots, heads, rows, size] per layer, in place.

A slot's row i holds what was computed for one cell of that sequence. Both slots and rows grow by doubling, as far
as a budget in bytes goes. Rows nobody wrote are zeros: they are masked, and zero times a masked weight is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from decgraph.runtime.models.engine.step import Layout

ROWS = 64  # capacities and lengths handed to a forward are multiples of this
_CPU_BUDGET = 4 << 30
_GPU_SHARE = 0.8  # of what is free when the store is made


class TooLarge(Exception):
    """The budget does not allow that many slots of that many rows."""

    def __init__(self, slots: int, rows: int, needed: int, budget: int) -> None:
        super().__init__(f"{slots} sequences of {rows} cells need {needed} bytes, the budget is {budget}")
        self.slots, self.rows, self.needed, self.budget = slots, rows, needed, budget


class Store:
    """Keys, values and last states by slot and row. `slots` and `rows` say how many there are.

    budget: the most bytes to hold; None takes 4 GiB on the CPU and most of what is free on a GPU.
    """

    def __init__(self, layout: Layout, budget: int | None = None) -> None:
        self.layout = layout
        if budget is None:
            on_gpu = layout.device.type == "cuda"
            budget = int(_GPU_SHARE * torch.cuda.mem_get_info(layout.device)[0]) if on_gpu else _CPU_BUDGET
        self.budget = budget
        self.slots = self.rows = 0
        self.keys = [self._new(0, heads, 0, size) for heads, size, _ in layout.shapes]
        self.values = [self._new(0, heads, 0, size) for heads, _, size in layout.shapes]
        self.last = self._new(0, 0, layout.width)

    def _new(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.layout.dtype, device=self.layout.device)

    def need(self, slots: int, rows: int) -> None:
        """Makes room for that many slots of that many rows. Raises TooLarge, or what the allocator raises; what is
        held stays held either way. A slot past `slots` may be lost where the budget has no room for it."""
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
            raise TooLarge(slots, rows, self._bytes(slots, rows), self.budget)
        old, kept = (self.slots, self.rows), (min(self.slots, wanted[0]), min(self.rows, wanted[1]))
        # Layer by layer, so that old and new are both there for one layer only. If the allocator gives up half
        # way, larger layers are as good as small ones: `slots` and `rows` say what may be used.
        for tensors in (self.keys, self.values):
            for layer, tensor in enumerate(tensors):
                tensors[layer] = self._grown(tensor, wanted, kept)
        last = self._new(*wanted, self.layout.width)
        last[: kept[0], : kept[1]] = self.last[: kept[0], : kept[1]]
        self.last = last
        self.slots, self.rows = wanted
        assert old != wanted

    def _grown(self, tensor: Tensor, wanted: tuple[int, int], kept: tuple[int, int]) -> Tensor:
        if tensor.shape[0] == wanted[0] and tensor.shape[2] == wanted[1]:
            return tensor
        made = self._new(wanted[0], tensor.shape[1], wanted[1], tensor.shape[3])
        made[: kept[0], :, : kept[1]] = tensor[: kept[0], :, : kept[1]]
        return made

    def _bytes(self, slots: int, rows: int) -> int:
        return slots * rows * self.layout.cell_bytes

    def part(self, first: int, count: int, rows: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Views of neighbouring slots, cut to that many rows: keys, values, last states."""
        every = slice(first, first + count)
        return (
            [k[every, :, :rows] for k in self.keys],
            [v[every, :, :rows] for v in self.values],
            self.last[every, :rows],
        )

    def taken(self, slots: Sequence[int], rows: int) -> tuple[list[Tensor], list[Tensor], Callable[[Tensor], None]]:
        """Copies of slots that are not neighbours, and what writes rows int64[B, T] of them back."""
        index = torch.tensor(slots, device=self.layout.device)
        keys = [k[:, :, :rows].index_select(0, index) for k in self.keys]
        values = [v[:, :, :rows].index_select(0, index) for v in self.values]

        def back(write: Tensor) -> None:
            here = torch.arange(len(index), device=index.device)[:, None]
            for tensors, copies in ((self.keys, keys), (self.values, values)):
                for tensor, copy in zip(tensors, copies, strict=True):
                    tensor[index[:, None], :, write] = copy[here, :, write]

        return keys, values, back

    def move(self, slot: int, source: Sequence[int], first: int) -> None:
        """The rows `source` of a slot become its rows `first`, `first + 1`, ..."""
        index = torch.tensor(source, device=self.layout.device)
        end = first + len(source)
        for tensors in (self.keys, self.values):
            for tensor in tensors:
                one = tensor[slot]
                one[:, first:end] = one.index_select(1, index)
        self.last[slot, first:end] = self.last[slot].index_select(0, index)

    def copy(self, source: int, target: int, rows: int) -> None:
        """One slot's first rows become another's; the rest of that one's are zeros."""
        for tensors in (self.keys, self.values):
            for tensor in tensors:
                tensor[target, :, :rows] = tensor[source, :, :rows]
                tensor[target, :, rows:] = 0
        self.last[target, :rows] = self.last[source, :rows]
        self.last[target, rows:] = 0

    def clear(self, slot: int) -> None:
        """Zeros in a slot: what a model left there that is not a number would come through a mask."""
        if slot < self.slots:
            for tensor in (*self.keys, *self.values, self.last):
                tensor[slot] = 0


def _doubled(have: int, want: int) -> int:
    """At least `want`, by doubling what there is."""
    size = max(have, 1)
    while size < want:
        size *= 2
    return size if have else want
