"""The engine of a causal model's weights: the step, the layout of caches and the read-out that a net has."""

from __future__ import annotations

from typing import Any

from decgraph.ir.memo import memo_of
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.given import Memories, copying
from decgraph.runtime.models.engine.layout import Layout
from decgraph.runtime.models.hf_causal import HFCausal


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
    """A new engine of a model's weights, with a cache of its own. Raises DecError for a module that cannot be run on a mask,
    positions and a cache from outside."""
    step = model.net.decoder
    named: dict[str, Any] = {"name": model.name, "size": model.vocab.size, "context": model.context}
    return CausalEngine(step, layout_of(step), model.net.head, **named)


def layout_of(decoder: Any) -> Layout:  # Any: a Decoder, or a ModuleDecoder
    """The layout of a decoder's caches."""
    window = next((w for w in decoder.windows if w is not None), None)
    return Layout(decoder.caches, decoder.kinds, window, decoder.width, decoder.dtype, decoder.device)
