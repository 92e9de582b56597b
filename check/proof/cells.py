"""Choosing cells and entries (schedules.py): what is known of parts of vectors, sets of cells and schedules, and of what is put
in an order."""

from __future__ import annotations

from dataclasses import replace

from decgraph.check.proof.canvas_values import (
    Best,
    Between,
    Blocks,
    CanvasRows,
    CanvasValue,
    CellDraws,
    Cells,
    Column,
    Counts,
    Formula,
    K,
    MaskedOf,
    Open,
    Order,
    Places,
    Ranked,
    Score,
    TreeNodes,
    Vector,
    Walks,
    same_cells,
)
from decgraph.check.proof.vectors import RULES, as_vector, differ, scalar, size, unknown
from decgraph.ir.known_numbers import ONE, ZERO, varies
from decgraph.ir.linear import Inequality, Linear
from decgraph.ir.values import Op

BLOCK = Linear.of(" block")
"""The number of a block, in the loop that goes through all of them."""


def _scored(rows: CanvasRows, x: CanvasValue, entry: Linear) -> CanvasValue:
    """What a lookup of drawn tokens in the rows that they were drawn from gives."""
    if isinstance(x, CellDraws) and rows.face == "raw" and rows.canvas is x.canvas and same_cells(rows.at, x.at):
        return Score(entry, rows.canvas, rows.at, x.draw)
    return entry


def _score(at: CanvasValue, keys: tuple[CanvasValue, ...]) -> Score | None:
    """The score that cells are chosen by."""
    key = keys[0].item if len(keys) == 1 and isinstance(keys[0], Vector) else None
    return key if isinstance(key, Score) and isinstance(at, Open | Cells | None) and same_cells(at, key.at) else None


def _best_tokens(x: CellDraws, i: Best) -> CanvasValue:
    """The draws at the best cells."""
    own = not i.token and x.draw is i.score.draw and x.canvas is i.score.canvas
    return Best(i.score, i.count, token=True) if own else None


def _gathered(w: Walks, op: Op, x: CanvasValue, *index: CanvasValue) -> CanvasValue:
    if len(index) != 1 or op.attrs.get("axis"):
        return None
    (i,) = index
    position = op.operands[1].type.elem == "position"
    match x, i:
        case Blocks(), _:
            if x.step == ONE and isinstance(i, Linear) and w.known.at_least(i):
                return Cells(i, i + ONE)
            if w.block is not None and (x.step, i) == (w.block[0], BLOCK):
                return w.block[1]
            return Cells(ZERO, w.length) if w.known.at_least(x.step - w.length) else None
        case Column(), TreeNodes(one=True) if x.tree is i.tree:
            return x.value
        case CellDraws(), Best():
            return _best_tokens(x, i)
        case CanvasRows() | CellDraws(), Cells() | Open() if position:
            return replace(x, at=i)
        case Vector(item=Score(at=None) as score), Cells() | Open() if position:
            return Vector(size(w, i), replace(score, at=i))
        case Vector(item=MaskedOf(canvas)), Cells():
            return Vector(size(w, i), w.masked_at(canvas, i))
        case Cells(), Places() if x.low == ZERO and x.high == i.size:
            return Cells(x.low, x.high, ordered=False)
        case Counts(), Linear() if w.known.at_least(i):
            return w.known.symbol(("counts", x.cells, x.steps, i), 0)
        case Vector(), Linear() if w.known.at_least(i):
            return _picked(w, x, i)
        case Vector(), Cells() if position:
            n = size(w, i)
            if isinstance(x.item, Between):
                return Vector(n, within(w, x.item, i) if x.size == w.length else unknown(w))
            return Vector(n, _again(w, x))
    return Vector(size(w, i)) if op.result.type.dims and op.operands[1].type.dims else scalar(w, op)


def _picked(w: Walks, x: Vector, i: Linear) -> CanvasValue:
    """One entry of a vector."""
    return x.item if x.size == ONE or not differ(x.item) else None


def _again(w: Walks, x: Vector) -> CanvasValue:
    """The entries of a vector at other places."""
    if not differ(x.item):
        return x.item
    return unknown(w) if isinstance(x.item, Formula | Between) else None


def within(w: Walks, cond: Between, at: Cells) -> CanvasValue:
    """A condition on the cells of a canvas, for some of them, by their place among these."""
    if w.known.at_least(at.low - cond.low) and w.known.at_least(cond.high - at.high):
        return True
    if w.known.at_least(cond.low - at.high) or w.known.at_least(at.low - cond.high):
        return False
    return Between(cond.low - at.low, cond.high - at.low) if at.ordered else unknown(w)


