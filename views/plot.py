"""Plots of a run with matplotlib: tokens a step and acceptance by depth; of a canvas, when and how surely each position was
decided."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from decgraph import extras
from decgraph.errors import DecError
from decgraph.views.document import Trace
from decgraph.views.words import word

COLOURS = {"accepted": "#237a34", "bonus": "#1864ab", "residual": "#b35309", "own": "#b35309", "plain": "#868e96"}  # the page's
AGAIN, MASKED = "#c92a2a", "#ffffff"
FORMATS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """To be called before a run. Raises DecError where matplotlib is not installed, or for a file that is no picture."""
    pyplot()
    if path.suffix not in FORMATS:
        raise DecError(f"cannot draw {path}", hint=f"a name that ends in {', '.join(FORMATS)}")


def pyplot() -> Any:  # Any: matplotlib has types, but is not installed everywhere
    """matplotlib, without a display. Raises DecError where it is not installed."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise extras.needed("plots", first="matplotlib", what="plots need") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def save(runs: Sequence[Trace], path: Path) -> None:
    """Draw runs into a file, a row each. Raises DecError where it cannot be written."""
    plots = pyplot()
    figure, rows = plots.subplots(len(runs), 2, figsize=(11, 3.6 * len(runs)), layout="constrained", squeeze=False)
    for run, axes in zip(runs, rows, strict=True):
        if run.stats.unmasked:
            cells(axes[0], run)
            decided(axes[1], run)
        else:
            tokens(axes[0], run)
            acceptance(axes[1], run)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise DecError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        plots.close(figure)


def tokens(axes: Any, run: Trace) -> None:
    """The tokens of each step, by their origin."""
    steps = run.steps
    below = np.zeros(len(steps))
    for origin, colour in COLOURS.items():
        counts = np.array([step.origins.count(origin) for step in steps])  # type: ignore[arg-type]
        if counts.any():
            axes.bar(np.arange(1, len(steps) + 1), counts, bottom=below, color=colour, label=word(origin), width=0.9)
            below += counts
    whole(axes.xaxis, axes.yaxis)
    axes.set(title=run.name, xlabel="decoding step", ylabel="tokens committed")
    axes.legend(fontsize=8)


def whole(*axes: Any) -> None:
    """Ticks at whole numbers alone: there is no step 2.5."""
    from matplotlib.ticker import MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def acceptance(axes: Any, run: Trace) -> None:
    """How often a test at each depth accepted a draft."""
    shares, intervals = np.array(run.stats.acceptance), np.array(run.stats.intervals).reshape(-1, 2)
    depths = np.arange(1, len(shares) + 1)
    axes.bar(depths, shares, color=COLOURS["accepted"])
    if len(shares):
        whiskers = np.maximum(0, [shares - intervals[:, 0], intervals[:, 1] - shares])
        axes.errorbar(depths, shares, yerr=whiskers, fmt="none", ecolor="black", elinewidth=0.9, capsize=3)
    for depth, accepted, tested in zip(depths, run.stats.accepted, run.stats.tested, strict=True):
        box = {"fc": "white", "ec": "none", "pad": 1, "alpha": 0.8}
        axes.text(depth, 0.02, f"{accepted} of {tested}", ha="center", fontsize=7, bbox=box)
    axes.set(
        title="acceptance by depth, with 95 % intervals" if len(shares) else "no drafts were tested",
        xlabel="depth",
        ylabel="share of tests",
        ylim=(0, 1.06),
    )
    axes.set_xticks(np.arange(1, len(shares) + 1))


def confidences(run: Trace) -> tuple[np.ndarray, np.ndarray]:
    """float64[steps, positions]: how surely a cell was decided that holds a token after a step; NaN where it is masked. And
    bool[steps, positions]: whether it was masked again in the step, whatever stands there after it."""
    steps = run.steps
    size = max([len(run.tokens), *(step.cells for step in steps)])
    sure, again = np.full((len(steps), size), np.nan), np.zeros((len(steps), size), dtype=bool)
    for row, step in enumerate(steps):
        sure[row] = sure[max(0, row - 1)]
        for edit in step.edits:
            sure[row, edit.position] = edit.confidence if edit.token >= 0 else np.nan
            again[row, edit.position] |= edit.token < 0
    return sure, again


def shades() -> Any:
    """Colours of confidences from the lowest to the highest, of which none is that of a position without a token."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("confidence", ["#c6d8ea", "#08306b"]).with_extremes(bad=MASKED)


def cells(axes: Any, run: Trace) -> None:
    """Position by step: how surely what stands there was decided; red where it was masked again, white where nothing stands."""
    found, masked = confidences(run)
    low, high = run.sure
    shown = axes.imshow(found, aspect="auto", cmap=shades(), vmin=low, vmax=high, interpolation="none")
    again = np.argwhere(masked)
    axes.plot(again[:, 1], again[:, 0], "s", color=AGAIN, markersize=3, label=word("again") if len(again) else None)
    whole(axes.xaxis)
    rows = np.unique(np.linspace(0, len(found) - 1, min(len(found), 8)).astype(int))
    axes.set_yticks(rows, labels=rows + 1)  # steps are counted from 1
    axes.set(title=run.name, xlabel="position", ylabel="step")
    axes.figure.colorbar(shown, ax=axes, label="confidence (white: undecided)")
    if len(again):
        axes.legend(fontsize=8)


def decided(axes: Any, run: Trace) -> None:
    """How many positions hold a token after each step."""
    found, _ = confidences(run)
    counts = np.concatenate([[0], (~np.isnan(found)).sum(axis=1)])  # before the first step nothing is decided
    axes.step(np.arange(len(counts)), counts, where="post", color=COLOURS["plain"])
    whole(axes.xaxis, axes.yaxis)
    axes.set(title="positions decided", xlabel="step", ylabel="positions", ylim=(0, 1.05 * found.shape[1]))
