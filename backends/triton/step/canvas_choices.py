"""Choices among elements whose presence depends on data. Stable: of equals the first comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.step.canvas_rows import CanvasRows, CanvasVectors, vector
from decgraph.backends.triton.step.canvas_step import form
from decgraph.backends.triton.step.canvas_values import CanvasDist, CanvasDraws, Live, Num, both
from decgraph.backends.triton.step.canvas_vectors import numbers, packed, size_of
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.ir.values import Op


@form("compact")
def compact(s: Any, op: Op, v: Any, c: Any) -> Any:
    """The elements at which a condition holds: they keep their places, and fewer are present."""
    if not any(getattr(x, "on_device", False) for x in (v, c)):
        return s.hosted(op, [v, c])
    if isinstance(c, Num):
        live = c.data[:, None]
    else:
        mask = numbers(s, c, op)
        live = mask if isinstance(mask, Tensor) else mask.data if mask.live is None else mask.data & mask.live
        if live.ndim < 2:
            live = live.expand(s.batch, -1)
        dims = op.operands[1].type.dims
        if op.operands[0].type.elem == "position" and dims and dims[0].kind == "cells":
            at = numbers(s, v, op)  # the condition is over all cells: it is read at each
            if isinstance(at, Tensor):
                live = live if np.array_equal(v, np.arange(live.shape[1])) else live.gather(1, at[None].expand(s.batch, -1))
            else:
                live = live.gather(1, at.data.clamp(0, live.shape[1] - 1))
    if isinstance(v, CanvasDraws):
        return v.alive(both(v.live, live.expand(s.batch, size_of(v))))
    if isinstance(v, CanvasDist):
        return replace(v, live=both(v.live, live.expand(s.batch, v.size)))
    if isinstance(v, np.ndarray):
        return Live(v, live.expand(s.batch, len(v)))
    if not isinstance(v, Live):
        raise NotCapturable(f"elements of a {type(v).__name__} at a condition", op)
    if v.live is not None and not isinstance(c, Num) and (c.live is not v.live if isinstance(c, Live) else True):
        raise NotCapturable("conditions on other elements", op)
    return Live(v.data, both(v.live, live.expand(s.batch, v.size)))


@form("take_first")
def take_first(s: Any, op: Op, x: Any, k: Any) -> Any:
    """The first k of a vector; of a condition over positions, the first k where it holds."""
    if not any(getattr(v, "on_device", False) for v in (x, k)):
        return s.hosted(op, [x, k])
    count = k.data[:, None] if isinstance(k, Num) else max(0, int(k))
    if op.operands[0].type.elem == "bool" and op.results[0].type.elem == "position":
        x = Live(np.arange(x.size), x.data if x.live is None else x.data & x.live)
    if isinstance(x, np.ndarray):
        x = Live(x)
    if not isinstance(x, Live):
        raise NotCapturable("the first of several distributions or draws", op)
    live = torch.ones(s.batch, x.size, dtype=torch.bool, device=s.device) if x.live is None else x.live
    return Live(x.data, live & (live.long().cumsum(1) <= count), x.packed)


def order_of(x: Live, descending: bool) -> Tensor:
    """int64[B, N]: the indices of the elements in the order of their keys, equal ones in order, absent ones last."""
    keys = x.data.double()
    keys = -keys if descending else keys
    order = torch.sort(keys, dim=1, stable=True).indices  # NaN comes last
    if x.live is not None:
        absent = (~x.live).gather(1, order)
        order = order.gather(1, torch.sort(absent, dim=1, stable=True).indices)
    return order


@form("first_max")
def first_max(s: Any, op: Op, x: Any) -> Live:
    """Which entry is the first of the largest."""
    x = numbers(s, x, op)
    first = order_of(x, True)[:, :1]
    return Live(s.constant(np.arange(x.size))[None] == first, x.live, x.packed)


@form("rank")
def rank(s: Any, op: Op, x: Any) -> Live:
    """The place of each entry, the largest 0; stable."""
    x = numbers(s, x, op)
    order = order_of(x, True)
    out = torch.zeros_like(order).scatter(1, order, s.constant(np.arange(x.size))[None].expand(s.batch, -1))
    return Live(out, x.live, x.packed)


@form("sort")
def sort(s: Any, op: Op, x: Any, *by: Any) -> Live:
    """The candidates in the order of their key, or a vector's own values."""
    if not any(getattr(v, "on_device", False) for v in (x, *by)):
        out: Live = s.hosted(op, [x, *by])
        return out
    if len(by) > 1 or isinstance(x, CanvasDist | CanvasDraws):
        raise NotCapturable("sorting by several keys", op)
    values = numbers(s, x, op)
    if isinstance(values, Tensor):
        values = Live(values[None].expand(s.batch, -1))
    key = numbers(s, by[0], op) if by else values
    order = order_of(Live(key.data, both(key.live, values.live)), bool(op.attrs.get("descending")))
    live = both(key.live, values.live)
    return Live(values.data.gather(1, order), None if live is None else live.gather(1, order), packed=True)


@form("arg")
def arg(s: Any, op: Op, x: Any, *by: Any) -> Any:
    """The element with the largest (or smallest) key; with one operand the best token of each distribution."""
    down = op.attrs["fn"] == "max"
    if not by:
        if isinstance(x, CanvasDist):
            if isinstance(x.rows, CanvasVectors) and x.rows.ones is not None and down:
                return Live(x.rows.ones, x.live)
            if isinstance(x.rows, CanvasRows) and down and (x.face != "shaped" or x.rows.shaper.greedy):
                best = x.rows.points(x.ids) if x.face == "shaped" else x.rows.logits(x.ids).argmax(-1)
            else:
                best = vector(x).argmax(-1) if down else vector(x).argmin(-1)
            return Live(best, x.live) if x.ids.ndim else Num(best[:, 0])
        if not getattr(x, "on_device", False):
            return s.hosted(op, [x])
        x = packed(numbers(s, x, op))
        return Num(order_of(x, down)[:, 0])
    if len(by) > 1 or not getattr(by[0], "on_device", False):
        raise NotCapturable("the best by several keys", op)
    key, values = numbers(s, by[0], op), numbers(s, x, op)
    data = values[None].expand(s.batch, -1) if isinstance(values, Tensor) else values.data
    live = both(key.live, None if isinstance(values, Tensor) else values.live)
    first = order_of(Live(key.data, live), down)[:, :1]
    if live is not None:
        s.fault(~live.any(1, keepdim=True))
    return Num(data.gather(1, first)[:, 0])
