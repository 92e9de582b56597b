"""A captured forward while passes work on it: an fx graph, the tensors it names, and every node's shape and dtype.

A node's `meta` holds `op`, its canonical name (see ops.py); `shape`, a tuple of ints and of the dimensions that
change from call to call, `"B"` sequences, `"T"` tokens, `"S"` rows of the caches, `"BT"`; `dtype`; and `layer`. A node
with several results has no shape; its `getitem` nodes do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from decgraph.runtime.models.capture.ops import FUNCTIONS, METHODS
from decgraph.runtime.models.packs import Packs

Size = int | str
Shape = tuple[Size, ...]
DIMENSIONS = ("B", "T", "S", "BT")


class Refused(Exception):
    """This module cannot be captured; the text says why. The unmodified module is used instead."""


@dataclass
class CapturedGraph:
    """graph: placeholders ids, positions, write, keys, values, masks; the output is (last, (entering, ...)), the
    last hidden states and the states entering layer 0, 1, ... and leaving the last. tensors: what `get_attr` nodes
    name. kinds: the mask that each layer's attention uses. windows: the sliding window of each layer, or None."""

    graph: fx.Graph
    tensors: dict[str, Tensor]
    dims: dict[str, fx.Node] = field(default_factory=dict)  # the nodes that read sizes
    named: dict[str, fx.Node] = field(default_factory=dict)  # the `get_attr` nodes
    kinds: list[str] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)  # of keys and values, by layer
    windows: list[int | None] = field(default_factory=list)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    reach: int = 0  # the module's max_position_embeddings, or 0
    caches: tuple[tuple[int, int, int], ...] = ()  # heads, sizes of keys and of values of the caches, by layer
    dropped: dict[str, str] = field(default_factory=dict)  # passes left out because they were at fault, with what was wrong
    packs: Packs = field(default_factory=Packs)  # copies of its matrices
    borrowed: bool = False  # the tensors are a caller's, and stay where they are

    def input(self, name: str) -> fx.Node:
        """The placeholder of this name."""
        return next(n for n in self.graph.nodes if n.op == "placeholder" and n.target == name)

    @property
    def output(self) -> fx.Node:
        return next(n for n in reversed(self.graph.nodes) if n.op == "output")

    def of(self, op: str) -> list[fx.Node]:
        """The nodes with this canonical name, in order."""
        return [n for n in self.graph.nodes if n.meta.get("op") == op]

    def make(
        self,
        op: str,
        args: Sequence[Any],
        *,
        shape: Shape | None,
        dtype: torch.dtype | None,
        layer: int = -1,
        **kwargs: Any,
    ) -> fx.Node:
        """A new node at the graph's insertion point. Any: what fx takes as arguments."""
        if op in FUNCTIONS:
            node = self.graph.call_function(FUNCTIONS[op], tuple(args), kwargs)
        elif op in METHODS:
            node = self.graph.call_method(op, tuple(args), kwargs)
        else:
            raise KeyError(op)
        node.meta.update(op=op, shape=shape, dtype=dtype, layer=layer)
        return node

    def constant(self, name: str, tensor: Tensor) -> fx.Node:
        """A node for a tensor of the program's own, created once for each name."""
        if name in self.named:
            if self.tensors[name] is not tensor:
                raise KeyError(f"two tensors called {name}")
            return self.named[name]
        self.tensors[name] = tensor
        with self.graph.inserting_after(self._last_input()):
            node = self.graph.create_node("get_attr", name)
        node.meta.update(op="constant", shape=tuple(tensor.shape), dtype=tensor.dtype, layer=-1)
        self.named[name] = node
        return node

    def _last_input(self) -> fx.Node:
        found = None
        for node in self.graph.nodes:
            if node.op != "placeholder":
                break
            found = node
        assert found is not None
        return found

    def tensor(self, node: Any) -> Tensor | None:
        """The tensor that a `get_attr` node names; None for anything else."""
        return self.tensors[node.target] if isinstance(node, fx.Node) and node.op == "get_attr" else None

    def size(self, dim: Size) -> fx.Node | int:
        """A size as an argument: a number, or the node that reads the dimension from `positions` or a cache."""
        if isinstance(dim, int):
            return dim
        if dim not in self.dims:
            with self.graph.inserting_after(self._last_input()):
                if dim == "S":
                    source = self.make("getitem", (self.input("keys"), 0), shape=None, dtype=None)
                else:
                    source = self.input("positions")
            with self.graph.inserting_after(source if dim == "S" else self._last_input()):
                if dim == "BT":
                    node = self.make("numel", (source,), shape=None, dtype=None)
                else:
                    node = self.make("size", (source, {"B": 0, "T": 1, "S": 2}[dim]), shape=None, dtype=None)
            self.dims[dim] = node
        return self.dims[dim]

    def sizes(self, shape: Shape) -> tuple[fx.Node | int, ...]:
        return tuple(self.size(dim) for dim in shape)

    def replace(self, old: fx.Node, new: fx.Node) -> None:
        """Replaces every use of `old` by `new` and erases `old`."""
        old.replace_all_uses_with(new)
        self.graph.erase_node(old)

    @contextmanager
    def before(self, node: fx.Node) -> Iterator[None]:
        with self.graph.inserting_before(node):
            yield

    def sweep(self) -> None:
        """Removes unused nodes; writes into the caches stay."""
        for node in reversed(list(self.graph.nodes)):
            if not node.users and node.op not in ("placeholder", "output") and node.meta.get("op") not in EFFECTS:
                self.graph.erase_node(node)
        alive = set(self.graph.nodes)
        self.dims = {dim: node for dim, node in self.dims.items() if node in alive}
        self.named = {name: node for name, node in self.named.items() if node in alive}
        self.tensors = {name: tensor for name, tensor in self.tensors.items() if name in self.named}


EFFECTS = {"put", "index_copy_", "index_put_"}


def is_op(value: Any, *ops: str) -> bool:
    """Whether an argument is a node with one of these canonical names."""
    return isinstance(value, fx.Node) and value.meta.get("op") in ops


def argument(node: fx.Node, place: int, name: str, default: Any = None) -> Any:
    """An argument given by place or by name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def shape_of(value: Any) -> Shape | None:
    """The recorded shape of a node; None for anything else."""
    return value.meta.get("shape") if isinstance(value, fx.Node) else None


def dtype_of(value: Any) -> torch.dtype | None:
    """The recorded dtype of a node; None for anything else."""
    return value.meta.get("dtype") if isinstance(value, fx.Node) else None


def only_user(node: fx.Node) -> fx.Node | None:
    """The single node that uses this one; None if there are others."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def either(node: fx.Node, test: Callable[[Any], bool]) -> tuple[Any, Any] | None:
    """The two operands of a commutative node, the one that passes the test first; None if neither does."""
    if len(node.args) != 2:
        return None
    a, b = node.args
    return (a, b) if test(a) else (b, a) if test(b) else None


def dependants(program: CapturedGraph, seeds: Iterable[fx.Node]) -> set[fx.Node]:
    """Every node whose inputs are all among `seeds`, constants, or other such nodes, and at least one is not constant."""
    inside = set(seeds)
    constant = {n for n in program.graph.nodes if n.op == "get_attr"}
    for node in program.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output") or node.meta.get("op") in EFFECTS:
            continue
        inputs = node.all_input_nodes
        if inputs and all(i in inside or i in constant for i in inputs):
            if any(i in inside for i in inputs):
                inside.add(node)
            else:
                constant.add(node)
    return inside
