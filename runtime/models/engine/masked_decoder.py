"""A decoder (runtime/models/decoder) as the step of a masked engine.

It takes one batch with one mask per kind of layer, so every part is a forward of its own; parts that it does not support (soft
cells, memories cut in single layers) go through the module.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.decoder import Decoder
from decgraph.runtime.models.decoder.make import decoder_of
from decgraph.runtime.models.engine.masked_forward import ModuleStep, Part
from decgraph.runtime.models.engine.masked_memory import Store
from decgraph.runtime.models.hf_net import Net, plainly

_SHAPES = 64  # masks that hide nothing, remembered


class DecoderStep:
    """See `masked_forward.Step`."""

    packs = False

    def __init__(self, decoder: Decoder, module: ModuleStep) -> None:
        self.decoder, self.module, self.blank = decoder, module, module.blank
        self._windows = dict(zip(decoder.kinds, decoder.windows, strict=True))
        self._open: dict[tuple[int, int, int], Tensor] = {}

    @torch.no_grad()
    def __call__(self, cells: Tensor, positions: Tensor, parts: Sequence[Part]) -> Tensor:
        if cells.is_floating_point():
            return self.module(cells, positions, parts)
        out, start = [], 0
        for part in parts:
            end = start + part.batch * part.width
            ids = cells[start:end]
            out.append(self.module(ids, positions[start:end], [part]) if part.layers else self._forward(ids, part))
            start = end
        return out[0] if len(out) == 1 else torch.cat(out)

    def _forward(self, ids: Tensor, part: Part) -> Tensor:
        store = part.store
        if store is None:
            layers, two, _, heads, _, dim = self.blank.shape
            store = Store(self.blank.new_empty(layers, two, part.batch, heads, part.width, dim))
            if part.record:
                part.take(store)
        pairs = [store.rows(layer) for layer in range(self.decoder.layers)]
        if store.room != part.span:
            pairs = [(keys[:, :, : part.span], values[:, :, : part.span]) for keys, values in pairs]
        masks = {kind: self._mask(part, window) for kind, window in self._windows.items()}
        keys, values = [k for k, _ in pairs], [v for _, v in pairs]
        shape = (part.batch, part.width)
        # A row of a store is a position, so the positions are also the rows to write.
        last: Tensor = self.decoder(ids.view(shape), part.positions, part.positions, keys, values, masks)
        return last.reshape(-1, last.shape[-1])

    def _mask(self, part: Part, window: int | None) -> Tensor:
        """bool[batch, 1, width, span]."""
        mask, shape = part.mask(-1, window, 1), (part.batch, part.width, part.span)
        if mask is not None:
            return mask.expand(shape[0], 1, *shape[1:])
        if shape not in self._open:
            if len(self._open) >= _SHAPES:
                self._open.clear()
            self._open[shape] = torch.ones(shape[0], 1, *shape[1:], dtype=torch.bool, device=part.positions.device)
        return self._open[shape]


def fastest(net: Net, module: ModuleStep) -> ModuleStep | DecoderStep:
    """The model's decoder, found equal to the module, or else the module as it is."""
    made = decoder_of(net.base, plainly(net))
    return module if made is None or made.layers != len(net.layers) else DecoderStep(made, module)