def _compacted(w: Walks, op: Op, x: CanvasValue, cond: CanvasValue) -> CanvasValue:
    item, n = cond.item if isinstance(cond, Vector) else cond, size(w, x)
    if isinstance(item, Between) and isinstance(x, Cells) and op.operands[1].type.dims[0].kind == "cells":
        item = within(w, item, x)  # the condition is read at each of the cells
    if isinstance(item, MaskedOf) and isinstance(x, Cells):
        item = w.masked_at(item.canvas, x)
    if isinstance(item, Open):
        same = isinstance(x, Cells) and x.ordered and (x.low, x.high) == (item.low, item.high)
        return item if same else None
    if isinstance(item, Between):
        if n is None or not isinstance(x, Cells) or not x.ordered:
            return None
        low, high = w.known.which("maximum", item.low, ZERO), w.known.which("minimum", item.high, n)
        if low is None or high is None or w.known.compared(high, low) is None:
            return None
        return Cells(x.low + low, x.low + high) if w.known.at_least(high - low) else Cells(ZERO, ZERO)
    if item is False:
        return Cells(ZERO, ZERO) if isinstance(x, Cells) else Vector(ZERO)
    return x if item is True else None


def _first(w: Walks, op: Op, x: CanvasValue, k: CanvasValue, *keys: CanvasValue) -> CanvasValue:
    """The first or the best k of a vector; the best in any order."""
    best = op.opcode == "select.top"
    score = (_score(x, keys) if x is not None else None) if best else x.score if isinstance(x, Order) else None
    if score is not None and isinstance(k, Linear) and w.known.whole(k):
        n = size(w, x)
        if n is None or not w.known.at_least(k - n):
            return Best(score, k)
    if op.operands[0].type.elem == "bool" and op.result.type.elem == "position" or not isinstance(k, Linear):
        return None
    n = size(w, x)
    if w.known.at_least(k.times(-1)):
        return Cells(ZERO, ZERO) if isinstance(x, Cells) else None
    if n is not None and w.known.at_least(k - n):
        return replace(x, ordered=False) if isinstance(x, Cells) and best else None if best else x
    if isinstance(x, Cells) and x.ordered and not best and n is not None and w.known.at_least(n - k) and w.known.at_least(k):
        return Cells(x.low, x.low + k) if w.known.whole(k) else None
    return None


def _sorted_(w: Walks, op: Op, x: CanvasValue, *keys: CanvasValue) -> CanvasValue:
    score = _score(x, keys) if op.attrs.get("descending") and x is not None else None
    if score is not None and size(w, x) != ONE:
        return Order(score)
    return replace(x, ordered=False) if isinstance(x, Cells) else Vector(size(w, x))


def _sliced(w: Walks, op: Op, x: CanvasValue, *ends: CanvasValue) -> CanvasValue:
    bounds = list(ends)
    low = bounds.pop(0) if op.attrs.get("has_lo") else ZERO
    n = size(w, x)
    high = bounds.pop(0) if op.attrs.get("has_hi") else n
    if not isinstance(low, Linear) or not isinstance(high, Linear) or n is None:
        return None
    return x if low == ZERO and w.known.at_least(high - n) else None


def _tiled(w: Walks, op: Op, *xs: CanvasValue) -> CanvasValue:
    kind, dims = op.attrs["kind"], op.result.type.dims
    numbers = [x for x in xs if isinstance(x, Linear)]
    if not xs or len(numbers) < len(xs) or dims[0].kind == "vocab" and kind == "zeros":
        return None
    low = numbers[0] if kind == "iota" and len(xs) == 2 else ZERO
    n = numbers[0] if kind == "zeros" else numbers[-1] - low
    if not w.known.at_least(n) or not w.known.whole(n):
        return None
    item = {"iota": low + K, "zeros": ZERO}.get(kind, numbers[0])
    return Vector(n, item if len(dims) == 1 else None)


def _normalized(w: Walks, op: Op, x: CanvasValue) -> CanvasValue:
    """Numbers above 0, all the same, give mass to every place."""
    v = as_vector(w, x)
    even = isinstance(v.item, Linear) and not varies(v.item) and w.known.above(v.item)
    if even and v.size is not None and op.operands[0].type.dims[0].of == "places":
        return Places(v.size, even=True)
    return Vector(v.size)


def _many(w: Walks, op: Op, x: CanvasValue, k: CanvasValue, _noise: CanvasValue) -> CanvasValue:
    """As many draws without replacement as there are places are all of them."""
    return Places(x.size) if isinstance(x, Places) and x.even and not op.attrs["replace"] and x.size == k else None


def _whole(w: Walks, op: Op, x: CanvasValue) -> CanvasValue:
    if isinstance(x, Places):
        return x if not x.even else None
    if isinstance(x, Linear):
        return w.known.truncated(x)
    if not op.result.type.dims:
        return w.known.fresh()
    v = as_vector(w, x)
    return Vector(v.size, w.known.truncated(v.item) if isinstance(v.item, Linear) else None)


