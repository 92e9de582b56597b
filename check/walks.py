"""A machine whose walk down a tree can be broken at every joint: the base of mutants of verification."""

from __future__ import annotations

from typing import Any

from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.reference.walk import single
from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.dist import Draw, Draws, box
from decgraph.ir.data.tree import Tree
from decgraph.ir.ops.draws import NoiseKey
from decgraph.ir.values import Op


class Walker(ExactMachine):
    """The walk of the reference over trees of tokens, in steps that a mutant overrides."""

    def order(self, t: Tree, node: int, children: list[int]) -> list[int]:
        """The children in the order in which the rule sees them."""
        return children

    def row(self, t: Tree, evidence: Any, node: int) -> Any:
        """The evidence at a node."""
        return self.evidence_at(evidence, node)

    def taken(self, t: Tree, node: int, children: list[int], child: int | None) -> int | None:
        """The child that the walk goes on to, given the one that the rule accepted."""
        return child

    def emitted(self, t: Tree, evidence: Any, node: int, children: list[int], token: Any) -> list[Any]:
        """What is committed after the accepted path, given the token that the rule emitted."""
        return [] if token is None else [token]

    def walk(self, op: Op, t: Tree, evidence: Any, rest: tuple[Any, ...]) -> Any:
        if op.attrs["scope"] == "tree" or isinstance(t.base, Canvas):
            return super().walk(op, t, evidence, rest)
        node, depth = 0, 0
        while True:
            try:
                row = self.row(t, evidence, node)
            except LookupError:
                return self.walked(op, t, node, None)
            children = self.order(t, node, t.children(node))
            edges = [t.nodes[c].edge for c in children]
            has, accepted, emits, token = self.region(op.regions[0], (depth, row, Draws(box(edges))))
            child = None
            if self.num.truth(has):
                edge = single(accepted)
                child = next(c for c, e in zip(children, edges, strict=True) if e is edge)
            child = self.taken(t, node, children, child)
            if child is None:
                last = single(token) if self.num.truth(emits) else None
                return self.end(op, t, evidence, node, children, last)
            node, depth = child, depth + 1

    def end(self, op: Op, t: Tree, evidence: Any, node: int, children: list[int], token: Any) -> Any:
        tokens = self.emitted(t, evidence, node, children, token)
        path = self.walked(op, t, node, tokens[0] if tokens else None)
        path.tokens += tokens[1:]
        return path

    def redraw(self, row: Any, site: str, depth: int) -> Draw:
        """A fresh draw from a row of evidence, keyed by `site`."""
        row = row.rows[()] if hasattr(row, "rows") else row
        assert self.op is not None
        return self.draw(self.op, row, "shaped", NoiseKey(site, (self.committed(), depth)), 0, None)
