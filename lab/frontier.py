"""Quality against parallelism of masked models' decoders at their published parameters: a part of the leaderboard.

A decoder that decides several positions in one call draws them as if they were independent. What that costs is what
ParallelBench (Kang et al., 2025) studies on large models. Here it is measured as tradeoffs/ does for every knob, on the shipped
masked model, which is unsure of the longer tasks and seldom right: what counts is how many positions are those that the base
decoder, one token a call, decides. One number for a decoder: kept positions a call, its agreement times the positions that it
decides in a call. Calls are counted, not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import decgraph
from decgraph import stdlib
from decgraph.bench import compare
from decgraph.bench.measure import OnProgress, silent
from decgraph.errors import DecError
from lab.tradeoffs.masked import CANVAS, Masked
from lab.tradeoffs.sweeps import Sweep

Row = dict[str, Any]  # agreement, calls and accuracy of a decoder, or why there are none; and what it was measured of


def decoders() -> list[str]:
    """The algorithms for one masked model that need no function of the caller."""
    loaded = [decgraph.load(name) for name in stdlib.names()]
    return [a.name for a in loaded if list(a.models.values()) == ["masked"] and not a.module.externs]


def measured(found: Mapping[str, Row], measure: Masked, on_progress: OnProgress = silent) -> Iterator[dict[str, Row]]:
    """The rows by name, after each decoder whose text `found` has not."""
    rows = dict(found)
    for number, one in enumerate(every := compare.candidates(decoders(), {})):
        if rows.get(one.label, {}).get("sha256") != (text := one.facts()["sha256"]):
            on_progress(one.label, number / len(every))
            try:
                numbers: Row = dict(measure(Sweep(one.label, "", ("",), ("accuracy stays",), ""), ""))
            except DecError as error:
                numbers = {"failed": compare.first_line(error)}
            rows[one.label] = {"sha256": text, **numbers}
            yield rows


def kept(row: Row) -> float:
    """Positions a call that are the base decoder's."""
    return float(row["agreement"] * CANVAS / row["calls"])


def frontier(rows: Mapping[str, Row]) -> set[str]:
    """Those that no other one beats in both agreement and calls."""
    places = {name: (-row["agreement"], row["calls"]) for name, row in rows.items() if "failed" not in row}
    return {
        name for name, (share, calls) in places.items()
        if not any(a <= share and b <= calls and (a, b) != (share, calls) for a, b in places.values())
    }  # fmt: skip


def table(rows: Mapping[str, Row], linked: Callable[[str], str] = str) -> tuple[list[str], list[list[str]]]:
    """Headings and rows, best number first; `*` marks the frontier."""
    best, sound = frontier(rows), [name for name, row in rows.items() if "failed" not in row]
    found = [
        [linked(name) + (" *" if name in best else ""), f"{kept(row):.2f}", f"{row['agreement']:.2f}", f"{row['calls']:.1f}",
         f"{row['accuracy']:.2f}"]
        for name, row in sorted(((name, rows[name]) for name in sound), key=lambda pair: -kept(pair[1]))
    ]  # fmt: skip
    return ["decoder", "kept a call", "agreement", "calls", "tasks right"], found
