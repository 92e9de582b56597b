"""Choosing and ordering, all stable: of equals the first comes first."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.ops.sequences import stacked
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Dist, Draws, Nodes, Operand, is_static
from decgraph.backends.triton.vectors import beside, both, count_of, filled, flat, flat_draws, live_of, order_of, vec_of
from decgraph.ir.types import Type
from decgraph.ir.values import Op


def order_by(s: Step, keys: list[Tensor], live: Tensor | None, down: bool) -> Tensor:
    """int64[B, n]: indices by keys [B, n], the most significant first; missing elements come last."""
    order = None
    if live is not None:
        keys = [(live if down else ~live).to(torch.uint8), *keys]
    for key in reversed(keys):
        key = key.to(torch.uint8) if key.dtype == torch.bool else key
        if key.is_floating_point():
            key = torch.where(torch.isnan(key), -torch.inf if down else torch.inf, key)
        here = key if order is None else key.gather(1, order)
        found = order_of(here, down)
        order = found if order is None else order.gather(1, found)
    assert order is not None
    return order


def lined_up(s: Step, op: Op, x: Operand, by: tuple[Operand, ...]) -> tuple[Operand, list[Tensor]]:
    """Candidates and their keys [B, n], element by element: packed, where not the same are missing in all of them."""
    if any(over_all(v.type) for v in op.operands[len(op.operands) - len(by) :]) and not over_all(op.operands[0].type):
        raise NotSteppable("keys over more than the candidates", op)
    keys = [one for k in by for one in (k if isinstance(k, list) else [k])] or [x]
    if any(live_of(one) is not live_of(x) for one in keys):
        x, *keys = (s.packed(one) for one in (x, *keys))
    tables = [s.lanes(flat(s.tensor(one))) for one in keys]
    sizes = {count_of(x), *(int(a.shape[1]) for a in tables)}
    if len(sizes) > 1 and live_of(x) is None:
        raise NotSteppable("keys over more than the candidates", op)
    n = min(sizes)  # what stands behind the shorter one's room is missing in the other
    return s.first_of(x, n), [a[:, :n] for a in tables]


def over_all(t: Type) -> bool:
    """Whether a type is one over all nodes of a tree or all cells of a canvas."""
    return bool(t.dims) and t.dims[0].kind in ("nodes", "cells")


def _numbers(s: Step, x: Operand, down: bool = True) -> Tensor:
    """Values [B or 1, ..., n], with less than any number (or, where not down, more) where a vector has none."""
    a = s.tensor(x)
    return filled(a, live_of(x) if a.ndim == 2 else None, down)


@step("arg", folded=True)
def arg(s: Step, op: Op, x: Operand, *by: Operand) -> Operand:
    """The element with the largest (or smallest) key; with one operand the best token of each distribution."""
    down = op.attrs["fn"] == "max"
    if not by:
        a = _numbers(s, x, down)
        if not a.shape[-1]:
            s.flag(torch.ones_like(s.done))
            a = a.new_zeros((*a.shape[:-1], 1))
        out = a.argmax(-1) if down else a.argmin(-1)
        return vec_of(out, live_of(x)) if out.ndim > 1 else out
    x = flat_draws(x) if isinstance(x, Draws) else x
    if not count_of(x):
        return None
    x, keys = lined_up(s, op, x, by)
    live = live_of(x)
    if live is not None:
        s.flag(~live.any(1))
    best = order_by(s, keys, live, down)[:, 0]
    return s.pick(x, best)


@step("select.top", folded=True)
def top(s: Step, op: Op, x: Operand, k: Operand, *by: Operand) -> Operand:
    """The k candidates with the largest keys, best first (or in their own order)."""
    if isinstance(x, list) or op.attrs.get("order", "best") == "kept" or op.attrs.get("by_race"):
        raise NotSteppable("a choice among texts, by race, or in their own order", op)
    if isinstance(x, Draws):
        x = flat_draws(x)
    elif op.attrs.get("flatten") and not is_static(x) and not isinstance(x, Nodes):
        x = s.tensor(x).flatten(1)
    x, keys = lined_up(s, op, x, by)
    n, live = count_of(x), live_of(x)
    most = max(0, min(n, int(k) if is_static(k) else int(op.attrs.get("bound") or n)))
    order = order_by(s, keys, live, True)[:, :most]
    there = None if live is None else s.lanes(live).gather(1, order)
    if not is_static(k):
        there = both(there, s.steps(most) < s.lanes(k)[:, None])
    return _nodes(s, op, x, order, there)


def _nodes(s: Step, op: Op, x: Operand, order: Tensor, live: Tensor | None) -> Operand:
    """Elements of candidates at an order int64[B, k]; nodes stay nodes."""
    return s.reordered(s.nodes_of(x) if op.operands[0].type.elem == "node" else x, order, live)


@step("sort", folded=True)
def sort(s: Step, op: Op, x: Operand, *by: Operand) -> Operand:
    """The candidates in the order of their keys."""
    x = flat_draws(x) if isinstance(x, Draws) else x
    x, keys = lined_up(s, op, x, by)
    live = live_of(x)
    order = order_by(s, keys, live, bool(op.attrs.get("descending")))
    return _nodes(s, op, x, order, None if live is None else s.lanes(live).gather(1, order))


@step("rank", folded=True)
def rank(s: Step, op: Op, x: Operand) -> Operand:
    """The place of each value from the largest along the last dimension."""
    order = torch.sort(_numbers(s, x), dim=-1, descending=True, stable=True).indices
    return vec_of(torch.empty_like(order).scatter(-1, order, s.steps(int(order.shape[-1])).expand_as(order)), live_of(x))


@step("first_max", folded=True)
def first_max(s: Step, op: Op, x: Operand) -> Operand:
    """True at the first of the largest values along the last dimension."""
    a, live = _numbers(s, x), live_of(x)
    if not a.shape[-1]:
        return vec_of(a.bool(), live)
    out = s.steps(int(a.shape[-1])) == a.argmax(-1, keepdim=True)
    return vec_of(out if live is None else out & beside(live, out), live)


@step("compact", folded=True)
def compact(s: Step, op: Op, v: Operand, c: Operand) -> Operand:
    """The elements at which a condition holds, in order."""
    if isinstance(v, list):
        raise NotSteppable("a choice among a list's elements", op)
    v, of = s.tokens_of(v), op.operands[0].type
    if not of.dims and of.elem != "path":
        one = stacked(s, [v], op) if isinstance(v, Draws | Dist) else s.lanes(v)[:, None]
        return s.reordered(one, np.arange(1), s.lanes(c)[:, None])
    if of.elem in ("node", "position") and over_all(op.operands[1].type):
        at = s.lanes(v).clamp(0, count_of(c) - 1)
        cond, there = s.lanes(c).gather(1, at), live_of(c)
        there = None if there is None else s.lanes(there).gather(1, at)
    elif s.tensor(c).ndim == 1:
        cond, there = s.lanes(c)[:, None].expand(-1, count_of(v)), None
    else:
        if live_of(v) is None and live_of(c) is None and count_of(v) != count_of(c):
            raise NotSteppable(f"`where`: {count_of(v)} elements and {count_of(c)} conditions", op)
        v, c = s.together(v, c)
        cond, there = s.lanes(c), live_of(c)
    return s.packed(s.reordered(v, np.arange(count_of(v)), both(cond, both(live_of(v), there))))


@step("take_first", folded=True)
def take_first(s: Step, op: Op, x: Operand, k: Operand) -> Operand:
    """The first k of a vector; of a condition over positions, the first k where it holds."""
    if op.operands[0].type.elem == "bool" and op.results[0].type.elem == "position":
        x = vec_of(s.lanes(s.steps(count_of(x))[None]), both(s.lanes(x), live_of(x)))
    x = s.packed(x)
    if is_static(k):
        return s.first_of(x, min(count_of(x), max(0, int(k))))
    n = count_of(x)
    return s.reordered(x, np.arange(n), both(s.steps(n) < s.lanes(k)[:, None], live_of(x)))
