"""Implementations of ir/ops/trees.py on the device: trees grow by counts, so their structure is static as far as possible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.step.effects import last_token
from decgraph.backends.triton.step.evaluate import NotCapturable, device, is_static
from decgraph.backends.triton.step.numbers import flat_draws
from decgraph.backends.triton.step.rows import probs_of
from decgraph.backends.triton.step.values import Context, DeviceDraws, DeviceTree, Growth, LogProbs, Nodes


@device("tree.new")
def new(s: Any, op: Any, base: Any = None) -> DeviceTree:
    """A tree of a root alone."""
    base = Context(s.length) if base is None else base
    if not isinstance(base, Context) or base.parent:
        raise NotCapturable("a tree that does not grow from the context", op)
    zero = np.zeros(1, dtype=np.int64)
    token = s.constant(np.full((s.frame.batch, 1), -1, dtype=np.int64))
    logprob = LogProbs(s.constant(np.zeros((s.frame.batch, 1))))
    return DeviceTree(base, token, zero, zero, zero - 1, epoch=s.epoch, logprob=logprob, until=op.attrs.get("until", ()))


@device("tree.grow")
def grow(s: Any, op: Any, t: DeviceTree, what: Any, *rest: Any) -> tuple[DeviceTree, Any]:
    """The tree with draws grown into it, and the new nodes."""
    at, values = (rest[0], rest[1:]) if op.attrs.get("has_at") else (None, rest)
    if not isinstance(what, DeviceDraws):
        raise NotCapturable("only draws are grown on the device", op)
    if t.origin is not None:
        raise NotCapturable("growth of a tree whose pruning depends on data", op)
    flat = flat_draws(s, what)
    n = flat.shape[0]
    first = t.size
    ids = np.arange(first, first + n)
    if op.attrs.get("chain"):
        top = int(np.ravel(np.asarray(at))[0]) if at is not None else 0
        parents, above = np.concatenate(([top], ids[:-1])), np.concatenate(([top], ids[:-1]))
    else:
        parents, above = parents_of(s, t, what, at, op)
    if not certain(flat):
        s.unchecked.append(flat.tokens)  # -1, a draw without mass: the driver grows no node then
    depth = depths(t, parents, above, op)
    columns = {}
    for name, value in zip(op.attrs.get("columns", ()), values, strict=True):
        columns[name] = torch.cat([column(s, t, name), spread(s, value, n, what)], 1)
    if "logprob" in columns:
        raise NotCapturable("a column of its own for logprob", op)
    for name in set(t.columns) - set(columns):
        columns[name] = torch.cat([t.columns[name], t.columns[name].new_zeros((s.frame.batch, n))], 1)
    s.tally.drafted += n
    if t.fixed and isinstance(parents, np.ndarray):
        parent: Any = np.concatenate([t.parent, parents])
    else:
        parent = torch.cat([batched(s, t.parent), batched(s, parents)], 1)
    tree = replace(
        t,
        token=torch.cat([t.token, flat.tokens], 1),
        parent=parent,
        depth=np.concatenate([t.depth, depth]),
        uid=np.concatenate([t.uid, s.next_uids(n)]),
        height=max(t.height, int(depth.max(initial=0))),
        growths=(*t.growths, Growth(flat, first, n, above)),
        columns=columns,
        logprob=None if t.logprob is None else LogProbs(t.logprob.known),
        new=ids,
        frontier=ids,
    )
    return tree, ids


def certain(x: DeviceDraws) -> bool:
    """Whether every draw has a token, whatever the data."""
    return x.point


def batched(s: Any, a: Any) -> Tensor:
    """int64[B, N] of a static array [N] or of a tensor by sequence."""
    if isinstance(a, Tensor):
        return a.contiguous()
    out: Tensor = s.constant(np.broadcast_to(a, (s.frame.batch, len(a))))
    return out


def depths(t: DeviceTree, parents: Any, above: Any, op: Any) -> np.ndarray:
    """int64[n]: the depths of new nodes, static where all possible parents have the same depth."""
    if isinstance(parents, np.ndarray) and (t.fixed or not isinstance(above, Nodes)):
        first = t.size
        out = np.zeros(len(parents), dtype=np.int64)
        for i, p in enumerate(parents.tolist()):
            out[i] = 1 + (t.depth[p] if p < first else out[p - first])
        return out
    among = above.within if isinstance(above, Nodes) else above
    levels = np.unique(t.depth[among]) if among is not None else np.zeros(0)
    if len(levels) != 1:
        raise NotCapturable("nodes at a data-dependent depth", op)
    return np.full(int(parents.shape[-1]), 1 + int(levels[0]), dtype=np.int64)


def parents_of(s: Any, t: DeviceTree, what: DeviceDraws, at: Any, op: Any) -> tuple[Any, Any]:
    """The parent of every draw, int64[n] or int64[B, n], and the nodes that include them."""
    shape = what.shape
    n = int(np.prod(shape))
    width = int(np.prod(shape[1:])) if len(shape) > 1 else 1
    leading = np.arange(n) // width if shape else np.zeros(n, dtype=np.int64)
    if at is not None:
        if isinstance(at, Tensor):
            raise NotCapturable("growth at data-dependent nodes", op)
        if isinstance(at, Nodes):
            full = at.count == n
            return (at.ids if full else at.ids.index_select(1, s.constant(leading))), at
        ids = np.ravel(np.asarray(at, dtype=np.int64))
        if len(ids) == 1:
            found = np.full(n, ids[0])
        else:
            found = ids[:1] if n == 1 and not shape else ids if np.shape(at) == shape else ids[leading]
        return found, found
    if what.rows is not None and what.rows.nodes is not None:
        nodes, row = what.rows.nodes, what.row
        if isinstance(nodes, Nodes):
            index = row.flatten(1) if isinstance(row, Tensor) else s.constant(np.broadcast_to(row, shape).reshape(-1))
            return (nodes.ids.gather(1, index) if isinstance(row, Tensor) else nodes.ids.index_select(1, index)), nodes
        if len(nodes) == 1:
            return np.full(n, nodes[0]), nodes
        if isinstance(row, Tensor):
            return s.constant(nodes)[row.flatten(1) if row.ndim > 1 else row[:, None]], nodes
        found = nodes[np.broadcast_to(row, shape).reshape(-1)]
        return found, found
    front = t.frontier
    if isinstance(front, Nodes):
        raise NotCapturable("growth at a data-dependent frontier", op)
    if len(front) > 1 and shape and len(front) == shape[0]:
        return front[leading], front
    return np.full(n, front[0]), front[:1]


def spread(s: Any, value: Any, n: int, what: DeviceDraws) -> Tensor:
    """A column's values [B, n]: one for each draw, one for each row, or the same for all."""
    if isinstance(value, DeviceDraws):
        value = value.tokens
    if not isinstance(value, Tensor):
        value = s.constant(np.broadcast_to(np.asarray(value, dtype=np.float64), (1,)))[None].expand(s.frame.batch, -1)
    flat = value.flatten(1) if value.ndim > 1 else value[:, None]
    if int(flat.shape[1]) == n:
        return flat
    if int(flat.shape[1]) == 1:
        return flat.expand(-1, n)
    width = int(np.prod(what.shape[1:])) if len(what.shape) > 1 else 1
    return flat.index_select(1, s.constant(np.arange(n) // width))


def column(s: Any, t: DeviceTree, name: str) -> Tensor:
    """An author's column as it is, zeros where it was never set."""
    if name in t.columns:
        return t.columns[name]
    return s.constant(np.zeros((s.frame.batch, t.size)))


@device("tree.get")
def get(s: Any, op: Any, t: DeviceTree) -> Any:
    """A column over all nodes, [B, N]; parent and depth as NumPy where they are static."""
    c = op.attrs["column"]
    if c in ("parent", "depth"):
        return t.parent if c == "parent" else t.depth
    if c == "token":
        return torch.cat([last_token(s)[:, None], t.token[:, 1:].clamp(min=0)], 1)
    if c == "logprob" and t.origin is None:
        # nodes that the driver does not draft are selected last
        useful = live(s, t)
        return logprobs(s, t) if useful is None else torch.where(useful, logprobs(s, t), -torch.inf)
    if c == "prob":
        return torch.cat([s.constant(np.ones((s.frame.batch, 1))), probs(s, t)], 1)
    if c in t.columns:
        return t.columns[c]
    raise NotCapturable(f"the column {c}", op)


def live(s: Any, t: DeviceTree) -> Tensor | None:
    """bool[B, N]: the nodes that the driver drafts, which ends at the request's limit and under tokens that end the text
    (ir/places.py); None: all. A step drafts further, since its trees have the same size in every iteration."""
    if "limit" not in t.until:
        return None
    place = "place" in t.until or ("greedy place" in t.until and s.frame.shape.greedy)
    reach = s.limit.long() - (t.base.length - s.base).long() - int(place)
    depth = t.depth if isinstance(t.depth, Tensor) else s.constant(t.depth)[None]
    out = depth <= reach[:, None]
    if "ends" not in t.until:
        return out
    parent = batched(s, t.parent).clamp(min=0)
    ends = (t.token[:, :, None] == s.ends[:, None, :]).any(-1)
    behind = ends.gather(1, parent)
    for _ in range(t.height - 1):
        behind = behind | behind.gather(1, parent)
    return out & ~behind


def probs(s: Any, t: DeviceTree) -> Tensor:
    """float64[B, N - 1]: the raw probability of every drafted token where it was drawn."""
    if not t.growths:
        return s.constant(np.zeros((s.frame.batch, 0)))
    out = torch.cat([probs_of(s, g.draws) for g in t.growths], 1)
    return out if t.origin is None else out.gather(1, (t.origin[:, 1:] - 1).clamp(min=0))


def logprobs(s: Any, t: DeviceTree) -> Tensor:
    """float64[B, N]: cumulative log-probabilities."""
    assert t.logprob is not None, "log-probabilities after a data-dependent selection"
    known = t.logprob.known
    done = int(known.shape[1])
    for g in t.growths:
        if g.first < done:
            continue
        above = known.gather(1, batched(s, t.parent[..., g.first : g.first + g.count]))
        known = torch.cat([known, above + torch.log(probs_of(s, g.draws))], 1)
        done = g.first + g.count
    t.logprob.known = known
    return known


@device("tree.set")
def put(s: Any, op: Any, t: DeviceTree, ns: Any, value: Any) -> DeviceTree:
    """Set a column at static nodes."""
    name = op.attrs["column"]
    if isinstance(ns, Nodes) or name == "logprob":
        raise NotCapturable("a column set at data-dependent nodes", op)
    ids = np.ravel(np.asarray(ns, dtype=np.int64))
    cached = column(s, t, name)
    if isinstance(value, Tensor):
        new = value.flatten(1).to(cached.dtype) if value.ndim > 1 else value[:, None].to(cached.dtype)
    elif not is_static(value):
        raise NotCapturable(f"the column {name} of a {type(value).__name__.removeprefix('Device').lower()}", op)
    else:
        new = s.constant(np.broadcast_to(np.asarray(value, dtype=np.float64), (1, len(ids)))).to(cached.dtype)
    new = new.expand(s.frame.batch, len(ids))
    where = np.zeros(t.size, dtype=np.int64)
    where[ids] = np.arange(len(ids))
    mask = np.zeros((1, t.size), dtype=bool)
    mask[0, ids] = True
    wide = new.index_select(1, s.constant(where))
    return replace(t, columns={**t.columns, name: torch.where(s.constant(mask), wide, cached)})


@device("tree.front")
def front(s: Any, op: Any, t: DeviceTree, ns: Any) -> DeviceTree:
    """The tree with another frontier."""
    return replace(t, frontier=ns if isinstance(ns, Nodes) else np.ravel(np.asarray(ns, dtype=np.int64)))


@device("tree.nodes")
def nodes(s: Any, op: Any, t: DeviceTree, *n: Any) -> Any:
    """Nodes of a tree, static where its structure is."""
    which = op.attrs["which"]
    if which == "root":
        return 0
    if which == "all":
        return np.arange(t.size)
    if which == "drafted":
        return np.arange(1, t.size)
    if which in ("frontier", "new"):
        return t.frontier if which == "frontier" else t.new
    if which == "leaves" and t.fixed:
        return t.leaves()
    raise NotCapturable(f"the {which} of a data-dependent tree", op)


@device("tree.size")
def size(s: Any, op: Any, t: DeviceTree) -> int:
    """How many drafted nodes, or how deep."""
    if op.attrs["what"] == "size":
        return t.size - 1
    if not t.fixed:
        raise NotCapturable("the height of a data-dependent tree", op)
    return t.height


@device("tree.keep")
def keep(s: Any, op: Any, t: DeviceTree, ns: Any) -> DeviceTree:
    """Prune to nodes and the root. On the device their ancestors have to be among them; where they are not, the driver runs the
    request again, and prunes further."""
    if t.origin is not None:
        raise NotCapturable("a tree that is pruned twice", op)
    ids = ns.ids if isinstance(ns, Nodes) else batched(s, np.ravel(np.asarray(ns, dtype=np.int64)))
    kept = torch.cat([s.constant(np.zeros((s.frame.batch, 1), dtype=np.int64)), ids.sort(1).values], 1)
    n = int(kept.shape[1])
    s.tally.drafted -= t.size - n
    place = torch.full((s.frame.batch, t.size), -1, dtype=torch.int64, device=s.device)
    place = place.scatter(1, kept, s.steps(n).expand(s.frame.batch, -1))
    parent = place.gather(1, batched(s, t.parent).gather(1, kept))
    s.flag(parent < 0)
    zero = np.zeros(1, dtype=np.int64)
    return replace(
        t,
        token=t.token.gather(1, kept),
        parent=parent.clamp(min=0),
        depth=s.constant(t.depth)[kept],
        origin=kept,
        columns={k: v.gather(1, kept) for k, v in t.columns.items()},
        height=min(t.height, n - 1),
        logprob=None,
        new=zero,
        frontier=zero,
    )
