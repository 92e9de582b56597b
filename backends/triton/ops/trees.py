"""Trees of drafts: growing, columns, pruning, folds along paths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import joins, step
from decgraph.backends.triton.ops.distributions import dist_of
from decgraph.backends.triton.ops.draws import path_logs, probs_of, sources_of
from decgraph.backends.triton.ops.nodes import below_ends, children, last_token, reachable
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import (
    ROOT,
    Array,
    Context,
    Dist,
    Draws,
    Growth,
    Nodes,
    NodeSet,
    Operand,
    Tree,
    is_static,
)
from decgraph.backends.triton.vectors import (
    alike,
    both,
    count_of,
    fitted,
    flat,
    flat_draws,
    order_of,
    spare,
    vec_of,
    with_at,
    within_of,
)
from decgraph.ir.values import Op


@step("tree.new")
def new(s: Step, op: Op, base: Operand = None) -> Tree:
    """A tree of a root alone."""
    base = Context(s.length.clone()) if base is None else base
    if op.result.type.of[1] == "edit":
        raise NotSteppable("a tree of canvases, each of which is a call of its own", op)
    if not isinstance(base, Context) or base.parent:
        raise NotSteppable("a tree that does not grow drafts from the context", op)
    until = tuple(op.attrs.get("until", ()))
    ended = (s.lanes(ROOT > 0),) if "ends" in until and s.as_driver else ()
    return Tree(base, s.lanes(ROOT - 1), ROOT, ROOT, ROOT - 1, epoch=s.epoch, until=until, ended=ended)


@step("tree.grow")
def grow(s: Step, op: Op, t: Tree, what: Operand, *rest: Operand) -> tuple[Tree, Operand]:
    """The tree with draws grown into it, and the new nodes."""
    at, values = (rest[0], rest[1:]) if op.attrs.get("has_at") else (None, rest)
    if not isinstance(what, Draws):
        raise NotSteppable("only draws are grown in a step", op)
    if t.pruned:
        raise NotSteppable("a tree that grows after it was pruned", op)
    chain, names, grown = bool(op.attrs.get("chain")), op.attrs.get("columns", ()), flat_draws(what)
    grown = s.packed(grown) if chain else grown
    if chain and s.longest_chain is not None:
        grown = s.first_of(grown, min(s.longest_chain, grown.shape[0]))
    n, first = grown.shape[0], t.size
    ids = np.arange(first, first + n)
    below = _chain_below(s, op, t, ROOT if at is None else at, ids) if chain else None
    parents, above = parents_of(s, op, t, what, at) if below is None else (below, below)
    live = grown.live
    if isinstance(above, Nodes) and above.live is not None and isinstance(parents, Tensor):
        # Whether parents int64[B, n] are among the nodes that are there.
        live = both(live, ((above.ids[:, None, :] == parents[..., None]) & above.live[:, None]).any(-1))
    if t.live is not None:
        heads = s.lanes(parents)[:, :1].expand(-1, n) if chain else s.lanes(parents)
        live = both(live, s.lanes(t.live).gather(1, heads))
    depth = depths(s, t, parents, above, n)
    if str(op.operands[0].type.of[0]) in s.unforked and not (is_static(parents) and np.array_equal(parents, ids - 1)):
        raise NotSteppable("it looks at which drafts there are, which data decides", op)
    columns = {name: fitted(old, first + n) for name, old in t.columns.items() if name not in names}
    for name, value in zip(names, values, strict=True):
        columns[name] = torch.cat(column_with(s, t, name, value, n, what), 1)
    edges = replace(grown, at=None, live=None)
    tokens = grown.tokens if live is None else torch.where(live, grown.tokens, -1)
    tree = replace(
        t,
        token=torch.cat([t.token, tokens], 1),
        parent=s.cat([t.parent, parents]),
        depth=depth,
        uid=s.cat([t.uid, s.next_uids(n)]),
        edges=edges if t.edges is None else s.one_draws([t.edges, edges]),
        live=s.lives_of([t, replace(grown, live=live)]),
        height=t.height + (n if chain else 1) if isinstance(depth, Tensor) else int(depth.max(initial=0)),
        most=_most(t, parents, above, what, n),
        growths=(*t.growths, Growth(first, n, above, tokens, max(1, n if chain else 1))),
        ended=(*t.ended, below_ends(s, t, parents, tokens)) if t.ended and isinstance(parents, np.ndarray) else (),
        columns=columns,
        new=_of(s, ids, live),
        frontier=_of(s, ids, live),
        grown=t.grown | _spans(t, above),
    )
    there = both(reachable(s, tree, True), live)
    s.counts.draft(n if there is None else s.lanes(there).sum(1))
    return tree, tree.new


def _chain_below(s: Step, op: Op, t: Tree, at: Operand, ids: np.ndarray) -> np.ndarray:
    """NumPy int64[n]: the parents of a chain of new nodes below the first of some nodes."""
    head = s.nodes_or_static(at, np.arange(t.size))
    if isinstance(head, Nodes) or isinstance(t.depth, Tensor):
        raise NotSteppable("a chain that grows at nodes that data chooses", op)
    return np.concatenate((head[: min(1, len(ids))], ids[:-1]))


def _of(s: Step, ids: np.ndarray, live: Tensor | None) -> NodeSet:
    """Static nodes, as Nodes where some may be dead."""
    return ids if live is None else Nodes(s.lanes(ids), ids, s.lanes(live))


def _spans(t: Tree, above: NodeSet) -> frozenset[int]:
    """The growths that nodes are of, by number; the root's is -1."""
    found = np.searchsorted([g.first for g in t.growths], within_of(above, t.size), side="right")
    return frozenset((found - 1).tolist())


