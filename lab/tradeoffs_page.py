"""The page of trade-offs from a result file: a summary, a table for every family, small plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from decgraph.bench.plots import COLOURS, MARKERS, one
from lab.tradeoff_sweeps import Kind, missing

LINES = 7
"""Sweeps in one plot, so that it can be read."""


def number(value: float, measure: str = "") -> str:
    """A figure of a table.

    >>> number(0.9123, "agreement"), number(31.0, "calls"), number(2.25, "calls"), number(1312.4, "computed")
    ('0.91', '31', '2.2', '1312')
    """
    from lab.tradeoff_shapes import SHARES

    if measure in SHARES:
        return f"{value:.2f}"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def families(document: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Rows by family, in the table's order."""
    out: dict[str, list[Mapping[str, Any]]] = {}
    for row in document["rows"]:
        out.setdefault(row["family"], []).append(row)
    return out


def curve(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    """The measured numbers, one line of a cell for each: `calls 1 2 4 8`."""
    return "<br>".join(
        f"{name} " + " ".join(number(p[name], name) for p in row["points"])
        for name in columns
        if all(name in p for p in row["points"])
    )


def cell(text: str) -> str:
    """A text in a table's cell."""
    return text.replace("|", "\\|")


def knob(row: Mapping[str, Any]) -> str:
    """The knob and its values, and what is fixed."""
    said = f"`{row['knob']}` " + " ".join(p["value"] for p in row["points"]) if row["knob"] else "(none)"
    fixed = ", ".join(f"{k} = {v}" for k, v in row["fixed"].items())
    return said + (f"<br>{fixed}" if fixed else "")


def verdict(row: Mapping[str, Any]) -> str:
    """`shown`, or what failed and why."""
    if row["shown"]:
        return "shown"
    failed = "; ".join(text for text, ok in row["expected"] if not ok)
    return f"**not shown** ({failed}): {row['why']}"


def page(document: Mapping[str, Any], kind: Kind) -> str:
    """The page, from the result file alone but for its heading."""
    shown = sum(row["shown"] for row in document["rows"])
    parts = [kind.HEADING.format(**document["facts"], total=len(document["rows"]), shown=shown)]
    images = dict(charts(document, kind))
    for family, rows in families(document).items():
        parts.append(f"## {family[0].upper()}{family[1:]}\n")
        for stem, drawn in images.items():
            if drawn[0]["family"] == family:
                parts.append(f"![{', '.join(row['algorithm'] for row in drawn)}](images/{stem}.png)\n")
        lines = ["| program | knob | the paper | expected | measured | verdict |", "|---|---|---|---|---|---|"]
        for row in rows:
            notes = "".join(f"<br>{text}" for text in (against(row, kind), row["note"]) if text)
            expected = "; ".join(text for text, _ in row["expected"])
            cells = [row["algorithm"], knob(row), row["paper"], expected, curve(row, kind.COLUMNS) + notes, verdict(row)]
            lines.append("| " + " | ".join(map(cell, cells)) + " |")
        parts.append("\n".join(lines) + "\n")
    if lacking := [f"`{sweep.label}`" for sweep in missing(kind, document)]:
        command = f"`python -m lab.tradeoffs --kind {document['kind']} --missing` measures them"
        parts.append(f"## Not measured yet\n\n{', '.join(lacking)}: {command}.\n")
    return "\n".join(parts)


def against(row: Mapping[str, Any], kind: Kind) -> str:
    """The rival's numbers and the reference, where it is not the kind's own."""
    out = []
    if row["rival"]:
        theirs = row["rival_numbers"]
        out.append(
            f"{row['rival']}: " + ", ".join(f"{name} {number(theirs[name], name)}" for name in kind.COLUMNS if name in theirs)
        )
    if row["reference"]:
        out.append(f"agreement with `{row['reference']}`")
    return "<br>".join(out)


def axes_of(row: Mapping[str, Any], kind: Kind) -> tuple[str, str]:
    """The numbers that a row's plot shows: the first of the kind's that were measured and are not the same everywhere."""

    def varied(names: Sequence[str]) -> str:
        there = [name for name in names if all(name in p for p in row["points"])]
        moving = [name for name in there if len({p[name] for p in row["points"]}) > 1]
        return (moving or there or [""])[0]

    return varied(kind.X), varied(kind.Y)


def charts(document: Mapping[str, Any], kind: Kind) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Names of pictures and the sweeps in each: those of a family over the same numbers, at most LINES to a picture."""
    out: list[tuple[str, list[Mapping[str, Any]]]] = []
    for family, rows in families(document).items():
        groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for row in rows:
            x, y = axes_of(row, kind)
            if len(row["points"]) > 1 and x and y:
                groups.setdefault((x, y), []).append(row)
        for (x, _), members in groups.items():
            if len(members) < 2:
                continue
            pieces = math.ceil(len(members) / LINES)
            size = math.ceil(len(members) / pieces)
            for n in range(pieces):
                stem = f"tradeoffs-{document['kind']}-{family}-{x}".replace(" ", "-") + (f"-{n + 1}" if pieces > 1 else "")
                out.append((stem, members[n * size : (n + 1) * size]))
    return out


def plots(document: Mapping[str, Any], kind: Kind, folder: Path) -> None:
    """The pictures of a page. Raises DecError where matplotlib is not installed."""
    for stem, rows in charts(document, kind):
        x, y = axes_of(rows[0], kind)

        def draw(axes: Any, rows: Sequence[Mapping[str, Any]] = rows, x: str = x, y: str = y) -> None:
            for n, row in enumerate(rows):
                axes.plot(
                    [p[x] for p in row["points"]], [p[y] for p in row["points"]], marker=MARKERS[n % len(MARKERS)],
                    color=COLOURS[n % len(COLOURS)], markersize=5, linewidth=1.2, label=f"{row['algorithm']}, {row['knob']}",
                )  # fmt: skip
            axes.set_xlabel(f"{x} for a canvas" if document["kind"] == "masked" else x)
            axes.set_ylabel(y)
            if all(p[x] > 0 for row in rows for p in row["points"]):
                axes.set_xscale("log", base=2)
            axes.grid(linewidth=0.4, alpha=0.5)
            axes.legend(fontsize=8, loc="best", frameon=False)
            axes.spines[["top", "right"]].set_visible(False)

        one(draw, folder / f"{stem}.png")
