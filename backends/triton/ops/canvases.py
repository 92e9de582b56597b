"""Canvases of masked models, sets of their positions, and edits.

A canvas has room for N cells in every lane, N from the program's parameters; `size` says how many there are, which depends on
what the request may still generate. Positions are numbers from the canvas's first cell on; those below 0 are the text's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import joins, step
from decgraph.backends.triton.ops.sequences import member
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Canvas, Draws, Edit, Nodes, Operand, Spans, Vec, is_static
from decgraph.backends.triton.vectors import fitted, live_of
from decgraph.ir.types import Type
from decgraph.ir.values import Op


def decided_tokens(s: Step, c: Canvas) -> tuple[Tensor, Tensor]:
    """The decided beginning of a canvas that is not committed yet: tokens int64[B, N], and how many of them count."""
    gone = (s.length - c.base).clamp(min=0)
    count = (c.cells >= 0).long().cumprod(1).sum(1)
    at = (gone[:, None] + s.steps(c.most)).clamp(max=max(0, c.most - 1))
    return c.cells.gather(1, at).clamp(min=0), (count - gone).clamp(min=0)


def bound(s: Step, op: Op, n: int, otherwise: int) -> int:
    """The most that operand n of an op can be."""
    value = s.env[op.operands[n]]
    if is_static(value):
        return max(0, int(value))
    most = s.most(op.operands[n])
    return otherwise if most is None else min(int(most), otherwise)


def within_size(s: Step, c: Canvas) -> Tensor:
    """bool[B, N]: the cells that are there."""
    return s.steps(c.most) < c.size[:, None]


@step("canvas.new")
def new(s: Step, op: Op, length: Operand, capacity: Operand = None) -> Canvas:
    """A canvas of masked cells after the committed text."""
    room = (s.limit - (s.length - s.base)).clamp(min=0)
    size = torch.minimum(s.lanes(length).long().clamp(min=0), room)
    if capacity is not None:
        room = torch.minimum(s.lanes(capacity).long(), room)
    n = bound(s, op, len(op.operands) - 1, s.frame.capacity)
    cells = torch.full((s.frame.batch, min(n, s.frame.capacity)), -1, dtype=torch.int64, device=s.device)
    return Canvas(s.length.clone(), cells, size, room)


@step("canvas.extend")
def extend(s: Step, op: Op, c: Canvas, k: Operand) -> Canvas:
    """A canvas with more masked cells, up to its room."""
    size = torch.minimum(c.size + s.lanes(k).long(), torch.maximum(c.room, c.size))
    return replace(c, size=size)


@joins(Canvas)
def join_canvases(s: Step, lanes: Tensor, a: Canvas, b: Canvas) -> Canvas:
    """One of two canvases in every lane. lanes: bool[B]."""
    base, size, room = (s.either(lanes, *pair) for pair in ((a.base, b.base), (a.size, b.size), (a.room, b.room)))
    return Canvas(base, s.either(lanes, a.cells, b.cells, -1), size, room)


@step("canvas.get")
def get(s: Step, op: Op, c: Canvas) -> Operand:
    """A field over all cells."""
    field, inside = op.attrs["field"], within_size(s, c)
    if field == "length":
        s.sizes[op.result] = c.most
        return c.size
    if field == "all":
        return Vec(s.lanes(s.steps(c.most)[None]), inside)
    if field in ("masked", "decided"):
        return Vec((c.cells < 0) == (field == "masked"), inside)
    if field == "token":
        return Vec(torch.where(c.cells < 0, mask_of(s), c.cells), inside)
    raise NotSteppable(f"the {field} of a canvas", op)


def mask_of(s: Step) -> int:
    """The token that stands for an undecided cell."""
    return -1 if s.mask_token is None else int(s.mask_token)


# -- deciding cells
@step("canvas.put")
def put(s: Step, op: Op, c: Canvas, ps: Operand, *rest: Operand) -> Canvas:
    """Decide cells, or mask them again."""
    kind = op.attrs["kind"]
    if kind == "soft":
        raise NotSteppable("cells that hold mixtures", op)
    ps = s.packed(ps)
    ids, taken = s.places(ps)
    n = int(ids.shape[1])
    if op.attrs.get("has_mask"):
        mask, there = _lined_up(s, rest[-1], op.operands[-1].type, op.operands[1].type, ids, live_of(ps))
        taken = taken & mask.bool() if there is None else taken & mask.bool() & there
    s.flag(((ids < 0) | (ids >= c.size[:, None])) & taken)
    at = ids.clamp(0, max(0, c.most - 1))
    if op.attrs.get("open") and c.most:
        taken = taken & (c.cells.gather(1, at) < 0)
    if kind == "mask":
        tokens = torch.full_like(ids, -1)
    else:
        tokens = _tokens(s, rest[0], op.operands[2].type, op.operands[1].type, Vec(ids, taken), live_of(ps), op)
        s.flag((tokens < 0) & taken)
        tokens = tokens.clamp(min=0)
    if not n or not c.most:
        return c
    s.counts.decide(taken & (c.cells.gather(1, at) >= 0) if kind == "mask" else taken, kind == "mask")
    # Of several values for one cell the last one counts: the largest of keys that begin with their order.
    many = s.vocab_size + 2
    key = s.steps(n) * many + tokens + 1
    none = s.lanes(np.full(c.most + 1, -1))
    best = none.scatter_reduce(1, torch.where(taken, at, c.most), key, "amax")[:, : c.most]
    return replace(c, cells=torch.where(best >= 0, best % many - 1, c.cells))


def over_cells(t: Type) -> bool:
    """Whether a type is one of all cells of a canvas."""
    return bool(t.dims) and t.dims[0].kind == "cells"


def _lined_up(s: Step, x: Operand, t: Type, where: Type, ids: Tensor, there: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Values [B, n] for positions int64[B, n], and which of them are there, bool[B, n]: lined up with them, read at them where
    x is over all cells, or one for all. t, where: the types of x and of the positions; there: bool[B, n], which those are."""
    if not t.dims:
        return s.lanes(x).reshape(-1, 1).expand(ids.shape), None
    x = x if over_cells(t) else s.packed(x)
    a, live = s.lanes(x), live_of(x)
    if over_cells(t) and not over_cells(where):
        at = ids.clamp(0, max(0, int(a.shape[1]) - 1))
        return a.gather(1, at), None if live is None else live.gather(1, at)
    s.same_count(live, there)
    n = int(ids.shape[1])
    return fitted(a, n), fitted(s.lives(x), n) if live is not None or a.shape[1] < n else None


