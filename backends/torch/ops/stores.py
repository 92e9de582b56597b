"""Lowerings of ir/ops/stores.py: indexes."""

from __future__ import annotations

from decgraph.backends.torch import stores
from decgraph.backends.torch.lowering import lowering, on_host
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.stores import Recent
from decgraph.backends.torch.suffixes import Suffixes


@lowering("index.new")
def new(m: Machine, *sizes: int, kind: str) -> object:
    """An empty index."""
    return stores.new_index(kind, sizes)


@lowering("index.ask")
def ask(m: Machine, index: Recent | Suffixes, *args: object, what: str, named: tuple[str, ...] = ()) -> object:
    """Ask an index."""
    return stores.ask(m, what, named, index, args)


@lowering("index.learn")
def learn(m: Machine, index: Recent | Suffixes, *args: object) -> Recent | Suffixes:
    """The index after learning this text."""
    return stores.learn(index, args)


on_host("automaton", "relax", why="automata are tables on the host")
