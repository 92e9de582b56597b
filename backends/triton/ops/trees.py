"""Trees of drafts: growing, columns, pruning, folds along paths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.cache import Cache
from decgraph.backends.triton.evaluate import joins, step
from decgraph.backends.triton.ops import canvas_trees
from decgraph.backends.triton.ops.distributions import dist_of
from decgraph.backends.triton.ops.draws import path_logs, probs_of, sources_of
from decgraph.backends.triton.ops.nodes import children, last_token, node_path, reachable
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import (
    ROOT,
    Array,
    Canvas,
    Context,
    Dist,
    Draws,
    Edit,
    Growth,
    Nodes,
    NodeSet,
    Operand,
    Tree,
    is_static,
)
from decgraph.backends.triton.vectors import alike, beside, both, count_of, fitted, flat, flat_draws, made, spare, within_of
from decgraph.ir.values import Op


@step("tree.new")
def new(s: Step, op: Op, base: Operand = None) -> Tree:
    """A tree of a root alone."""
    base = Context(s.length.clone()) if base is None else base
    if isinstance(base, Canvas):
        return canvas_trees.begun(s, base)
    if not isinstance(base, Context) or base.parent or op.result.type.of[1] not in ("token", "any"):
        raise NotSteppable("a tree that does not grow drafts from the context", op)
    until, looks = tuple(op.attrs.get("until", ())), s.looked_at.get(str(op.result.type.of[0]), "")
    return Tree(base, s.lanes(ROOT - 1), ROOT, ROOT, ROOT - 1, epoch=s.epoch, until=until, looks=looks)


@step("tree.grow")
def grow(s: Step, op: Op, t: Tree, what: Operand, *rest: Operand) -> tuple[Tree, Operand]:
    """The tree with draws grown into it, and the new nodes."""
    at, values = (rest[0], rest[1:]) if op.attrs.get("has_at") else (None, rest)
    if isinstance(what, Edit):
        tree, new = grow(s, op, t, canvas_trees.edges(s, what), *rest)
        return canvas_trees.placed(s, tree, what), new
    if not isinstance(what, Draws):
        raise NotSteppable("only draws are grown in a step", op)
    chain, names, grown = bool(op.attrs.get("chain")), op.attrs.get("columns", ()), flat_draws(what)
    grown = s.packed(grown) if chain else grown
    n, first = grown.shape[0], t.size
    ids = np.arange(first, first + n)
    parents, above = _chain_below(s, t, ROOT if at is None else at, ids) if chain else parents_of(s, op, t, what, at)
    live = grown.live
    if isinstance(above, Nodes) and above.live is not None and isinstance(parents, Tensor):
        # Whether parents int64[B, n] are among the nodes that are there.
        live = both(live, ((above.ids[:, None, :] == parents[..., None]) & above.live[:, None]).any(-1))
    if t.live is not None:
        heads = s.lanes(parents)[:, :1].expand(-1, n) if chain else s.lanes(parents)
        live = both(live, s.lanes(t.live).gather(1, heads))
    (depth, levels), parent = depths(s, t, parents, above, n, chain), s.cat([t.parent, parents])
    height = t.height + levels if not isinstance(depth, np.ndarray) else int(depth.max(initial=0))
    each = 1 if chain else per_node(what, above, n)
    wide, before = _wide(t, parents, above, each, min(n, 1) if chain else n), t.live
    if t.looks == "always" or t.looks == "forks" and wide > 1:
        token = torch.cat([t.token, grown.tokens], 1)
        useful = reachable(s, replace(t, token=token, parent=parent, depth=depth, height=height))
        if useful is not None:
            useful = s.lanes(useful)
            before, live = both(useful[:, :first], before), both(useful[:, first:], live)
    columns = {name: fitted(old, first + n) for name, old in t.columns.items() if name not in (*names, "logprob")}
    for name, value in zip(names, values, strict=True):
        columns[name] = torch.cat(column_with(s, t, name, value, n, what), 1)
    if "logprob" in t.columns and "logprob" not in names:
        own = torch.log(probs_of(s, grown)) if n else None
        columns["logprob"] = _with_logprobs(t.columns["logprob"], s.lanes(parents), own, chain)
    edges = replace(grown, at=None, live=None)
    tree = replace(
        t,
        token=torch.cat([t.token, grown.tokens if live is None else torch.where(live, grown.tokens, -1)], 1),
        parent=parent,
        depth=depth,
        uid=s.cat([t.uid, s.next_uids(n)]),
        edges=edges if t.edges is None else s.one_draws([t.edges, edges]),
        live=s.lives_of([replace(t, live=before), replace(grown, live=live)]),
        height=height,
        most=_most(t, parents, above, each, n),
        wide=wide,
        growths=(*t.growths, Growth(first, n, above, max(1, n if chain else levels))),
        columns=columns,
        new=_of(s, ids, live),
        frontier=_of(s, ids, live),
        grown=t.grown | _spans(t, above),
    )
    s.counts.draft(counted(s, tree, first, tree.live))
    return tree, tree.new


def _with_logprobs(old: Tensor, parents: Tensor, own: Tensor | None, chain: bool) -> Tensor:
    """float64[B, N + n]: log-probabilities of the paths to nodes, with those of n new ones, which are own float64[B, n] more
    than their parents'."""
    if own is None:
        return old
    if not chain:
        return torch.cat([old, old.gather(1, parents) + own], 1)
    for j in range(int(own.shape[1])):
        old = torch.cat([old, old.gather(1, parents[:, j : j + 1]) + own[:, j : j + 1]], 1)
    return old


