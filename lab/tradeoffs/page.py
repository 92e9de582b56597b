"""The page of trade-offs of a kind, from its result file: a table for every heading, small plots."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from decgraph.bench import plots
from decgraph.bench.render import markdown_table
from lab.pages import DOCS
from lab.tradeoffs.sweeps import Kind, Numbers, Row, Sweep, current, kind_of, missing

PAGES = {"masked": "tradeoffs.md", "causal": "tradeoffs-causal.md"}
LINES = 7
"""Sweeps in one plot, so that it can be read."""
HEADINGS = ["program", "knob", "the paper", "expected", "measured", "verdict"]
Pair = tuple[Sweep, Row]


def number(value: float) -> str:
    """A figure of a table.

    >>> number(0.9123), number(31.0), number(2.25), number(1312.4)
    ('0.912', '31', '2.25', '1312')
    """
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def cells(sweep: Sweep, row: Row) -> list[str]:
    """A sweep's row of the table."""
    fixed = [f"<br>{name} = {value}" for name, value in sweep.fixed.items() if str(value).isprintable()]
    everywhere = [name for name in row["points"][0] if all(name in p for p in row["points"])]
    shown = [f"{name} {' '.join(number(p[name]) for p in row['points'])}" for name in everywhere]
    if sweep.rival:
        shown.append(f"{sweep.rival}: " + ", ".join(f"{name} {number(value)}" for name, value in row["rival_numbers"].items()))
    shown += [f"agreement with `{sweep.reference}`"] if sweep.reference else []
    shown += [sweep.note] if sweep.note else []
    verdict = "shown"
    if failed := sweep.failed(row):
        verdict = f"**not shown** ({sweep.words(failed)}): {sweep.why}"
    name = sweep.algorithm + (f", {sweep.model}" if sweep.model != "target" else "")
    return [
        name,
        f"`{sweep.knob}` {' '.join(sweep.labels)}{''.join(fixed)}",
        sweep.paper,
        sweep.words(sweep.shapes),
        "<br>".join(shown),
        verdict,
    ]


def groups(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Sweeps by heading, in the table's order."""
    out: dict[str, list[Pair]] = {}
    for sweep, row in pairs:
        out.setdefault(sweep.heading, []).append((sweep, row))
    return out


def page(name: str, document: Mapping[str, Any]) -> str:
    """The page, from the result file and the table."""
    kind = kind_of(name)
    pairs = list(current(kind, document["rows"]))
    shown = sum(not sweep.failed(row) for sweep, row in pairs)
    parts = [kind.HEADING.format(**document["facts"], total=len(pairs), shown=shown)]
    pictures = charts(name, pairs)
    for heading, members in groups(pairs).items():
        parts.append(f"## {heading}\n")
        for stem, drawn in pictures:
            if drawn[0][0].heading == heading:
                parts.append(f"![{', '.join(sweep.algorithm for sweep, _ in drawn)}](images/{stem}.svg)\n")
        parts.append(markdown_table((HEADINGS, [cells(sweep, row) for sweep, row in members])))
    if lacking := [f"`{sweep.label}`" for sweep in missing(kind, document["rows"])]:
        parts.append(f"## Not measured yet\n\n{', '.join(lacking)}: `python -m lab tradeoffs {name} --missing`.\n")
    parts.append("## Left out\n\n" + "".join(f"- {left}: {why}.\n" for left, why in kind.LEFT_OUT.items()))
    return "\n".join(parts)


def axes_of(points: Sequence[Numbers], kind: Kind) -> tuple[str, str]:
    """The numbers that a sweep's plot shows: the first of the kind's that were measured and are not the same everywhere."""

    def varied(names: Sequence[str]) -> str:
        there = [name for name in names if all(name in p for p in points)]
        moving = [name for name in there if len({p[name] for p in points}) > 1]
        return (moving or there or [""])[0]

    return varied(kind.X), varied(kind.Y)


def charts(name: str, pairs: Sequence[Pair]) -> list[tuple[str, list[Pair]]]:
    """Names of pictures and the sweeps in each: those under a heading over the same numbers, at most LINES to a picture."""
    out: list[tuple[str, list[Pair]]] = []
    for heading, members in groups(pairs).items():
        alike: dict[tuple[str, str], list[Pair]] = {}
        for sweep, row in members:
            x, y = axes_of(row["points"], kind_of(name))
            if x and y:
                alike.setdefault((x, y), []).append((sweep, row))
        for (x, y), drawn in alike.items():
            pieces = math.ceil(len(drawn) / LINES)
            size = math.ceil(len(drawn) / pieces)
            for n in range(pieces if len(drawn) > 1 else 0):
                words = (name, heading, x, *([y] if len([1 for a, _ in alike if a == x]) > 1 else []))
                stem = re.sub(r"[^\w-]+", "-", "-".join(("tradeoffs", *words))).lower() + (f"-{n + 1}" if pieces > 1 else "")
                out.append((stem, drawn[n * size : (n + 1) * size]))
    return out


def write(name: str, document: Mapping[str, Any]) -> None:
    """The page and its pictures. Raises DecError where matplotlib is not installed."""
    (DOCS / PAGES[name]).write_text(page(name, document), encoding="utf-8")
    for stem, pairs in charts(name, list(current(kind_of(name), document["rows"]))):
        x, y = axes_of(pairs[0][1]["points"], kind_of(name))

        def draw(axes: Any, pairs: Sequence[Pair] = pairs, x: str = x, y: str = y) -> None:
            kind, lines = kind_of(name), dict[tuple[tuple[float, float], ...], list[str]]()
            for sweep, row in pairs:
                words = sweep.algorithm, sweep.knob, "" if sweep.model == "target" else sweep.model
                points = tuple((p[x], p[y]) for p in row["points"])
                lines.setdefault(points, []).append(", ".join(filter(None, words)))
            for n, (points, labels) in enumerate(lines.items()):  # what lies on each other stays visible
                axes.plot(
                    *zip(*points, strict=True), marker=plots.MARKERS[n], color=plots.colour(n), markersize=6.5 - n / 2,
                    markerfacecolor="none", linestyle=("-", (0, (4, 2)))[n % 2], label=" = ".join(labels),
                )  # fmt: skip
            across = [place for points in lines for place, _ in points]
            if min(across) > 0 and max(across) > 8 * min(across):
                axes.set_xscale("log", base=2)
                axes.xaxis.set_major_formatter(lambda value, _: f"{value:.2g}" if value < 1 else f"{value:g}")
            axes.set_xlabel(kind.WORDS.get(x, x))
            axes.set_ylabel("\n".join(textwrap.wrap(kind.WORDS.get(y, y), 30)))
            plots.legend(axes)

        plots.one(draw, DOCS / "images" / f"{stem}.svg", 1.1 + 0.04 * len(pairs))
