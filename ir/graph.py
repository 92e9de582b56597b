"""The decoding graph: which operation needs a result of which other, as networkx graphs.

Passes ask what an op of a straight list depends on, and so what may be moved past it; drawings (views/decoding_graph.py) show a
whole function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from decgraph.ir.values import Function, Op, Region, Value
from decgraph.ir.walk import free_values

if TYPE_CHECKING:
    import networkx as nx

YIELDING = ("for", "while", "each", "if", "segment")
"""Ops whose results are what their regions yield."""


def used_by(op: Op) -> tuple[Value, ...]:
    """The values that an op and what stands in its regions use; a segment's operands are all of them."""
    if not op.regions or op.opcode == "segment":
        return op.operands
    return (*op.operands, *(v for r in op.regions for v in free_values(r)))


class Dependences:
    """Which ops of one region, by their places in `ops`, need results of which others, directly or through others. Two of them
    may change places where neither needs the other and no effect forbids it (passes/motion.py)."""

    def __init__(self, ops: Sequence[Op]) -> None:
        import networkx as nx  # it takes a third of a second

        made = {v: n for n, op in enumerate(ops) for v in op.results}
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(ops)))
        graph.add_edges_from((made[v], n) for n, op in enumerate(ops) for v in used_by(op) if v in made)
        self._closure = nx.transitive_closure_dag(graph, topo_order=range(len(ops)))

    def ancestors(self, places: Iterable[int]) -> set[int]:
        """The ops that some of these need."""
        return {other for n in places for other in self._closure.pred[n]}

    def descendants(self, places: Iterable[int]) -> set[int]:
        """The ops that need some of these."""
        return {other for n in places for other in self._closure.succ[n]}


def graph_of(function: Function) -> nx.DiGraph:
    """A function's ops by number, with attributes `op` and `loop` (the loops and rules around it, outermost first, "/" between
    them), and its parameters by name. An edge leads from what computes a value to each op that uses it, in regions too."""
    import networkx as nx

    graph = nx.DiGraph(name=function.name)
    sources: dict[Value, list[str]] = {p.value: [p.name] for p in function.params}
    graph.add_nodes_from((p.name for p in function.params), op=None, loop="")

    def add(region: Region, loop: str) -> None:
        for op in region.ops:
            node = f"{len(graph)}"
            graph.add_node(node, op=op, loop=loop)
            graph.add_edges_from((source, node) for value in op.operands for source in sources.get(value, ()))
            inner = f"line {op.loc.line}" if op.opcode in ("for", "while", "each") else ""
            if op.opcode == "tree.walk":
                inner = f"rule {op.attrs['rule']}"
            made = [node]
            for r in op.regions:
                sources.update(dict.fromkeys(r.args, [node]))
                add(r, "/".join(filter(None, (loop, inner))))
                made += [source for value in r.yields for source in sources.get(value, ())]
            sources.update(dict.fromkeys(op.results, made if op.opcode in YIELDING else [node]))

    add(function.body, "")
    return graph
