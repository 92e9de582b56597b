"""The interface of a causal model to a step on the device: forwards over caches of a fixed size, for B sequences in lockstep.

A cache row is a *slot*. The cached tokens of sequence b are in the slots 0 .. cached[b]-1, in order of position. The tokens of
a step (uncached committed ones, then the nodes of the tree) follow them as the *tail*: the token with *tail index* j has slot
cached[b] + j. A token sees all cached slots (within its layer's window, by position) and the tail slots that its bits name, its
own among them. The tail has at most `tail` slots; slot `capacity` - 1, the last, is where padding is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class DeviceModel(Protocol):
    """A causal model for a step. Every tensor is on `device`; nothing is ever read back."""

    vocab_size: int
    capacity: int
    batch: int
    device: torch.device
    exact: bool
    """Whether scores are float64 (table models); else float32 or the model's own type."""

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Compute all prompts but their last tokens (so cached[b] = len(prompt) - 1). Not part of a step: it may take any
        number of forwards. Raises DecError for a prompt that does not fit."""
        ...

    def forward(
        self, tokens: Tensor, positions: Tensor, first: int, cached: Tensor, bits: Tensor, rows: Tensor | None
    ) -> Tensor:
        """Scores after some new tokens.

        tokens, positions: int64[B, T], the new tokens, at tail indices first .. first+T-1. cached: int32[B]. bits: int32[B, T,
        W], bit j % 32 of word j // 32: the token sees tail slot j. A token without bits is padding: its slot is masked, and its
        scores are undefined. rows: int64[B, R], which of the T scores are wanted (None: all). Returns scores [B, R, V].
        """
        ...

    def move(self, cached: Tensor, source: Tensor, count: Tensor) -> None:
        """Compact an accepted path: tail slots source[b, 0 .. count[b]-1] (int64[B, K], ascending) go to the slots cached[b],
        cached[b]+1, ... of every cache; the rest of the tail is dropped. count: int32[B]. The caller updates `cached`."""
        ...
