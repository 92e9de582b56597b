"""Lowerings of ir/ops/canvases.py: canvases. Sets of positions are host values and keep their NumPy meaning."""

from __future__ import annotations

import numpy as np

from decgraph.backends.torch.canvases import Canvas
from decgraph.backends.torch.data import array, host, whole
from decgraph.backends.torch.draws import Draws, Mixed, TorchDraws, joined, points
from decgraph.backends.torch.events import masked_again, unmasked
from decgraph.backends.torch.lowering import lowering, on_host
from decgraph.backends.torch.ops.request import context
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.rows import Ids, locate
from decgraph.ir.opdef import OpError
from decgraph.ir.ops.canvases import mixtures
from decgraph.ir.types import Type
from decgraph.ir.values import Op


@lowering("canvas.new")
def new(m: Machine, length: int, capacity: int | None = None) -> Canvas:
    """A canvas of masked cells after the committed context."""
    room = m.canvas_room()
    return Canvas(
        context(m), np.full(min(int(length), room), -1, dtype=np.int64), room if capacity is None else min(int(capacity), room)
    )


@lowering("canvas.extend")
def extend(m: Machine, c: Canvas, k: int) -> Canvas:
    """With k more masked cells, up to its capacity."""
    return c.extend(int(k))


@lowering("canvas.put")
def put(
    m: Machine, c: Canvas, ps: object, *rest: object, kind: str, has_mask: bool = False, open: bool = False, op: Op
) -> Canvas:
    """Decide cells, mask them again, or fill them softly."""
    ids = np.ravel(np.asarray(host(ps), dtype=np.int64))
    chosen = np.ones(len(ids), dtype=bool)
    if has_mask:
        mask = np.atleast_1d(np.asarray(host(rest[-1]), dtype=bool))
        chosen = mask if len(mask) == len(ids) else np.full(len(ids), bool(mask[0])) if len(mask) == 1 else mask[ids]
        chosen = chosen.copy()
    masked = c.masked()
    if m.recorder is not None:
        m.recorder.canvas(c.base.length, len(c))
    if kind == "mask":
        ids = ids[chosen & ~masked[ids]]
        masked_again(m, ids)
        return c.put(ids, np.full(len(ids), -1))
    if open:
        chosen &= masked[ids]
    where = np.flatnonzero(chosen)
    if kind == "soft":
        masked_again(m, ids[chosen & ~masked[ids]])
        values = mixtures(host(rest[0]), op.operands[2].type, ids.tolist())
        return c.put_soft(ids[where], [values[int(i)] for i in where])
    x = rest[0]
    if (
        isinstance(x, TorchDraws | Mixed)
        and x.shape
        and x.at is not None
        and len(where) < len(ids)
        and not _lined_up(x.at, ids)
    ):
        ids, where = ids[where], np.arange(len(where))  # they are read at the positions that are taken, and may lack the others
    tokens, draws = _cells(x, ids, op.operands[2].type)
    picked = None if draws is None else draws.pick(where) if draws.shape else draws
    unmasked(m, ids[where], tokens[where], picked)
    kept = {} if draws is None else {int(ids[i]): (draws.pick(int(i)) if draws.shape else draws) for i in where}
    return c.put(ids[where], tokens[where], kept)


def _lined_up(at: Ids, ids: Ids) -> bool:
    """Whether draws are of exactly these positions, in their order."""
    return len(at) == len(ids) and bool(np.all(at == ids))


def _cells(x: object, ids: Ids, t: Type) -> tuple[Ids, Draws | None]:
    """A token for each position, and the draws they are: lined up with them, read at them, or the same for all."""
    n = len(ids)
    over_all = bool(t.dims) and t.dims[0].kind == "cells"
    if isinstance(x, TorchDraws | Mixed):
        if not x.shape:
            return np.full(n, int(x.tokens)), x
        if over_all:
            x = x.pick(ids)
        elif x.at is not None and not _lined_up(x.at, ids):
            x = x.pick(locate(x.at, ids))
        if x.shape[0] != n:
            raise OpError(f"{n} positions and {x.shape[0]} values")
        return x.tokens, x
    a = array(x)
    if a.ndim == 0:
        return np.full(n, int(a)), None
    a = a[ids] if over_all else a
    if len(a) != n:
        raise OpError(f"{n} positions and {len(a)} values")
    return a.astype(np.int64), None


@lowering("canvas.get")
def get(m: Machine, c: Canvas, *, field: str) -> object:
    """A field over all positions."""
    if field == "length":
        return len(c)
    if field == "all":
        return np.arange(len(c))
    if field in ("masked", "decided"):
        mask = c.masked()
        return mask if field == "masked" else ~mask
    if field == "token":
        return np.where(c.masked(), m.mask_token, c.token)
    return joined([c.draws[i] if i in c.draws else points(np.asarray(t)) for i, t in enumerate(c.token)])


@lowering("positions")
def positions(m: Machine, c: Canvas | Ids, *others: object, kind: str) -> list[np.ndarray] | np.ndarray | int:
    """Sets of positions, int64[n] each, or the place where one starts or stops."""
    n = len(c) if isinstance(c, Canvas) else np.size(c)
    if kind == "blocks":
        k = max(1, whole(others[0]))
        return [np.arange(i, min(i + k, n)) for i in range(0, n, k)]
    if kind == "span":
        first = whole(others[0])
        return np.arange(max(0, first), min(first + whole(others[1]), n))
    if kind == "from":
        return np.arange(max(0, whole(others[0])), n)
    if kind == "before":
        return np.arange(0, min(whole(others[0]), n))
    if kind in ("start", "stop") and not n:
        raise OpError(f"positions that hold no cell have no {kind}", hint="look before: if len(b) > 0")
    a = np.ravel(np.asarray(c, dtype=np.int64))
    if kind == "start":
        return int(a[0])
    if kind == "stop":
        return int(a[-1]) + 1
    b = np.ravel(np.asarray(others[0], dtype=np.int64))
    return np.concatenate((a, b[~np.isin(b, a)])) if kind == "union" else a[~np.isin(a, b)]


on_host("block_index", "schedule", why="they are arithmetic on a few positions")
