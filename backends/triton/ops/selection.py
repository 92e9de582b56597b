"""Choosing and ordering, all stable: of equals the first comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.ops.draws import ordered
from decgraph.backends.triton.ops.numbers import count_of, live_of, made, packed, reordered, same_count, tokens_of
from decgraph.backends.triton.ops.sequences import pick, stacked
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Dist, Draws, Nodes, is_static


def flat_draws(x: Draws, s: Any) -> Draws:
    """Draws as one vector [n]; those that were not drawn are missing."""

    def flat(a: Any) -> Any:
        return None if a is None else a.reshape(-1) if isinstance(a, np.ndarray) else a.flatten(1) if a.ndim > 1 else a[:, None]

    row, rank = (None if a is None else a if isinstance(a, Tensor) else np.broadcast_to(a, x.shape) for a in (x.row, x.rank))
    live = x.live
    if live is not None and len(x.shape) > 1:
        live = live[..., None].expand(-1, -1, int(np.prod(x.shape[1:]))).flatten(1)
    tokens = flat(x.tokens)
    if x.rank is not None:
        live = tokens >= 0 if live is None else live & (tokens >= 0)
    point = flat(x.point) if isinstance(x.point, Tensor) else x.point
    at = x.at if len(x.shape) == 1 else None
    return replace(
        x, tokens=tokens, row=flat(row), rank=flat(rank), race=flat(x.race), point=point, live=live, at=at, nodes=flat(x.nodes)
    )


def order_of(s: Any, keys: list[Tensor], live: Tensor | None, down: bool) -> Tensor:
    """int64[B, n]: indices by keys [B, n], the most significant first; missing elements come last."""
    order = None
    if live is not None:
        keys = [(live if down else ~live).to(torch.uint8), *keys]
    for key in reversed(keys):
        key = key.to(torch.uint8) if key.dtype == torch.bool else key
        if key.is_floating_point():
            key = torch.where(torch.isnan(key), -torch.inf if down else torch.inf, key)
        here = key if order is None else key.gather(1, order)
        found = torch.sort(here, dim=1, descending=down, stable=True).indices
        order = found if order is None else order.gather(1, found)
    assert order is not None
    return order


def lined_up(s: Any, op: Any, x: Any, by: tuple[Any, ...]) -> tuple[Any, list[Tensor]]:
    """Candidates and their keys [B, n], element by element. Keys over a whole tree or canvas are read at those that are part of
    it; where others are missing in a key than among the candidates, what is there is packed."""
    every = [
        (one, t)
        for k, t in zip(by, op.operands[len(op.operands) - len(by) :], strict=True)
        for one in (k if isinstance(k, list) else [k])
    ]
    among = op.operands[0].type.elem in ("node", "position")
    whole = [among and bool(t.type.dims) and t.type.dims[0].kind in ("nodes", "cells") for _, t in every]
    keys, there = [one for one, _ in every] or [x], live_of(x)
    whole = whole or [False]
    if any(live_of(one) is not there for one, w in zip(keys, whole, strict=True) if not w):
        x, keys = packed(s, x), [one if w else packed(s, one) for one, w in zip(keys, whole, strict=True)]
    tables = [s.tensor(one) for one in keys]
    tables = [s.lanes(a.flatten(1) if a.ndim > 1 else a[:, None]) for a in tables]
    n = min(count_of(x), *(int(a.shape[1]) for a, w in zip(tables, whole, strict=True) if not w), count_of(x))
    if n < count_of(x) and (there := live_of(x)) is not None:
        x = reordered(s, x, np.arange(n), there[:, :n])  # what stands behind the shorter one's room is missing in the other
    n, out = count_of(x), []
    for a, w in zip(tables, whole, strict=True):
        if w:
            a = a.gather(1, s.lanes(x).clamp(0, int(a.shape[1]) - 1))
        elif int(a.shape[1]) < n or int(a.shape[1]) > n and live_of(x) is None:
            raise NotSteppable("keys over more than the candidates", s.place)
        out.append(a[:, :n])
    return x, out


@step("arg")
def arg(s: Any, op: Any, x: Any, *by: Any) -> Any:
    """The element with the largest (or smallest) key; with one operand the best token of each distribution."""
    if is_static(x) and all(is_static(k) for k in by):
        return s.hosted(op, [x, *by])
    down = op.attrs["fn"] == "max"
    if not by:
        a, live = s.tensor(x), live_of(x)
        a = a.to(torch.uint8) if a.dtype == torch.bool else a
        if live is not None and a.ndim == 2:
            least = -torch.inf if a.is_floating_point() else 0 if a.dtype == torch.uint8 else -(2**62)
            a, live = torch.where(live, a, least if down else -least), None
        if not a.shape[-1]:
            s.flag(torch.ones_like(s.done))
            a = a.new_zeros((*a.shape[:-1], 1))
        out = a.argmax(-1) if down else a.argmin(-1)
        return made(out, live) if out.ndim > 1 else out
    x = flat_draws(x, s) if isinstance(x, Draws) else x
    if not count_of(x):
        return None
    x, keys = lined_up(s, op, x, by)
    live = live_of(x)
    if live is not None:
        s.flag(~live.any(1))
    best = order_of(s, keys, live, down)[:, 0]
    return pick(s, replace(x, live=None) if isinstance(x, Draws | Dist) else x, best, op)


@step("select.top")
def top(s: Any, op: Any, x: Any, k: Any, *by: Any) -> Any:
    """The k candidates with the largest keys, best first (or in their own order)."""
    if is_static(x) and is_static(k) and all(is_static(b) for b in by):
        return s.hosted(op, [x, k, *by])
    if isinstance(x, list):
        raise NotSteppable("a choice among texts", op)
    if isinstance(x, Draws):
        x = flat_draws(x, s)
    elif op.attrs.get("flatten") and not is_static(x) and not isinstance(x, Nodes):
        x = s.tensor(x).flatten(1)
    x, keys = lined_up(s, op, x, by)
    n, live = count_of(x), live_of(x)
    if op.attrs.get("by_race"):
        dead = keys[0] == -torch.inf
        live = ~dead if live is None else live & ~dead
    most = max(0, min(n, int(k) if is_static(k) else int(op.attrs.get("bound") or n)))
    order = order_of(s, keys, live, True)[:, :most]
    there = None if live is None else s.lanes(live).gather(1, order)
    if not is_static(k):
        inside = s.steps(most) < s.lanes(k)[:, None]
        there = inside if there is None else there & inside
    if op.attrs.get("order", "best") == "kept":
        place = order if there is None else torch.where(there, order, n)
        found = place.sort(1).indices
        order, there = order.gather(1, found), None if there is None else there.gather(1, found)
    return _nodes(s, op, x, order, there)


def _nodes(s: Any, op: Any, x: Any, order: Tensor, live: Tensor | None) -> Any:
    """Elements of candidates at an order int64[B, k]; nodes stay nodes."""
    if op.operands[0].type.elem == "node":
        ids = s.lanes(x)
        within = x.within if isinstance(x, Nodes) else np.asarray(x) if isinstance(x, np.ndarray) else None
        return Nodes(ids.gather(1, order), within, live)
    return reordered(s, x, order, live)


@step("sort")
def sort(s: Any, op: Any, x: Any, *by: Any) -> Any:
    """The candidates in the order of their keys."""
    if is_static(x) and all(is_static(b) for b in by):
        return s.hosted(op, [x, *by])
    x = flat_draws(x, s) if isinstance(x, Draws) else x
    x, keys = lined_up(s, op, x, by)
    live = live_of(x)
    order = order_of(s, keys, live, bool(op.attrs.get("descending")))
    return _nodes(s, op, x, order, None if live is None else s.lanes(live).gather(1, order))


def _dead_last(s: Any, x: Any) -> tuple[Tensor, Tensor | None]:
    """A vector's values [B or 1, ..., n], with less than any number where it has none, and which of them are there."""
    a, live = s.tensor(x), live_of(x)
    if live is not None and a.ndim == 2:
        a = torch.where(live, a, -torch.inf if a.is_floating_point() else -(2**62))
    return a, live


