"""Forwards of a target's lower layers and of single layers that were trained on its states (Kangaroo, EAGLE)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from decgraph.backends.triton.step.causal_graph import Attention, DeviceStep, device_step, kernel_attention
from decgraph.errors import DecError
from decgraph.runtime.models.decoder.decoder import Decoder
from decgraph.runtime.models.decoder.layers import decoder_of_layers
from decgraph.runtime.models.decoder.module import ModuleDecoder
from decgraph.runtime.models.engine.exits import adapted_head, normed
from decgraph.runtime.models.engine.head_module import LayerStep
from decgraph.runtime.models.engine.layout import FULL, SLIDING, Layout
from decgraph.runtime.models.engine.nets import layout_of
from decgraph.runtime.models.hf_causal import HFCausal


@dataclass(frozen=True)
class Weights:
    """The parts of a model's forward. step: a decoder or the module's own, called as `Step`; `sites`: whether its
    masks are sites; `kernels`: whether it uses the kernels of this folder. head: last states [..., width] to logits [..., size
    or more]. context: the most positions it reads. guesses: Medusa heads, states [B, 1, width] to one such tensor per head."""

    step: Callable[..., Tensor]
    layout: Layout
    head: Callable[[Tensor], Tensor]
    name: str
    size: int
    context: int | None
    sites: bool
    kernels: bool
    guesses: Callable[[Tensor], list[Tensor]] | None = None


def whole(
    decoder: Decoder | ModuleDecoder,
    head: Callable[[Tensor], Tensor],
    name: str,
    size: int,
    context: int | None,
    attention: Attention,
) -> Weights:
    """A whole model: its decoder with the device's attention, or else as it is, over dense masks; `head` maps states
    [..., width] to logits. Raises DecError for a module whose code reads tensor values on the host."""
    kernels = attention is kernel_attention
    if isinstance(decoder, ModuleDecoder):
        _silent(decoder, name)
        return Weights(decoder, layout_of(decoder), head, name, size, context, False, kernels)
    step = device_step(decoder, attention)
    return Weights(step or decoder.unread(), layout_of(decoder), head, name, size, context, step is not None, kernels)


class _Reading(TorchDispatchMode):
    """Raises where a value of a tensor is read on the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name().split(".")[0] in _READ:
            raise _Read(func.name())
        return func(*args, **(kwargs or {}))


class _Read(Exception):
    """The operation that read a value."""


_READ = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select"}


@torch.no_grad()
def _silent(step: ModuleDecoder, name: str) -> None:
    """Raises DecError for a module whose code reads tensor values on the host: no step with it can be captured."""
    layout, rows = layout_of(step), 4
    keys, values = ([layout.zeros(2, shape[0], rows, shape[part]) for shape in layout.shapes] for part in (1, 2))
    cell = torch.zeros((2, 1), dtype=torch.int64, device=layout.device)
    mask = torch.ones((2, 1, 1, rows), dtype=torch.bool, device=layout.device)
    try:
        with _Reading():
            step(cell, cell, cell, keys, values, {FULL: mask, SLIDING: mask})
    except _Read as read:
        raise DecError(f"{name!r} is not implemented on the device: its own code reads a tensor's values ({read})") from read


def lower(target: HFCausal, whole: Weights, layer: int) -> Weights:
    """`target.head(target.upto(layer))`: the first layers, and the target's norm and head over their output states."""
    step = _captured(whole)
    layout = replace(whole.layout, shapes=whole.layout.shapes[:layer], types=whole.layout.types[:layer])
    return replace(whole, step=step.upto(layer), layout=layout, head=normed(target.net))


def adapted(target: HFCausal, whole: Weights, layer: int, module: Any, attention: Attention) -> Weights:
    """`target.head(adapter(target.upto(layer)))`: a trained layer over the output states of the first ones. Its keys and
    values come after theirs."""
    below = lower(target, whole, layer)
    above, own, reach = layer_step(module, whole.name, attention)

    def step(
        ids: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Mapping[str, Any],
    ) -> Tensor:
        states = below.step(ids, positions, write, keys[:layer], values[:layer], masks)
        made: Tensor = above(states, positions, write, keys[layer:], values[layer:], masks)
        return made

    layout = replace(below.layout, shapes=below.layout.shapes + own.shapes, types=below.layout.types + own.types)
    head = adapted_head(target.net, module)
    return replace(below, step=step, layout=layout, head=head, context=least(whole.context, reach))


def layer_step(module: Any, name: str, attention: Attention) -> tuple[DeviceStep, Layout, int | None]:
    """A head's single layer on states [B, T, width], and how many positions it has rows for (None: any number). Raises
    DecError where the decoder does not know it."""
    made = device_step(decoder_of_layers(module), attention)
    if made is None:
        raise DecError(f"{name!r} is not implemented on the device: its layer is none that the decoder knows")
    return made, LayerStep(module).layout, reach_of(made)


def reach_of(decoder: Decoder) -> int | None:
    """The number of positions that a decoder has learned states for; None if it has none."""
    table = decoder.weights.get("positions")
    return None if table is None else len(table) - decoder.shape.position_offset


def least(*contexts: int | None) -> int | None:
    """The smallest of those that are not None."""
    return min((c for c in contexts if c is not None), default=None)


def _captured(whole: Weights) -> DeviceStep:
    if not isinstance(whole.step, DeviceStep):
        raise DecError(f"{whole.name!r} has no lower layers on the device: the decoder does not know it")
    return whole.step
