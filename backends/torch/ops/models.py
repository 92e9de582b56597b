"""Lowerings of ir/ops/models.py that call no model; the driver yields calls (writer.py)."""

from __future__ import annotations

from typing import Any

from decgraph.backends.torch.lowering import lowering, on_host, written
from decgraph.errors import DecError
from decgraph.runtime.models.rounding import bits_of


@lowering("model.derive")
def derived(m: Any, base: Any, *args: Any, how: str, named: tuple[str, ...] = ()) -> Any:
    """A model that shares another's weights."""
    return m.derived(how, base, args, named)


@lowering("memory.only")
def restricted(m: Any, memory: Any, positions: Any, *, kind: str) -> Any:
    """A memory restricted to positions, or without them."""
    return m.restrict(memory, positions, kind)


@lowering("memory.quantized")
def quantized(m: Any, memory: Any, bits: Any) -> Any:
    """A memory whose keys and values are rounded. Raises DecError for that of a canvas."""
    if not hasattr(memory, "quantized"):
        raise DecError("only a context's memory can be rounded here", hint="m = target.memory(ctx.parent)")
    return memory.quantized(bits_of(bits))


@lowering("memory.join")
def joined(m: Any, a: Any, b: Any) -> Any:
    """Two memories together; the right one wins."""
    return a.join(b)


written("model.eval", "model.evals", "model.memory", "model.read")
on_host("model.layers", why="the number of layers is static")
on_host("model.embed", why="an embedding is coordinates until a call reads it")
