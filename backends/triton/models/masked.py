"""Loaded masked models: the decoder over slots, where a cell's slot is its position, and everybody may see everybody.

A call computes the whole text and canvas, or some cells over what the slots hold, which are seen as they were when computed.
Who attends to whom beyond that is the model's affair: blocks of cells, windows to both sides.
"""

from __future__ import annotations

import torch
from torch import Tensor

from decgraph.backends.triton.models.decoder import CausalModel, Weights
from decgraph.backends.triton.models.interface import Seen
from decgraph.backends.triton.pages import Pages
from decgraph.runtime.models.interface import Model


class MaskedModel(CausalModel):
    """See the module, and `DeviceModel`. Of a model with a shift (Dream) the states are those one position before, which
    predict a cell; they are kept by slot."""

    kind = "masked"
    both = True

    def __init__(self, model: Model, weights: Weights, pages: Pages) -> None:
        super().__init__(model, weights, pages)
        assert model.mask is not None
        self.mask: int | None = model.mask
        self.shift, self.visibility = model.shift, model.visibility
        self.prompts = torch.zeros(self.batch, dtype=torch.int64, device=self.device)
        self._plain = torch.arange(self.vocab_size, device=self.device) != self.mask
        if self.shift:
            self.keep_states()

    def compute(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, parents: Tensor | None, known: Tensor | None
    ) -> Tensor:
        states = self.run(tokens, positions, slots, self._limited(seen, positions, self.prompts))
        if not self.shift or self.last is None:
            return states
        return self.stored(self.last, positions - 1)

    def _limited(self, seen: Seen, positions: Tensor, prompts: Tensor) -> Seen:
        """What cells at positions int64[B, T] see of what is there."""
        if self.visibility == "full":
            return seen
        first = positions * 0
        if isinstance(self.visibility, str):
            ends = positions + 1
        elif self.visibility[0] == "window":
            length = seen.below
            if seen.tail is not None and seen.first is not None:  # slots between are missing, but not the last
                count = torch.arange(1, seen.tail.shape[2] + 1, device=self.device)
                length = torch.maximum(length, seen.first[:, None] + (seen.tail * count).amax(-1))
            ends = torch.where(positions >= length - self.visibility[1], length, positions + 1)
        else:
            n = self.visibility[1]
            first = prompts[:, None] + first if self.visibility[0] == "prompt+block" else first
            ends = torch.where(positions < first, first, first + ((positions - first) // n + 1) * n)
        below = torch.minimum(seen.below, ends)
        if seen.tail is None or seen.first is None:
            return Seen(below)
        at = seen.first[:, None] + torch.arange(seen.tail.shape[2], device=self.device)
        return Seen(below, seen.tail & (at[:, None] < ends[..., None]), seen.first)

    @torch.no_grad()
    def read(self, states: Tensor) -> Tensor:
        """See `DeviceModel`; the mask has no mass."""
        return torch.where(self._plain, super().read(states), float("-inf"))
