"""Engines of live transformers modules that are run as a whole."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.module_parts import base_of
from decgraph.runtime.models.decoder.states import is_recurrent
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import Engine
from decgraph.runtime.models.engine.lengths import LengthsEngine
from decgraph.runtime.models.engine.memories import Memories
from decgraph.runtime.models.engine.nets import fresh_engine
from decgraph.runtime.models.engine.recurrent import recurrent_engine
from decgraph.runtime.models.engine.slots import SLIDING
from decgraph.runtime.models.engine.step import ForwardStep
from decgraph.runtime.models.forwards import forward_of, note
from decgraph.runtime.models.hf_live import LiveModel
from decgraph.runtime.models.hf_soft_prompts import SoftPrompted
from decgraph.runtime.models.rotary import Boundary, at_length

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from decgraph.runtime.models.decoder.decoder import Masks, Out


def build_engine(model: LiveModel) -> Engine:
    """The engine of a live module. Raises DecError, by name, for one that it cannot run."""
    if not isinstance(model, SoftPrompted):
        if is_recurrent(model.module):
            return recurrent_engine(model)
        if model.boundary is not None:
            return _lengths_engine(model, model.boundary)
    engine = fresh_engine(model)
    if isinstance(model, SoftPrompted):
        engine.onto(None, PrefixedStep(engine.step, model.prefix, engine.layout.window), engine.layout)
    engine.memories = Memories(model)
    return engine


def _lengths_engine(model: LiveModel, boundary: Boundary) -> LengthsEngine:
    """The engine of a module whose rotary frequencies change at a boundary."""

    def make(past: bool) -> CausalEngine:
        fixed = copy.copy(model)
        fixed.module = at_length(model.module, boundary, past)
        made = fresh_engine(fixed)
        if (found := forward_of(fixed)) is not None:  # told of the model, not of the module with fixed frequencies
            note(base_of(cast("PreTrainedModel", model.module)), found)
        return made

    return LengthsEngine(make, boundary.length)


class PrefixedStep:
    """As `step`, over `prefix` rows before the caches: keys and values by layer, each [1, heads, n, dim]. Positions are n
    further on. The caches are copied behind the prefix in every call."""

    def __init__(self, step: ForwardStep, prefix: Sequence[tuple[Tensor, Tensor]], window: int | None) -> None:
        self.step, self.prefix, self.window = step, prefix, window
        self.count = prefix[0][0].shape[2]

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Masks,
    ) -> Out:
        n, batch = self.count, len(positions)
        wide = [[torch.cat([row.expand(batch, -1, -1, -1), own], dim=2) for row, own in zip(rows, caches, strict=True)]
                for rows, caches in zip(zip(*self.prefix, strict=True), (keys, values), strict=True)]  # fmt: skip
        at = positions + n
        shown = {kind: torch.cat([self._sees(kind, at, mask), mask], dim=3) for kind, mask in masks.items() if mask is not None}
        out = self.step(ids, at, write + n, wide[0], wide[1], shown)
        for caches, rows in zip((keys, values), wide, strict=True):
            for own, row in zip(caches, rows, strict=True):
                own.copy_(row[:, :, n:])
        return out

    def _sees(self, kind: str | int, at: Tensor, mask: Tensor) -> Tensor:
        """The rows of the prefix that tokens at these positions attend to: [B, 1, T, n], in the form of the mask."""
        rows = torch.arange(self.count, device=at.device)
        near = at[:, None, :, None] - rows < (self.window if kind == SLIDING and self.window is not None else 1 << 62)
        near = near.expand(*mask.shape[:3], -1)
        if mask.dtype == torch.bool:
            return near
        return torch.zeros(near.shape, dtype=mask.dtype, device=mask.device).masked_fill_(~near, torch.finfo(mask.dtype).min)
