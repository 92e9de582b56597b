"""Distributions: views, softmax, normalising, entries, the request's shaping of computed ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton import shaping
from decgraph.backends.triton.evaluate import joins, step
from decgraph.backends.triton.ops.nodes import node_tokens, positions_at
from decgraph.backends.triton.ops.numbers import live_of, made, reordered, take
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Context, Dist, Draws, Nodes, Path, Rows, Tree, Vec, is_static
from decgraph.ir.ops.common import align, numeric


def dist_of(s: Any, probs: Tensor, like: Any = None) -> Dist:
    """Probabilities [B, *shape, V] as a dist, at the places of `like`, where it has them."""
    probs = s.lanes(probs)
    shape = tuple(probs.shape[1:-1])
    flat = probs.flatten(1, -2) if probs.ndim > 2 else probs[:, None]
    rows = Rows(flat, given=True)
    index = np.arange(int(flat.shape[1])).reshape(shape)
    if isinstance(like, Dist) and like.shape == shape:
        rows.positions = placed(s, like)
        return Dist(rows, index, "shaped", like.at, like.live, like.inner)
    return Dist(rows, index, "shaped", live=live_of(like) if shape else None)


def as_dist(s: Any, q: Any) -> Dist:
    """A distribution; numbers over the vocabulary as one."""
    return q if isinstance(q, Dist) else dist_of(s, s.tensor(q), q)


def flat_index(q: Dist) -> Any:
    """The rows of a dist as one axis: NumPy int64[n] or int64[B, n]."""
    if isinstance(q.index, Tensor):
        return q.index.flatten(1) if q.index.ndim > 1 else q.index[:, None]
    return q.index.reshape(-1)


def placed(s: Any, q: Dist) -> Tensor | None:
    """int64[B, n]: the position of every row of a dist, None where they have none."""
    return None if q.rows.positions is None else take(s, s.lanes(q.rows.positions), flat_index(q))


def numbered(s: Any, q: Any) -> Tensor | None:
    """int64[B, n]: the number of every row of a dist in its tree or canvas; None for rows that are computed."""
    if not isinstance(q, Dist):
        return None
    own = q.rows.numbers
    if own is None and q.rows.nodes is not None:
        own = q.rows.nodes.ids if isinstance(q.rows.nodes, Nodes) else s.constant(np.ravel(q.rows.nodes))[None]
    return None if own is None else take(s, s.lanes(own), flat_index(q))


@joins(Dist)
def join_dists(s: Any, lanes: Tensor, a: Any, b: Any) -> Dist:
    """One of two distributions in every lane, or of two vectors of them. lanes: bool[B]."""
    a, b = as_dist(s, a), as_dist(s, b)
    if a.shape != b.shape and (len(a.shape) != 1 or len(b.shape) != 1):
        raise NotSteppable("different numbers of distributions in two branches", s.place)
    n = max(a.shape[0], b.shape[0]) if a.shape else 0
    live = _lives(s, lanes, a, b, n) if a.live is not None or b.live is not None or a.shape != b.shape else None
    at = a.at if a.at is b.at else _places(s, lanes, a, b, n)
    inner = a.inner if a.inner is b.inner else None
    if a.rows is b.rows and a.face == b.face and a.shape == b.shape:
        index = [x.index if isinstance(x.index, Tensor) else s.constant(x.index)[None] for x in (a, b)]
        wide = lanes.reshape(-1, *([1] * (index[0].ndim - 1)))
        return Dist(a.rows, torch.where(wide, s.lanes(index[0]), s.lanes(index[1])), a.face, at, live, inner)
    computed = a.face == b.face and not a.rows.given and not b.rows.given and a.rows.allow is None and b.rows.allow is None

    def both(parts: list[Tensor], fill: Any = 0) -> Tensor:
        """[B, rows, ...] of one side or the other, with as many rows as the longer one."""
        kind = torch.promote_types(parts[0].dtype, parts[1].dtype)
        if len(a.shape) == 1:
            parts = [torch.cat([x, x.new_full((x.shape[0], n - x.shape[1], *x.shape[2:]), fill)], 1) for x in parts]
        return torch.where(lanes.reshape(-1, *([1] * (parts[0].ndim - 1))), *(x.to(kind) for x in parts))

    # What has yet to be shaped stays so: it has other views.
    table = both([take(s, s.lanes(q.rows.scores if computed else s.view(q.rows, q.face)), flat_index(q)) for q in (a, b)])
    shape = (n,) if len(a.shape) == 1 else a.shape
    rows = Rows(table, given=not computed)
    where = [x for x in (placed(s, a), placed(s, b)) if x is not None]
    rows.positions = (
        both(where) if len(where) == 2 else where[0] if where and int(where[0].shape[1]) == int(table.shape[1]) else None
    )
    marks = [x for x in (numbered(s, a), numbered(s, b)) if x is not None]
    rows.numbers = both(marks) if len(marks) == 2 else None
    if computed and (a.rows.path is not None or b.rows.path is not None):

        def path() -> Tensor:
            found = []
            for q in (a, b):
                none = torch.full((s.frame.batch, q.rows.count, 0), -1, dtype=torch.int64, device=s.device)
                found.append(take(s, s.lanes(none if q.rows.path is None else q.rows.path()), flat_index(q)))
            wide = max(int(x.shape[2]) for x in found)
            return both([torch.cat([x, x.new_full((*x.shape[:2], wide - int(x.shape[2])), -1)], 2) for x in found], -1)

        rows.path = path
    return Dist(rows, np.arange(int(table.shape[1])).reshape(shape), a.face if computed else "shaped", at, live, inner)


def _lives(s: Any, lanes: Tensor, a: Dist, b: Dist, n: int) -> Tensor:
    """bool[B, n]: which rows are there of one of two vectors of distributions."""
    full = []
    for x in (a, b):
        live = torch.ones((s.frame.batch, x.shape[0]), dtype=torch.bool, device=s.device) if x.live is None else s.lanes(x.live)
        full.append(torch.cat([live, live.new_zeros((live.shape[0], n - live.shape[1]))], 1))
    return torch.where(lanes[:, None], *full)


def _places(s: Any, lanes: Tensor, a: Dist, b: Dist, n: int) -> Any:
    """What one of two vectors of distributions is of: nodes or positions."""
    ids = []
    for x in (a, b):
        at = np.arange(x.shape[0]) if x.at is None else x.at
        own = s.lanes(at.ids if isinstance(at, Nodes) else s.constant(np.asarray(at))[None])
        ids.append(torch.cat([own, own.new_full((own.shape[0], n - own.shape[1]), -1)], 1))
    return Nodes(torch.where(lanes[:, None], *ids), None, _lives(s, lanes, a, b, n))


@step("face")
def see(s: Any, op: Any, q: Dist) -> Dist:
    """Another view of the same rows."""
    return replace(q, face=op.attrs["face"])


def _working(a: Tensor) -> Tensor:
    """Scores in the type in which probabilities are computed."""
    return a if a.dtype in (torch.float32, torch.float64) else a.float()


@step("softmax")
def softmax(s: Any, op: Any, x: Any) -> Any:
    """Scores to a distribution."""
    if is_static(x):
        return s.hosted(op, [x])
    out = shaping.softmax(_working(s.tensor(x)))
    return dist_of(s, out, x) if op.result.type.elem == "dist" else made(out, live_of(x))


def normalized(w: Tensor) -> Tensor:
    """Weights [..., V] over their sum; zeros where that is 0."""
    total = shaping.total_of(w)
    return torch.where(total > 0, w / torch.where(total > 0, total, 1), 0)


@step("normalize")
def normalize(s: Any, op: Any, w: Any) -> Dist:
    """Weights over their sum; those that are missing weigh nothing."""
    a, live = s.tensor(w), live_of(w)
    if live is not None and a.ndim == 2:
        return dist_of(s, normalized(torch.where(live, a.double(), 0)))
    return dist_of(s, normalized(s.tensor(w)), w)


@step("lookup")
def lookup(s: Any, op: Any, p: Any, x: Any) -> Any:
    """The entry of a token in each distribution."""
    tp, tx = op.operands[0].type, op.operands[1].type
    front = tp.dims if tp.elem in ("dist", "scores") else tp.dims[:-1]
    tokens, live = s.tensor(x), live_of(x) if tx.dims else None
    if live is None and front:
        live = live_of(p)
    if isinstance(x, Draws | Vec):
        tokens = tokens.clamp(min=0)
    long = front if len(front) >= len(tx.dims) else tx.dims
    index = _spread(tokens, tx.dims, long)
    have = p.shape[:1] if isinstance(p, Dist) else tuple(s.tensor(p).shape[1:2]) if front else ()
    if have and index.ndim > 1 and have[0] != index.shape[1] and 1 not in (have[0], index.shape[1]):
        n = min(have[0], int(index.shape[1]))  # what stands behind the shorter one's room is missing in the other
        index, live = index[:, :n], None if live is None else live[:, :n]
        have = (n,)
        mine = live_of(p)
        p = reordered(s, p, np.arange(n), None if mine is None else mine[:, :n])
    if live is not None and front and tx.dims and live_of(p) is not None and have and have[0] != live.shape[1]:
        live = live & live_of(p)  # one token for all of them
    if isinstance(p, Dist):
        rows = p.index if isinstance(p.index, Tensor) else s.constant(p.index)[None]
        rows = _spread(rows, front, long)
        s.require_mass(p)
        table = s.view(p.rows, p.face)
        b = s.frame.batch
        at, index = torch.broadcast_tensors(rows, index)
        flat = (at * p.rows.size + index).expand(b, *at.shape[1:])
        s.flag((index < 0) | (index >= p.rows.size) if live is None else torch.zeros(1, dtype=torch.bool, device=s.device))
        got = s.lanes(table).flatten(1).gather(1, flat.reshape(b, -1).clamp(0, table.shape[1] * table.shape[2] - 1))
        return made(got.reshape(flat.shape), live)
    a = s.tensor(p)
    wide = [int(n) for n in _spread(a[..., 0], front, long).shape]
    a = a.reshape(*wide, a.shape[-1])
    shape = torch.broadcast_shapes(tuple(wide), tuple(index.shape))
    got = a.expand(*shape, a.shape[-1]).gather(-1, index.expand(shape)[..., None].clamp(0, int(a.shape[-1]) - 1))
    return made(got[..., 0], live)


def _spread(a: Tensor, have: tuple[Any, ...], want: tuple[Any, ...]) -> Tensor:
    """[B, *have] lined up with [B, *want]."""
    if len(have) == len(want):
        return a
    axes = align(have, want) or tuple(range(len(have)))
    shape = [int(a.shape[0])] + [1] * len(want)
    for i, axis in enumerate(axes):
        shape[1 + axis] = int(a.shape[1 + i])
    return a.reshape(shape)


@step("info")
def info(s: Any, op: Any, *ps: Any) -> Any:
    """Entropy, or the divergence of two."""
    p, *q = (s.tensor(x) for x in ps)
    p = p.double()
    if op.attrs["kind"] == "entropy":
        out = -torch.where(p > 0, p * torch.log(torch.where(p > 0, p, 1)), 0).sum(-1)
    else:
        other = q[0].double()
        terms = torch.where(p > 0, p * (torch.log(torch.where(p > 0, p, 1)) - torch.log(other)), 0)
        out = terms.sum(-1)
    return made(out, live_of(ps[0]))


@step("renorm")
def renorm(s: Any, op: Any, p: Any, k: Any) -> Dist:
    """The likeliest tokens, renormalised."""
    a, k = s.tensor(p), s.tensor(k)
    k = k.reshape(-1, *([1] * (a.ndim - 1)))
    values, order = torch.sort(a, dim=-1, descending=True, stable=True)
    if op.attrs["kind"] == "topk":
        keep = torch.arange(int(a.shape[-1]), device=a.device) < k
    else:
        before = values.double().cumsum(-1) - values
        keep = before < k
        keep = keep | (torch.arange(int(a.shape[-1]), device=a.device) == 0)
    kept = torch.zeros_like(a).scatter(-1, order, torch.where(keep, values, 0))
    return dist_of(s, kept / kept.sum(-1, keepdim=True), p)


def place_of(s: Any, x: Any, at: tuple[Any, ...], n: int) -> tuple[Tensor, Any]:
    """(positions [B, n], path function or None) of n rows: of `at`, the context or nodes of a tree, else those of a dist."""
    if not at or isinstance(at[0], Context):
        if not at and isinstance(x, Dist) and x.rows.positions is not None:
            where = placed(s, x)
            assert where is not None
            full = x.rows.path
            return where, None if full is None else lambda: take(s, full(), flat_index(x))
        length = s.length - (int(at[0].parent) if at else 0)
        return length[:, None].expand(-1, n), None
    if isinstance(at[0], Path):
        return (s.length + at[0].length)[:, None].expand(-1, n), lambda: s.lanes(
            torch.where(s.steps(int(at[0].tokens.shape[1])) < at[0].length[:, None], at[0].tokens, -1)
        )[:, None].expand(-1, n, -1)
    tree = at[1] if len(at) > 1 else at[0]
    nodes = np.arange(tree.size) if isinstance(at[0], Tree) else at[0]
    if isinstance(nodes, Tensor):
        nodes = nodes if nodes.ndim > 1 else nodes[:, None]
        nodes = Nodes(s.lanes(nodes), None)
    elif not isinstance(nodes, Nodes):
        nodes = np.ravel(np.asarray(nodes, dtype=np.int64))
    where = positions_at(s, tree, nodes)
    if int(where.shape[1]) > n:  # there is room for more nodes than rows
        return where[:, :n], lambda: node_tokens(s, tree, nodes)[:, :n]
    return where.expand(-1, n) if where.shape[1] == 1 else where, lambda: node_tokens(s, tree, nodes)


@step("warp")
def warp(s: Any, op: Any, x: Any, *at: Any) -> Dist:
    """The request's constraints and shaping, applied to scores or to a computed distribution."""
    a = s.tensor(x)
    flat = s.lanes(a.flatten(1, -2) if a.ndim > 2 else a[:, None])
    mass = numeric(op.operands[0].type).elem == "prob" or isinstance(x, Dist) and x.face != "logits"
    positions, path = place_of(s, x, at, int(flat.shape[1]))
    scores = torch.log(flat) if mass else flat
    rows = Rows(scores, positions=positions, path=path, numbers=numbered(s, x))
    shape = tuple(a.shape[1:-1])
    index = np.arange(int(flat.shape[1])).reshape(shape)
    if isinstance(x, Dist):
        return Dist(rows, index, "shaped", x.at, x.live, x.inner)
    return Dist(rows, index, "shaped", live=live_of(x))


@step("adjust")
def adjust(s: Any, op: Any, x: Any, *at: Any) -> Any:
    """Scores with what the request asks of them before temperature and truncation."""
    a = s.tensor(x)
    flat = s.lanes(a.flatten(1, -2) if a.ndim > 2 else a[:, None])
    positions, path = place_of(s, x, at, int(flat.shape[1]))
    out = shaping.shape(s.settings, flat, s.row_place(positions, path), "adjusted")
    return made(out.reshape(s.frame.batch, *a.shape[1:]), live_of(x))
