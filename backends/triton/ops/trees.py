"""Trees of drafts: growing, columns, pruning, folds along paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.ops import canvas_trees, canvases
from decgraph.backends.triton.ops.distributions import dist_of
from decgraph.backends.triton.ops.draws import along, law_dist, probs_of
from decgraph.backends.triton.ops.nodes import batched, children, last_token, reachable
from decgraph.backends.triton.ops.numbers import count_of, live_of, made, packed, reordered
from decgraph.backends.triton.ops.selection import flat_draws
from decgraph.backends.triton.ops.sequences import one_draws
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Context, Dist, Draws, Edit, Growth, Nodes, Tree, Vec, is_static


@step("tree.new")
def new(s: Any, op: Any, base: Any = None) -> Tree:
    """A tree of a root alone."""
    base = Context(s.length.clone()) if base is None else base
    if canvases.is_canvas(base):
        return canvas_trees.begun(s, base)
    if not isinstance(base, Context) or base.parent or op.result.type.of[1] not in ("token", "any"):
        raise NotSteppable("a tree that does not grow drafts from the context", op)
    zero = np.zeros(1, dtype=np.int64)
    token = s.lanes(s.constant(np.full((1, 1), -1)))
    until = tuple(op.attrs.get("until", ()))
    looks = s.looked_at.get(str(op.result.type.of[0]), "")
    return Tree(base, token, zero, zero, zero - 1, epoch=s.epoch, until=until, looks=looks)


@step("tree.grow")
def grow(s: Any, op: Any, t: Tree, what: Any, *rest: Any) -> tuple[Tree, Any]:
    """The tree with draws grown into it, and the new nodes."""
    at, values = (rest[0], rest[1:]) if op.attrs.get("has_at") else (None, rest)
    if isinstance(what, Edit):
        tree, new = grow(s, op, t, canvas_trees.edges(s, what), *rest)
        return canvas_trees.placed(s, tree, what), new
    if not isinstance(what, Draws):
        raise NotSteppable("only draws are grown in a step", op)
    flat = flat_draws(what, s)
    n, first = flat.shape[0], t.size
    ids = np.arange(first, first + n)
    chain = bool(op.attrs.get("chain"))
    if chain:
        flat = packed(s, flat)
        start = 0 if at is None else at
        parents: Any
        above: Any
        if is_static(start):
            head = [int(np.ravel(np.asarray(start))[0])] if n else []
            parents = above = np.concatenate((head, ids[:-1])).astype(np.int64)
        else:
            parents, above = _chain_below(s, t, start, ids)
    else:
        parents, above = parents_of(s, t, what, at, op)
        if isinstance(above, Nodes) and above.within is None:
            above = replace(above, within=np.arange(t.size))
    live = flat.live
    if isinstance(above, Nodes) and above.live is not None and isinstance(parents, Tensor):
        there = _read_live(s, above, parents)
        live = there if live is None else live & there
    if t.live is not None:
        heads = batched(s, parents)[:, :1].expand(-1, n) if chain else batched(s, parents)
        there = s.lanes(t.live).gather(1, heads)
        live = there if live is None else live & there
    depth, levels = depths(s, t, parents, above, n, chain)
    if t.fixed and isinstance(parents, np.ndarray):
        parent: Any = np.concatenate([t.parent, parents])
    else:
        parent = torch.cat([batched(s, t.parent), batched(s, parents)], 1)
    height = t.height + levels if not isinstance(depth, np.ndarray) else int(depth.max(initial=0))
    each = 1 if chain else per_node(what, above, n)
    wide = _wide(t, parents, above, each, min(n, 1) if chain else n)
    useful = None
    if t.looks == "always" or t.looks == "forks" and wide > 1:
        grown = replace(t, token=torch.cat([t.token, flat.tokens], 1), parent=parent, depth=depth, height=height)
        useful = reachable(s, grown)
    before, tree_live = t.live, t.live
    if useful is not None:
        before = s.lanes(useful)[:, :first] if before is None else s.lanes(useful)[:, :first] & before
        live = s.lanes(useful)[:, first:] if live is None else s.lanes(useful)[:, first:] & live
    if live is not None or before is not None:
        old = torch.ones((s.frame.batch, first), dtype=torch.bool, device=s.device) if before is None else s.lanes(before)
        fresh = torch.ones((s.frame.batch, n), dtype=torch.bool, device=s.device) if live is None else s.lanes(live)
        tree_live = torch.cat([old, fresh], 1)
    columns = dict(t.columns)
    names = op.attrs.get("columns", ())
    for name, value in zip(names, values, strict=True):
        columns[name] = _column_with(s, t, name, value, n, what)
    if "logprob" in columns and "logprob" not in names:
        names = (*names, "logprob")
        own = torch.log(probs_of(s, flat)) if n else None
        columns["logprob"] = _with_logprobs(t.columns["logprob"], batched(s, parents), own, chain)
    for name in set(t.columns) - set(names):
        old = t.columns[name]
        columns[name] = (
            torch.cat([old, old.new_zeros((old.shape[0], n, *old.shape[2:]))], 1) if isinstance(old, Tensor) else old
        )
    edges = replace(flat, at=None, live=None)
    tree = replace(
        t,
        token=torch.cat([t.token, flat.tokens if live is None else torch.where(live, flat.tokens, -1)], 1),
        parent=parent,
        depth=depth,
        uid=both_uids(s, t.uid, s.next_uids(n)),
        edges=edges if t.edges is None else one_draws(s, [t.edges, edges]),
        live=tree_live,
        height=height,
        most=_most(t, parents, above, each, n),
        wide=wide,
        growths=(*t.growths, Growth(first, n, above, max(1, n if chain else levels))),
        columns=columns,
        new=_of(s, ids, live),
        frontier=_of(s, ids, live),
        grown=t.grown | _spans(t, above),
    )
    s.counts.draft(counted(s, tree, first, tree_live))
    return tree, tree.new


def _with_logprobs(old: Tensor, parents: Tensor, own: Tensor | None, chain: bool) -> Tensor:
    """float64[B, N + n]: log-probabilities of the paths to nodes, with those of n new ones, which are own float64[B, n] more
    than
    their parents'."""
    if own is None:
        return old
    if not chain:
        return torch.cat([old, old.gather(1, parents) + own], 1)
    for j in range(int(own.shape[1])):
        old = torch.cat([old, old.gather(1, parents[:, j : j + 1]) + own[:, j : j + 1]], 1)
    return old


