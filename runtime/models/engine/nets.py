"""The engine of a causal model's weights: the step, the layout of caches and the read-out that a net has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from decgraph.ir.memo import memo_of
from decgraph.runtime.models.decoder.decoder import Decoder
from decgraph.runtime.models.decoder.net import DecoderNet
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.given import Memories, copying
from decgraph.runtime.models.engine.layout import Layout, Step
from decgraph.runtime.models.hf_causal import HFCausal

if TYPE_CHECKING:
    from decgraph.runtime.models.engine.step import ModuleStep
    from decgraph.runtime.models.hf_causal import AnyNet

Head = Callable[[Tensor], Tensor]


def net_engine(model: HFCausal) -> CausalEngine:
    """The engine of a model's weights. Models that share their weights and layers (`with_heads`) share it."""
    memo = memo_of(model.net)
    made: CausalEngine | None = memo.get("engine")
    if made is None:
        made = memo.once("engine", lambda: fresh_engine(model))
        root = model.root  # may be a model of the same net
        made.memories = Memories(model, copying(model, net_engine(root), lambda: made) if root is not model else None)
    return made


def fresh_engine(model: HFCausal) -> CausalEngine:
    """A new engine of a model's weights, with a cache of its own."""
    net = model.net
    step, layout, plain = step_of(net, model.name)
    made = CausalEngine(
        step,
        layout,
        head_of_net(net),
        name=model.name,
        size=model.vocab.size,
        context=model.context,
    )
    made.plain = plain
    return made


def head_of_net(net: AnyNet) -> Head:
    """Last states [n, width] to logits [n, V]."""
    if isinstance(net, DecoderNet):
        return net.head
    from decgraph.runtime.native.linear import output_of

    return output_of(net._out)


def step_of(net: AnyNet, name: str) -> tuple[Step, Layout, ModuleStep | None]:
    """The step of a net, the layout of its caches, and the module as it is, where it is one. Raises DecError for a module that
    cannot be run on a mask, positions and a cache from outside."""
    if isinstance(net, DecoderNet):
        return net.decoder, layout_of(net.decoder), None
    from decgraph.runtime.models.engine.step import ModuleStep
    from decgraph.runtime.models.hf_net import plainly

    plain = ModuleStep(net.base, name, plainly(net))
    return fastest(net.base, plain), plain.layout, plain


def layout_of(decoder: Decoder) -> Layout:
    """The layout of a decoder's caches."""
    window = next((w for w in decoder.windows if w is not None), None)
    return Layout(decoder.caches, decoder.kinds, window, decoder.width, decoder.dtype, decoder.device)


def fastest(base: Any, step: ModuleStep) -> Step:
    """The decoder of a module, found equal to it, or else `step`, the module as it is."""
    from decgraph.runtime.models.decoder.make import decoder_of

    made = decoder_of(base, step.plain)
    return step if made is None or made.caches != step.layout.shapes else made
