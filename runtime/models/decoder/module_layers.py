"""The layers of a drafting head that the decoder does not know (an MTP layer of a family without an entry), as a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.module import ShapeProbe, Written, additive, attending
from decgraph.runtime.models.decoder.shape import FULL

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from decgraph.runtime.models.decoder.decoder import Masks
    from decgraph.runtime.models.heads.base import DraftLayers


class ModuleLayers:
    """Layers of transformers as a step on the states [B, T, width] that enter the first one, as `TransformerDecoder` is one."""

    def __init__(self, module: DraftLayers) -> None:
        weight, count = next(module.layers[0].parameters()), len(module.layers)
        self.module, self.width = module, int(module.config.hidden_size)
        self.dtype, self.device = weight.dtype, weight.device
        self.kinds, self.windows = (FULL,) * count, (None,) * count
        # Latent attention (an MTP layer of DeepSeek) has other heads and sizes than the configuration's: found by a forward.
        seen, entering = ShapeProbe(), int(getattr(module, "entering", self.width))
        at = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        self._run(torch.zeros(1, 1, entering, dtype=self.dtype, device=self.device), at, at[None, None].to(self.dtype), seen)
        self.caches = tuple(seen.shapes[n] for n in range(count))

    def __call__(
        self,
        states: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Masks,
    ) -> Tensor:
        """See `TransformerDecoder`: [B, T, width]."""
        shown = masks[FULL]
        assert shown is not None, "a head's layers attend by a mask"
        cache = Written(keys, values, write, {n: n for n in range(len(self.kinds))})
        return self._run(states, positions, additive(shown, states.dtype), cache)

    @torch.no_grad()
    def _run(self, states: Tensor, positions: Tensor, mask: Tensor, cache: Written) -> Tensor:
        rotary = self.module.rotary(states, position_ids=positions)
        with attending(cast("PretrainedConfig", self.module.config), cache):
            for layer in self.module.layers:
                states = layer(states, attention_mask=mask, past_key_values=cache, position_embeddings=rotary)
        return states