def _chain_below(s: Any, t: Tree, at: Any, ids: np.ndarray) -> tuple[Tensor, Nodes]:
    """The parents int64[B, n] of a chain of new nodes below the first of nodes that data chooses, and the nodes that they are
    among."""
    head = s.lanes(packed(s, at))
    head = head if head.ndim > 1 else head[:, None]
    within = at.within if isinstance(at, Nodes) and at.within is not None else np.arange(t.size)
    parents = torch.cat([head[:, :1], s.lanes(s.constant(ids[:-1])[None])], 1)
    return parents, Nodes(parents, np.union1d(within, ids[:-1]))


def _of(s: Any, ids: np.ndarray, live: Tensor | None) -> Any:
    """Static nodes, as Nodes where some may be dead."""
    return ids if live is None else Nodes(s.lanes(s.constant(ids)[None]), ids, s.lanes(live))


def _read_live(s: Any, above: Nodes, parents: Tensor) -> Tensor:
    """bool[B, n]: whether parents int64[B, n] are among the nodes that are there."""
    assert above.live is not None
    same = (above.ids[:, None, :] == parents[..., None]) & above.live[:, None]
    return same.any(-1)


def _spans(t: Tree, above: Any) -> frozenset[int]:
    """The growths that nodes are of, by number; the root's is -1."""
    ids = above.within if isinstance(above, Nodes) else above
    if ids is None:
        return frozenset(range(-1, len(t.growths)))
    found = {-1} if (np.asarray(ids) == 0).any() else set()
    for k, g in enumerate(t.growths):
        if ((np.asarray(ids) >= g.first) & (np.asarray(ids) < g.first + g.count)).any():
            found.add(k)
    return frozenset(found)


def both_uids(s: Any, old: Any, new: np.ndarray) -> Any:
    """Keys of nodes and of new ones, by lane where those of the old ones are."""
    return torch.cat([old, batched(s, new)], 1) if isinstance(old, Tensor) else np.concatenate([old, new])


