"""Engines of live transformers modules: which step and which read-out their weights have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.ir.memo import memo_of
from decgraph.runtime.models.decoder import make
from decgraph.runtime.models.decoder.module import ModuleDecoder
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import Engine
from decgraph.runtime.models.engine.given import Memories
from decgraph.runtime.models.engine.lengths import LengthsEngine
from decgraph.runtime.models.engine.nets import layout_of
from decgraph.runtime.models.engine.prefixed import PrefixedStep
from decgraph.runtime.models.engine.recurrent import is_recurrent, recurrent_engine
from decgraph.runtime.models.hf_live import Live
from decgraph.runtime.models.hf_soft_prompts import SoftPrompted
from decgraph.runtime.models.rotary import Boundary, at_length
from decgraph.runtime.native.linear import output_of


def live_engine(model: Live) -> Engine:
    """The engine of a live module. Raises DecError, by name, for one that it cannot run."""
    if isinstance(model, SoftPrompted):
        made = module_engine(model.module, model.name, model.vocab.size, model.context)
        made.step = PrefixedStep(made.step, model.prefix, made.layout.window)
    elif is_recurrent(model.module):
        return recurrent_engine(model)
    elif model.boundary is not None:
        return _lengths_engine(model, model.boundary)
    else:
        made = module_engine(model.module, model.name, model.vocab.size, model.context)
    made.memories = Memories(model)
    return made


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
