"""Device forms of ir/ops/models.py: calls of causal models at the context and at nodes of trees."""
from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from decgraph.backends.triton.step.evaluate import NotStatic, device
from decgraph.backends.triton.step.values import Context, Dist, Nodes, Rows, Tree

ROOT = np.zeros(1, dtype=np.int64)


def held_of(s: Any, model: Any, op: Any) -> Any:
    """What the step keeps of a model. Raises NotStatic for one that is none of the function's own."""
    name = s.names.get(id(model))
    if name is None:
        raise NotStatic("a model that is made while the program runs", op)
    return s.held[name]


def count_call(s: Any, held: Any, what: str = "") -> None:
    """Statistics: one more call in every turn."""
    s.tally.calls[held.name + what] = s.tally.calls.get(held.name + what, 0) + 1


@device("model.eval")
def evaluate(s: Any, op: Any, model: Any, place: Any, *rest: Any) -> Dist:
    """The distributions of a model at a place."""
    extra = dict(zip(op.attrs.get("with", ()), rest, strict=True))
    if op.attrs.get("part") or "allow" in extra or "at" in extra:
        raise NotStatic("a call for a part of a model", op)
    held = held_of(s, model, op)
    count_call(s, held)
    return at_place(s, op, held, place, extra.get("tree"))


@device("model.evals")
def evaluate_together(s: Any, op: Any, *operands: Any) -> Any:
    """Calls of one model that were merged."""
    raise NotStatic("calls that were merged", op)


def at_place(s: Any, op: Any, held: Any, place: Any, tree: Any) -> Dist:
    """A causal model's rows at the context, at all nodes of a tree, or at some."""
    if isinstance(place, Context):
        if place.parent:
            raise NotStatic("a call at the context's parent", op)
        rows = Rows(held.ask(None, ROOT), positions=positions_at(s, None, ROOT), label=held.name, nodes=ROOT)
        return Dist(rows, np.zeros((), dtype=np.int64))
    if isinstance(place, Tree):
        nodes = np.arange(place.size)
        if not place.fixed:
            raise NotStatic("a call on a tree that data chose", op)
        rows = Rows(held.ask(place, nodes), positions=positions_at(s, place, nodes), label=held.name, nodes=nodes)
        return Dist(rows, nodes)
    if isinstance(place, np.ndarray | int) and isinstance(tree, Tree) and tree.fixed:
        ids = np.asarray(place, dtype=np.int64)
        flat = ids.reshape(-1)
        rows = Rows(held.ask(tree, flat), positions=positions_at(s, tree, flat), label=held.name, nodes=flat)
        return Dist(rows, np.arange(len(flat)).reshape(ids.shape), at=ids if ids.ndim == 1 else None)
    raise NotStatic("a call at a place that data chose", op)


def positions_at(s: Any, tree: Tree | None, nodes: Any) -> Tensor:
    """int64[B, R]: the index of the token that would be drawn after each node."""
    length: Tensor = s.length.long()[:, None]
    if tree is None:
        return length
    if isinstance(nodes, Nodes):
        depth = tree.depth.gather(1, nodes.ids) if isinstance(tree.depth, Tensor) else s.constant(tree.depth)[nodes.ids]
        return length + depth
    if isinstance(tree.depth, Tensor):
        return length + tree.depth.index_select(1, s.constant(nodes))
    return length + s.constant(tree.depth[nodes])