def per_node(what: Draws, above: Any, n: int) -> int:
    """The most of n draws that become children of one node, in a growth whose parents data chooses."""
    if len(what.shape) > 1:
        return int(np.prod(what.shape[1:]))
    return 1 if isinstance(above, Nodes) and above.leaves and count_of(above) == n else n


def _most(t: Tree, parents: Any, above: Any, each: int, n: int) -> int:
    """The most children of a node after a growth. each: as `per_node` says."""
    if t.fixed and isinstance(parents, np.ndarray):
        both = np.concatenate([t.parent[1:], parents])
        return int(np.bincount(both).max()) if len(both) else 0
    here = each
    if isinstance(parents, np.ndarray):
        here = int(np.bincount(parents, minlength=1).max()) if len(parents) else 0
    apart = isinstance(above, Nodes) and above.leaves == t.size or not t.grown & _spans(t, above)
    return max(t.most, here) if apart else t.most + here


def _wide(t: Tree, parents: Any, above: Any, each: int, tips: int) -> int:
    """The most leaves after a growth that ends in so many tips."""
    if t.fixed and isinstance(parents, np.ndarray):
        return t.size + len(parents) - len({*t.parent[1:].tolist(), *parents.tolist()})
    return min(t.wide * max(1, each), t.wide + tips) if isinstance(above, Nodes) and above.leaves == t.size else t.wide + tips


def depths(s: Any, t: Tree, parents: Any, above: Any, n: int, chain: bool) -> tuple[Any, int]:
    """The depths of all nodes with the new ones, NumPy where they are static, and how many levels they may add."""
    first = t.size
    if isinstance(t.depth, np.ndarray):
        if isinstance(parents, np.ndarray):
            out = np.zeros(n, dtype=np.int64)
            for i, p in enumerate(parents.tolist()):
                out[i] = 1 + (t.depth[p] if p < first else out[p - first])
            return np.concatenate([t.depth, out]), n if chain else 1
        among = above.within if isinstance(above, Nodes) else above
        levels = np.unique(t.depth[np.asarray(among)]) if among is not None and not chain else np.zeros(0)
        if len(levels) == 1:
            return np.concatenate([t.depth, np.full(n, 1 + int(levels[0]))]), 1
    old, up = batched(s, t.depth), batched(s, parents)
    if chain and n:
        new = old.gather(1, up[:, :1]) + 1 + s.steps(n)
    else:
        new = old.gather(1, up.clamp(max=first - 1)) + 1
    return torch.cat([old, new], 1), n if chain else 1


def parents_of(s: Any, t: Tree, what: Draws, at: Any, op: Any) -> tuple[Any, Any]:
    """The parent of every draw, NumPy int64[n] or int64[B, n], and the nodes that include them."""
    shape = what.shape
    n = int(np.prod(shape))
    width = int(np.prod(shape[1:])) if len(shape) > 1 else 1
    leading = np.arange(n) // width if shape else np.zeros(n, dtype=np.int64)
    if at is not None:
        if isinstance(at, Tensor):
            at = Nodes(s.lanes(at if at.ndim > 1 else at[:, None]), np.arange(t.size))
        if isinstance(at, Vec):
            at = Nodes(s.lanes(at.data), np.arange(t.size), at.live)
        if isinstance(at, Nodes):
            full = count_of(at) == n
            if count_of(at) == 1:
                return s.lanes(at.ids).expand(-1, n), at
            return (s.lanes(at.ids) if full else s.lanes(at.ids).index_select(1, s.constant(leading))), at
        ids = np.ravel(np.asarray(at, dtype=np.int64))
        if len(ids) == 1:
            found = np.full(n, ids[0])
        else:
            found = ids[:1] if n == 1 and not shape else ids if np.shape(at) == shape else ids[leading]
        return found, found
    if what.laws and what.row is not None and all(law.rows.nodes is not None for law in what.laws):
        return _where_drawn(s, t, what, n)
    return _at_frontier(s, op, t, what, leading)


