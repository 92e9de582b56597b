"""A decoder (runtime/models/decoder) with the device's attention in place of one over masks: `masks[kind]` is a `Site` here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decgraph.backends.triton.attention.attend import attend
from decgraph.backends.triton.step.causal_cells import Cells, Placed
from decgraph.backends.triton.step.causal_kernels import place_heads
from decgraph.runtime.models.decoder.decoder import Cache, Decoder, Part, Turn
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.decoder.shape import Layer


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


class DeviceStep(Decoder):
    """The decoder with `attention` in it; `masks` maps kinds to sites. kernels: one kernel norms, rotates and writes the
    heads of new tokens. Unlike a decoder's, results are ordinary tensors, and nothing is read on the host. Without
    gradients only."""

    def __init__(self, whole: Decoder, part: Part | None, attention: Attention, kernels: bool) -> None:
        # A graph records torch's operations, so products are torch's.
        products = {name: Product(*p.dequantised(), biases=p.biases) for name, p in whole.products.items()}
        super().__init__(whole.shape, whole.weights, products, whole.ropes, part)
        self.attention, self.kernels, self.gathers = attention, kernels, True
        shape = self.shape
        plain = shape.qkv == "" and shape.pairs == "" and shape.latent is None and shape.clip is None
        whole_heads = shape.rotary in (0, shape.head) and not shape.late_norms and not shape.joined_norms
        normed = "0.q" not in self.weights or (shape.norm == "rms" and not shape.unit_norms)
        self._placed = kernels and plain and whole_heads and normed

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
        size = (positions.shape[0], positions.shape[1])
        x = ids.reshape(size[0] * size[1], -1) if self.part.embedded else self.embedded(ids, positions)
        turns = {name: self._turn(name, positions) for name in self.ropes}
        return self._run(x, size, turns, write, keys, values, masks)

    def _like(self, part: Part) -> Decoder:
        return DeviceStep(self, part, self.attention, self.kernels)

    def _attended(self, n: int, layer: Layer, x: Tensor, size: tuple[int, int], turn: Turn | None, cache: Cache) -> Tensor:
        write, keys, values, site = cache
        shape = self.shape
        if self._placed:
            at, d = f"{n}.", shape.head
            cos, sin = (None, None) if turn is None else (t.squeeze(2) for t in turn)
            if sin is not None:
                sin = torch.cat([-sin[..., : d // 2], sin[..., d // 2 :]], -1)
            norms = self.weights.get(at + "q"), self.weights.get(at + "k")
            columns = (0, shape.heads * d, (shape.heads + shape.kv_heads) * d)
            counts = (shape.heads, shape.kv_heads)
            q = place_heads(self.products[at + "qkv"](x), write, keys, values, cos, sin, *norms, counts, columns, d, shape.eps)
        else:
            q, k, v = self._heads(f"{n}.", x, size, turn)
            where = write[:, None, :, None]
            for cached, new in ((keys, k.transpose(1, 2)), (values, v.transpose(1, 2))):
                cached.scatter_(2, where.expand(new.shape), new)
        scale = layer.scale or self._scale
        out = self.attention(q.transpose(1, 2), keys, values, attn_mask=site, scale=scale, enable_gqa=self._groups > 1)
        return out.transpose(1, 2).reshape(size[0] * size[1], -1)


_log = logging.getLogger("decgraph.engine")

UNKNOWN = "the kernels of attention know neither caps of scores nor sinks"


def device_step(whole: Decoder | None, attention: Attention) -> DeviceStep | None:
    """A decoder as such a step; None where there is none, or where it caps its scores or has sinks, which is logged."""
    if whole is None:
        return None
    if whole.shape.cap is not None or any(name.endswith(".sinks") for name in whole.weights):
        _log.warning("in graph mode attention is torch's, over masks of all slots: %s", UNKNOWN)
        return None
    return DeviceStep(whole, whole.part, attention, attention is kernel_attention)
