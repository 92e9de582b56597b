"""One of two trees in every lane."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from decgraph.backends.triton.evaluate import joins
from decgraph.backends.triton.ops.trees import column, logprobs
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Growth, Nodes, Tree, is_static
from decgraph.backends.triton.vectors import fitted, within_of


@joins(Nodes)
def join_nodes(s: Any, lanes: Tensor, a: Any, b: Any) -> Any:
    """One of two vectors of nodes in every lane. lanes: bool[B]."""
    x, y = s.nodes_of(a), s.nodes_of(b)
    within = None if x.within is None or y.within is None else np.union1d(x.within, y.within)
    return Nodes(s.either(lanes, x.ids, y.ids), within, s.either_live(lanes, x, y))


@joins(Tree)
def join_trees(s: Any, lanes: Tensor, a: Any, b: Any) -> Tree:
    """One of two trees in every lane. One of them may have grown further than the other; then its new nodes are dead
    elsewhere. lanes: bool[B]."""
    if not (isinstance(a, Tree) and isinstance(b, Tree)):
        raise NotSteppable("one of two trees", s.place)
    n = min(a.size, b.size)
    long, short = (a, b) if a.size >= b.size else (b, a)
    if isinstance(a.uid, np.ndarray) and isinstance(b.uid, np.ndarray):
        first = int(np.cumprod(a.uid[:n] == b.uid[:n]).sum())  # the nodes from here on are others in each
    elif all(g is h for g, h in zip(short.growths, long.growths)) and len(short.growths) <= len(long.growths):
        first = n
    else:
        raise NotSteppable("one of two trees", s.place)
    columns = {}
    for name in set(a.columns) | set(b.columns):
        x, y = (logprobs(s, t) if name == "logprob" else column(s, t, name, u.columns.get(name)) for t, u in ((a, b), (b, a)))
        columns[name] = s.either(lanes, x, y)
    out = replace(
        long,
        live=s.either_live(lanes, a, b),
        columns=columns,
        frontier=_of_two(s, lanes, a.frontier, b.frontier),
        new=_of_two(s, lanes, a.new, b.new),
        most=max(a.most, b.most),
        wide=max(a.wide, b.wide),
        grown=a.grown | b.grown,
    )
    return out if first == n else _either(s, lanes, a, b, out, first)


def _of_two(s: Any, lanes: Tensor, a: Any, b: Any) -> Any:
    """Nodes of one of two trees."""
    same = a is b or is_static(a) and is_static(b) and np.array_equal(a, b)
    return a if same else join_nodes(s, lanes, a, b)


def _either(s: Any, lanes: Tensor, a: Tree, b: Tree, out: Tree, first: int) -> Tree:
    """The structure of one of two trees from a node on, place by place: new nodes, if none of them was computed."""
    size, new = out.size, np.concatenate([a.uid[first:], b.uid[first:]])
    for cache in s.caches.values():
        if any(len(cache.whole) > u and cache.whole[u] for u in new) or getattr(cache, "recent", 0) > new.min():
            raise NotSteppable("two branches that grow a tree differently, and call models at its nodes", s.place)

    def either_of(x: Any, y: Any) -> Any:
        if all(isinstance(v, np.ndarray) for v in (x, y)):
            n = min(len(x), len(y))
            if (x[:n] == y[:n]).all():
                return x if len(x) >= n and len(x) == size else y
        return s.either(lanes, *(fitted(s.lanes(v), size) for v in (x, y)))

    k = next((i for i, (g, h) in enumerate(zip(a.growths, b.growths)) if g is not h), min(len(a.growths), len(b.growths)))
    parent = either_of(a.parent, b.parent)
    within = np.unique(np.concatenate([within_of(g.above, size) for g in (*a.growths[k:], *b.growths[k:])]))
    above = Nodes(s.lanes(parent)[:, first:], within)
    levels = max(sum(g.levels for g in x.growths[k:]) for x in (a, b))
    start = min(g.first for x in (a, b) for g in x.growths[k:])
    assert a.edges is not None and b.edges is not None
    return replace(
        out,
        token=s.either(lanes, a.token, b.token),
        parent=parent,
        depth=either_of(a.depth, b.depth),
        uid=np.concatenate([out.uid[:first], s.next_uids(size - first)]),
        edges=replace(s.join(lanes, a.edges, b.edges), live=None, at=None),
        height=max(a.height, b.height),
        growths=(*a.growths[:k], Growth(start, size - start, above, levels)),
        grown=frozenset(min(g, k) for g in out.grown),
    )
