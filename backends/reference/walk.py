"""Verification: applying a rule from the root of a tree down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decgraph.backends.reference.protocols import Machine
from decgraph.ir.data.canvas import Canvas, Edit
from decgraph.ir.data.dist import Dist, Draw, Draws, Path, box
from decgraph.ir.data.tree import Edge, Tree, edge_token
from decgraph.ir.machine import Datum
from decgraph.ir.ops.common import as_int
from decgraph.ir.values import Op
from decgraph.runtime import trace


def single(x: Datum) -> Draw | Edit | int | None:
    """The one draw, edit or token in a value; None for none."""
    return x.draw if isinstance(x, Draws) else x if x is None or isinstance(x, Draw | Edit) else as_int(x)


def probabilities(row: Datum, token: int) -> tuple[float | None, float | None]:
    """The probability of a token where the evidence at a node is a distribution, and that before the request's shaping."""
    if not isinstance(row, Dist) or row.shape != ():
        return None, None
    vectors = row.vector(), row.seen("raw").vector()
    return (float(vectors[0][token]), float(vectors[1][token])) if 0 <= token < len(vectors[0]) else (None, None)


def walk(m: Machine, op: Op, t: Tree, evidence: Datum, rest: tuple[Datum, ...]) -> Path | Canvas:
    """The meaning of `tree.walk`."""
    region = op.regions[0]
    if op.attrs["scope"] == "tree":
        has, node, emits, token = m.region(region, (0, t, evidence))
        end = as_int(node) if m.num.truth(has) else 0
        if m.recorder is not None:
            for parent in range(len(t)):
                offer(m, t, row_at(m, evidence, parent), t.children(parent))
        report_tree(m, t, end)
        emitted = single(token) if m.num.truth(emits) else None
        report_emitted(m, t, end, row_at(m, evidence, end), emitted)
        return m.walked(op, t, end, emitted)
    node, depth = 0, 0
    while True:
        if m.walked_enough(op, t, evidence, node, depth):
            return m.walked(op, t, node, None)
        try:
            row = m.evidence_at(evidence, node)
        except LookupError:
            return m.walked(op, t, node, None)
        children = t.children(node)
        edges = [t.nodes[c].edge for c in children]
        draws = Draws(box(edges)) if not isinstance(t.base, Canvas) else box(edges)
        has, taken, emits, token = m.region(region, (depth, row, draws))
        offer(m, t, row, children)
        if not m.num.truth(has):
            emitted = single(token) if m.num.truth(emits) else None
            report_step(m, t, children, None, depth)
            report_emitted(m, t, node, row, emitted)
            return m.walked(op, t, node, emitted)
        edge = single(taken)
        child = next(c for c, e in zip(children, edges) if e is edge)
        report_step(m, t, children, child, depth)
        node, depth = child, depth + 1
        if m.num.truth(emits):
            return m.walked(op, t, node, single(token))


def walked_enough(m: Machine, op: Op, t: Tree, evidence: Datum, node: int, depth: int) -> bool:
    """Whether to stop verifying at a node: never; the checker overrides this where the rest cannot change the claim."""
    return False


def evidence_at(m: Machine, evidence: Datum, node: int) -> Datum:
    """The evidence at a node. Raises LookupError where there is none."""
    if isinstance(evidence, Dist):
        return evidence.take(node)
    if isinstance(evidence, (list, np.ndarray)):
        if node >= len(evidence) or evidence[node] is None:
            raise LookupError(node)
        return evidence[node]
    return evidence


def row_at(m: Machine, evidence: Datum, node: int) -> Datum:
    """The evidence at a node, None where there is none."""
    try:
        return m.evidence_at(evidence, node)
    except (LookupError, TypeError):
        return None


def offer(m: Machine, t: Tree, row: Datum, children: Sequence[int]) -> None:
    """Tell a recorder the probabilities of the drafts that a rule tests."""
    for c in children if m.recorder is not None else ():
        edge = t.nodes[c].edge
        if isinstance(edge, Draw):
            assert m.recorder is not None
            p, raw = probabilities(row, edge.token)
            m.recorder.offer(c, p, float(edge.law_vector()[edge.token]), raw)


def walked(m: Machine, op: Op, t: Tree, node: int, emitted: Edge | None) -> Path | Canvas:
    """What a verification gives: the accepted path with what was emitted after it, or the canvas of the accepted node."""
    if isinstance(t.base, Canvas):
        return t.canvas(node)
    last = emitted if emitted is None or isinstance(emitted, Draw) else edge_token(emitted)
    tokens = t.tokens(node) if last is None else [*t.tokens(node), last]
    return Path(tokens, node=node, depth=t.nodes[node].depth, emitted=last)


def report_step(m: Machine, t: Tree, children: list[int], child: int | None, depth: int) -> None:
    """Tell which of the children a rule took and which it refused."""
    for c in children if m.listener is not None else ():
        edge = t.nodes[c].edge
        if not isinstance(edge, (Draw, Edit)):
            continue
        if c == child:
            m.emit_event(trace.Accepted(c, edge.token, depth + 1))
            break
        m.emit_event(trace.Rejected(c, edge.token, depth + 1, "the rule did not take it"))
    made = None if child is None else t.nodes[child].edge
    if isinstance(made, Edit) and isinstance(t.base, Canvas):
        m.unmasked(t.base, [made.position], [made.value])


def report_emitted(m: Machine, t: Tree, node: int, row: Datum, emitted: Edge | None) -> None:
    """Tell which token a rule emitted after a node, if it did, whose evidence is `row`."""
    if emitted is not None and m.listener is not None and not isinstance(t.base, Canvas):
        token = edge_token(emitted)
        told = probabilities(row, token) if m.recorder is not None else ()
        m.tell_emitted(token, t.nodes[node].depth, bool(t.children(node)), *told)


def report_tree(m: Machine, t: Tree, end: int) -> None:
    """Tell what a rule over the whole tree took: the path to a node."""
    if m.listener is None:
        return
    taken = t.path_nodes(end)[1:]
    for depth, n in enumerate(taken):
        for c in t.children(t.nodes[n].parent):
            edge = t.nodes[c].edge
            if c != n and isinstance(edge, Draw) and c < n:
                m.emit_event(trace.Rejected(c, edge.token, depth + 1, "the rule took another path"))
        m.emit_event(trace.Accepted(n, edge_token(t.nodes[n].edge), depth + 1))
    for c in t.children(end):
        edge = t.nodes[c].edge
        if isinstance(edge, Draw):
            m.emit_event(trace.Rejected(c, edge.token, len(taken) + 1, "the path that the rule took ends before it"))