def _chain_below(s: Step, t: Tree, at: Operand, ids: np.ndarray) -> tuple[Array, NodeSet]:
    """The parents of a chain of new nodes below the first of some nodes, NumPy int64[n] or int64[B, n], and the nodes that they
    are among."""
    head = s.nodes_or_static(s.packed(at), np.arange(t.size))
    if isinstance(head, np.ndarray):
        parents = np.concatenate((head[: min(1, len(ids))], ids[:-1]))
        return parents, parents
    parents = s.lanes(s.cat([head.ids[:, : min(1, len(ids))], ids[:-1]]))
    return parents, Nodes(parents, np.union1d(within_of(head, t.size), ids[:-1]))


def _of(s: Step, ids: np.ndarray, live: Tensor | None) -> NodeSet:
    """Static nodes, as Nodes where some may be dead."""
    return ids if live is None else Nodes(s.lanes(ids), ids, s.lanes(live))


def _spans(t: Tree, above: NodeSet) -> frozenset[int]:
    """The growths that nodes are of, by number; the root's is -1."""
    found = np.searchsorted([g.first for g in t.growths], within_of(above, t.size), side="right")
    return frozenset((found - 1).tolist())


def per_node(what: Draws, above: NodeSet, n: int) -> int:
    """The most of n draws that become children of one node, in a growth whose parents data chooses."""
    if len(what.shape) > 1:
        return int(np.prod(what.shape[1:]))
    return 1 if isinstance(above, Nodes) and above.leaves and count_of(above) == n else n


def _most(t: Tree, parents: Array, above: NodeSet, each: int, n: int) -> int:
    """The most children of a node after a growth. each: as `per_node` says."""
    if t.fixed and isinstance(parents, np.ndarray):
        return int(np.bincount(np.concatenate([t.parent[1:], parents]), minlength=1).max())
    here = int(np.bincount(parents, minlength=1).max()) if isinstance(parents, np.ndarray) else each
    apart = isinstance(above, Nodes) and above.leaves == t.size or not t.grown & _spans(t, above)
    return max(t.most, here) if apart else t.most + here


def _wide(t: Tree, parents: Array, above: NodeSet, each: int, tips: int) -> int:
    """The most leaves after a growth that ends in so many tips."""
    if t.fixed and isinstance(parents, np.ndarray):
        return t.size + len(parents) - len({*t.parent[1:].tolist(), *parents.tolist()})
    return min(t.wide * max(1, each), t.wide + tips) if isinstance(above, Nodes) and above.leaves == t.size else t.wide + tips