def _tokens(s: Step, x: Operand, t: Type, where: Type, ps: Vec, there: Tensor | None, op: Op) -> Tensor:
    """int64[B, n]: a token for each position."""
    if isinstance(x, Draws) and x.shape and not over_cells(t) and x.at is not None:
        if not (isinstance(x.at, Nodes) and x.at.ids is ps.data):
            return s.pick(x, member(s, x.at, ps, op)).tokens
    return _lined_up(s, x, t, where, ps.data, there)[0].long()


# -- sets of positions
@step("positions")
def positions(s: Step, op: Op, *xs: Operand) -> Operand:
    """Sets of positions of a canvas."""
    kind = op.attrs["kind"]
    if kind == "blocks":
        canvas, k = xs
        assert isinstance(canvas, Canvas)
        return blocks(s, op, canvas, k)
    if isinstance(canvas := xs[0], Canvas):
        end, n = canvas.size, canvas.most
        first = s.lanes(0 if kind == "before" else xs[1]).long()
        if kind == "from":
            n -= min(max(0, int(xs[1])), n) if is_static(xs[1]) else 0
        else:
            n, more = min(bound(s, op, len(xs) - 1, n), n), s.lanes(xs[-1]).long()
            end = torch.minimum(more if kind == "before" else first + more, end)
        at = s.lanes(s.steps(n)[None]) if kind == "before" else first.clamp(min=0)[:, None] + s.steps(n)
        return Vec(at, at < end[:, None])
    if kind in ("start", "stop"):
        ids, live = s.places(s.packed(xs[0]))
        if not ids.shape[1]:
            s.flag(torch.ones_like(s.done))
            return torch.zeros_like(s.length)
        s.flag(~live.any(1))
        if kind == "start":
            return ids[:, 0]
        return ids.gather(1, (live.sum(1) - 1).clamp(min=0)[:, None])[:, 0] + 1
    (a, mine), (b, other) = (s.places(x) for x in xs)
    if kind == "minus":
        return s.packed(Vec(a, mine & ~among(s, a, b, other)))
    return s.packed(Vec(torch.cat([a, b], 1), torch.cat([mine, other & ~among(s, b, a, mine)], 1)))


def blocks(s: Step, op: Op, c: Canvas, k: Operand) -> Spans:
    """A canvas cut into spans of k cells."""
    if not is_static(k):
        raise NotSteppable("blocks whose size data decides", op)
    width, out, some = max(1, int(k)), Spans(), []
    for first in range(0, c.most, width):
        at = s.lanes(np.arange(first, min(first + width, c.most)))
        out.append(Vec(at, at < c.size[:, None]))
        some.append(out[-1].live.any(1))
    out.live = torch.stack(some, 1) if some else s.lanes(np.zeros(0, dtype=bool))
    return out


def among(s: Step, a: Tensor, b: Tensor, live: Tensor) -> Tensor:
    """bool[B, n]: which of the positions a int64[B, n] are among b int64[B, m], as far as those are there."""
    least = s.frame.capacity  # positions of the text are below 0
    table = torch.zeros((s.frame.batch, 3 * least + 2), dtype=torch.bool, device=s.device)
    table = table.scatter(1, torch.where(live, b + least, 3 * least + 1).clamp(0, 3 * least + 1), True)
    table[:, -1] = False
    return table.gather(1, (a + least).clamp(0, 3 * least + 1))


@step("block_index")
def block_index(s: Step, op: Op, b: Operand) -> Tensor:
    """Which block a span is."""
    ids, live = s.places(s.packed(b))
    if not ids.shape[1]:
        return torch.zeros_like(s.length)
    n = live.sum(1)
    return torch.where(n > 0, ids[:, 0] // n.clamp(min=1), 0)


@step("schedule", folded=True)
def schedule(s: Step, op: Op, n: Operand, steps: Operand) -> Operand:
    """How many cells each of some steps decides."""
    most = max(1, bound(s, op, 1, s.longest))
    many, count = s.lanes(steps).long().clamp(min=1)[:, None], s.lanes(n).long()[:, None]
    at = s.steps(most)
    return Vec(count // many + (at < count % many).long(), at < many)


# -- edits
@step("edit")
def edit(s: Step, op: Op, at: Operand, x: Operand) -> Edit:
    """To decide a position with a token."""
    if op.result.type.dims:
        raise NotSteppable("a vector of edits", op)
    return Edit(s.lanes(at).long(), s.lanes(x).long())


@step("edit.get")
def edit_get(s: Step, op: Op, e: Edit) -> Tensor:
    """The position or the token of an edit."""
    return e.position if op.attrs["field"] == "position" else e.token
