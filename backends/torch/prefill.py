"""Long prompts in chunks: how much of its context a call finds uncached, and a part of that computed before the call."""

from __future__ import annotations

from decgraph.backends.torch.pending import Call, DraftLoopCall, EngineCall
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import ForwardCall, OverCore
from decgraph.runtime.models.engine.kept import fill, lacks


def missing(call: Call) -> int:
    """How many tokens of a call's context are not in its engine's cache; 0 where that cannot be told, or has no chunks."""
    found = _of(call)
    return 0 if found is None else lacks(*found)


def prefill(call: Call, count: int) -> Exception | None:
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


def _of(call: Call) -> tuple[CausalEngine, ForwardCall] | None:
    """The causal engine that caches a call's context, and the first of the call's requests."""
    engine = call.engine.core if isinstance(call.engine, OverCore) else call.engine  # heads read a causal engine's states
    if type(engine) is not CausalEngine:
        return None
    asks = [call.loop.call] if isinstance(call, DraftLoopCall) else call.asks if isinstance(call, EngineCall) else ()
    ask = next(iter(asks), None)
    return (engine, ask) if isinstance(ask, ForwardCall) and ask.given is None else None