def _ranked(w: Walks, op: Op, x: CanvasValue) -> CanvasValue:
    """Ranks are below the number of ranked values, where there are any."""
    n = size(w, x)
    if len(op.result.type.dims) != 1:
        return Vector(n)
    place = w.known.fresh(0, varies=True)
    if n is not None and w.known.at_least(n, 1):
        w.known.assumed.append(Inequality(n - place, True))
    score = x.item if isinstance(x, Vector) else None
    return Vector(n, Ranked(place, score) if isinstance(score, Score) else place)


def _largest(w: Walks, op: Op, x: CanvasValue) -> CanvasValue:
    n = size(w, x)
    if n == ONE and len(op.result.type.dims) == 1:
        return Vector(n, True)
    score = x.item if isinstance(x, Vector) else None
    return Vector(n, Best(score, ONE) if isinstance(score, Score) else unknown(w))


def _argued(w: Walks, op: Op, x: CanvasValue, *keys: CanvasValue) -> CanvasValue:
    """The best of one candidate is that one."""
    if not keys:
        return Vector(size(w, x)) if op.result.type.dims else scalar(w, op)
    if size(w, x) != ONE:
        score = _score(x.at if isinstance(x, CellDraws) else x, keys) if op.attrs["fn"] == "max" and x is not None else None
        if score is None or isinstance(x, CellDraws) and (x.draw is not score.draw or x.canvas is not score.canvas):
            return None
        return Best(score, ONE, token=isinstance(x, CellDraws))
    return x.low if isinstance(x, Cells) else x if isinstance(x, CellDraws) else None


def _looked_up(w: Walks, op: Op, x: CanvasValue, i: CanvasValue) -> CanvasValue:
    """A probability of one of the model's rows lies between 0 and 1."""
    n = size(w, x)
    if not isinstance(x, CanvasRows) or len(op.result.type.dims) != 1 or x.face not in ("raw", "shaped"):
        return Vector(n)
    return Vector(n, _scored(x, i, w.known.fresh(0, 1, real=True, varies=True)))


def _positions(w: Walks, op: Op, x: CanvasValue, *rest: CanvasValue) -> CanvasValue:
    kind = op.attrs["kind"]
    k = w.known
    if kind == "blocks":
        n = rest[0]
        return Blocks(n) if isinstance(n, Linear) and k.at_least(n, 1) and k.whole(n) else None
    if kind in ("start", "stop"):
        return (x.low if kind == "start" else x.high) if isinstance(x, Cells) and x.ordered else k.fresh(0)
    numbers = [r for r in rest if isinstance(r, Linear) and k.whole(r)]
    if kind in ("span", "from", "before") and len(numbers) == len(rest):
        first, *more = numbers
        low = ZERO if kind == "before" else k.which("maximum", first, ZERO)
        high = k.which("minimum", {"span": sum(more, first), "from": w.length, "before": first}[kind], w.length)
        if low is not None and high is not None and k.at_least(high - low):
            return Cells(low, high)
    return None


def _tossed(w: Walks, op: Op, p: CanvasValue, _noise: CanvasValue) -> CanvasValue:
    """A coin whose probability is 0 or 1 is none."""
    x = p.item if isinstance(p, Vector) else p
    found: bool | Formula = isinstance(x, Linear) and w.known.at_least(x, 1)
    if not found and not (isinstance(x, Linear) and w.known.at_least(x.times(-1))):
        found = unknown(w)
    return Vector(p.size, found) if isinstance(p, Vector) else found


def _contained(w: Walks, op: Op, x: CanvasValue, xs: CanvasValue) -> CanvasValue:
    if not op.result.type.dims:
        return False if xs == () else unknown(w)
    return Vector(size(w, x), False if xs == () else unknown(w))


def _scheduled(w: Walks, op: Op, n: CanvasValue, steps: CanvasValue) -> CanvasValue:
    """n cells in so many steps: of one step all, of n steps one each."""
    if not isinstance(n, Linear) or not isinstance(steps, Linear) or not w.known.at_least(n) or not w.known.whole(n):
        return None
    steps = w.known.truncated(steps)
    if w.known.at_least(ONE - steps):
        return Vector(ONE, n)
    if steps == n and w.known.at_least(n, 1):
        return Vector(n, ONE)
    return Counts(n, steps)


RULES.update(
    {
        "gather": _gathered,
        "compact": _compacted,
        "take_first": _first,
        "select.top": _first,
        "sort": _sorted_,
        "slice": _sliced,
        "tile": _tiled,
        "normalize": _normalized,
        "draw.many": _many,
        "as_int": _whole,
        "rank": _ranked,
        "first_max": _largest,
        "arg": _argued,
        "lookup": _looked_up,
        "positions": _positions,
        "bernoulli": _tossed,
        "contains": _contained,
        "schedule": _scheduled,
    }
)
