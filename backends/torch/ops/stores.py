"""Lowerings of ir/ops/stores.py: indexes."""

from __future__ import annotations

from typing import Any

from decgraph.backends.torch import stores
from decgraph.backends.torch.lowering import lowering, on_host
from decgraph.backends.torch.protocols import Machine


@lowering("index.new")
def new(m: Machine, *sizes: Any, kind: str) -> Any:
    """An empty index."""
    return stores.new_index(kind, sizes)


@lowering("index.ask")
def ask(m: Machine, index: Any, *args: Any, what: str, named: tuple[str, ...] = ()) -> Any:
    """Ask an index."""
    return stores.ask(m, what, named, index, args)


@lowering("index.learn")
def learn(m: Machine, index: Any, *args: Any) -> Any:
    """The index after learning this text."""
    return stores.learn(index, args)


on_host("automaton", "relax", why="automata are tables on the host")
