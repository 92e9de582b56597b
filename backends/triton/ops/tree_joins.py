"""One of two trees, or of two vectors of nodes, in every lane."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import joins
from decgraph.backends.triton.ops.nodes import batched
from decgraph.backends.triton.ops.numbers import count_of, live_of
from decgraph.backends.triton.ops.trees import column, logprobs
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Growth, Nodes, Tree, is_static


@joins(Nodes)
def join_nodes(s: Any, lanes: Tensor, a: Any, b: Any) -> Any:
    """One of two vectors of nodes in every lane. lanes: bool[B]."""
    n = max(count_of(x) for x in (a, b))
    within: Any = np.zeros(0, dtype=np.int64)
    parts, lives = [], []
    for x in (a, b):
        ids, live = s.lanes(x), live_of(x)
        more = n - int(ids.shape[1])
        live = torch.ones(ids.shape, dtype=torch.bool, device=s.device) if live is None else live
        parts.append(torch.cat([ids, ids.new_zeros((ids.shape[0], more))], 1) if more else ids)
        lives.append(torch.cat([live, live.new_zeros((live.shape[0], more))], 1) if more else live)
        here = x.within if isinstance(x, Nodes) else np.ravel(np.asarray(x)) if is_static(x) else None
        within = None if within is None or here is None else np.union1d(within, here)
    whole = live_of(a) is None and live_of(b) is None and count_of(a) == count_of(b)
    return Nodes(torch.where(lanes[:, None], *parts), within, None if whole else torch.where(lanes[:, None], *lives))


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
    live = None
    if a.size != b.size or a.live is not None or b.live is not None:
        live = torch.where(lanes[:, None], *(_longer(s, alive(s, x), long.size) for x in (a, b)))
    columns = {}
    for name in set(a.columns) | set(b.columns):
        x, y = (logprobs(s, t) if name == "logprob" else column(s, t, name, u.columns.get(name)) for t, u in ((a, b), (b, a)))
        kind, wide = torch.promote_types(x.dtype, y.dtype), lanes.reshape(-1, *([1] * (x.ndim - 1)))
        columns[name] = torch.where(wide, *(_longer(s, v.to(kind), long.size) for v in (x, y)))
    out = replace(
        long, live=live, columns=columns, frontier=_of_two(s, lanes, a.frontier, b.frontier), new=_of_two(s, lanes, a.new,
        b.new),
        most=max(a.most, b.most), wide=max(a.wide, b.wide), grown=a.grown | b.grown,
    )  # fmt: skip
    return out if first == n else _either(s, lanes, a, b, out, first)


def _of_two(s: Any, lanes: Tensor, a: Any, b: Any) -> Any:
    """Nodes of one of two trees."""
    same = a is b or is_static(a) and is_static(b) and np.array_equal(a, b)
    return a if same else join_nodes(s, lanes, a, b)


def alive(s: Any, t: Tree) -> Tensor:
    """bool[B, N]: which nodes are there."""
    return torch.ones((s.frame.batch, t.size), dtype=torch.bool, device=s.device) if t.live is None else s.lanes(t.live)


def _longer(s: Any, x: Tensor, n: int) -> Tensor:
    """[B, n, ...]: zeros behind a column."""
    x = s.lanes(x)
    return x if int(x.shape[1]) == n else torch.cat([x, x.new_zeros((x.shape[0], n - int(x.shape[1]), *x.shape[2:]))], 1)


def _either(s: Any, lanes: Tensor, a: Tree, b: Tree, out: Tree, first: int) -> Tree:
    """The structure of one of two trees from a node on, place by place: new nodes, if none of them was computed."""
    size, new = out.size, np.concatenate([a.uid[first:], b.uid[first:]])
    for cache in s.caches.values():
        if any(len(cache.whole) > u and cache.whole[u] for u in new) or getattr(cache, "recent", 0) > new.min():
            raise NotSteppable("two branches that grow a tree differently, and call models at its nodes", s.place)

    def both(x: Any, y: Any) -> Any:
        if all(isinstance(v, np.ndarray) for v in (x, y)):
            n = min(len(x), len(y))
            if (x[:n] == y[:n]).all():
                return x if len(x) >= n and len(x) == size else y
        return torch.where(lanes[:, None], *(_longer(s, batched(s, v), size) for v in (x, y)))

    k = next((i for i, (g, h) in enumerate(zip(a.growths, b.growths)) if g is not h), min(len(a.growths), len(b.growths)))
    parent, within = both(a.parent, b.parent), np.zeros(0, dtype=np.int64)
    for g in (*a.growths[k:], *b.growths[k:]):
        ids = g.above.within if isinstance(g.above, Nodes) else g.above
        within = np.arange(size) if ids is None else np.union1d(within, ids)
    above = Nodes(batched(s, parent)[:, first:], within)
    levels = max(sum(g.levels for g in x.growths[k:]) for x in (a, b))
    start = min(g.first for x in (a, b) for g in x.growths[k:])
    assert a.edges is not None and b.edges is not None
    return replace(
        out,
        token=torch.where(lanes[:, None], *(_longer(s, x.token, size) for x in (a, b))),
        parent=parent,
        depth=both(a.depth, b.depth),
        uid=np.concatenate([out.uid[:first], s.next_uids(size - first)]),
        edges=replace(s.join(lanes, a.edges, b.edges), live=None, at=None),
        height=max(a.height, b.height),
        growths=(*a.growths[:k], Growth(start, size - start, above, levels)),
        grown=frozenset(min(g, k) for g in out.grown),
    )
