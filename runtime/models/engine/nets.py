"""The engine of a causal model's weights: the step, the layout of caches and the read-out that a net has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from decgraph.ir.memo import memo_of
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.slots import Layout
from decgraph.runtime.models.hf_causal import HFCausal

if TYPE_CHECKING:
    from decgraph.runtime.models.decoder.decoder import TransformerDecoder
    from decgraph.runtime.models.decoder.module import ModuleDecoder
    from decgraph.runtime.models.decoder.module_layers import ModuleLayers
    from decgraph.runtime.models.engine.forward_call import OnMemories
    from decgraph.runtime.models.hf_live import LiveModel


def build_engine(model: HFCausal) -> CausalEngine:
    """The engine of a model as it was loaded."""
    return net_engine(model)


def net_engine(model: HFCausal) -> CausalEngine:
    """The engine of a model's weights. Models that share their weights and layers (`with_heads`) share it."""
    memo = memo_of(model.net)
    engine: CausalEngine | None = memo.get("engine")
    if engine is None:
        engine = memo.once("engine", lambda: fresh_engine(model))
        engine.with_memories = lambda: _memories(model, engine)
    return engine


def _memories(model: HFCausal, engine: CausalEngine) -> OnMemories:
    from decgraph.runtime.models.engine.memories import Memories, copying

    root = model.root  # may be a model of the same net; states of recurrent layers are in no rows
    alone = root is model or model.net.decoder.recurrent
    return Memories(model, None if alone else copying(model, net_engine(root), lambda: engine))


def fresh_engine(model: HFCausal | LiveModel) -> CausalEngine:
    """A new engine of a model's weights, with a cache of its own. Raises DecError for a module that cannot be run on a mask,
    positions and a cache from outside."""
    net = net_of(model)
    kind = CausalEngine
    if net.decoder.recurrent:
        from decgraph.runtime.models.engine.hybrid import HybridEngine as kind
    layout = layout_of(net.decoder)
    return kind(net.decoder, layout, net.head, name=model.name, size=model.vocab.size, context=model.context)


def net_of(model: HFCausal | LiveModel) -> Net:
    """The net of a model; of a live one it is made when it is first wanted. Raises DecError for a module that has none."""
    if isinstance(model, HFCausal):
        return model.net
    from decgraph.runtime.models.decoder.make import net_of_live

    made: Net = memo_of(model).once("net", lambda: net_of_live(model.module, model.name))
    return made


def layout_of(decoder: TransformerDecoder | ModuleDecoder | ModuleLayers) -> Layout:
    """The layout of a decoder's caches."""
    window = next((w for w in decoder.windows if w is not None), None)
    return Layout(decoder.caches, decoder.kinds, window, decoder.width, decoder.dtype, decoder.device)
