"""Engines of Hugging Face models: which step and which read-out their weights have."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.ir.memo import memo_of
from decgraph.runtime.models.decoder import make
from decgraph.runtime.models.decoder.module import ModuleDecoder
from decgraph.runtime.models.derive import Applied, Headed, Upto
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.exits import ReadEngine, adapted_engine, exit_engine, part_engine
from decgraph.runtime.models.engine.forward_call import Engine
from decgraph.runtime.models.engine.given import Memories, copying
from decgraph.runtime.models.engine.heads import FeaturesEngine, HeadsEngine, head_of
from decgraph.runtime.models.engine.lengths import LengthsEngine
from decgraph.runtime.models.engine.nets import fresh_engine, layout_of, net_engine
from decgraph.runtime.models.engine.plain import PlainEngine
from decgraph.runtime.models.engine.prefixed import PrefixedStep
from decgraph.runtime.models.engine.recurrent import is_recurrent, recurrent_engine
from decgraph.runtime.models.engine.rooted import RootedEngine
from decgraph.runtime.models.engine.taps import tap
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import HFAdapter, HFFeatures, HFHeads
from decgraph.runtime.models.hf_live import Live
from decgraph.runtime.models.hf_rooted import HFRooted
from decgraph.runtime.models.hf_soft_prompts import SoftPrompted
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.parts import untouched
from decgraph.runtime.models.rotary import Boundary, at_length
from decgraph.runtime.native.linear import output_of

_log = logging.getLogger("decgraph.engine")


def module_engine(module: Any, name: str, size: int, context: int | None) -> CausalEngine:
    """The engine of a live `AutoModelForCausalLM`. Raises DecError, by name, for one that it cannot run."""
    whole = ModuleDecoder(module.base_model, name).probed()
    layout, head = layout_of(whole), read_out(module, name)
    step: Any = make.decoder_of(module.base_model, whole.plain)
    if step is None or step.caches != whole.caches:
        step = whole
    return CausalEngine(step, layout, head, name=name, size=size, context=context)


def _lengths_engine(model: Live, boundary: Boundary) -> LengthsEngine:
    """The engine of a module whose rotary frequencies change at a boundary."""

    def make(past: bool) -> CausalEngine:
        module = at_length(model.module, boundary, past)
        made = module_engine(module, model.name, model.vocab.size, model.context)
        for name in ("forward",):  # told of the model, not of the module with fixed frequencies
            if (found := memo_of(module.base_model).get(name)) is not None:
                memo_of(model.module.base_model).once(name, lambda found=found: found)  # type: ignore[misc]
        return made

    return LengthsEngine(make, boundary.length)


def read_out(module: Any, name: str) -> Callable[[Tensor], Tensor]:
    """A function from last states [n, width] to logits [n, V]: the module's output matrix, its scaling and its soft cap.

    Raises DecError if the result differs from the module's own logits.
    """
    config, matrix = module.config.get_text_config(), module.get_output_embeddings()
    if matrix is None:
        raise DecError(f"{name!r} is not supported: {type(module).__name__} has no output matrix")
    output = output_of(matrix)
    scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)

    def head(states: Tensor) -> Tensor:
        logits = output(states)
        if scale != 1.0:
            logits = logits * scale
        if cap is not None:
            logits = torch.tanh(logits / cap) * cap
        return logits

    with torch.no_grad():
        ids = torch.tensor([[0, 1]], device=matrix.weight.device)
        last = module.base_model(input_ids=ids, use_cache=False).last_hidden_state
        mine, theirs = head(last).double(), module(input_ids=ids, use_cache=False).logits.double()
    if not float((mine - theirs).abs().max()) <= 1e-2 * float(theirs.abs().max().clamp_min(1e-6)):
        raise DecError(
            f"{name!r} is not supported: {type(module).__name__}'s logits are more than its output matrix makes of its "
            "last states"
        )
    return head


def features_engine(model: HFFeatures) -> FeaturesEngine:
    """The engine of a head that reads features. Its target's engine keeps the states that they are made of from now on."""
    target, module = model.target, model.module
    engine = net_engine(target)
    if module.reads is not None:
        tap(engine, target.net, module.reads, lambda: fresh_engine(target))
    return FeaturesEngine(model, engine, head_of(model, target.net.head))


def rooted_engine(model: HFRooted) -> RootedEngine:
    """The engine of a head that reads states up to a root, as `features_engine`."""
    target, reads = model.target, model.module.reads
    engine = net_engine(target)
    if reads is not None:
        tap(engine, target.net, reads, lambda: fresh_engine(target))
    return RootedEngine(model, engine)


def hf_engine(model: Model) -> Engine:
    """The engine of a Hugging Face model of any causal kind."""
    made: CausalEngine | ReadEngine
    match model:
        case HFCausal(attached=None):
            return _derived(model) or net_engine(model)
        case HFCausal():
            return HeadsEngine(net_engine(model), model.attached.module)
        case SoftPrompted():
            made = module_engine(model.module, model.name, model.vocab.size, model.context)
            made.step = PrefixedStep(made.step, model.prefix, made.layout.window)
            made.memories = Memories(model)
            return made
        case Live() if is_recurrent(model.module):
            return recurrent_engine(model)
        case Live(boundary=Boundary() as boundary):
            return _lengths_engine(model, boundary)
        case Live():
            made = module_engine(model.module, model.name, model.vocab.size, model.context)
            made.memories = Memories(model)
            return made
        case HFHeads():
            return HeadsEngine(net_engine(model.target), model.module, only=True)
        case HFFeatures():
            return features_engine(model)
        case HFRooted():
            return rooted_engine(model)
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
    target, uses = model.root, model.net.uses
    if model is target or model.net.layers is not target.net.layers:
        return None  # the target itself, or other weights
    first = untouched(uses)
    if not first or first == target.layers:
        return None  # nothing to share, or nothing else: an engine of its own
    engine = net_engine(target)
    made = part_engine(target, engine, uses, model.name)
    like = made
    make = copying(model, engine, lambda: like, first) if isinstance(like, CausalEngine) else None
    made.memories = Memories(model, make)
    return made