def _at_frontier(s: Any, op: Any, t: Tree, what: Draws, leading: np.ndarray) -> tuple[Any, Any]:
    """The parents of draws that know no nodes: those of the frontier, one for each row where there are as many, else the first
    one, or the root where there is none, and the loop goes on. leading: the row of each draw, NumPy int64[n]."""
    n, rows, front = len(leading), what.shape[0] if what.shape else 1, t.frontier
    live = what.live if what.shape else None
    if not isinstance(front, Nodes) and live is None:
        if len(front) > 1 and len(front) == rows:
            return front[leading], front
        return np.full(n, front[0] if len(front) else 0), front[:1] if len(front) else np.zeros(1, dtype=np.int64)
    front = packed(s, front if isinstance(front, Nodes) else Nodes(batched(s, front), front))
    have, there = count_of(front), front.live
    if not have:
        return np.zeros(n, dtype=np.int64), np.zeros(1, dtype=np.int64)
    some = s.lanes(s.constant(np.array([have]))) if there is None else there.sum(1)
    many = s.lanes(s.constant(np.array([rows]))) if live is None else live.sum(1)
    place = s.lanes(s.steps(rows)[None]) if live is None else (live.long().cumsum(1) - 1).clamp(min=0)
    each = front.ids.gather(1, place.clamp(max=have - 1))
    first = torch.where(some > 0, front.ids[:, 0], 0)[:, None]
    found = torch.where(((some == many) & (some > 1))[:, None], each, first).index_select(1, s.constant(leading))
    alive = (some > 0)[:, None].expand(found.shape) if id(op) in s.stopping else None
    return found, Nodes(found, None if front.within is None else np.union1d(front.within, [0]), alive)


def _where_drawn(s: Any, t: Tree, what: Draws, n: int) -> tuple[Any, Any]:
    """The nodes that draws' laws were evaluated at."""
    every = [law.rows.nodes for law in what.laws]
    row = what.row if isinstance(what.row, Tensor) else np.broadcast_to(what.row, what.shape).reshape(-1)
    if all(isinstance(x, np.ndarray) for x in every):
        nodes = np.concatenate(every)
        if isinstance(row, np.ndarray):
            return nodes[row], nodes[row]
        flat = row.flatten(1) if row.ndim > 1 else row[:, None]
        return s.lanes(s.constant(nodes)[flat]), Nodes(s.lanes(s.constant(nodes)[None]), nodes)
    ids = torch.cat([s.lanes(x.ids if isinstance(x, Nodes) else s.constant(x)[None]) for x in every], 1)
    within: Any = np.zeros(0, dtype=np.int64)
    for x in every:
        more = x.within if isinstance(x, Nodes) else x
        within = np.arange(t.size) if more is None else np.union1d(within, more)
    lives = [x.live for x in every if isinstance(x, Nodes)]
    live = None
    if any(x is not None for x in lives):
        live = torch.cat(
            [
                torch.ones((s.frame.batch, count_of(x) if isinstance(x, Nodes) else len(x)), dtype=torch.bool, device=s.device)
                if getattr(x, "live", None) is None
                else x.live
                for x in every
            ],
            1,
        )
    above = every[0] if len(every) == 1 else Nodes(ids, within, live)
    if isinstance(row, np.ndarray):
        return ids.index_select(1, s.constant(row)), above
    flat = s.lanes(row.flatten(1) if row.ndim > 1 else row[:, None])
    return ids.gather(1, flat), above