def depths(s: Step, t: Tree, parents: Array, above: NodeSet, n: int, chain: bool) -> tuple[Operand, int]:
    """The depths of all nodes with the new ones, NumPy where they are static, and how many levels they may add."""
    first = t.size
    if isinstance(t.depth, np.ndarray):
        if isinstance(parents, np.ndarray):
            out = np.zeros(n, dtype=np.int64)
            for i, p in enumerate(parents.tolist()):
                out[i] = 1 + (t.depth[p] if p < first else out[p - first])
            return np.concatenate([t.depth, out]), n if chain else 1
        levels = np.unique(t.depth[within_of(above, t.size)])
        if len(levels) == 1 and not chain:
            return np.concatenate([t.depth, np.full(n, 1 + int(levels[0]))]), 1
    old, up = s.lanes(t.depth), s.lanes(parents)
    if chain and n:
        return torch.cat([old, old.gather(1, up[:, :1]) + 1 + s.steps(n)], 1), n
    return torch.cat([old, old.gather(1, up.clamp(max=first - 1)) + 1], 1), n if chain else 1


def leading(what: Draws) -> np.ndarray:
    """NumPy int64[n]: the place along axis 0 of every draw."""
    return np.repeat(np.arange(what.shape[0]), int(np.prod(what.shape[1:]))) if what.shape else ROOT


def parents_of(s: Step, op: Op, t: Tree, what: Draws, at: Operand) -> tuple[Array, NodeSet]:
    """The parent of every draw, NumPy int64[n] or int64[B, n], and the nodes that include them."""
    n = int(np.prod(what.shape))
    if at is None and what.sources and what.row is not None and all(x.rows.nodes is not None for x in what.sources):
        return _where_drawn(s, t, what)
    if at is None:
        return _at_frontier(s, op, t, what)
    above = s.nodes_or_static(at, np.arange(t.size))
    ids = above if isinstance(above, np.ndarray) else s.lanes(above.ids)
    if count_of(ids) == 1:
        ids = np.repeat(ids, n) if isinstance(ids, np.ndarray) else ids.expand(-1, n)
    elif count_of(ids) != n:
        ids = s.take(ids, leading(what))
    return ids, ids if isinstance(ids, np.ndarray) else above


def _at_frontier(s: Step, op: Op, t: Tree, what: Draws) -> tuple[Array, NodeSet]:
    """The parents of draws that know no nodes: those of the frontier, one for each row where there are as many, else the first
    one, or the root where there is none, and the loop goes on."""
    rows, row, front = what.shape[0] if what.shape else 1, leading(what), t.frontier
    live = what.live if what.shape else None
    if not isinstance(front, Nodes) and live is None:
        front = front if len(front) else ROOT
        return (front[row], front) if len(front) == rows else (np.full(len(row), front[0]), front[:1])
    front = s.packed(s.nodes_of(front, np.arange(t.size)))
    have, there = count_of(front), front.live
    if not have:
        return np.zeros(len(row), dtype=np.int64), ROOT
    some = s.lanes(have) if there is None else there.sum(1)
    many = s.lanes(rows) if live is None else live.sum(1)
    place = s.lanes(s.steps(rows)[None]) if live is None else (live.long().cumsum(1) - 1).clamp(min=0)
    first = torch.where(some > 0, front.ids[:, 0], 0)[:, None]
    each = front.ids.gather(1, place.clamp(max=have - 1))
    found = s.take(torch.where(((some == many) & (some > 1))[:, None], each, first), row)
    alive = (some > 0)[:, None].expand(found.shape) if id(op) in s.stopping else None
    return found, Nodes(found, np.union1d(within_of(front, t.size), ROOT), alive)


def _where_drawn(s: Step, t: Tree, what: Draws) -> tuple[Array, NodeSet]:
    """The nodes that the rows of draws were evaluated at."""
    every = [ROOT if source.rows.nodes is None else source.rows.nodes for source in what.sources]
    parents = s.take(s.cat([x.ids if isinstance(x, Nodes) else x for x in every]), flat(ROOT if what.row is None else what.row))
    if isinstance(parents, np.ndarray):
        return parents, parents
    if len(every) == 1:
        return s.lanes(parents), s.nodes_of(every[0], np.arange(t.size))
    within = np.unique(np.concatenate([within_of(x, t.size) for x in every]))
    return s.lanes(parents), Nodes(s.cat([s.lanes(x) for x in every]), within, s.lives_of(every))


