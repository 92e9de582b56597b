"""Which engine a model has: one per model, stored on it, so that all users of the model share its cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from decgraph.ir.memo import memo_of
from decgraph.runtime.collecting import uncollected
from decgraph.runtime.models.engine.forward_call import Engine
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.sharing import original_of

if TYPE_CHECKING:
    from decgraph.runtime.models.engine.canvas_call import MaskedEngine


def engine_of(model: Model) -> Engine | MaskedEngine:
    """The engine of a model, created on first use: of a masked model a `MaskedEngine`.

    Raises DecError for a Hugging Face model that the engine cannot run; the message says why.
    """
    return masked_engine_of(model) if original_of(model).kind == "masked" else causal_engine_of(model)


def causal_engine_of(model: Model) -> Engine:
    """See `engine_of`: of any model but a masked one."""
    return _once(original_of(model), _make)


def masked_engine_of(model: Model) -> MaskedEngine:
    """See `engine_of`: of a masked model."""
    from decgraph.runtime.models.engine.masked import masked_engine

    return _once(original_of(model), masked_engine)


E = TypeVar("E")


def _once(model: Model, make: Callable[[Model], E]) -> E:
    memo = memo_of(model)
    made: E | None = memo.get("engine")
    if made is None:
        with uncollected():  # its imports and graphs stay
            made = memo.once("engine", lambda: make(model))
    return made


def _make(model: Model) -> Engine:
    modules = {kind.__module__ for kind in type(model).__mro__}
    if "decgraph.runtime.models.hf_causal" in modules:
        from decgraph.runtime.models.engine.nets import net_engine
        from decgraph.runtime.models.hf_causal import HFCausal

        if isinstance(model, HFCausal) and model.attached is None and model.origin is None:  # as it was loaded
            return net_engine(model)  # without transformers
    if "decgraph.runtime.models.hf_live" in modules:
        from decgraph.runtime.models.engine.live import live_engine
        from decgraph.runtime.models.hf_live import LiveModel

        assert isinstance(model, LiveModel)
        return live_engine(model)
    base = model.target_or_self()
    if any(kind.__module__.startswith("decgraph.runtime.models.hf_") for kind in type(base).__mro__):
        from decgraph.runtime.models.engine.hf import hf_engine

        return hf_engine(model)
    from decgraph.runtime.models.engine.plain import PlainEngine
    from decgraph.runtime.models.speaking import Speaking

    if isinstance(model, Speaking) and not isinstance(own := causal_engine_of(model.base), PlainEngine):
        from decgraph.runtime.models.engine.speaking import SpeakingEngine

        return SpeakingEngine(model, own)
    return PlainEngine(model)
