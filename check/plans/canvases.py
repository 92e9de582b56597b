"""Canvases of one to eight cells in up to seven blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from decgraph.check.constants import Facts
from decgraph.check.plans.parameters import defaults
from decgraph.check.tables import Style
from decgraph.check.worlds import WorldPlan
from decgraph.ir.values import Claim, Function

CANVASES = ((1, 1), (3, 1), (5, 2), (6, 2), (6, 3), (8, 4), (4, 4), (7, 3))
SAMPLED = ((2, 1, 0), (3, 1, 0), (3, 3, 2), (4, 2, 2), (4, 4, 3), (4, 4, 2), (6, 2, 10), (7, 7, 16), (8, 4, 16))


def canvases(f: Function, known: Facts, claim: Claim, vocab: int) -> Iterator[WorldPlan]:
    """Canvases of one to eight cells in up to seven blocks: greedy ones of several layers, sampled ones over two tokens, half
    of them with the program's own values of parameters: of what it does several times at once, small values show little."""
    if not known.masked:
        return
    free = (True,) if known.memory else (False, True)
    n = 0

    def canvas(cells: int, block: int, size: int, style: Style, **more: Any) -> WorldPlan:
        params = (*(((known.block, block),) if known.block else ()), *more.pop("own", ()))
        return WorldPlan("canvas", 6000 + n, size, style, limit=cells, length=cells, span=cells, params=params, **more)

    for cells, block in CANVASES:
        for sort in free:
            for again in range(3):
                n += 1
                size, style = (vocab, 2, vocab)[again], Style("plain", shared=n)
                yield canvas(cells, block, size, style, free=sort, prompt=1 + n % 3, temperature=0)
    if claim.kind == "keeps_support":  # tokens without mass beside cells of which none is sure
        for cells, block in CANVASES[2:]:
            for size in (3, 5, 5, 8):
                n += 1
                style = Style("zeros", shared=n)
                yield canvas(cells, block, size, style, free=known.memory, prompt=1 + n % 3, temperature=0)
    if claim.mode == "greedy":
        return
    own = tuple((k, v) for k, v in defaults(f, known) if k not in (known.length, known.block))
    for cells, block, rare in SAMPLED:
        for sort in free:
            for _ in range(2 if rare in (2, 3) else 1):
                n += 1
                style = Style(("plain", "zeros")[n % 2], shared=n, rare=rare)
                yield canvas(cells, block, 2, style, free=sort, prompt=1 + n % 2, own=own if n % 4 < 2 else (), runs=400)
    for cells, open_ in () if known.memory else ((4, 2), (5, 2), (7, 2), (8, 2)):  # certain until the last cells are open
        for block in (cells, (cells + 1) // 2):
            n += 1
            yield canvas(cells, block, 2, Style("plain", shared=n, point_until=1 + cells - open_ + 1), prompt=1, runs=300)
