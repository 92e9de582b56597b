"""Trees and canvases as they grow: what fits, log-probabilities, and the events that tell of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from decgraph.backends.reference.protocols import Machine
from decgraph.ir.data.canvas import Canvas, Cell, Edit
from decgraph.ir.data.dist import Draw, resolve_path
from decgraph.ir.data.numbers import Number
from decgraph.ir.data.topology import Level, Topology
from decgraph.ir.data.tree import Edge, Tree, edge_token
from decgraph.ir.machine import Datum
from decgraph.ir.ops.draws import point
from decgraph.runtime import trace


def fits(m: Machine, tree: Tree, parent: int) -> bool:
    """Whether a node under `parent` can be of use: inside the context window, before the tree's end, not after an end
    token."""
    if not isinstance(tree.base, tuple):
        return True
    longest = len(tree.base) + tree.nodes[parent].depth + 1
    window = None if m.window is None else m.window + tree.unread
    inside = all(n is None or longest <= n for n in (window, tree.extent))
    return inside and not (parent != 0 and tree.closes and edge_token(tree.nodes[parent].edge) in tree.closes)


def full(m: Machine, tree: Tree | None, which: str) -> bool:
    """Whether nothing fits under the leaves, the frontier or the new nodes of a tree."""
    if tree is None:
        return False
    nodes = tree.leaves() if which == "leaves" else tree.new if which == "new" else tree.frontier
    return not any(m.fits(tree, n) for n in nodes)


def last_token(m: Machine, tree: Tree) -> int:
    """The last token of the root's context; 0 where there is none."""
    if isinstance(tree.base, tuple) and tree.base:
        return resolve_path(tree.base[-1:])[0]
    return 0


def root_draw(m: Machine, tree: Tree) -> Draw:
    """The draw that the root of a tree stands for: certainly the last token."""
    return point(m, m.last_token(tree))


def add_log(m: Machine, logprob: Number, edge: Edge | None) -> Number:
    """A node's cumulative log-probability: its parent's and its token's, under the raw distribution it was drawn from."""
    if not isinstance(edge, Draw):
        inner = edge.value if isinstance(edge, Edit) else None
        return m.lazy_log(logprob, inner) if isinstance(inner, Draw) else logprob
    return m.lazy_log(logprob, edge)


def lazy_log(m: Machine, logprob: Number, edge: Draw) -> Number:
    """A cumulative log-probability after one more draw; -inf where the draw was impossible."""
    p = edge.source.face("raw")[edge.token]
    return logprob + float(np.log(p)) if p > 0 else -np.inf


def grew(m: Machine, tree: Tree, node: int, edge: Edge) -> None:
    """Tell of a node that was grown."""
    if m.listener is None:
        return
    draw = edge.value if isinstance(edge, Edit) else edge
    if not isinstance(draw, Draw):
        if isinstance(edge, Edit):
            m.emit_event(trace.Drafted(node, tree.nodes[node].parent, edge.token, 1.0, "point", drawn=False))
        return
    m.emit_event(
        trace.Drafted(
            node,
            tree.nodes[node].parent,
            draw.token,
            float(draw.law_vector()[draw.token]),
            draw.source.label or "point",
            float(draw.source.face("raw")[draw.token]),
            not draw.point,
        )
    )


def columns_of(tree: Tree) -> Mapping[str, Sequence[Datum]]:
    """The author's columns of a tree and its log-probabilities, each a value per node (None where it was never set)."""
    names = dict.fromkeys(name for node in tree.nodes for name in node.columns)
    return {
        **{name: [node.columns.get(name) for node in tree.nodes] for name in names},
        "logprob": [node.logprob for node in tree.nodes],
    }


def pruned(m: Machine, before: Tree, nodes: Sequence[int]) -> None:
    """A tree was cut to those of its nodes, the root among them."""
    gone = set(range(1, len(before))) - set(nodes)
    m.emit_event(trace.Pruned(tuple(nodes), sum(isinstance(before.nodes[n].edge, Draw) for n in gone)))


def unmasked(m: Machine, c: Canvas, positions: list[int], values: list[Cell]) -> None:
    """Count the cells that were decided, and emit an event for each."""
    m.decided += len(positions)
    if m.recorder is not None:
        m.recorder.canvas(len(c.base), len(c))
    if m.listener is None:
        return
    for i, v in zip(positions, values):
        token = edge_token(v)
        score = float(v.source.face("raw")[token]) if isinstance(v, Draw) else 1.0
        m.emit_event(trace.Unmasked(i, token, score))


def masked_again(m: Machine, c: Canvas, positions: list[int]) -> None:
    """Emit an event for each cell that is masked again."""
    if m.recorder is not None:
        m.recorder.canvas(len(c.base), len(c))
    for i in positions:
        m.emit_event(trace.Remasked(i))


def level_field(m: Machine, level: Level | Topology, field: str) -> Datum:
    """A field of a topology, or of one of its levels."""
    if isinstance(level, Topology) or field == "width":
        return level.width
    if field == "index":
        return level.index
    return np.array(level.parent if field == "parent" else level.rank, dtype=np.int64)
