"""Calls of masked models: the scores of canvases, and which of their positions a call computes."""

from __future__ import annotations

import numpy as np

from decgraph.backends.reference.cells import CanvasCells, canvas_key
from decgraph.backends.reference.places import as_canvas, text_of_place
from decgraph.backends.reference.protocols import Machine, RowSource
from decgraph.backends.reference.rows import row_of_scores
from decgraph.backends.reference.values import memory_of
from decgraph.ir.data.canvas import Canvas
from decgraph.ir.data.dist import Dist, Draw, resolve_path
from decgraph.ir.data.dist import Soft as SoftCell
from decgraph.ir.machine import Datum
from decgraph.ir.values import Op
from decgraph.runtime.models.interface import MASK, Cell, Memory, Model, Scores, mixture


def cells(m: Machine, c: Canvas, after: Datum = None) -> tuple[Cell, ...]:
    """The cells that a masked model reads: the context, or the tokens in its place, then the canvas."""
    out: list[Cell] = list(resolve_path(c.base))
    if after is not None:
        out = [MASK if t == m.mask_token else t for t in text_of_place(after)]
    for x in c.cells:
        if x is None:
            out.append(MASK)
        elif isinstance(x, SoftCell):
            out.append(mixture(x.value))
        else:
            out.append(x.token if isinstance(x, Draw) else int(x))
    return tuple(out)


def fresh(c: Canvas, at: Datum, memory: Memory | None) -> tuple[list[int] | None, Memory | None]:
    """The absolute positions that a call computes (None: all), and the memory it sees: on a memory it computes its cells, and
    the context where that is not cached. Where that is everything, the memory is not used."""
    base = len(c.base)
    wanted = [base + int(i) for i in (range(len(c)) if at is None else np.ravel(np.asarray(at)))]
    if memory is None:
        return (None if at is None or len(set(wanted)) == len(c) else wanted), None
    cached = memory.positions
    computed = sorted({*wanted, *(i for i in range(base) if i not in cached)})
    return (None, None) if len(computed) == base + len(c) else (computed, memory)


def eval_canvases(m: Machine, op: Op, model: Model, place: Datum, extra: dict[str, Datum]) -> Dist:
    """The meaning of `model.eval` of canvases: one, or all of a tree of them."""
    places, shape, _ = m.place_states(place, extra)
    states = list(map(as_canvas, places))
    at = extra.get("at")
    n = len(states[0])
    which = [int(i) for i in np.ravel(np.asarray(at))] if at is not None else list(range(n))
    out = np.empty((len(states), len(which)), dtype=object)
    memo: dict[tuple[Cell, ...], list[Scores]] = {}
    memory = memory_of(extra.get("given"))
    store, new = store_of(m, op, model), 0
    if store is not None and not m.joined:  # the parts of one call belong together
        store.begin()
    for s, c in enumerate(states):
        read = m.cells(c, extra.get("after"))
        base = len(read) - n
        at_once, past = fresh(c, None if "after" in extra else at, memory)
        if read not in memo:
            rows = [base + i for i in which]
            if store is not None:
                scores, cost = store.scores(read, rows, at_once, past, base)
                new += cost
            elif past is None or at_once is None:
                scores = model.after(base).eval_canvas(read, rows, past) if rows else []
            else:
                found = model.after(base).eval_canvas(read, at_once, past) if rows else []
                place_of = {p: i for i, p in enumerate(at_once)}
                scores = [found[place_of[p]] for p in rows]
            memo[read] = [x if m.num.exact else x.to_float() for x in scores]
        before = resolve_path(c.base) if "after" in extra else read[:base]
        for j, i in enumerate(which):
            path = tuple(x if isinstance(x, int) else m.mask_token for x in (*before, *read[base : base + i]))
            out[s, j] = m.model_row(RowSource(model, row_of_scores(memo[read][j]), path, i))
    at_once, past = fresh(states[0], None if "after" in extra else at, memory)
    if store is None and past is not None and at_once is not None:
        new = len(memo) * len(at_once)
    keys = {canvas_key(read, at_once, past) for read in memo}
    scored = {(key, int(i)) for key in keys for i in which}  # scores elsewhere in the same canvas are another call
    again = not m.num.exact and not m.last_canvases.new(model, keys | scored, past)
    computed = 0 if again else None if store is None and past is None else new
    m.count_call(model, len(which) * len(memo), sum(map(len, memo)), computed)
    if shape == ():
        return Dist(out[0], "shaped", np.array(which, dtype=np.int64) if at is not None else None)
    return Dist(out, inner=None if at is None else np.array(which, dtype=np.int64))


def store_of(m: Machine, op: Op, model: Model) -> CanvasCells | None:
    """The results that a call goes on with; None where it computes from scratch."""
    store = m.caches.store(op, model) if not m.num.exact else None
    return store if isinstance(store, CanvasCells) else None
