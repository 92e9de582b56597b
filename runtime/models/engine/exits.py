"""Engines of models that share a target's lower layers: `exit(l)`, `skip(...)` and Kangaroo's early exit.

The lower layers are an engine of their own, whose last states are those entering layer l. The target's engine and
the drafter's both read it: a token that the drafter computed goes through the lower layers once, and the target
verifies it from layer l on. The first drafter that is created decides at which layer the target's engine is split;
a drafter that exits at another layer has lower layers of its own.

Liu et al., Kangaroo, 2024. Zhang et al., Draft & Verify (skipped layers), 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.layers import step_of_layers
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.derive import Applied, Headed, Upto
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import Counted, Engine, ForwardCall, OnMemories, Output, OverCore
from decgraph.runtime.models.engine.memories import Memories, copying
from decgraph.runtime.models.engine.nets import layout_of, net_engine
from decgraph.runtime.models.engine.plain import uncached
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import HFAdapter
from decgraph.runtime.models.parts import LayerUse, untouched

if TYPE_CHECKING:
    from torch import nn

    from decgraph.runtime.models.heads.base import DraftLayers
    from decgraph.runtime.models.interface import Model

Head = Callable[[Tensor], Tensor]
Caches = Sequence[Tensor]


class ReadEngine(OverCore[CausalEngine]):
    """A model that reads the states of another engine with its own head. Its counters are those of the other engine's work for
    it."""

    def __init__(self, core: CausalEngine, head: Head) -> None:
        self.core, self.head = core, head
        self.counted = Counted()
        self.memories: OnMemories | None = None

    @torch.no_grad()
    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """Logits float32 [rows, V] per call, or its DecError."""
        if self.memories is not None and any(call.memory is not None for call in calls):
            return self.memories.compute(calls, self._compute, self.counted)
        return self._compute(calls)

    def _compute(self, calls: list[ForwardCall]) -> list[Output]:
        before = replace(self.core.counted)
        outputs = self.core.read(calls, self.core.states(calls), self.head)
        self.counted.add(self.core.counted.since(before))
        return outputs

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Keep the rows of the longest common beginning with a new request's prompt."""
        self.core.rewind(sequence, context)
        if self.memories is not None:
            self.memories.close(sequence)

    def close(self, sequence: Hashable) -> None:
        self.core.close(sequence)
        if self.memories is not None:
            self.memories.close(sequence)


def build_engine(model: Model) -> Engine:
    """The engine of a model that is derived from a target's layers."""
    engine: CausalEngine | ReadEngine
    match model:
        case HFCausal():
            return _derived(model) or net_engine(model)
        case Headed(target=HFCausal() as target) if target.net.decoder.recurrent or target.origin is not None:
            return uncached(model)  # its lower layers' states are in no rows that a head could go on from, or are not its own
        case Headed(target=HFCausal() as target, inner=Upto() as inner) if inner.target is target and inner.layer:
            engine = exit_engine(target, net_engine(target), inner.layer, bare=model.bare)
        case Headed(target=HFCausal() as target, inner=Applied(adapter=HFAdapter() as adapter, inner=Upto() as inner)) if (
            inner.target is target and not model.bare
        ):
            engine = adapted_engine(target, net_engine(target), inner.layer, adapter, model.name)
        case _:
            return uncached(model)
    engine.memories = Memories(model)
    return engine


def _derived(model: HFCausal) -> Engine | None:
    """The engine of a model that shares a target's lower layers, if it is one."""
    target, uses = model.root, model.net.decoder.uses
    if model is target or model.net.layers is not target.net.layers or target.net.decoder.recurrent:
        return None  # the target itself, or other weights, or states that are in no rows
    first = untouched(uses)
    if not first or first == target.layers:
        return None  # nothing to share, or nothing else: an engine of its own
    engine = net_engine(target)
    found = part_engine(target, engine, uses, model.name)
    like = found
    make = copying(model, engine, lambda: like, first) if isinstance(like, CausalEngine) else None
    found.memories = Memories(model, make)
    return found


def exit_engine(target: HFCausal, engine: CausalEngine, layer: int, *, bare: bool = False) -> ReadEngine:
    """`target.exit(layer)`: the lower layers, the target's norm (bare: none) and head."""
    head = target.net.head if bare else normed(target.net)
    return ReadEngine(lower(target, engine, layer), head)


def part_engine(target: HFCausal, engine: CausalEngine, uses: Sequence[LayerUse], name: str) -> CausalEngine | ReadEngine:
    """A model of some of the target's layers, or of halves of them: shares the layers before the first that is not whole."""
    first = untouched(uses)
    if first == len(uses):
        return exit_engine(target, engine, first)
    below = lower(target, engine, first)
    return _engine(target, target.net.using(uses[first:]), target.net.head, name, engine, below)


def adapted_engine(target: HFCausal, engine: CausalEngine, layer: int, adapter: HFAdapter, name: str) -> CausalEngine:
    """`target.head(adapter(target.upto(layer)))`: the adapter is a layer with keys and values of its own."""
    step = step_of_layers(cast("DraftLayers", adapter.module))
    return CausalEngine(
        step,
        layout_of(step),
        adapted_head(target.net, adapter.module),
        name=name,
        size=target.vocab.size,
        context=target.context,
        below=lower(target, engine, layer),
    )


def adapted_head(net: Net, module: nn.Module) -> Head:
    """The head of an adapter's states: the target's norm and output matrix, or the matrix after the adapter's own norm."""
    own = cast("nn.Module | None", module.norm)
    if own is None:
        return normed(net)
    output = net.head
    return lambda states: output(own(states))


def lower(target: HFCausal, engine: CausalEngine, layer: int) -> CausalEngine:
    """The engine of the target's first layers, shared with the target's own engine where that is possible."""
    made = engine.lowers.get(layer)
    if made is None:
        made = engine.lowers[layer] = _lower(target, engine, layer)
    if engine.below is None and not engine.taps:
        _split(target, engine, layer, made)
    return made


def normed(net: Net) -> Head:
    """The head of states that have not been through the final norm."""
    output = net.head
    return lambda states: output(net.normed(states))


def _lower(target: HFCausal, engine: CausalEngine, layer: int) -> CausalEngine:
    return _engine(target, target.net.using(range(layer)).without_norm(), normed(target.net), target.name, engine)


def _engine(
    target: HFCausal, net: Net, head: Head, name: str, like: CausalEngine, below: CausalEngine | None = None
) -> CausalEngine:
    """An engine of some of the target's layers, with the settings of another. above `below` it begins with that one's
    states."""
    step = net.decoder if below is None else net.decoder.above()
    return CausalEngine(
        step,
        layout_of(step),
        head,
        name=name,
        size=target.vocab.size,
        context=target.context,
        chunk=like.chunk,
        budget=like.store.budget,
        below=below,
    )


def _split(target: HFCausal, engine: CausalEngine, layer: int, below: CausalEngine) -> None:
    """From now on the target's engine computes the layers from `layer` on, above those that it shares."""
    upper = target.net.decoder.since(layer)
    try:
        layout = layout_of(upper)
    except DecError:
        return  # a module's layers whose kind depends on their place in the list: the target stays whole
    engine.onto(below, upper, layout)
