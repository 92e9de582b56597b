"""A sequence's cached rows outside of its engine: saved after a run and restored for a request that begins alike. Also, long
contexts are computed in parts."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import ForwardCall, OverCore
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.engine.slots import CacheTooLarge, Layout
from decgraph.runtime.models.interface import Model


@dataclass(frozen=True, eq=False)
class SavedRows:
    """Keys, values and last states of a sequence's committed tokens, copied. They fit the engine's present layout alone."""

    tokens: tuple[int, ...]
    blocks: list[Tensor]
    last: Tensor
    layout: Layout

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (*self.blocks, self.last))


def core_of(model: Model) -> CausalEngine | None:
    """The engine that caches a model's keys and values, where it is one of causal models; heads have their target's. None for
    other kinds, and for an engine whose lower layers are another one's."""
    core = caching_engine(model) if model.kind == "causal" else None
    return core if type(core) is CausalEngine and core.below is None else None


def caching_engine(model: Model) -> CausalEngine | None:
    """The engine that caches the keys and values of a model or of the target that it reads; None where there is no such
    cache."""
    engine = engine_of(model)
    core = engine.core if isinstance(engine, OverCore) else engine
    return core if isinstance(core, CausalEngine) else None


def copied(engine: CausalEngine, sequence: Hashable) -> SavedRows | None:
    """The rows of a sequence's committed tokens; None where the engine has none."""
    slot = engine._slots.get(sequence)
    if slot is None or not slot.chain:
        return None
    blocks, last = engine.store.copied(slot.number, len(slot.chain))
    return SavedRows(tuple(slot.chain), blocks, last, engine.layout)


def put_back(engine: CausalEngine, sequence: Hashable, rows: SavedRows, length: int) -> bool:
    """Begins a new sequence of the engine with the first `length` saved tokens. False where they do not fit: the engine's
    layers have changed, or there is no room."""
    if rows.layout is not engine.layout or sequence in engine._slots:
        return False
    slot = engine._slot(sequence)
    try:
        engine._room([slot], length)
    except (CacheTooLarge, MemoryError, RuntimeError):
        engine.close(sequence)
        return False
    engine.store.put(slot.number, rows.blocks, rows.last, length)
    slot.chain = list(rows.tokens[:length])
    return True


def lacks(engine: CausalEngine, call: ForwardCall) -> int:
    """How many tokens of a call's context come after the committed ones that are cached."""
    slot = engine._slots.get(call.sequence)
    return len(call.context) - (0 if slot is None else min(len(slot.chain), len(call.context)))


@torch.no_grad()
def fill(engine: CausalEngine, call: ForwardCall, count: int) -> DecError | None:
    """Compute and cache the next `count` tokens of a call's context that are not cached; or the error of a call that fails."""
    end = len(call.context) - max(lacks(engine, call) - count, 0)
    (made,) = engine.states([ForwardCall(call.sequence, call.context[:end], call.marks[:end], name=call.name)])
    return made if isinstance(made, DecError) else None
