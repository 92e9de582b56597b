"""The tail of a step in caches of a fixed size: slots, positions, attention masks. See `model.py`.

Everything is tensor arithmetic over constants; no control flow depends on a tensor's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from decgraph.backends.triton.step.causal_kernels import place_cells
from decgraph.errors import DecError

WORD = 32  # tail slots that one word of `bits` covers


def words(cells: int) -> int:
    """How many words of bits cover that many tail slots."""
    return -(-cells // WORD)


def chain_bits(count: int, width: int) -> Tensor:
    """int32[count, width], computed on the host: tail token i of a chain sees the tail tokens 0 .. i."""
    cell, other = torch.arange(count)[:, None], torch.arange(width * WORD)
    sees = (other <= cell).view(count, width, WORD).long() << torch.arange(WORD)
    return sees.sum(-1).to(torch.int32)  # bit 31 is the sign: the conversion keeps the low 32 bits


@dataclass
class Placed:
    """The new tokens of one forward. tokens, positions: int64[B, T], 0 where padded, so that no table is read out of bounds.
    write: int64[B, T], slots. first: the first one's tail index. lengths: int32[B], cached slots. bits: int32[B, T, W]
    as given."""

    tokens: Tensor
    positions: Tensor
    write: Tensor
    first: int
    lengths: Tensor
    bits: Tensor

    @cached_property
    def real(self) -> Tensor:
        """bool[B, T], False for padding."""
        return (self.bits != 0).any(-1)

    @cached_property
    def cached(self) -> Tensor:
        """int64[B, 1]: slots cached."""
        return self.lengths.long()[:, None]


class Cells:
    """The slots of B sequences: `tail_positions` int64[B, tail] are the positions of the tail's tokens so far.

    kernels: whether one generated kernel computes slots, where each operation of torch would be a launch.
    """

    def __init__(self, batch: int, capacity: int, tail: int, device: torch.device, kernels: bool = False) -> None:
        if not 0 < tail < capacity:
            raise DecError(f"a tail of {tail} cells does not fit into {capacity} slots", hint="one slot is for padding")
        self.batch, self.capacity, self.tail, self.device, self.kernels = batch, capacity, tail, device, kernels
        self.steps = torch.arange(max(capacity, WORD), device=device)
        self.lanes = torch.arange(batch, device=device)[:, None]
        self.tail_positions = torch.zeros((batch, tail), dtype=torch.int64, device=device)
        self._shifts = torch.arange(WORD, dtype=torch.int32, device=device)

    def place(self, tokens: Tensor, positions: Tensor, first: int, cached: Tensor, bits: Tensor) -> Placed:
        """Slots of new tokens int64[B, T]; records their positions. Arguments as for `DeviceModel.forward`. Raises DecError for
        tokens past the tail's end."""
        count = tokens.shape[1]
        if first + count > self.tail:
            raise DecError(f"tail cells {first}..{first + count - 1} of a tail of {self.tail}")
        if self.kernels:
            made = place_cells(tokens, positions, first, cached, bits, self.tail_positions, self.capacity - 1)
            return Placed(*made, first, cached, bits)
        real = (bits != 0).any(-1)
        write = torch.where(real, cached.long()[:, None] + self.steps[first : first + count], self.capacity - 1)
        positions = torch.where(real, positions, 0)
        self.tail_positions[:, first : first + count] = positions
        return Placed(torch.where(real, tokens, 0), positions, write, first, cached, bits)

    def tail_seen(self, bits: Tensor) -> Tensor:
        """bool[B, T, N]: the tail slots that each new token sees, N the smaller of the tail and what the words cover."""
        seen = ((bits[..., None] >> self._shifts) & 1) != 0
        return seen.flatten(-2)[..., : self.tail]

    def near(self, placed: Placed, window: int) -> Tensor:
        """int32[B, T, W]: the bits without the tail slots outside of a sliding window, by position."""
        count = min(placed.bits.shape[-1] * WORD, self.tail)
        inside = self.tail_positions[:, None, :count] > placed.positions[..., None] - window
        inside = torch.nn.functional.pad(inside, (0, placed.bits.shape[-1] * WORD - count))
        masks = inside.unflatten(-1, (-1, WORD)).long() << self._shifts
        return placed.bits & masks.sum(-1).to(torch.int32)

    def seen(self, placed: Placed, window: int | None = None) -> Tensor:
        """bool[B, T, capacity]: the slots that each new token sees; padding sees the slot that it is written to."""
        slots = self.steps[: self.capacity]
        committed = slots < placed.cached[..., None]
        if window is not None:
            committed = committed & (slots > placed.positions[..., None] - window)
        tail = self.tail_seen(placed.bits if window is None else self.near(placed, window))
        index = slots - placed.cached  # [B, capacity], tail indices of the slots
        known = (index >= 0) & (index < tail.shape[-1])
        at = index.clamp(0, tail.shape[-1] - 1)[:, None].expand(-1, tail.shape[1], -1)
        below = tail.gather(2, at) & known[:, None]
        padding = ~placed.real[..., None] & (slots == self.capacity - 1)
        return torch.where(placed.real[..., None], committed | below, padding)

    def kept(self, cached: Tensor, source: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """int64[B, K] twice: source and destination slots of an accepted path. For other entries both are the slot of
        padding."""
        steps = self.steps[: source.shape[1]]
        taken, row, spare = steps < count[:, None], cached.long()[:, None], self.capacity - 1
        return torch.where(taken, row + source, spare), torch.where(taken, row + steps, spare)


def fits(name: str, prompt: Sequence[int], size: int, tail: int, capacity: int, context: int | None) -> None:
    """Raises DecError for a prompt whose first step does not fit, and for a token outside of a vocabulary of `size`."""
    if not len(prompt):
        raise DecError(f"{name!r} needs at least one token of context")
    bad = next((token for token in prompt if not 0 <= token < size), None)
    if bad is not None:
        raise DecError(f"token {bad} is not in the vocabulary of {name!r}, which has {size} tokens")
    if context is not None and len(prompt) > context:
        raise DecError(f"{len(prompt)} positions are past the context length of {name!r} ({context})", hint="a shorter prompt")
    if len(prompt) - 1 + tail > capacity - 1:
        raise DecError(f"a prompt of {len(prompt)} tokens and a tail of {tail} need more than the {capacity} slots of {name!r}",
                       hint="more capacity")  # fmt: skip


def rows_of(made: Tensor, rows: Tensor | None) -> Tensor:
    """The rows int64[B, R] of [B, T, ...]; all of them for None."""
    if rows is None:
        return made
    index = rows.view(*rows.shape, *([1] * (made.dim() - 2))).expand(-1, -1, *made.shape[2:])
    return made.gather(1, index)