@step("rank")
def rank(s: Any, op: Any, x: Any) -> Any:
    """The place of each value from the largest along the last dimension."""
    if is_static(x):
        return s.hosted(op, [x])
    a, live = _dead_last(s, x)
    order = torch.sort(a, dim=-1, descending=True, stable=True).indices
    place = torch.empty_like(order).scatter(-1, order, torch.arange(int(a.shape[-1]), device=a.device).expand_as(order))
    return made(place, live)


@step("first_max")
def first_max(s: Any, op: Any, x: Any) -> Any:
    """True at the first of the largest values along the last dimension."""
    if is_static(x):
        return s.hosted(op, [x])
    a, live = _dead_last(s, x)
    n = int(a.shape[-1])
    if not n:
        return made(a.bool(), live)
    out = torch.arange(n, device=a.device) == a.argmax(-1, keepdim=True)
    return made(out if live is None else out & live, live)


@step("compact")
def compact(s: Any, op: Any, v: Any, c: Any) -> Any:
    """The elements at which a condition holds, in order."""
    if is_static(v) and is_static(c):
        return s.hosted(op, [v, c])
    if isinstance(v, list):
        raise NotSteppable("a choice among a list's elements", op)
    v = tokens_of(s, v)
    cond, there = s.tensor(c), live_of(c)
    if not op.operands[0].type.dims and op.operands[0].type.elem != "path":
        one = v if isinstance(v, Draws | Dist) else s.lanes(v)[:, None]
        if isinstance(v, Draws | Dist):
            one = stacked(s, [v], op)
        return reordered(s, one, np.arange(1), s.lanes(cond)[:, None])
    whole = (
        op.operands[0].type.elem in ("node", "position")
        and cond.ndim > 1
        and op.operands[1].type.dims[0].kind in ("nodes", "cells")
    )
    if not whole and cond.ndim > 1 and there is not live_of(v):
        v, c = packed(s, v), packed(s, c)
        cond, there = s.tensor(c), live_of(c)
    n, live = count_of(v), live_of(v)
    if whole:
        at = s.lanes(v).clamp(0, int(cond.shape[1]) - 1)
        cond, there = s.lanes(cond).gather(1, at), None if there is None else s.lanes(there).gather(1, at)
    if cond.ndim == 1:
        cond = cond[:, None].expand(-1, n)
    if not whole:
        same_count(s, live, there)
    if int(cond.shape[1]) != n:
        if live is None and there is None:
            raise NotSteppable(f"`where`: {n} elements and {int(cond.shape[1])} conditions", op)
        v, n = packed(s, v), min(n, int(cond.shape[1]))  # one has room for more than are there
        cond, there = (
            s.tensor(packed(s, made(cond, there)))[:, :n],
            None if there is None else packed(s, made(there, there)).data[:, :n],
        )
        live = live_of(v)
        live = None if live is None else live[:, :n]
    for more in (live, there):
        cond = cond if more is None else cond & more
    return packed(s, reordered(s, v, np.arange(n), s.lanes(cond)))


