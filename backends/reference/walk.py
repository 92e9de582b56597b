"""Verification: applying a rule from the root of a tree down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from decgraph.backends.reference.effects import Effects
from decgraph.ir.data.canvas import Canvas, Edit
from decgraph.ir.data.dist import Dist, Draw, Draws, Path, box
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.ir.values import Op
from decgraph.runtime import trace


def single(x: Any) -> Any:
    """The one draw or edit in a value."""
    return x.items[()] if isinstance(x, Draws) else x


def probabilities(row: Any, token: int) -> tuple[float | None, float | None]:
    """The probability of a token where the evidence at a node is a distribution, and that before the request's shaping."""
    if not isinstance(row, Dist) or row.shape != ():
        return None, None
    vectors = row.vector(), row.seen("raw").vector()
    return (float(vectors[0][token]), float(vectors[1][token])) if 0 <= token < len(vectors[0]) else (None, None)


class Walk(Effects):
    """Verification in a run."""

    def walk(self, op: Op, t: Tree, evidence: Any, rest: tuple[Any, ...]) -> Any:
        region = op.regions[0]
        if op.attrs["scope"] == "tree":
            has, node, emits, token = self.region(region, (0, t, evidence))
            end = int(node) if self.num.truth(has) else 0
            if self.recorder is not None:
                for parent in range(len(t)):
                    self.offer(t, self.row_at(evidence, parent), t.children(parent))
            self.report_tree(t, end)
            return self.walked(op, t, end, single(token) if self.num.truth(emits) else None)
        node, depth = 0, 0
        while True:
            if self.walked_enough(op, t, evidence, node, depth):
                return self.walked(op, t, node, None)
            try:
                row = self.evidence_at(evidence, node)
            except LookupError:
                return self.walked(op, t, node, None)
            children = t.children(node)
            edges = [t.nodes[c].edge for c in children]
            draws = Draws(box(edges)) if not isinstance(t.base, Canvas) else box(edges)
            has, taken, emits, token = self.region(region, (depth, row, draws))
            self.offer(t, row, children)
            if not self.num.truth(has):
                emitted = single(token) if self.num.truth(emits) else None
                self.report_step(t, children, None, depth)
                if emitted is not None and not isinstance(t.base, Canvas):
                    if self.recorder is not None:
                        self.recorder.emits(*probabilities(row, edge_token(emitted)))
                    self.emit_event(
                        trace.Emitted(edge_token(emitted), "residual" if children else ("bonus" if depth else "plain"))
                    )
                return self.walked(op, t, node, emitted)
            edge = single(taken)
            child = next(c for c, e in zip(children, edges) if e is edge)
            self.report_step(t, children, child, depth)
            node, depth = child, depth + 1
            if self.num.truth(emits):
                return self.walked(op, t, node, single(token))

    def walked_enough(self, op: Op, t: Tree, evidence: Any, node: int, depth: int) -> bool:
        """Whether to stop verifying at a node: never; the checker overrides this where the rest cannot change the claim."""
        return False

    def evidence_at(self, evidence: Any, node: int) -> Any:
        if isinstance(evidence, Dist):
            return evidence.take(node)
        if isinstance(evidence, (list, np.ndarray)):
            if node >= len(evidence) or evidence[node] is None:
                raise LookupError(node)
            return evidence[node]
        return evidence

    def row_at(self, evidence: Any, node: int) -> Any:
        """The evidence at a node, None where there is none."""
        try:
            return self.evidence_at(evidence, node)
        except (LookupError, TypeError):
            return None

    def offer(self, t: Tree, row: Any, children: Sequence[int]) -> None:
        """Tell a recorder the probabilities of the drafts that a rule tests."""
        for c in children if self.recorder is not None else ():
            edge = t.nodes[c].edge
            if isinstance(edge, Draw):
                assert self.recorder is not None
                p, raw = probabilities(row, edge.token)
                self.recorder.offer(c, p, float(edge.law_vector()[edge.token]), raw)

    def walked(self, op: Op, t: Tree, node: int, emitted: Any) -> Any:
        if isinstance(t.base, Canvas):
            return t.state(node)
        edges = t.path_edges(node)
        tokens: list[Any] = []
        for e in edges:
            tokens += e.tokens if isinstance(e, Path) else [e]
        if emitted is not None:
            tokens.append(emitted if isinstance(emitted, Draw) else int(emitted))
        return Path(tokens, node=node, depth=t.nodes[node].depth, emitted=emitted)

    def report_step(self, t: Tree, children: list[int], child: int | None, depth: int) -> None:
        for c in children if self.listener is not None else ():
            edge = t.nodes[c].edge
            if not isinstance(edge, (Draw, Edit)):
                continue
            if c == child:
                self.emit_event(trace.Accepted(c, edge.token, depth + 1))
                break
            self.emit_event(trace.Rejected(c, edge.token, depth + 1, "the rule did not take it"))
        if child is not None and isinstance(t.base, Canvas):
            made = t.nodes[child].edge
            self.unmasked(t.base, [made.position], [made.value])

    def report_tree(self, t: Tree, end: int) -> None:
        if self.listener is None:
            return
        taken = t.path_nodes(end)[1:]
        for depth, n in enumerate(taken):
            for c in t.children(t.nodes[n].parent):
                edge = t.nodes[c].edge
                if c != n and isinstance(edge, Draw) and c < n:
                    self.emit_event(trace.Rejected(c, edge.token, depth + 1, "the rule took another path"))
            self.emit_event(trace.Accepted(n, t.nodes[n].edge.token, depth + 1))
        for c in t.children(end):
            edge = t.nodes[c].edge
            if isinstance(edge, Draw):
                self.emit_event(trace.Rejected(c, edge.token, len(taken) + 1, "the path that the rule took ends before it"))
