"""Canvases: cells that are masked (None) or hold a token, and sets of positions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from meanings.registry import Draw, Sample, V, says
from meanings.values import TOKENS, canvas, exactly

MASKED = V  # what a masked cell shows as its token


def positions(xs: list[int]) -> tuple[str, Any]:
    return "position<c>[part.c<=8]", np.array(xs, dtype=np.int64)


def made(cells: list[int | None], capacity: int | None = None) -> Any:
    """How a canvas after the context 1 0 2 is shown."""
    return ("canvas", (1, 0, 2), cells, len(cells) + 3 if capacity is None else capacity)


@says("canvas.new")
def new(draw: Draw) -> Sample:
    """As many cells as asked for, within the limit of 9 tokens."""
    n, capacity = draw(st.integers(0, 12)), draw(st.none() | st.integers(0, 12))
    given: dict[str, tuple[str, Any]] = {"n": ("int", n)}
    if capacity is None:
        return Sample('%z = canvas.new(%n, canvas = "c")', given, (made([None] * min(n, 9), 9),))
    return Sample(
        '%z = canvas.new(%n, %m, canvas = "c")',
        {**given, "m": ("int", capacity)},
        (made([None] * min(n, 9), min(capacity, 9)),),
    )


@says("canvas.extend")
def longer(draw: Draw) -> Sample:
    """Up to its capacity, which is three more here."""
    c, cells = canvas(draw)
    k = draw(st.integers(0, 6))
    return Sample("%z = canvas.extend(%c, %k)", {"c": c, "k": ("int", k)}, (made(cells + [None] * min(k, 3), len(cells) + 3),))


@says("canvas.put")
def deciding(draw: Draw) -> Sample:
    """A value for each position, one for all, or one for each cell of the canvas; where a condition holds; only open cells."""
    c, cells = canvas(draw)
    at = draw(st.lists(st.integers(0, len(cells) - 1), unique=True))
    how = draw(st.sampled_from(["each", "one", "canvas"]))
    values = draw(exactly(TOKENS, {"each": len(at), "one": 1, "canvas": len(cells)}[how]))
    ok = draw(st.none() | exactly(st.booleans(), len(at)))
    is_open = draw(st.booleans())
    out = list(cells)
    for n, i in enumerate(at):
        if (ok is None or ok[n]) and not (is_open and cells[i] is not None):
            out[i] = values[{"each": n, "one": 0, "canvas": i}[how]]
    typed = {"each": "token<V>[k<=8]", "one": "token<V>", "canvas": "token<V>[cells.c]"}[how]
    value = values[0] if how == "one" else np.array(values, dtype=np.int64)
    given: dict[str, tuple[str, Any]] = {"c": c, "ps": positions(at), "x": (typed, value)}
    if ok is not None:
        given["ok"] = ("bool[k<=8]", np.array(ok, dtype=bool))
    said = 'kind = "token"' + (", has_mask = true" if ok is not None else "") + (", open = true" if is_open else "")
    return Sample(f"%z = canvas.put(%c, %ps, %x{', %ok' if ok is not None else ''}, {said})", given, (made(out),))


@says("canvas.put")
def masking(draw: Draw) -> Sample:
    c, cells = canvas(draw)
    at = draw(st.lists(st.integers(0, len(cells) - 1), unique=True))
    return Sample(
        '%z = canvas.put(%c, %ps, kind = "mask")',
        {"c": c, "ps": positions(at)},
        (made([None if i in at else x for i, x in enumerate(cells)]),),
    )


@says("canvas.get")
def fields(draw: Draw) -> Sample:
    c, cells = canvas(draw)
    field = draw(st.sampled_from(["masked", "decided", "token", "draws", "all", "length"]))
    want = {
        "masked": [x is None for x in cells],
        "decided": [x is not None for x in cells],
        "token": [MASKED if x is None else x for x in cells],
        "draws": cells,
        "all": list(range(len(cells))),
        "length": len(cells),
    }[field]
    return Sample(f'%z = canvas.get(%c, field = "{field}")', {"c": c}, (want,))


@says("positions")
def parts_of_a_canvas(draw: Draw) -> Sample:
    """Only positions that the canvas has: what reaches outside of it is cut."""
    c, cells = canvas(draw)
    n = len(cells)
    kind = draw(st.sampled_from(["span", "from", "before", "blocks"]))
    a, b = draw(st.integers(-3, 9)), draw(st.integers(-2, 9))
    given: dict[str, tuple[str, Any]] = {"c": c, "a": ("int", a), "b": ("int", b)}
    if kind == "span":
        return Sample('%z = positions(%c, %a, %b, kind = "span")', given, ([i for i in range(n) if a <= i < a + b],))
    if kind == "from":
        return Sample('%z = positions(%c, %a, kind = "from")', given, ([i for i in range(n) if i >= a],))
    if kind == "before":
        return Sample('%z = positions(%c, %a, kind = "before")', given, ([i for i in range(n) if i < a],))
    k = draw(st.integers(1, 7))
    blocks = [[i for i in range(n) if i // k == block] for block in range(-(-n // k))]
    return Sample('%z = positions(%c, %k, kind = "blocks")', {"c": c, "k": ("int", k)}, (blocks,))


@says("positions")
def sets(draw: Draw) -> Sample:
    """Union: the first, then what is only in the second; minus; where a span starts and stops."""
    a, b = (draw(st.lists(st.integers(0, 7), unique=True, max_size=6)) for _ in range(2))
    kind = draw(st.sampled_from(["union", "minus", "start", "stop"]))
    if kind in ("start", "stop"):
        lo, length = draw(st.integers(0, 5)), draw(st.integers(1, 4))
        span = list(range(lo, lo + length))
        return Sample(f'%z = positions(%a, kind = "{kind}")', {"a": positions(span)}, (lo if kind == "start" else lo + length,))
    want = [*a, *(i for i in b if i not in a)] if kind == "union" else [i for i in a if i not in b]
    return Sample(f'%z = positions(%a, %b, kind = "{kind}")', {"a": positions(a), "b": positions(b)}, (want,))


@says("block_index")
def number_of_a_block(draw: Draw) -> Sample:
    k, block = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    return Sample("%z = block_index(%a)", {"a": positions(list(range(k * block, k * block + k)))}, (block,))


@says("schedule")
def spread(draw: Draw) -> Sample:
    """One after the other takes a share until none is left: sums to n, no two differ by more than one, larger ones first."""
    n, steps = draw(st.integers(0, 20)), draw(st.integers(1, 7))
    want = [0] * steps
    for i in range(n):
        want[i % steps] += 1
    return Sample("%z = schedule(%n, %s)", {"n": ("int", n), "s": ("int", steps)}, (want,))