def column_with(s: Step, t: Tree, name: str, value: Operand, n: int, what: Draws) -> list[Tensor]:
    """A column [B, N, ...] and its values [B, n, ...] for n draws: one for each draw, one for each row, or the same for all."""
    a = s.lanes(value)
    lead = a.ndim - 1 - isinstance(value, Dist)
    a = a.flatten(1, lead) if lead > 1 else a[:, None] if lead == 0 else a
    if int(a.shape[1]) != n:
        a = a.expand(-1, n, *a.shape[2:]) if int(a.shape[1]) == 1 else s.take(a, leading(what))
    return alike([column(s, t, name, a), a])


def column(s: Step, t: Tree, name: str, like: Tensor | None = None) -> Tensor:
    """A column as it is, [B, N, ...]: zeros, like another, where it was never set; log-probabilities are cumulative."""
    if name in t.columns or name == "logprob":
        return t.columns[name] if name in t.columns else path_logs(s, t, "raw")
    zeros: Tensor = s.lanes(np.zeros(1)) if like is None else like
    return zeros.new_zeros((s.frame.batch, t.size, *zeros.shape[2:]))


@step("tree.get")
def get(s: Step, op: Op, t: Tree) -> Operand:
    """A column over all nodes."""
    c = op.attrs["column"]
    if isinstance(t.base, Canvas):
        return canvas_trees.column(s, t, c, op)
    if c == "parent" or c == "depth":
        out = t.parent if c == "parent" else t.depth
        if t.live is None:
            return out
    elif c == "token":
        out = torch.cat([last_token(s)[:, None], t.token[:, 1:].clamp(min=0)], 1)
    elif c == "logprob":
        out = column(s, t, c)
        useful = None if t.pruned else reachable(s, t)  # nodes that the driver does not draft are selected last
        out = out if useful is None else torch.where(useful, out, -torch.inf)
    elif c == "prob":
        out = s.lanes(np.ones(1)) if t.edges is None else s.cat([np.ones(1), probs_of(s, t.edges)])
    elif c == "point":
        point = t.edges is not None and t.edges.point
        out = s.cat([np.ones(1, dtype=bool), point if isinstance(point, Tensor) else np.full(t.size - 1, point)])
    elif c in ("law", "draw"):
        root = Draws(last_token(s)[:, None], point=True)
        every = root if t.edges is None else s.one_draws([root, t.edges])
        return sources_of(s, every) if c == "law" else every
    elif c in t.columns:
        out = t.columns[c]
        if op.result.type.elem == "dist":
            return dist_of(s, out)
    elif op.result.type.elem in ("int", "real", "bool"):  # no path of this step sets it
        out = column(s, t, c)
        out = out if op.result.type.elem == "real" else out.to(torch.bool if op.result.type.elem == "bool" else torch.int64)
    else:
        raise NotSteppable(f"the column {c}", op)
    return made(s.lanes(out), None if t.live is None else s.lanes(t.live))


def counted(s: Step, t: Tree, first: int, live: Tensor | None) -> int | Tensor:
    """How many nodes from `first` on a driver drafts, of those that are there: int64[B], or a number."""
    useful = reachable(s, t)
    if useful is None:
        return t.size - first if live is None else live[:, first:].sum(1)
    there = s.lanes(useful)[:, first:]
    return (there if live is None else there & live[:, first:]).sum(1)


@step("tree.set")
def put(s: Step, op: Op, t: Tree, ns: Operand, value: Operand) -> Tree:
    """Set a column at nodes."""
    name, at = op.attrs["column"], s.nodes_of(ns)
    old, new = column_with(s, t, name, value, count_of(at), Draws(at.ids))
    where = at.ids if at.live is None else torch.where(at.live, at.ids, t.size)
    index = beside(where, new).expand(-1, -1, *new.shape[2:])
    return replace(t, columns={**t.columns, name: spare(old).scatter(1, index, new)[:, :-1]})


@step("tree.front")
def front(s: Step, op: Op, t: Tree, ns: Operand) -> Tree:
    """The tree with another frontier."""
    return replace(t, frontier=s.nodes_or_static(ns, np.arange(t.size)))


