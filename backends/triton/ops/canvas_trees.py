"""Trees of canvases: an edge decides a cell, and a node is the canvas after the edges above it.

The tree is one of draws, with the cell of every edge in a column. Every canvas is a call of its own: nothing that a model
computes of one is part of another.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from decgraph.backends.triton.canvas_cache import CanvasCache
from decgraph.backends.triton.ops import canvases, masked
from decgraph.backends.triton.ops.distributions import every_row
from decgraph.backends.triton.ops.nodes import children
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import ROOT, Canvas, Dist, Draws, Edit, Nodes, Operand, Rows, Tree, Vec
from decgraph.backends.triton.vectors import flat, flat_draws
from decgraph.ir.values import Op

CELL = "@cell"
"""The column of the cells that edges decide."""


def begun(s: Step, canvas: Canvas) -> Tree:
    """A tree of a canvas alone."""
    none = s.lanes(ROOT - 1)
    return Tree(canvas, none, ROOT, ROOT, ROOT - 1, epoch=s.epoch, columns={CELL: none})


def edges(s: Step, e: Edit) -> Draws:
    """The tokens of edits as the draws of edges."""
    live = None if e.live is None else flat(e.live)
    if isinstance(e.value, Draws) and e.token.ndim == 1:
        return replace(flat_draws(e.value), live=live)
    return Draws(flat(e.token), point=True, live=live)


def placed(s: Step, t: Tree, e: Edit) -> Tree:
    """A tree that has grown by edits, with their cells."""
    at = s.lanes(flat(e.position))
    n = int(at.shape[1])
    return replace(t, columns={**t.columns, CELL: torch.cat([t.columns[CELL][:, : t.size - n], at], 1)})


def node_cells(s: Step, t: Tree) -> Tensor:
    """int64[B, nodes, N]: the cells of every node's canvas."""
    assert isinstance(t.base, Canvas)
    out, parent, steps = [t.base.cells], s.lanes(t.parent), s.steps(t.base.most)
    for n in range(1, t.size):
        if t.fixed:
            above = out[int(t.parent[n])]
        else:
            above = s.take(torch.stack(out, 1), parent[:, n].clamp(max=n - 1))
        here = (steps == t.columns[CELL][:, n : n + 1]) & (t.token[:, n : n + 1] >= 0)
        out.append(torch.where(here, t.token[:, n : n + 1], above))
    return torch.stack(out, 1)


def column(s: Step, t: Tree, name: str, op: Op) -> Operand:
    """What is masked or decided in every node's canvas."""
    if name not in ("masked", "decided"):
        raise NotSteppable(f"the column {name} of a tree of canvases", op)
    assert isinstance(t.base, Canvas)
    cells, inside = node_cells(s, t), canvases.within_size(s, t.base)
    return Vec((cells < 0) == (name == "masked"), s.lives(t), inside)


def evaluate(s: Step, op: Op, cache: CanvasCache, t: Tree, base: Canvas, extra: dict[str, Operand]) -> Dist:
    """The distributions at all cells, or at some, of every node's canvas."""
    cells = node_cells(s, t)
    every = [base if n == 0 else replace(base, cells=cells[:, n]) for n in range(t.size)]
    made = cache.call(base, extra.get("at"), masked.memory_of(s, op, extra))
    parts = [masked.evaluate(s, op, cache, canvas, extra, counts=False) for canvas in every]
    with s.within(made.every):
        cache.count(every, masked.rows_read(s, cache, base, extra.get("at")), None if t.live is None else s.lanes(t.live))
    first, n = parts[0], parts[0].rows.count
    rows = Rows(
        torch.cat([p.rows.scores for p in parts], 1),
        positions=torch.cat([p.rows.positions for p in parts if p.rows.positions is not None], 1),
        path=lambda: torch.cat([p.rows.path() for p in parts if p.rows.path is not None], 1),
        numbers=torch.cat([p.rows.numbers for p in parts if p.rows.numbers is not None], 1),
    )
    inner = first.at if first.at is not None else Nodes(s.lanes(s.steps(n)[None]), None, first.live)
    return Dist(rows, every_row(rows, (t.size, n)), live=t.live, inner=inner)


def walk(s: Step, op: Op, t: Tree, evidence: Operand) -> Operand:
    """The canvas of the node that a rule accepts last."""
    if op.attrs["scope"] != "node" or not isinstance(evidence, Edit):
        raise NotSteppable("a tree of canvases that is verified against something else than edits", op)
    at, going = torch.zeros_like(s.length), torch.ones_like(s.done)
    n = int(evidence.position.shape[1])
    for level in range(t.height + 1):
        row = s.pick(evidence, at.clamp(max=n - 1))
        going = going & (at < n) if row.live is None else going & (at < n) & row.live
        with s.within(going):
            ids, there = children(s, t, at)
            kids = Edit(t.columns[CELL].gather(1, ids), t.token.gather(1, ids), None, there)
            has, taken, emits, _ = s.region(op.regions[0], (level, row, kids))
            if not ids.shape[1] or not isinstance(taken, Edit):
                break
            has = s.lanes(has).bool()
            same = (kids.position == taken.position[:, None]) & (kids.token == taken.token[:, None]) & there
            s.counts.test(level + 1, there.any(1), has)
            going = going & has
            s.counts.decide(going[:, None], False)
            at = torch.where(going, ids.gather(1, same.long().argmax(1)[:, None])[:, 0], at)
            going = going & ~s.lanes(emits).bool()
    return replace(t.base, cells=s.take(node_cells(s, t), at))
