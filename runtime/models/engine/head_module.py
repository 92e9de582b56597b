"""The layers of a drafting head that the decoder does not know (an MTP layer of a family without an entry), as a step."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.module import ShapeProbe, Written, additive, attending
from decgraph.runtime.models.engine.slots import FULL, Layout

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from decgraph.runtime.models.decoder.decoder import Masks
    from decgraph.runtime.models.decoder.layers import DraftLayers
    from decgraph.runtime.models.heads.base import LayerConfig


class LayerStep:
    """The layers of a head as a step on the states [B, T, width] that enter the first one. A head's module has `config`,
    `layers` and `rotary`, as those of zoo/modeling.py and runtime/models/heads have."""

    def __init__(self, module: DraftLayers) -> None:
        config, weight = module.config, next(module.layers[0].parameters())
        self.module, self.count = module, len(module.layers)
        self.layout = Layout(
            _kept(module, weight), (FULL,) * self.count, None, int(config.hidden_size), weight.dtype, weight.device
        )

    def __call__(
        self,
        states: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Masks,
    ) -> Tensor:
        module = self.module
        shown = masks[FULL]
        assert shown is not None, "a head's layers attend by a mask"
        mask, rotary = additive(shown, states.dtype), module.rotary(states, position_ids=positions)
        cache = Written(keys, values, write, {n: n for n in range(self.count)})
        with _attending(module.config, cache):
            for layer in module.layers:
                states = layer(states, attention_mask=mask, past_key_values=cache, position_embeddings=rotary)
        return states


@torch.no_grad()
def _kept(module: DraftLayers, weight: Tensor) -> tuple[tuple[int, int, int], ...]:
    """Heads and sizes of keys and values of each layer, from a forward of one state: latent attention (an MTP layer of
    DeepSeek) has others than the configuration's head_dim."""
    seen, width = ShapeProbe(), int(getattr(module, "entering", module.config.hidden_size))
    states = torch.zeros(1, 1, width, dtype=weight.dtype, device=weight.device)
    rotary = module.rotary(states, position_ids=torch.zeros(1, 1, dtype=torch.long, device=weight.device))
    mask = torch.zeros(1, 1, 1, 1, dtype=weight.dtype, device=weight.device)
    with _attending(module.config, seen):
        for layer in module.layers:
            states = layer(states, attention_mask=mask, past_key_values=seen, position_embeddings=rotary)
    return tuple(seen.shapes[n] for n in range(len(module.layers)))


def _attending(config: LayerConfig | PretrainedConfig, cache: Written) -> AbstractContextManager[None]:
    """The engine's attention in a module of transformers; a head's own layers take masks and caches as they are."""
    return attending(cast("PretrainedConfig", config), cache) if hasattr(config, "_attn_implementation") else nullcontext()