def _most(t: Tree, parents: Array, above: NodeSet, what: Draws, n: int) -> int:
    """The most children of a node after a growth."""
    if not isinstance(t.parent, Tensor) and isinstance(parents, np.ndarray):
        return int(np.bincount(np.concatenate([t.parent[1:], parents]), minlength=1).max())
    each = int(np.prod(what.shape[1:])) if len(what.shape) > 1 else n
    here = int(np.bincount(parents, minlength=1).max()) if isinstance(parents, np.ndarray) else each
    return t.most + here if t.grown & _spans(t, above) else max(t.most, here)


def depths(s: Step, t: Tree, parents: Array, above: NodeSet, n: int) -> Array:
    """The depths of all nodes with the new ones, NumPy int64[N + n] where they are static, else int64[B, N + n]."""
    if isinstance(t.depth, np.ndarray) and isinstance(parents, np.ndarray):
        out = [*t.depth]
        for p in parents.tolist():
            out.append(1 + out[p])
        return np.array(out, dtype=np.int64)
    if isinstance(t.depth, np.ndarray) and len(levels := set(t.depth[within_of(above, t.size)].tolist())) == 1:
        return np.concatenate([t.depth, np.full(n, 1 + levels.pop())])
    old = s.lanes(t.depth)
    return torch.cat([old, old.gather(1, s.lanes(parents)) + 1], 1)


def leading(what: Draws) -> np.ndarray:
    """NumPy int64[n]: the place along axis 0 of every draw."""
    return np.repeat(np.arange(what.shape[0]), int(np.prod(what.shape[1:]))) if what.shape else ROOT


def parents_of(s: Step, op: Op, t: Tree, what: Draws, at: Operand) -> tuple[Array, NodeSet]:
    """The parent of every draw, NumPy int64[n] or int64[B, n], and the nodes that include them."""
    n = int(np.prod(what.shape))
    if at is None and what.sources and what.row is not None and all(x.rows.nodes is not None for x in what.sources):
        return _where_drawn(s, t, what)
    if at is None:
        return _at_frontier(op, t, what)
    above = s.nodes_or_static(at, np.arange(t.size))
    ids = above if isinstance(above, np.ndarray) else s.lanes(above.ids)
    if count_of(ids) == 1:
        ids = np.repeat(ids, n) if isinstance(ids, np.ndarray) else ids.expand(-1, n)
    elif count_of(ids) != n:
        ids = s.take(ids, leading(what))
    return ids, ids if isinstance(ids, np.ndarray) else above