@step("tree.nodes")
def nodes(s: Step, op: Op, t: Tree, *n: Operand) -> Operand:
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
        live, inner = s.lives(t), s.lanes(np.zeros(t.size, dtype=np.uint8))  # CUDA folds no bools
        if t.size > 1:
            inner = inner.scatter_reduce(1, s.lanes(t.parent)[:, 1:], live[:, 1:].to(torch.uint8), "amax")
        found = s.packed(_of(s, np.arange(t.size), live & (inner == 0)))
        found = s.first_of(found, min(t.size, t.wide))  # what is there of a tree has no more leaves than the whole
        return replace(s.nodes_of(found), leaves=t.size)
    if which == "path":
        if t.fixed and is_static(n[0]):
            node, way = int(np.asarray(n[0])), [int(np.asarray(n[0]))]
            while node:
                node = int(t.parent[node])
                way.append(node)
            return np.array(way[::-1], dtype=np.int64)
        path = node_path(s, t, s.lanes(n[0]).reshape(-1, 1))[:, 0, : t.height]
        ids = s.lanes(s.cat([ROOT, path]))
        return Nodes(ids.clamp(min=0), np.arange(t.size), ids >= 0)
    if which == "children" and t.fixed and t.live is None and is_static(n[0]):
        return np.array([k for k in range(1, t.size) if t.parent[k] == int(n[0])], dtype=np.int64)
    if which == "children":
        at = s.lanes(n[0])
        ids, live = children(s, t, at)
        return Nodes(ids, np.arange(t.size), live)
    raise NotSteppable(f"the {which} of a tree", op)


@step("tree.size")
def size(s: Step, op: Op, t: Tree) -> Operand:
    """How many drafted nodes, or how deep."""
    if op.attrs["what"] == "size":
        return t.size - 1 if t.live is None else s.lanes(t.live)[:, 1:].sum(1)
    if isinstance(t.depth, np.ndarray) and t.live is None:
        return int(t.depth.max(initial=0))
    depth = s.lanes(t.depth)
    return (depth if t.live is None else torch.where(s.lanes(t.live), depth, 0)).amax(1)


@step("tree.keep")
def keep(s: Step, op: Op, t: Tree, ns: Operand) -> Tree:
    """Prune to nodes, as far as their ancestors are kept, and the root."""
    at, up = s.nodes_of(ns), s.lanes(t.parent)
    kept = s.lanes(np.zeros(t.size + 1, dtype=bool))
    kept = kept.scatter(1, at.ids if at.live is None else torch.where(at.live, at.ids, t.size), True)[:, : t.size]
    kept[:, 0] = True
    for _ in range(max(0, t.height)):
        kept = kept & kept.gather(1, up)
    kept = kept if t.live is None else kept & s.lanes(t.live)
    n = min(t.size, count_of(at) + 1)
    order = torch.sort((~kept).to(torch.uint8), dim=1, stable=True).indices[:, :n]
    there = kept.gather(1, order)
    place = s.lanes(np.zeros(t.size + 1, dtype=np.int64))
    place = place.scatter(1, torch.where(there, order, t.size), s.lanes(s.steps(n)[None]))[:, : t.size]
    s.counts.draft(counted(s, t, 1, kept) - counted(s, t, 1, t.live))
    above = place.gather(1, up.gather(1, order))
    columns = {**t.columns, "logprob": column(s, t, "logprob")} if s.reads_column("logprob") else t.columns
    return replace(
        t,
        token=torch.where(there, s.take(t.token, order), -1),
        parent=above,
        depth=s.take(t.depth, order),
        uid=torch.where(there, s.take(t.uid, order), -1),
        edges=None if t.edges is None else s.reordered(t.edges, (order[:, 1:] - 1).clamp(min=0), None),
        growths=(Growth(1, n - 1, Nodes(above, np.arange(n)), max(1, t.height)),),
        grown=frozenset((-1, 0)),
        pruned=True,
        live=there,
        columns={name: s.take(a, order) for name, a in columns.items()},
        height=min(t.height, n - 1),
        new=ROOT,
        frontier=ROOT,
    )


