"""A captured forward (runtime/models/capture) as the step of a masked engine.

Why: for few tokens most of a transformers forward's time on a CPU is the library's Python, not arithmetic. The captured
graph takes one batch with one mask per kind of layer, so every part is a forward of its own; parts that it does not
support (soft cells, memories cut in single layers) go through the module.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from decgraph.runtime.models.capture.make import capture
from decgraph.runtime.models.capture.step import CapturedForward as Captured
from decgraph.runtime.models.engine.masked_forward import ModuleStep, Part
from decgraph.runtime.models.engine.masked_memory import Store
from decgraph.runtime.models.hf_net import Net

_SHAPES = 64  # masks that hide nothing, remembered


class CapturedStep:
    """See `masked_forward.Step`."""

    packs = False

    def __init__(self, captured: Captured, module: ModuleStep) -> None:
        self.captured, self.module, self.blank = captured, module, module.blank
        self._windows = dict(zip(captured.kinds, captured.windows, strict=True))
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
        pairs = [store.rows(layer) for layer in range(self.captured.layers)]
        if store.room != part.span:
            pairs = [(keys[:, :, : part.span], values[:, :, : part.span]) for keys, values in pairs]
        masks = {kind: self._mask(part, window) for kind, window in self._windows.items()}
        keys, values = [k for k, _ in pairs], [v for _, v in pairs]
        shape = (part.batch, part.width)
        # A row of a store is a position, so the positions are also the rows to write.
        last: Tensor = self.captured(ids.view(shape), part.positions, part.positions, keys, values, masks)
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


def fastest(net: Net, module: ModuleStep) -> ModuleStep | CapturedStep:
    """The model's forward captured and checked to be equal to the module's, or else the module as it is."""
    captured = capture(net.base)
    return module if captured is None or captured.layers != len(net.layers) else CapturedStep(captured, module)
