"""Calls of masked models at canvases, and their memories."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.canvas_cache import CanvasCache, CanvasMemory
from decgraph.backends.triton.evaluate import joins, step
from decgraph.backends.triton.ops.canvases import mask_of, within_size
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Canvas, Dist, Nodes, Operand, Rows, Vec
from decgraph.ir.values import Op


def evaluate(s: Step, op: Op, cache: CanvasCache, canvas: Canvas, extra: dict[str, Operand]) -> Dist:
    """The distributions at the cells of a canvas, or at some of its positions."""
    at, memory = extra.get("at"), memory_of(s, op, extra)
    if extra.keys() - {"at", "given"}:
        raise NotSteppable(f"a call of a canvas with {', '.join(sorted(extra))}", op)
    made = cache.call(canvas, at, memory)
    with s.within(made.every):
        cache.count(canvas, rows_read(s, cache, canvas, at))
    where = Vec(s.lanes(s.steps(canvas.most)[None]), within_size(s, canvas)) if at is None else s.packed(at)
    ids, live = s.places(where)
    scores = cache.rows(made, canvas, ids)
    if s.exact:  # rows of cells that are not there have no entries in a table
        scores = torch.where(live[..., None], scores, 0)
    rows = Rows(scores, positions=canvas.base[:, None] + ids, path=lambda: tokens_before(s, canvas, ids), numbers=ids)
    n = int(ids.shape[1])
    return Dist(rows, np.arange(n), at=None if at is None else Nodes(ids, None, live), live=live)


def rows_read(s: Step, cache: CanvasCache, canvas: Canvas, at: Operand) -> Tensor:
    """bool[B, S]: the cells whose scores a call reads."""
    if at is not None:
        return cache.marked(canvas.base, at)
    slot = s.steps(cache.width)
    return (slot >= canvas.base[:, None]) & (slot < (canvas.base + canvas.size)[:, None])


def tokens_before(s: Step, canvas: Canvas, at: Tensor) -> Tensor:
    """int64[B, n, N]: the cells before positions, as far as they are not committed; -1 elsewhere."""
    cells = torch.where(canvas.cells < 0, mask_of(s), canvas.cells)
    there = s.steps(canvas.most) >= (s.length - canvas.base)[:, None]
    cells = torch.where(there, cells, -1)[:, None]
    return torch.where(s.steps(canvas.most) < at[..., None], cells, -1)


def memory_of(s: Step, op: Op, extra: dict[str, Operand]) -> CanvasMemory | None:
    """The memory that a call sees."""
    memory = extra.get("given")
    if memory is not None and not isinstance(memory, CanvasMemory):
        raise NotSteppable("a memory of another model, or of something else than a canvas", op)
    return memory


def memory(s: Step, op: Op, cache: CanvasCache, canvas: Canvas, extra: dict[str, Operand]) -> CanvasMemory:
    """A model's memory of a canvas: all of it, or of some positions on another memory; of no positions it is empty."""
    at, memory = extra.get("at"), memory_of(s, op, extra)
    if extra.keys() - {"at", "given"}:
        raise NotSteppable("a memory with the scores of its queries", op)
    if at is not None and memory is None:
        ids, live = s.places(at)
        there = live.any(1)
        if not ids.shape[1] or not s.recording and not s.reads((there & s.active()).any()):
            nothing = torch.zeros((s.frame.batch, cache.width), dtype=torch.bool, device=s.device)
            return CanvasMemory(cache, canvas.base, nothing, nothing.long())
        with s.within(there):
            made = cache.call(canvas, at, None)
            cache.count(canvas, None)
        # It has these positions alone, unless they are all cells.
        mine = cache.marked(canvas.base, at)
        some = mine.sum(1) < canvas.size
        return CanvasMemory(cache, canvas.base, made.live & torch.where(some[:, None], mine, there[:, None]), made.when)
    made = cache.call(canvas, at, memory)
    with s.within(made.every):
        cache.count(canvas, None)
    return CanvasMemory(cache, canvas.base, made.live, made.when)


@step("memory.only")
def only(s: Step, op: Op, m: Operand, ps: Operand) -> CanvasMemory:
    """A memory restricted to positions of a canvas, or rid of them."""
    if not isinstance(m, CanvasMemory):
        raise NotSteppable("a part of the memory of a context", op)
    at = m.cache.marked(m.base, ps)
    if op.attrs["kind"] == "only":
        return replace(m, live=m.live & (at | (s.steps(m.cache.width) < m.base[:, None])))
    return replace(m, live=m.live & ~at)


@joins(CanvasMemory)
def join_memories(s: Step, lanes: Tensor, a: Operand, b: Operand) -> CanvasMemory:
    """One of two memories in every lane. lanes: bool[B]."""
    if not (isinstance(a, CanvasMemory) and isinstance(b, CanvasMemory)) or a.cache is not b.cache:
        raise NotSteppable("a memory of one of two models", s.place)
    where = lanes[:, None]
    return CanvasMemory(
        a.cache, torch.where(lanes, a.base, b.base), torch.where(where, a.live, b.live), torch.where(where, a.when, b.when)
    )
