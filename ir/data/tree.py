"""Trees of states: nodes are contexts (or canvases), edges are draws (or edits). Immutable: growing makes a new tree.

Node 0 is the root. Ids are growth order; `keep` renumbers in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from decgraph.errors import InternalError
from decgraph.ir.data.canvas import Canvas, Edit
from decgraph.ir.data.dist import Draw, Path, Symbol
from decgraph.ir.data.numbers import Number

Edge = Symbol | Edit | Path
"""What leads to a node: a token, a step of several tokens, or an edit of a canvas."""
State = tuple[Symbol, ...] | Canvas
"""What a node is: a context or a canvas."""


@dataclass(frozen=True)
class Node:
    """A node: the edge into it (None at the root), its parent and depth, and the author's columns."""

    edge: Edge | None
    parent: int
    depth: int
    logprob: Number
    columns: dict[str, Any] = field(default_factory=dict)  # Any: a `Datum` (ir/machine.py, which imports this)


@dataclass(frozen=True)
class Tree:
    """`base`: the root's state. `nodes[0]` is the root. `extent` and `closes`: the longest text that it drafts, and the tokens
    under which it grows nothing. `unread`: whether it may hold the token behind the context window, which no model reads."""

    base: State
    nodes: tuple[Node, ...]
    new: tuple[int, ...] = (0,)
    frontier: tuple[int, ...] = (0,)
    capacity: int | None = None
    zero: Number = 0.0
    extent: int | None = None
    closes: frozenset[int] = frozenset()
    unread: bool = False

    @staticmethod
    def start(base: State, capacity: int | None = None, zero: Number = 0.0) -> Tree:
        return Tree(base, (Node(None, 0, 0, zero),), capacity=capacity, zero=zero)

    def __len__(self) -> int:
        return len(self.nodes)

    def path_edges(self, node: int) -> list[Edge]:
        """Edges from the root down to `node`."""
        out = []
        while node != 0:
            edge, node = self.nodes[node].edge, self.nodes[node].parent
            if edge is not None:
                out.append(edge)
        return out[::-1]

    def tokens(self, node: int) -> list[Symbol]:
        """The tokens from the root down to `node`."""
        out: list[Symbol] = []
        for edge in self.path_edges(node):
            out += edge.tokens if isinstance(edge, Path) else [edge.value if isinstance(edge, Edit) else edge]
        return out

    def path_nodes(self, node: int) -> list[int]:
        """Nodes from the root (included) down to `node`."""
        out = [node]
        while node != 0:
            node = self.nodes[node].parent
            out.append(node)
        return out[::-1]

    def state(self, node: int) -> State:
        """The state at `node`: the root's context with the edges appended, or the root's canvas with the edits applied."""
        return (*self.base, *self.tokens(node)) if isinstance(self.base, tuple) else self.canvas(node)

    def canvas(self, node: int) -> Canvas:
        """The state at a node of a tree of canvases."""
        canvas = self.base
        assert isinstance(canvas, Canvas), "a tree of tokens has no canvases"
        for edit in self.path_edges(node):
            if isinstance(edit, Edit):
                canvas = edit.apply(canvas)
        return canvas

    def children(self, node: int) -> list[int]:
        return [i for i, n in enumerate(self.nodes) if i and n.parent == node]

    def leaves(self) -> list[int]:
        parents = {n.parent for i, n in enumerate(self.nodes) if i}
        return [i for i in range(len(self.nodes)) if i not in parents]

    def height(self) -> int:
        return max(n.depth for n in self.nodes)

    def grow(
        self,
        edges: Sequence[Edge],
        parents: Sequence[int],
        logprobs: Sequence[Number],
        columns: Sequence[dict[str, Any]],
    ) -> Tree:
        """The tree with one new node per edge, in order. Never merges edges."""
        nodes = list(self.nodes)
        ids = []
        for edge, parent, logprob, cols in zip(edges, parents, logprobs, columns):
            ids.append(len(nodes))
            nodes.append(Node(edge, parent, nodes[parent].depth + 1, logprob, cols))
        return replace(self, nodes=tuple(nodes), new=tuple(ids), frontier=tuple(ids))

    def with_column(self, name: str, ids: Sequence[int], values: Sequence[Any]) -> Tree:
        nodes = list(self.nodes)
        for i, v in zip(ids, values):
            n = nodes[i]
            nodes[i] = replace(n, logprob=v) if name == "logprob" else replace(n, columns={**n.columns, name: v})
        return replace(self, nodes=tuple(nodes))

    def keep(self, ids: Sequence[int]) -> tuple[Tree, dict[int, int]]:
        """The tree of the root and those of `ids` whose ancestors are all kept, in growth order, and the map of ids."""
        wanted, kept = set(ids) | {0}, [0]
        inside = {0}
        for i in range(1, len(self.nodes)):
            if i in wanted and self.nodes[i].parent in inside:
                kept.append(i)
                inside.add(i)
        new_id = {old: new for new, old in enumerate(kept)}
        nodes = tuple(replace(self.nodes[i], parent=new_id[self.nodes[i].parent]) for i in kept)
        new, frontier = (tuple(new_id[i] for i in old if i in new_id) for old in (self.new, self.frontier))
        tree = replace(self, nodes=nodes, new=new, frontier=frontier)
        return tree, new_id

    def below(self, node: int, base: State, add_log: Callable[[Number, Edge | None], Number]) -> Tree:
        """The subtree under `node`, rooted there, on the new committed state `base`. add_log: the log-probability of a node,
        from its parent's and its edge: below a node without probability those of the nodes tell nothing."""
        ids, inside = [], {node}
        for i in range(len(self.nodes)):
            if i == node or (i and self.nodes[i].parent in inside and i != node):
                inside.add(i)
                ids.append(i)
        new_id = {old: new for new, old in enumerate(ids)}
        depth, logprob = self.nodes[node].depth, self.nodes[node].logprob
        ratio = getattr(logprob, "ratio", None)  # of an exact logarithm
        impossible = logprob == -inf if ratio is None else ratio == 0
        logs = {node: self.zero}
        for i in ids[1:]:
            n = self.nodes[i]
            logs[i] = add_log(logs[n.parent], n.edge) if impossible else n.logprob - logprob
        nodes = tuple(
            replace(
                self.nodes[i],
                parent=new_id.get(self.nodes[i].parent, 0) if i != node else 0,
                depth=self.nodes[i].depth - depth,
                logprob=logs[i],
                edge=self.nodes[i].edge if i != node else None,
            )
            for i in ids
        )
        return replace(self, base=base, nodes=nodes, new=(0,), frontier=tuple(Tree.leaves_of(nodes)))

    @staticmethod
    def leaves_of(nodes: Sequence[Node]) -> list[int]:
        parents = {n.parent for i, n in enumerate(nodes) if i}
        return [i for i in range(len(nodes)) if i not in parents]


def edge_token(edge: Edge | None) -> int:
    """The token that an edge appends. Raises InternalError for the root, and for a step of several tokens."""
    if isinstance(edge, Draw | Edit):
        return edge.token
    if edge is None or isinstance(edge, Path):
        raise InternalError(f"{edge} is not one token")
    return int(edge)