@step("take_first")
def take_first(s: Any, op: Any, x: Any, k: Any) -> Any:
    """The first k of a vector; of a condition over positions, the first k where it holds."""
    if is_static(x) and is_static(k):
        return s.hosted(op, [x, k])
    if op.operands[0].type.elem == "bool" and op.results[0].type.elem == "position":
        cond = s.lanes(x)
        live = live_of(x)
        cond = cond if live is None else cond & live
        x = made(s.lanes(s.steps(int(cond.shape[1]))[None]), cond)
    x = packed(s, x)
    n = count_of(x)
    most = min(n, max(0, int(k))) if is_static(k) else n
    live = live_of(x)
    out = reordered(s, x, np.arange(most), None if live is None else live[:, :most])
    if is_static(k):
        return out
    inside = s.steps(most) < s.lanes(k)[:, None]
    return reordered(s, out, np.arange(most), inside if live is None else inside & live[:, :most])


@step("pairs.top")
def pairs(s: Any, op: Any, x: Any, k: Any) -> Any:
    """The k best of rows x vocabulary: rows, tokens and values, best first."""
    if not is_static(k):
        raise NotSteppable("a number of pairs that depends on data", op)
    a, live = s.tensor(x), live_of(x)
    if live is not None:
        a = torch.where(live[..., None], a, -torch.inf)
    size = int(a.shape[2])
    values, order = ordered(a.flatten(1), min(int(k), int(a.shape[1]) * size))
    there = values > -torch.inf
    return made(order // size, there), made(order % size, there), made(values, there)
