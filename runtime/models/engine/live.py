"""Engines of live transformers modules that are run as a whole."""

from __future__ import annotations

import copy

from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import Engine
from decgraph.runtime.models.engine.given import Memories
from decgraph.runtime.models.engine.lengths import LengthsEngine
from decgraph.runtime.models.engine.nets import fresh_engine
from decgraph.runtime.models.engine.prefixed import PrefixedStep
from decgraph.runtime.models.engine.recurrent import is_recurrent, recurrent_engine
from decgraph.runtime.models.forwards import forward_of, note
from decgraph.runtime.models.hf_live import Live
from decgraph.runtime.models.hf_soft_prompts import SoftPrompted
from decgraph.runtime.models.rotary import Boundary, at_length


def live_engine(model: Live) -> Engine:
    """The engine of a live module. Raises DecError, by name, for one that it cannot run."""
    if not isinstance(model, SoftPrompted):
        if is_recurrent(model.module):
            return recurrent_engine(model)
        if model.boundary is not None:
            return _lengths_engine(model, model.boundary)
    made = fresh_engine(model)
    if isinstance(model, SoftPrompted):
        made.step = PrefixedStep(made.step, model.prefix, made.layout.window)
    made.memories = Memories(model)
    return made


def _lengths_engine(model: Live, boundary: Boundary) -> LengthsEngine:
    """The engine of a module whose rotary frequencies change at a boundary."""

    def make(past: bool) -> CausalEngine:
        fixed = copy.copy(model)
        fixed.module = at_length(model.module, boundary, past)
        made = fresh_engine(fixed)
        if (found := forward_of(fixed)) is not None:  # told of the model, not of the module with fixed frequencies
            note(model.module.base_model, found)
        return made

    return LengthsEngine(make, boundary.length)
