"""Lowerings of ir/ops/parts.py."""

from __future__ import annotations

from typing import Any

from decgraph.backends.torch.lowering import lowering, on_host


@lowering("memory.layer")
def layer(m: Any, memory: Any, index: Any) -> Any:
    """One layer of a memory."""
    return m.host("layer", memory, index)


@lowering("memory.put")
def put(m: Any, memory: Any, part: Any, index: Any) -> Any:
    """A memory with one layer replaced."""
    return m.host("put", memory, part, index)


@lowering("memory.scores")
def scores(m: Any, memory: Any, queries: Any, at: Any = None) -> Any:
    """How much positions look at others, by a memory that holds queries."""
    return m.host("scores", memory, queries, at)


on_host("maxpool", why="it is over one number a token")
on_host("hidden.map", why="embeddings are coordinates, on the host like the weights that they are made of")
