"""Plots of a result file with matplotlib: tokens a call by kind of prompt, ratios with their intervals, acceptance by depth.

Colours are those of Okabe and Ito, which people with any colour vision tell apart; lines differ by marker as well. Every figure
says the model and the setting it was measured with.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from decgraph import extras
from decgraph.bench import render
from decgraph.bench.compare import THEIRS
from decgraph.bench.measure import Row
from decgraph.errors import DecError
from decgraph.runtime.trace import wilson

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = "osD^vPX*"
KINDS = ("png", "svg")
Axes = Any  # matplotlib has types, but is not installed everywhere


def check(folder: Path) -> None:
    """To be called before minutes of measuring. Raises DecError where matplotlib is not installed, or the folder cannot be
    made."""
    _pyplot()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DecError(f"cannot make the folder {folder}: {error.strerror or error}") from None


def _pyplot() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise extras.needed("plots", first="matplotlib", what="plots need") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def draw(document: Row, folder: Path) -> list[Path]:
    """Every plot of every run, as PNG and SVG; the files written. A plot without data is left out."""
    pyplot, written = _pyplot(), []
    for number, run in enumerate(document["runs"]):
        for name, (plot, size) in PLOTS.items():
            if not run["rows"]:
                continue
            figure, axes = pyplot.subplots(figsize=size(run), layout="constrained")
            if plot(axes, run):
                figure.suptitle("\n".join(textwrap.wrap(render.caption(run), 96)), fontsize=8, color="#444444")
                end = f"-{number + 1}" if number else ""
                for kind in KINDS:
                    path = folder / f"{name}{end}.{kind}"
                    figure.savefig(path, dpi=150)
                    written.append(path)
            pyplot.close(figure)
    return written


def one(plot: Callable[[Axes], None], path: Path) -> None:
    """One figure into a PNG file, whose folder is made. Raises DecError where matplotlib is not installed."""
    pyplot = _pyplot()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    plot(axes)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def kinds_of(run: Row) -> list[str]:
    """The kinds of prompts, that of all of them first."""
    return list(dict.fromkeys(row["kind"] for row in run["rows"]))


def by_method(run: Row) -> dict[str, dict[str, Row]]:
    """Rows by method and kind."""
    out: dict[str, dict[str, Row]] = {}
    for row in run["rows"]:
        out.setdefault(row["algorithm"], {})[row["kind"]] = row
    return out


def colours_of(run: Row) -> dict[str, str]:
    """A colour for every method, the same in every plot of a run."""
    return {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(by_method(run))}


def tokens_per_call(axes: Axes, run: Row) -> bool:
    """Bars: committed tokens a call of the target, a group for every kind of prompt, a colour for every method."""
    kinds = kinds_of(run)
    methods, colours = by_method(run), colours_of(run)
    methods.pop(THEIRS + "generate", None)  # one token a call, by definition
    if not methods:
        return False
    width = 0.8 / len(methods)
    for n, (name, rows) in enumerate(methods.items()):
        at = [k + (n - (len(methods) - 1) / 2) * width for k in range(len(kinds))]
        heights = [rows[kind]["tokens_per_call"] or 0 if kind in rows else 0 for kind in kinds]
        bars = axes.bar(at, heights, width, label=name, color=colours[name], edgecolor="white", linewidth=0.5)
        if len(methods) * len(kinds) <= 24:
            axes.bar_label(bars, fmt="%.1f", fontsize=7, padding=1)
    axes.axhline(1, color="#666666", linewidth=0.8, linestyle="--")
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set_ylabel("tokens per call of the target")
    axes.set_xlabel("kind of prompt")
    axes.set_title("Tokens per target call")
    axes.legend(fontsize=8, ncols=min(len(methods), 3), loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return True


def ratios(axes: Axes, run: Row) -> bool:
    """Points, with 95% intervals where there were prompts enough: how many times faster than the first baseline, a line for
    every method, a marker for every kind of prompt."""
    base, clock = render.first_baseline(run), render.clock_of(run)
    methods = [name for name, rows in by_method(run).items() if any(base in row["ratios"] for row in rows.values())]
    kinds = kinds_of(run)
    if not methods:
        return False
    step, few = 0.7 / len(kinds), ""
    for k, kind in enumerate(kinds):
        found = [(m, by_method(run)[name][kind]) for m, name in enumerate(methods) if kind in by_method(run)[name]]
        points = [
            (m + (k - (len(kinds) - 1) / 2) * step, row["ratios"][base][clock]) for m, row in found if base in row["ratios"]
        ]
        values = [point["value"] for _, point in points]
        whole = [point["low"] is not None for _, point in points]
        below, above = (
            [abs(point["value"] - point[end]) if has else math.nan for has, (_, point) in zip(whole, points, strict=True)]
            for end in ("low", "high")
        )
        few = "" if all(whole) else f" (n={points[whole.index(False)][1]['n']}, no interval)"
        axes.errorbar(
            values, [y for y, _ in points], xerr=[below, above], fmt=MARKERS[k % len(MARKERS)], color=COLOURS[k % len(COLOURS)],
            markersize=5, capsize=2.5, linewidth=1.2, label=kind + few,
        )  # fmt: skip
    axes.axvline(1, color="#666666", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(methods)), methods)
    axes.invert_yaxis()
    axes.set_xlabel(f"times as fast as {base} ({'processor time' if clock == 'cpu' else 'wall clock'}, 95% interval)")
    axes.set_title("Speed")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", linewidth=0.4, alpha=0.5)
    if len(kinds) > 1 or few:
        axes.legend(title="prompts", fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return True


def acceptance(axes: Axes, run: Row) -> bool:
    """Lines: of the verifications that came to test a draft at a depth, the share that accepted one there, with both counts
    and the band of its 95 % intervals."""
    deepest, colours = 0, colours_of(run)
    for n, row in enumerate(row for row in render.overall(run) if row.get("acceptance", {}).get("tested")):
        pairs = zip(row["acceptance"]["accepted"], row["acceptance"]["tested"], strict=True)
        counts = [(depth, a, t) for depth, (a, t) in enumerate(pairs, 1) if t]
        points = [(depth, a / t) for depth, a, t in counts]
        deepest = max(deepest, points[-1][0])
        axes.plot(
            [x for x, _ in points], [y for _, y in points], marker=MARKERS[n % len(MARKERS)],
            color=colours[row["algorithm"]], markersize=5, linewidth=1.4, label=row["algorithm"],
        )  # fmt: skip
        low, high = zip(*(wilson(a, t) for _, a, t in counts), strict=True)
        axes.fill_between([x for x, _ in points], low, high, color=colours[row["algorithm"]], alpha=0.12, linewidth=0)
        for depth, a, t in counts:
            axes.annotate(
                f"{a}/{t}", (depth, a / t), (0, 4 + 7 * n), textcoords="offset points", ha="center", fontsize=6,
                color=colours[row["algorithm"]],
            )  # fmt: skip
    if not deepest:
        return False
    axes.set_xlabel("depth of the draft")
    axes.set_ylabel("share of tests that accepted a draft")
    axes.set_ylim(0, 1.1)
    axes.set_xticks(range(1, deepest + 1, max(1, deepest // 12)))
    axes.set_title("Acceptance by depth")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.4, alpha=0.5)
    return True


def _wide(run: Row) -> tuple[float, float]:
    return max(7.0, 1.6 * len(kinds_of(run)) + 1.5), 4.6


def _tall(run: Row) -> tuple[float, float]:
    return 8.0, max(2.8, 0.22 * len(by_method(run)) * len(kinds_of(run)) + 1.6)


def _plain(run: Row) -> tuple[float, float]:
    return 7.5, 4.2


PLOTS: dict[str, tuple[Callable[[Axes, Row], bool], Callable[[Row], tuple[float, float]]]] = {
    "tokens_per_call": (tokens_per_call, _wide),
    "ratios": (ratios, _tall),
    "acceptance": (acceptance, _plain),
}