def _at_frontier(op: Op, t: Tree, what: Draws) -> tuple[np.ndarray, np.ndarray]:
    """The parents of draws that know no nodes: those of the frontier, one for each row where there are as many, else the first
    one, or the root where there is none."""
    rows, row, front = what.shape[0] if what.shape else 1, leading(what), t.frontier
    if isinstance(front, Nodes) or what.shape and what.live is not None or t.until and len(front) > 1:
        raise NotSteppable("draws of no model's rows grow at nodes of which a driver has fewer", op)
    front = front if len(front) else ROOT
    return (front[row], front) if len(front) == rows else (np.full(len(row), front[0]), front[:1])


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
    elif c in ("law", "draw"):
        root = Draws(last_token(s)[:, None], point=True)
        every = root if t.edges is None else s.one_draws([root, t.edges])
        return sources_of(s, every) if c == "law" else every
    elif c in t.columns:
        out = t.columns[c]
        if op.result.type.elem == "dist":
            return dist_of(s, out)
    else:
        raise NotSteppable(f"the column {c}", op)
    return vec_of(s.lanes(out), None if t.live is None else s.lanes(t.live))


def counted(s: Step, t: Tree, live: Tensor | None) -> int | Tensor:
    """How many nodes a driver drafts, of those that are there: int64[B], or a number."""
    there = both(reachable(s, t), live)
    return t.size - 1 if there is None else s.lanes(there)[:, 1:].sum(1)


@step("tree.set")
def put(s: Step, op: Op, t: Tree, ns: Operand, value: Operand) -> Tree:
    """Set a column at nodes."""
    name, at = op.attrs["column"], s.nodes_of(ns)
    old, new = column_with(s, t, name, value, count_of(at), Draws(at.ids))
    where = at.ids if at.live is None else torch.where(at.live, at.ids, t.size)
    return replace(t, columns={**t.columns, name: with_at(spare(old), where, new)[:, :-1]})


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
        if isinstance(t.parent, Tensor) or t.live is not None:
            raise NotSteppable("the leaves of a tree that data makes", op)
        return np.setdiff1d(np.arange(t.size), t.parent[1:])
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
    raise NotSteppable("the depth of a tree that data makes", op)


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
    order = order_of((~kept).to(torch.uint8))[:, :n]
    there = kept.gather(1, order)
    place = s.lanes(np.zeros(t.size + 1, dtype=np.int64))
    place = with_at(place, torch.where(there, order, t.size), s.lanes(s.steps(n)[None]))[:, : t.size]
    s.counts.draft(counted(s, t, kept) - counted(s, t, t.live))
    above = place.gather(1, up.gather(1, order))
    columns = {**t.columns, "logprob": column(s, t, "logprob")} if s.reads_column("logprob") else t.columns
    return replace(
        t,
        token=torch.where(there, s.take(t.token, order), -1),
        parent=above,
        depth=s.take(t.depth, order),
        uid=torch.where(there, s.take(t.uid, order), -1),
        edges=None if t.edges is None else s.reordered(t.edges, (order[:, 1:] - 1).clamp(min=0), None),
        pruned=True,
        live=there,
        columns={name: s.take(a, order) for name, a in columns.items()},
        ended=(),
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
    return vec_of(a, None if t.live is None else s.lanes(t.live))


# -- one of two
@joins(Nodes)
def join_nodes(s: Step, lanes: Tensor, a: Operand, b: Operand) -> Nodes:
    """One of two vectors of nodes in every lane. lanes: bool[B]."""
    x, y = s.nodes_of(a), s.nodes_of(b)
    within = None if x.within is None or y.within is None else np.union1d(x.within, y.within)
    return Nodes(s.either(lanes, x.ids, y.ids), within, s.either_live(lanes, x, y))


@joins(Tree)
def join_trees(s: Step, lanes: Tensor, a: Operand, b: Operand) -> Tree:
    """A tree and what it has grown to in some lanes; the new nodes are dead in the others. lanes: bool[B]."""
    if not (isinstance(a, Tree) and isinstance(b, Tree)):
        raise NotSteppable("one of two trees", s.place)
    long, short = (a, b) if a.size >= b.size else (b, a)
    same = all(g is h for g, h in zip(short.growths, long.growths)) and len(short.growths) <= len(long.growths)
    if long.pruned or short.pruned or not same:
        raise NotSteppable("a tree whose form data decides", s.place)
    return replace(
        long,
        live=s.either_live(lanes, a, b),
        frontier=_of_two(s, lanes, a.frontier, b.frontier),
        new=_of_two(s, lanes, a.new, b.new),
        most=max(a.most, b.most),
        grown=a.grown | b.grown,
    )


def _of_two(s: Step, lanes: Tensor, a: NodeSet, b: NodeSet) -> NodeSet:
    """Nodes of one of two trees."""
    same = a is b or is_static(a) and is_static(b) and np.array_equal(a, b)
    return a if same else join_nodes(s, lanes, a, b)