def _spread(s: Any, value: Any, n: int, what: Draws) -> Tensor:
    """A column's values [B, n, ...]: one for each draw, one for each row, or the same for all."""
    a = s.lanes(value)
    rest = 1 if isinstance(value, Dist) else 0
    lead = a.ndim - 1 - rest
    a = a.flatten(1, lead) if lead > 1 else a[:, None] if lead == 0 else a
    if int(a.shape[1]) == n:
        return a
    if int(a.shape[1]) == 1:
        return a.expand(-1, n, *a.shape[2:])
    width = int(np.prod(what.shape[1:])) if len(what.shape) > 1 else 1
    return a.index_select(1, s.constant(np.arange(n) // width))


def _column_with(s: Any, t: Tree, name: str, value: Any, n: int, what: Draws) -> Tensor:
    new = _spread(s, value, n, what)
    old = logprobs(s, t) if name == "logprob" else column(s, t, name, new)
    kind = torch.promote_types(old.dtype, new.dtype)
    return torch.cat([old.to(kind), new.to(kind)], 1)


def column(s: Any, t: Tree, name: str, like: Tensor | None = None) -> Tensor:
    """An author's column as it is, zeros where it was never set. [B, N, ...]."""
    if name in t.columns:
        out: Tensor = t.columns[name]
        return out
    shape = (s.frame.batch, t.size, *(like.shape[2:] if like is not None else ()))
    kind = like.dtype if like is not None else torch.float64
    return torch.zeros(shape, dtype=kind, device=s.device)


@step("tree.get")
def get(s: Any, op: Any, t: Tree) -> Any:
    """A column over all nodes."""
    c = op.attrs["column"]
    if canvases.is_canvas(t.base):
        return canvas_trees.column(s, t, c, op)
    if c == "parent" or c == "depth":
        found = t.parent if c == "parent" else t.depth
        return found if t.live is None else Vec(batched(s, found), s.lanes(t.live))
    if c == "token":
        out = torch.cat([last_token(s)[:, None], t.token[:, 1:].clamp(min=0)], 1)
    elif c == "logprob":
        out = logprobs(s, t)
        useful = None if t.pruned else reachable(s, t)  # nodes that the driver does not draft are selected last
        out = out if useful is None else torch.where(useful, out, -torch.inf)
    elif c == "prob":
        out = torch.cat([torch.ones((s.frame.batch, 1), dtype=torch.float64, device=s.device), edge_probs(s, t)], 1)
    elif c == "point":
        out = torch.cat([torch.ones((s.frame.batch, 1), dtype=torch.bool, device=s.device), _points(s, t)], 1)
    elif c in ("law", "draw"):
        root = Draws(last_token(s)[:, None], point=True)
        every = root if t.edges is None else one_draws(s, [root, t.edges])
        return law_dist(s, every) if c == "law" else every
    elif c in t.columns:
        out = t.columns[c]
        if op.result.type.elem == "dist":
            return dist_of(s, out)
    else:
        raise NotSteppable(f"the column {c}", op)
    return made(out, None if t.live is None else s.lanes(t.live))


def _points(s: Any, t: Tree) -> Tensor:
    if t.edges is None:
        return torch.zeros((s.frame.batch, 0), dtype=torch.bool, device=s.device)
    x = t.edges
    return s.lanes(x.point) if isinstance(x.point, Tensor) else torch.full(x.tokens.shape, bool(x.point), device=s.device)


def edge_probs(s: Any, t: Tree) -> Tensor:
    """float64[B, N - 1]: the raw probability of every drafted token where it was drawn."""
    if t.edges is None:
        return torch.zeros((s.frame.batch, 0), dtype=torch.float64, device=s.device)
    return probs_of(s, t.edges)


def logprobs(s: Any, t: Tree) -> Tensor:
    """float64[B, N]: cumulative log-probabilities."""
    if "logprob" in t.columns:
        out: Tensor = t.columns["logprob"]
        return out
    zero = torch.zeros((s.frame.batch, 1), dtype=torch.float64, device=s.device)
    return along(torch.cat([zero, torch.log(edge_probs(s, t))], 1), batched(s, t.parent), t.height)


def counted(s: Any, t: Tree, first: int, live: Tensor | None) -> Any:
    """How many nodes from `first` on a driver drafts, of those that are there: int64[B], or a number."""
    useful = reachable(s, t)
    if useful is None:
        return t.size - first if live is None else live[:, first:].sum(1)
    there = s.lanes(useful)[:, first:]
    return (there if live is None else there & live[:, first:]).sum(1)


@step("tree.set")
def put(s: Any, op: Any, t: Tree, ns: Any, value: Any) -> Tree:
    """Set a column at nodes."""
    name = op.attrs["column"]
    live = live_of(ns)
    ids = s.lanes(ns)
    ids = ids if ids.ndim > 1 else ids[:, None]
    n = int(ids.shape[1])
    new = _spread(s, value, n, Draws(ids))
    old = logprobs(s, t) if name == "logprob" else column(s, t, name, new)
    kind = torch.promote_types(old.dtype, new.dtype)
    wide = torch.cat([old.to(kind), old.to(kind)[:, :1]], 1)
    where = ids if live is None else torch.where(live, ids, t.size)
    index = where.reshape(*where.shape, *([1] * (wide.ndim - 2))).expand(-1, -1, *wide.shape[2:])
    return replace(t, columns={**t.columns, name: wide.scatter(1, index, new.to(kind))[:, :-1]})


@step("tree.front")
def front(s: Any, op: Any, t: Tree, ns: Any) -> Tree:
    """The tree with another frontier."""
    if isinstance(ns, Vec):
        ns = Nodes(s.lanes(ns.data), np.arange(t.size), ns.live)
    if isinstance(ns, Tensor):
        ns = Nodes(s.lanes(ns if ns.ndim > 1 else ns[:, None]), np.arange(t.size))
    return replace(t, frontier=ns if isinstance(ns, Nodes) else np.ravel(np.asarray(ns, dtype=np.int64)))


@step("tree.nodes")
def nodes(s: Any, op: Any, t: Tree, *n: Any) -> Any:
    """Nodes of a tree."""
    which = op.attrs["which"]
    if which == "root":
        return 0
    if which in ("frontier", "new"):
        return t.frontier if which == "frontier" else t.new
    if which == "all":
        return _of(s, np.arange(t.size), t.live)
    if which == "drafted":
        return _of(s, np.arange(1, t.size), None if t.live is None else t.live[:, 1:])
    if which == "leaves":
        if t.fixed and t.live is None:
            inner = np.zeros(t.size, dtype=bool)
            inner[t.parent[1:]] = True
            return np.flatnonzero(~inner)
        live = torch.ones((s.frame.batch, t.size), dtype=torch.bool, device=s.device) if t.live is None else s.lanes(t.live)
        up = batched(s, t.parent)[:, 1:]
        inner = torch.zeros_like(live, dtype=torch.uint8)  # CUDA folds no bools
        inner = inner.scatter_reduce(1, up, live[:, 1:].to(torch.uint8), "amax").bool() if t.size > 1 else inner.bool()
        found = packed(s, _of(s, np.arange(t.size), live & ~inner))  # what is there of a tree has no more leaves than the whole
        return Nodes(found.ids[:, : t.wide], found.within, found.live[:, : t.wide], t.size)
    if which == "path":
        if t.fixed and is_static(n[0]):
            node, found = int(np.asarray(n[0])), [int(np.asarray(n[0]))]
            while node:
                node = int(t.parent[node])
                found.append(node)
            return np.array(found[::-1], dtype=np.int64)
        at = s.lanes(n[0]).reshape(s.frame.batch)
        depth, up = batched(s, t.depth), batched(s, t.parent)
        d = depth.gather(1, at[:, None])[:, 0]
        out = torch.zeros((s.frame.batch, t.height + 2), dtype=torch.int64, device=s.device)
        live = s.steps(t.height + 1) <= d[:, None]
        for _ in range(t.height + 1):
            out = out.scatter(1, d.clamp(min=0)[:, None], torch.where(d >= 0, at, 0)[:, None])
            at, d = up.gather(1, at[:, None])[:, 0], d - 1
        return Nodes(out[:, : t.height + 1], np.arange(t.size), live)
    if which == "children" and t.fixed and t.live is None and is_static(n[0]):
        return np.array([k for k in range(1, t.size) if t.parent[k] == int(n[0])], dtype=np.int64)
    if which == "children":
        at = s.lanes(n[0])
        ids, live = children(s, t, at)
        return Nodes(ids, np.arange(t.size), live)
    raise NotSteppable(f"the {which} of a tree", op)


@step("tree.size")
def size(s: Any, op: Any, t: Tree) -> Any:
    """How many drafted nodes, or how deep."""
    if op.attrs["what"] == "size":
        return t.size - 1 if t.live is None else s.lanes(t.live)[:, 1:].sum(1)
    if isinstance(t.depth, np.ndarray) and t.live is None:
        return int(t.depth.max(initial=0))
    depth = batched(s, t.depth)
    return (depth if t.live is None else torch.where(s.lanes(t.live), depth, 0)).amax(1)


@step("tree.keep")
def keep(s: Any, op: Any, t: Tree, ns: Any) -> Tree:
    """Prune to nodes, as far as their ancestors are kept, and the root."""
    b = s.frame.batch
    ids, live = s.lanes(ns), live_of(ns)
    ids = ids if ids.ndim > 1 else ids[:, None]
    kept = torch.zeros((b, t.size + 1), dtype=torch.bool, device=s.device)
    kept = kept.scatter(1, ids if live is None else torch.where(live, ids, t.size), True)[:, : t.size]
    kept[:, 0] = True
    up = batched(s, t.parent)
    for _ in range(max(0, t.height)):
        kept = kept & kept.gather(1, up)
    if t.live is not None:
        kept = kept & s.lanes(t.live)
    n = min(t.size, int(ids.shape[1]) + 1)
    order = torch.sort((~kept).to(torch.uint8), dim=1, stable=True).indices[:, :n]
    there = kept.gather(1, order)
    place = torch.zeros((b, t.size + 1), dtype=torch.int64, device=s.device)
    place = place.scatter(1, torch.where(there, order, t.size), s.lanes(s.steps(n)[None]))[:, : t.size]
    drafted = counted(s, t, 1, kept if t.live is None else kept & s.lanes(t.live))
    s.counts.draft(drafted - counted(s, t, 1, t.live))
    zero, above = np.zeros(1, dtype=np.int64), place.gather(1, up.gather(1, order))
    uid = t.uid if isinstance(t.uid, Tensor) else s.constant(t.uid)[None]
    return replace(
        t,
        token=torch.where(there, s.lanes(t.token).gather(1, order), -1),
        parent=above,
        depth=batched(s, t.depth).gather(1, order),
        uid=torch.where(there, s.lanes(uid).gather(1, order), -1),
        edges=None if t.edges is None else reordered(s, t.edges, (order[:, 1:] - 1).clamp(min=0), None),
        growths=(Growth(1, n - 1, Nodes(above, np.arange(n)), max(1, t.height)),),
        grown=frozenset((-1, 0)),
        pruned=True,
        live=there,
        columns={
            k: v.gather(1, order.reshape(*order.shape, *([1] * (v.ndim - 2))).expand(-1, -1, *v.shape[2:]))
            for k, v in {**t.columns, **({"logprob": logprobs(s, t)} if s.reads_column("logprob") else {})}.items()
        },
        height=min(t.height, n - 1),
        new=zero,
        frontier=zero,
    )


FOLDS = {"all": torch.logical_and, "any": torch.logical_or, "sum": torch.add, "max": torch.maximum, "min": torch.minimum}


@step("tree.down")
def down(s: Any, op: Any, t: Tree, x: Any) -> Any:
    """A fold of a column along the path from the root to every node."""
    fn = op.attrs["fn"]
    a, up, depth = s.lanes(x), batched(s, t.parent), batched(s, t.depth)
    a = a.bool() if fn in ("all", "any") else a
    if fn in ("all", "any", "sum"):
        a = torch.cat([torch.full_like(a[:, :1], fn == "all"), a[:, 1:]], 1)
    reach = 1
    while reach <= max(1, t.height):  # every iteration doubles how many nodes of the path an entry covers
        a = torch.where(depth >= reach, FOLDS[fn](a.gather(1, up), a), a)
        up = up.gather(1, up)
        reach *= 2
    return made(a, None if t.live is None else s.lanes(t.live))


@step("tree.up")
def up(s: Any, op: Any, t: Tree, x: Any) -> Any:
    """A fold of a column over what stands below every node."""
    fn = op.attrs["fn"]
    a, parent, depth = s.lanes(x), batched(s, t.parent), batched(s, t.depth)
    how = {"all": "amin", "any": "amax", "sum": "sum", "max": "amax", "min": "amin"}[fn]
    logic = fn in ("all", "any")
    a = a.to(torch.uint8) if logic else a
    live = torch.ones_like(parent, dtype=torch.bool) if t.live is None else s.lanes(t.live)
    for level in range(t.height, 0, -1):
        here = (depth == level) & live
        where = torch.where(here, parent, t.size)
        wide = torch.cat([a, a[:, :1]], 1)
        a = wide.scatter_reduce(1, where, a, how)[:, : t.size]
    return made(a.bool() if logic else a, None if t.live is None else live)
