"""Lowerings of ir/ops/parts.py."""

from __future__ import annotations

import numpy as np

from decgraph.backends.torch.canvas_calls import CanvasMemory
from decgraph.backends.torch.lowering import lowering, on_host
from decgraph.backends.torch.protocols import Machine
from decgraph.ir.opdef import OpError


def layers_of(memory: object, what: str) -> CanvasMemory:
    """A canvas's memory, which has layers that can be read. Raises OpError for others."""
    if isinstance(memory, CanvasMemory):
        return memory
    raise OpError(
        f"the torch backend cannot read `{what}` of a model",
        "models expose distributions, memories and canvases' memories restricted to positions, but no layers",
    )


@lowering("memory.layer")
def layer(m: Machine, memory: object, index: int) -> CanvasMemory:
    """One layer of a memory."""
    return layers_of(memory, "layer").layer(int(index))


@lowering("memory.put")
def put(m: Machine, memory: object, part: CanvasMemory, index: int) -> CanvasMemory:
    """A memory with one layer replaced."""
    return layers_of(memory, "put").put(part, int(index))


@lowering("memory.scores")
def scores(m: Machine, memory: object, queries: object, at: object = None) -> object:
    """How much positions look at others, by a memory that holds queries."""
    return np.array(layers_of(memory, "scores").scores(queries, at), np.float64)


on_host("maxpool", why="it is over one number a token")
on_host("hidden.map", why="embeddings are coordinates, on the host like the weights that they are made of")
