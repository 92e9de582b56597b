"""A captured forward (runtime/models/capture) with the device's attention instead of the one over masks.

The capture leaves out the passes that fold heads into rows and turn masks into numbers, so that every attention node is
called with queries [B, Hq, T, D], the layer's caches, and `masks[kind]`, which is a `Site` here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from decgraph.backends.triton.attention.attend import attend
from decgraph.backends.triton.step.causal_cells import Cells, Placed
from decgraph.backends.triton.step.causal_fuse import fuse
from decgraph.backends.triton.step.causal_stream import stream
from decgraph.runtime.models.capture.make import capture
from decgraph.runtime.models.capture.program import CapturedGraph
from decgraph.runtime.models.capture.step import CapturedForward, Part, Variant

_LOG = logging.getLogger("decgraph")
_WITHOUT = frozenset({"groups", "masks"})


@dataclass
class Site:
    """The attention mask of one kind in one forward. `window` is the kind's sliding window, or None."""

    cells: Cells
    placed: Placed
    window: int | None
    _dense: Tensor | None = field(default=None, repr=False)

    @property
    def dense(self) -> Tensor:
        """bool[B, 1, T, capacity]: the same as a mask over slots, computed once a forward."""
        if self._dense is None:
            self._dense = self.cells.seen(self.placed, self.window)[:, None]
        return self._dense


Attention = Callable[..., Tensor]
"""`f(query [B, Hq, T, D], keys [B, H, S, D], values [B, H, S, D], attn_mask: Site, scale, enable_gqa) -> [B, Hq, T, D]`."""


def kernel_attention(
    query: Tensor, keys: Tensor, values: Tensor, *, attn_mask: Site, scale: float | None = None, enable_gqa: bool = False
) -> Tensor:
    """Attention by the template (backends/triton/attention), which reads only unmasked slots: [B, Hq, T, D]."""
    placed = attn_mask.placed
    near = {} if attn_mask.window is None else {
        "window": attn_mask.window, "positions": placed.positions, "tail_positions": attn_mask.cells.tail_positions,
    }  # fmt: skip
    cells = query.transpose(1, 2)
    if cells.stride(-1) != 1:
        cells = cells.contiguous()
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    out = attend(cells, keys, values, placed.lengths, placed.bits, placed.first, scale=scale, **near)
    return out.transpose(1, 2)


def dense_attention(
    query: Tensor, keys: Tensor, values: Tensor, *, attn_mask: Site, scale: float | None = None, enable_gqa: bool = False
) -> Tensor:
    """Attention [B, Hq, T, D] over all slots with a dense mask. Masked slots must be finite: their weight is 0."""
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=attn_mask.dense, scale=scale, enable_gqa=enable_gqa)


class DeviceStep(CapturedForward):
    """The step with `attention` in it; `masks` maps kinds to sites. With the template's kernel other kernels come too
    (causal_fuse.py). Unlike a captured step's, results are ordinary tensors. Without gradients only."""

    def __init__(self, program: CapturedGraph, part: Part | None, attention: Attention) -> None:
        super().__init__(program, part)
        self.attention = attention

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Mapping[str, Any],
    ) -> Any:
        """See `Step`."""
        variant = Variant(len(positions) == 1)
        run = self._runs.get(variant)
        if run is None:
            run = self._runs[variant] = self._made(variant)
        return run(ids, positions, write, keys, values, masks)

    def _like(self, part: Part) -> CapturedForward:
        return DeviceStep(self.program, part, self.attention)

    def _adapt(self, program: CapturedGraph) -> None:
        if self.attention is kernel_attention:
            fuse(program)
            stream(program)
        for node in program.of("attention"):
            node.target = self.attention


def device_step(base: Any, attention: Attention) -> DeviceStep | None:
    """A base module (it returns last hidden states) as such a step; None if it cannot be captured, or caps its scores or has
    sinks, which is logged: the kernels of attention have neither."""
    captured = capture(base, without=_WITHOUT)
    if captured is not None and captured.program.of("plain_attention"):
        _LOG.warning("%s runs unmodified on the device: its captured attention caps scores or has sinks", type(base).__name__)
        return None
    return None if captured is None else DeviceStep(captured.program, captured.part, attention)
