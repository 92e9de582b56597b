"""Long prompts in chunks: how much of its context a call finds uncached, and a part of that computed before the call."""

from __future__ import annotations

from typing import Any

from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.engine.kept import fill, lacks


def missing(call: Any) -> int:  # Any: a `Pending` of any kind
    """How many tokens of a call's context are not in its engine's cache; 0 where that cannot be told, or has no chunks."""
    found = _of(call)
    return 0 if found is None else lacks(*found)


def prefill(call: Any, count: int) -> Exception | None:
    """Compute the next `count` uncached tokens of a call's context; the error, where the engine has one."""
    found = _of(call)
    if found is None:
        return None
    engine, ask = found
    try:
        return fill(engine, ask, count)
    except Exception as error:
        engine.close(ask.sequence)
        return error


def _of(call: Any) -> tuple[CausalEngine, ForwardCall] | None:
    """The causal engine that caches a call's context, and the first of the call's requests."""
    engine = getattr(call.engine, "core", call.engine)  # heads read the states of a causal engine
    if type(engine) is not CausalEngine:
        return None
    asks = [call.loop.call] if hasattr(call, "loop") else getattr(call, "asks", ())
    ask = next(iter(asks), None)
    return (engine, ask) if isinstance(ask, ForwardCall) and ask.given is None else None
