"""Distributions: views, softmax, normalising, entries, the request's shaping of computed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton import shaping
from decgraph.backends.triton.evaluate import joins, step
from decgraph.backends.triton.ops.nodes import node_tokens, positions_at
from decgraph.backends.triton.ops.numbers import lined
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Context, Dist, Draws, Nodes, Operand, Path, Rows, Tree, Vec
from decgraph.backends.triton.vectors import beside, both, count_of, flat, live_of, vec_of
from decgraph.ir.ops.common import numeric
from decgraph.ir.values import Op


def dist_of(s: Step, probs: Tensor, like: Operand = None) -> Dist:
    """Probabilities [B, *shape, V] as a dist, at the places of `like`, where it has them."""
    probs = s.lanes(probs)
    rows, shape = Rows(in_rows(probs), is_probs=True), tuple(probs.shape[1:-1])
    if isinstance(like, Dist) and like.shape == shape:
        rows.positions = placed(s, like)
        return replace(like, rows=rows, index=every_row(rows, shape), face="shaped")
    return Dist(rows, every_row(rows, shape), live=live_of(like) if shape else None)


def every_row(rows: Rows, shape: tuple[int, ...]) -> np.ndarray:
    """NumPy int64[*shape]: all rows in order."""
    return np.arange(rows.count).reshape(shape)


def in_rows(a: Tensor) -> Tensor:
    """[B, n, V] of [B, *shape, V]."""
    return a.flatten(1, -2) if a.ndim > 2 else a[:, None]


def as_dist(s: Step, q: Operand) -> Dist:
    """A distribution; numbers over the vocabulary as one."""
    return q if isinstance(q, Dist) else dist_of(s, s.tensor(q), q)


def placed(s: Step, q: Dist) -> Tensor | None:
    """int64[B, n]: the position of every row of a dist, None where they have none."""
    return None if q.rows.positions is None else s.take(s.lanes(q.rows.positions), flat(q.index))


def numbered(s: Step, q: Operand) -> Tensor | None:
    """int64[B, n]: the number of every row of a dist in its tree or canvas; None for rows that are computed."""
    if not isinstance(q, Dist):
        return None
    own = q.rows.nodes if q.rows.numbers is None else q.rows.numbers
    return None if own is None else s.take(s.lanes(own), flat(q.index))


def own_rows(s: Step, q: Dist, seen: bool) -> Rows:
    """The rows of a dist as rows of their own, in order: as they were computed, or (seen) in its view."""
    index = flat(q.index)
    scores = s.take(s.lanes(s.view(q.rows, q.face) if seen else q.rows.scores), index)
    rows = Rows(scores, positions=placed(s, q), numbers=numbered(s, q), is_probs=seen)
    if (path := q.rows.path) is not None:
        rows.path = lambda: s.take(s.lanes(path()), index)
    return rows


@joins(Dist)
def join_dists(s: Step, lanes: Tensor, a: Operand, b: Operand) -> Dist:
    """One of two distributions in every lane, or of two vectors of them. lanes: bool[B]."""
    a, b = as_dist(s, a), as_dist(s, b)
    if a.shape != b.shape and (len(a.shape) != 1 or len(b.shape) != 1):
        raise NotSteppable("different numbers of distributions in two branches", s.place)
    live = s.either_live(lanes, a, b) if a.shape else None
    at = a.at
    if b.at is not at:
        x, y = (s.nodes_of(np.arange(q.shape[0]) if q.at is None else q.at) for q in (a, b))
        at = Nodes(s.either(lanes, x.ids, y.ids, -1), None, live)
    if a.rows is b.rows and a.face == b.face and a.shape == b.shape:
        return Dist(a.rows, s.either(lanes, a.index, b.index), a.face, at, live)
    # What has yet to be shaped stays so: it has other views.
    seen = a.face != b.face or any(q.rows.is_probs or q.rows.allow is not None for q in (a, b))
    one, other = (own_rows(s, q, seen) for q in (a, b))
    rows = Rows(s.either(lanes, one.scores, other.scores), is_probs=seen)
    if one.positions is not None and other.positions is not None:
        rows.positions = s.either(lanes, one.positions, other.positions)
    elif (found := other.positions if one.positions is None else one.positions) is not None and found.shape[1] == rows.count:
        rows.positions = found
    if one.numbers is not None and other.numbers is not None:
        rows.numbers = s.either(lanes, one.numbers, other.numbers)
    if not seen and (one.path is not None or other.path is not None):

        def path() -> Tensor:
            found = [s.lanes(np.full((r.count, 0), -1) if r.path is None else r.path()) for r in (one, other)]
            wide = max(int(t.shape[2]) for t in found)
            x, y = (torch.nn.functional.pad(t, (0, wide - int(t.shape[2])), value=-1) for t in found)
            return s.either(lanes, x, y, -1)

        rows.path = path
    shape = a.shape if len(a.shape) != 1 else (rows.count,)
    return Dist(rows, every_row(rows, shape), "shaped" if seen else a.face, at, live)


@step("face")
def see(s: Step, op: Op, q: Dist) -> Dist:
    """Another view of the same rows."""
    return replace(q, face=op.attrs["face"])


@step("softmax", folded=True)
def softmax(s: Step, op: Op, x: Operand) -> Operand:
    """Scores to a distribution."""
    a = s.tensor(x)
    out = shaping.softmax(a if a.dtype in (torch.float32, torch.float64) else a.float())
    return dist_of(s, out, x) if op.result.type.elem == "dist" else vec_of(out, live_of(x))


def normalized(w: Tensor) -> Tensor:
    """Weights [..., V] over their sum; zeros where that is 0."""
    total = shaping.total_of(w)
    return torch.where(total > 0, w / torch.where(total > 0, total, 1), 0)


@step("normalize")
def normalize(s: Step, op: Op, w: Operand) -> Dist:
    """Weights over their sum; those that are missing weigh nothing."""
    a, live = s.tensor(w), live_of(w)
    if live is not None and a.ndim == 2:
        return dist_of(s, normalized(torch.where(live, a.double(), 0)))
    return dist_of(s, normalized(a), w)


@step("lookup")
def lookup(s: Step, op: Op, p: Operand, x: Operand) -> Operand:
    """The entry of a token in each distribution."""
    tp, tx = op.operands[0].type, op.operands[1].type
    front = tp.dims if tp.elem in ("dist", "scores") else tp.dims[:-1]
    tokens, live = s.tensor(x), live_of(x) if tx.dims else None
    if live is None and front:
        live = live_of(p)
    if isinstance(x, Draws | Vec):
        tokens = tokens.clamp(min=0)
    long = front if len(front) >= len(tx.dims) else tx.dims
    index, have = lined(tokens, tx.dims, long), count_of(p) if front else 1
    if index.ndim > 1 and have != index.shape[1] and 1 not in (have, index.shape[1]):
        have = min(have, int(index.shape[1]))  # what stands behind the shorter one's room is missing in the other
        index, p, live = index[:, :have], s.first_of(p, have), None if live is None else live[:, :have]
    if live is not None and front and tx.dims and live_of(p) is not None and have != live.shape[1]:
        live = both(live, live_of(p))  # one token for all of them
    if isinstance(p, Dist):
        s.require_mass(p)
        scores, size, b = s.lanes(s.view(p.rows, p.face)).flatten(1), p.rows.size, s.frame.batch
        at, index = torch.broadcast_tensors(lined(s.tensor(p.index), front, long), index)
        if live is None:
            s.flag((index < 0) | (index >= size))
        entry = (at * size + index).expand(b, *at.shape[1:]).clamp(0, p.rows.count * size - 1)
        return vec_of(s.lanes(s.take(scores, entry)), live)
    a = s.tensor(p)
    size, places = int(a.shape[-1]), lined(a[..., 0], front, long).shape
    shape = torch.broadcast_shapes(places, index.shape)
    got = a.reshape(*places, size).expand(*shape, size).gather(-1, index.expand(shape)[..., None].clamp(0, size - 1))
    return vec_of(got[..., 0], live)


@step("info")
def info(s: Step, op: Op, *ps: Operand) -> Operand:
    """Entropy, or the divergence of two."""
    p, *q = (s.tensor(x) for x in ps)
    p = p.double()
    if op.attrs["kind"] == "entropy":
        out = -torch.where(p > 0, p * torch.log(torch.where(p > 0, p, 1)), 0).sum(-1)
    else:
        other = q[0].double()
        terms = torch.where(p > 0, p * (torch.log(torch.where(p > 0, p, 1)) - torch.log(other)), 0)
        out = terms.sum(-1)
    return vec_of(out, live_of(ps[0]))


@step("renorm")
def renorm(s: Step, op: Op, p: Operand, k: Operand) -> Dist:
    """The likeliest tokens, renormalised."""
    a, k = s.tensor(p), s.tensor(k)
    k = beside(k, a)
    values, order = torch.sort(a, dim=-1, descending=True, stable=True)
    place = s.steps(int(a.shape[-1]))
    # The mass before a token is the sum up to the one before it: taken as the sum up to the token less its own, rounding lets a
    # token in where that mass is k.
    before = torch.nn.functional.pad(values.double().cumsum(-1)[..., :-1], (1, 0))
    keep = place < k if op.attrs["kind"] == "topk" else (before < k) | (place == 0)
    some = torch.zeros_like(a).scatter(-1, order, torch.where(keep, values, 0))
    return dist_of(s, some / shaping.total_of(some), p)


def place_of(s: Step, x: Operand, at: Sequence[Operand], n: int) -> tuple[Tensor, Callable[[], Tensor] | None]:
    """(positions [B, n], path function or None) of n rows: of `at`, the context or nodes of a tree, else those of a dist."""
    if not at and isinstance(x, Dist) and (where := placed(s, x)) is not None:
        full = x.rows.path
        return where, None if full is None else lambda: s.take(full(), flat(x.index))
    if not at or isinstance(at[0], Context):
        return (s.length - (int(at[0].parent) if at and isinstance(at[0], Context) else 0))[:, None].expand(-1, n), None
    if isinstance(at[0], Path):
        raise NotSteppable("rows after an accepted path", s.place)
    tree = at[1] if len(at) > 1 else at[0]
    assert isinstance(tree, Tree)
    nodes = s.nodes_or_static(np.arange(tree.size) if isinstance(at[0], Tree) else at[0])
    where = positions_at(s, tree, nodes)
    if int(where.shape[1]) > n:  # there is room for more nodes than rows
        return where[:, :n], lambda: node_tokens(s, tree, nodes)[:, :n]
    return where.expand(-1, n) if where.shape[1] == 1 else where, lambda: node_tokens(s, tree, nodes)


@step("warp")
def warp(s: Step, op: Op, x: Operand, *at: Operand) -> Dist:
    """The request's constraints and shaping, applied to scores or to a computed distribution."""
    a = s.tensor(x)
    scores = s.lanes(in_rows(a))
    mass = numeric(op.operands[0].type).elem == "prob" or isinstance(x, Dist) and x.face != "logits"
    positions, path = place_of(s, x, at, int(scores.shape[1]))
    rows = Rows(torch.log(scores) if mass else scores, positions=positions, path=path, numbers=numbered(s, x))
    index = every_row(rows, tuple(a.shape[1:-1]))
    if isinstance(x, Dist):
        return replace(x, rows=rows, index=index, face="shaped")
    return Dist(rows, index, live=live_of(x))


@step("adjust")
def adjust(s: Step, op: Op, x: Operand, *at: Operand) -> Operand:
    """Scores with what the request asks of them before temperature and truncation."""
    a = s.tensor(x)
    scores = s.lanes(in_rows(a))
    positions, path = place_of(s, x, at, int(scores.shape[1]))
    out = shaping.shape(s.settings, scores, s.row_place(positions, path), "adjusted")
    return vec_of(out.reshape(s.frame.batch, *a.shape[1:]), live_of(x))
