"""What a step on the device asks of a causal model: forwards over caches of a fixed size, for B sequences in lockstep.

A cache row is a *slot*. Sequence b holds its committed cells in the slots 0 .. held[b]-1, in order of position. The cells of a
step (committed tokens not yet computed, then the nodes of the tree) lie behind them: cell j of the step, its *tail index*, has
slot held[b] + j. A cell sees all held slots (within its layer's window, by position) and the tail cells that its bits name,
itself among them. The tail has at most `tail` cells; slots at `capacity` - 1 and above do not exist, and slot `capacity` - 1 is
where padding is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class DeviceModel(Protocol):
    """A causal model for a step. Every tensor lies on `device`; nothing is ever read back."""

    vocab_size: int
    capacity: int
    batch: int
    device: torch.device
    exact: bool
    """Whether scores are float64 (table models); else float32 or the model's own type."""

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Compute the cells of all prompts but their last tokens (so held[b] = len(prompt) - 1). Not part of a step: it may
        take as many forwards as it likes. Raises DecError for a prompt that does not fit."""
        ...

    def forward(self, tokens: Tensor, positions: Tensor, first: int, held: Tensor, bits: Tensor, rows: Tensor | None) -> Tensor:
        """Scores after some new cells.

        tokens, positions: int64[B, T], the new cells, tail indices first .. first+T-1. held: int32[B]. bits: int32[B, T, W],
        bit j % 32 of word j // 32: the cell sees tail cell j. A cell with no bit at all is padding: it is written nowhere that
        anybody sees, and its scores mean nothing. rows: int64[B, R], which of the T cells are wanted (None: all).
        Returns scores [B, R, V].
        """
        ...

    def move(self, held: Tensor, source: Tensor, count: Tensor) -> None:
        """Keep an accepted path: tail cells source[b, 0 .. count[b]-1] (int64[B, K], ascending) go to the slots held[b],
        held[b]+1, ... of every cache; the rest of the tail is forgotten. count: int32[B]. `held` itself is the caller's."""
        ...
