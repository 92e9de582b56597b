"""Lowerings of ir/ops/models.py that call no model; the driver yields calls (writer.py)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from decgraph.backends.torch.canvas_calls import CanvasMemory
from decgraph.backends.torch.lowering import lowering, on_host
from decgraph.backends.torch.protocols import Machine
from decgraph.errors import DecError
from decgraph.ir.memo import memo_of
from decgraph.runtime.models.derive import derive, halves
from decgraph.runtime.models.engine.forward_call import Remembered
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.rounding import Bits, bits_of

Held = Remembered | CanvasMemory
"""A memory of a text or of a canvas."""
H = TypeVar("H", Remembered, CanvasMemory)


@lowering("model.derive")
def derived(m: Machine, base: Model, *operands: object, how: str, named: tuple[str, ...] = ()) -> Model:
    """A model that shares another's weights, one object for each derivation from one model."""
    how = "on" if how == "adapter" else how
    args = halves(operands, named)
    kept = memo_of(base).once("derived", dict[Hashable, tuple[Model, tuple[object, ...]]])
    key = (how, tuple(id(a) if isinstance(a, Model) else str(a) for a in args))
    if key not in kept:
        made = derive(
            base, how, *[a if isinstance(a, Model) else (int(a) if isinstance(a, int | np.integer) else a) for a in args]
        )
        kept[key] = (made, args)
    return kept[key][0]


@lowering("memory.only")
def restricted(m: Machine, memory: Held, positions: ArrayLike, *, kind: str) -> Held:
    """A memory restricted to positions, or without them."""
    return memory.restrict(positions, kind)


@lowering("memory.quantized")
def quantized(m: Machine, memory: Held, bits: Bits) -> Remembered:
    """A memory whose keys and values are rounded. Raises DecError for that of a canvas."""
    if not isinstance(memory, Remembered):
        raise DecError("only a context's memory can be rounded here", hint="m = target.memory(ctx.parent)")
    return memory.quantized(bits_of(bits))


@lowering("memory.join")
def joined(m: Machine, a: H, b: H) -> H:
    """Two memories together; the right one wins."""
    return a.join(b)


on_host("model.layers", why="the number of layers is static")
on_host("model.embed", why="an embedding is coordinates until a call reads it")
