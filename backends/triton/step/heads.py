"""EAGLE heads on the device: features of the target and tokens to scores, over a cache of the head's own.

It differs from `DeviceModel` as follows. Counts and positions are those of tokens, as for the target: `cached[b]` tokens of the
context are cached, and the input for the token at position p pairs it with the feature of position p - 1. (The first token has
no feature before it, hence no slot: the token at position p has slot p - 1, and prompts need two tokens.) `forward` takes
`given` int64[B] too: the features of positions below it are the target's, as its last states by slot; above it a token reads
the head's own feature of its parent, the tail slot that its bits name. The target must have computed those states: call `begin`
after the target's, and a step's forward after the target's `move`.

Keys and values computed from the head's own features differ from those of committed tokens (which use the target's features),
so accepted nodes are computed again as committed tokens: `keeps_paths` is False. `move` keeps the committed tokens' slots.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from decgraph.backends.triton.step.causal import CausalOnDevice, suited
from decgraph.backends.triton.step.causal_cells import Cells, Placed, rows_of
from decgraph.backends.triton.step.causal_graph import Attention, kernel_attention
from decgraph.backends.triton.step.causal_layers import Weights, layer_step, least
from decgraph.errors import DecError
from decgraph.runtime.models.hf_heads import HFFeatures
from decgraph.runtime.models.interface import Model


class FeaturesOnDevice(CausalOnDevice):
    """An EAGLE head of a target that is on the device, for as many sequences and slots. From now on the target keeps its
    last states. Raises DecError for another kind of model, and for a head that reads other states than the target's."""

    keeps_paths = False

    def __init__(self, model: Model, target: CausalOnDevice, tail: int, *, attention: Attention | None = None) -> None:
        if not isinstance(model, HFFeatures):
            raise DecError(f"{model.name!r} is not implemented on the device: it is a {type(model).__name__}")
        how = suited(attention, next(model.module.parameters()))
        if model.module.reads is not None or model.module.mask is not None or model.module.own_output:
            why = "it reads states of several layers, or has an output matrix of its own"
            raise DecError(f"{model.name!r} is not implemented on the device: {why}")
        step, layout, reach = layer_step(model.module, model.name, how)
        if layout.width != target.layout.width or layout.device != target.device:
            raise DecError(f"{model.name!r} does not read the states of {target.name!r}")
        size, context = model.vocab.size, least(target.weights.context, reach)
        own = Weights(step, layout, target.weights.head, model.name, size, context, True, how is kernel_attention)
        super().__init__(own, target.batch, target.capacity, tail)
        self.module, self.target = model.module, target
        self._own, self._theirs = self.keep_states(), target.keep_states()

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """See `DeviceModel`. Raises DecError for a prompt of one token, too."""
        if any(len(prompt) < 2 for prompt in prompts):
            raise DecError(f"{self.name!r} needs at least two tokens of context")
        super().begin([prompt[1:] for prompt in prompts])

    @torch.no_grad()
    def forward(
        self, tokens: Tensor, positions: Tensor, first: int, cached: Tensor, bits: Tensor, rows: Tensor | None, given: Tensor
    ) -> Tensor:
        """See above: [B, R, V]."""
        placed = self._cells.place(tokens, positions - 1, first, cached - 1, bits)
        return self.read(rows_of(self.run(self._cells, placed, self.entering(self._cells, placed, given)), rows))

    def move(self, cached: Tensor, source: Tensor, count: Tensor) -> None:
        """See `DeviceModel`, for committed tokens' slots; source int64[B, K], cached and count int32[B]."""
        super().move(cached - 1, source, count)

    def entering(self, cells: Cells, placed: Placed, given: Tensor | None = None) -> Tensor:
        """States [B, T, width] of tokens and features. given: None where all features are the target's."""
        features = _at(self._theirs, placed.positions)
        if given is not None:
            seen = cells.tail_seen(placed.bits)
            count = seen.shape[-1]
            parents = seen & (cells.tail_positions[:, None, :count] == placed.positions[..., None] - 1)
            slots = placed.cached + (parents * cells.steps[:count]).sum(-1)
            features = torch.where((placed.positions < given[:, None])[..., None], features, _at(self._own, slots))
        made: Tensor = self.module.enter(placed.tokens, features.to(self.layout.dtype))
        return made


def _at(states: Tensor, slots: Tensor) -> Tensor:
    """Rows [B, T, width] of [B, S, width] at slots int64[B, T]; out-of-range slots read the last one."""
    return rows_of(states, slots.clamp(0, states.shape[1] - 1))