FOLDS = {"all": torch.logical_and, "any": torch.logical_or, "sum": torch.add, "max": torch.maximum, "min": torch.minimum}


@step("tree.down")
def down(s: Step, op: Op, t: Tree, x: Operand) -> Operand:
    """A fold of a column along the path from the root to every node."""
    fn = op.attrs["fn"]
    a, up, depth = s.lanes(x), s.lanes(t.parent), s.lanes(t.depth)
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
def up(s: Step, op: Op, t: Tree, x: Operand) -> Operand:
    """A fold of a column over what stands below every node."""
    fn = op.attrs["fn"]
    a, parent, depth = s.lanes(x), s.lanes(t.parent), s.lanes(t.depth)
    how = {"all": "amin", "any": "amax", "sum": "sum", "max": "amax", "min": "amin"}[fn]
    logic = fn in ("all", "any")
    a = a.to(torch.uint8) if logic else a
    live = s.lives(t)
    for level in range(t.height, 0, -1):
        here = (depth == level) & live
        where = torch.where(here, parent, t.size)
        a = spare(a).scatter_reduce(1, where, a, how)[:, : t.size]
    return made(a.bool() if logic else a, None if t.live is None else live)


# -- one of two
@joins(Nodes)
def join_nodes(s: Step, lanes: Tensor, a: Operand, b: Operand) -> Nodes:
    """One of two vectors of nodes in every lane. lanes: bool[B]."""
    x, y = s.nodes_of(a), s.nodes_of(b)
    within = None if x.within is None or y.within is None else np.union1d(x.within, y.within)
    return Nodes(s.either(lanes, x.ids, y.ids), within, s.either_live(lanes, x, y))


@joins(Tree)
def join_trees(s: Step, lanes: Tensor, a: Operand, b: Operand) -> Tree:
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
        x, y = (column(s, t, name, u.columns.get(name)) for t, u in ((a, b), (b, a)))
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


def _of_two(s: Step, lanes: Tensor, a: NodeSet, b: NodeSet) -> NodeSet:
    """Nodes of one of two trees."""
    same = a is b or is_static(a) and is_static(b) and np.array_equal(a, b)
    return a if same else join_nodes(s, lanes, a, b)


def _either(s: Step, lanes: Tensor, a: Tree, b: Tree, out: Tree, first: int) -> Tree:
    """The structure of one of two trees from a node on, place by place: new nodes, if none of them was computed."""
    size, new = out.size, np.concatenate([a.uid[first:], b.uid[first:]])
    for cache in s.caches.values():
        if not isinstance(cache, Cache):
            continue
        if any(len(cache.whole) > u and cache.whole[u] for u in new) or cache.recent > new.min():
            raise NotSteppable("two branches that grow a tree differently, and call models at its nodes", s.place)

    def either_of(x: Array, y: Array) -> Array:
        if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
            n = min(len(x), len(y))
            if (x[:n] == y[:n]).all():
                return x if len(x) >= n and len(x) == size else y
        return s.either(lanes, fitted(s.lanes(x), size), fitted(s.lanes(y), size))

    k = next((i for i, (g, h) in enumerate(zip(a.growths, b.growths)) if g is not h), min(len(a.growths), len(b.growths)))
    parent = either_of(a.parent, b.parent)
    within = np.unique(np.concatenate([within_of(g.above, size) for g in (*a.growths[k:], *b.growths[k:])]))
    above = Nodes(s.lanes(parent)[:, first:], within)
    levels = max(sum(g.levels for g in x.growths[k:]) for x in (a, b))
    start = min(g.first for x in (a, b) for g in x.growths[k:])
    edges = s.join(lanes, a.edges, b.edges)
    assert isinstance(edges, Draws)
    return replace(
        out,
        token=s.either(lanes, a.token, b.token),
        parent=parent,
        depth=either_of(a.depth, b.depth),
        uid=np.concatenate([out.uid[:first], s.next_uids(size - first)]),
        edges=replace(edges, live=None, at=None),
        height=max(a.height, b.height),
        growths=(*a.growths[:k], Growth(start, size - start, above, levels)),
        grown=frozenset(min(g, k) for g in out.grown),
    )
