"""Engines of nets, of heads that read their states, of exits, and of models that share layers with them."""

from __future__ import annotations

import logging

from decgraph.runtime.models.derive import Applied, Headed, Upto
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.exits import ReadEngine, adapted_engine, exit_engine, part_engine
from decgraph.runtime.models.engine.forward_call import Engine
from decgraph.runtime.models.engine.given import Memories, copying
from decgraph.runtime.models.engine.heads import FeaturesEngine, HeadsEngine, head_of
from decgraph.runtime.models.engine.nets import fresh_engine, net_engine
from decgraph.runtime.models.engine.plain import PlainEngine
from decgraph.runtime.models.engine.rooted import RootedEngine
from decgraph.runtime.models.engine.taps import tap
from decgraph.runtime.models.heads.chained import Chain
from decgraph.runtime.models.heads.rooted import Rooted
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import HFAdapter, HFFeatures, HFHeads
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.parts import untouched

_log = logging.getLogger("decgraph.engine")


def features_engine(model: HFFeatures) -> FeaturesEngine | RootedEngine | None:
    """The engine of a head that reads features; its target's engine keeps the states that they are made of from now on. None
    for one that has a module for every depth."""
    target, module = model.target, model.module
    engine = net_engine(target)
    if module.reads is not None:
        tap(engine, target.net, module.reads, lambda: fresh_engine(target))
    if isinstance(module, Rooted):
        return RootedEngine(model, engine)
    return FeaturesEngine(model, engine, head_of(model, target.net.head)) if isinstance(module, Chain) else None


def hf_engine(model: Model) -> Engine:
    """The engine of a Hugging Face model of any causal kind."""
    made: CausalEngine | ReadEngine
    match model:
        case Headed(target=HFCausal() as target) if target.net.decoder.recurrent:
            pass  # its lower layers' states are in no rows that a head could go on from
        case HFCausal(attached=None):
            return _derived(model) or net_engine(model)
        case HFCausal(attached=heads) if heads is not None:
            return HeadsEngine(net_engine(model), heads.module)
        case HFHeads():
            return HeadsEngine(net_engine(model.target), model.module, only=True)
        case HFFeatures() if (of_features := features_engine(model)) is not None:
            return of_features
        case Headed(target=HFCausal(origin=None) as target, inner=Upto() as inner) if inner.target is target and inner.layer:
            made = exit_engine(target, net_engine(target), inner.layer, bare=model.bare)
            made.memories = Memories(model)
            return made
        case Headed(
            target=HFCausal(origin=None) as target, inner=Applied(adapter=HFAdapter() as adapter, inner=Upto() as inner)
        ) if inner.target is target and not model.bare:
            made = adapted_engine(target, net_engine(target), inner.layer, adapter, model.name)
            made.memories = Memories(model)
            return made
    _log.warning("%r has no cached engine: each of its calls computes whole paths", model.name)
    return PlainEngine(model)


def _derived(model: HFCausal) -> Engine | None:
    """The engine of a model that shares a target's lower layers, if it is one."""
    target, uses = model.root, model.net.decoder.uses
    if model is target or model.net.layers is not target.net.layers or target.net.decoder.recurrent:
        return None  # the target itself, or other weights, or states that are in no rows
    first = untouched(uses)
    if not first or first == target.layers:
        return None  # nothing to share, or nothing else: an engine of its own
    engine = net_engine(target)
    made = part_engine(target, engine, uses, model.name)
    like = made
    make = copying(model, engine, lambda: like, first) if isinstance(like, CausalEngine) else None
    made.memories = Memories(model, make)
    return made
