"""Which engine a model has: one per model, stored on it, so that all users of the model share its cache."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from decgraph.ir.memo import memo_of
from decgraph.runtime.collecting import uncollected
from decgraph.runtime.models.engine.forward_call import Engine
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.sharing import original_of

if TYPE_CHECKING:
    from decgraph.runtime.models.engine.canvas_call import MaskedEngine


def engine_of(model: Model) -> Engine | MaskedEngine:
    """The engine of a model, created on first use by the module that it names: of a masked model a `MaskedEngine`.

    Raises DecError for a Hugging Face model that the engine cannot run; the message says why.
    """
    whole = original_of(model)
    memo = memo_of(whole)
    engine: Engine | MaskedEngine | None = memo.get("engine")
    if engine is not None:
        return engine
    name = whole.engine_module or ("masked_plain" if whole.kind == "masked" else "plain")
    with uncollected():  # its imports and graphs stay
        built: Engine | MaskedEngine = memo.once("engine", lambda: import_module(f"{__package__}.{name}").build_engine(whole))
    return built


def causal_engine_of(model: Model) -> Engine:
    """See `engine_of`: of any model but a masked one."""
    return cast(Engine, engine_of(model))
