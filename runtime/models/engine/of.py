"""Which engine a model has: one per model, stored on it, so that all users of the model share its cache."""

from __future__ import annotations

from typing import Any

from decgraph.ir.memo import memo_of
from decgraph.runtime.collecting import uncollected
from decgraph.runtime.models.distinct import original_of
from decgraph.runtime.models.engine.forward_call import Engine
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.speaking import Speaking


def engine_of(model: Model) -> Any:  # Any: an `Engine`, or of a masked model a `MaskedEngine`
    """The engine of a model, created on first use.

    Raises DecError for a Hugging Face model that the engine cannot run; the message says why.
    """
    model = original_of(model)
    memo = memo_of(model)
    made = memo.get("engine")
    if made is None:
        with uncollected():  # its imports and graphs stay
            made = memo.once("engine", lambda: _make(model))
    return made


def _make(model: Model) -> Any:  # Any: see `engine_of`
    if model.kind == "masked":
        from decgraph.runtime.models.engine.masked import masked_engine

        return masked_engine(model)
    whole: Any = model
    if "origin" in vars(model) and whole.attached is None and whole.origin is None:  # an HFCausal as it was loaded
        from decgraph.runtime.models.engine.nets import net_engine

        return net_engine(whole)  # without transformers
    if any(kind.__module__ == "decgraph.runtime.models.hf_live" for kind in type(model).__mro__):
        from decgraph.runtime.models.engine.live import live_engine

        return live_engine(whole)
    base = getattr(model, "target", model)
    if any(kind.__module__.startswith("decgraph.runtime.models.hf_") for kind in type(base).__mro__):
        from decgraph.runtime.models.engine.hf import hf_engine

        return hf_engine(model)
    from decgraph.runtime.models.engine.plain import PlainEngine

    if isinstance(model, Speaking) and not isinstance(own := engine_of(model.base), PlainEngine):
        from decgraph.runtime.models.engine.speaking import SpeakingEngine

        spoken: Engine = SpeakingEngine(model, own)
        return spoken
    engine: Engine = PlainEngine(model)
    return engine
