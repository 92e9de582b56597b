"""Plots of a result file with matplotlib: tokens a call by kind of prompt, ratios with their intervals, acceptance by depth.

They look as paper.mplstyle says, over which a user's style may lie. What a figure shows, and model and settings, stand in a
caption apart from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from decgraph import extras
from decgraph.bench import render
from decgraph.bench.bootstrap import FEWEST
from decgraph.bench.compare import THEIRS
from decgraph.bench.measure import Row
from decgraph.errors import DecError
from decgraph.runtime.trace import wilson

STYLE = Path(__file__).parent / "paper.mplstyle"
MARKERS = "osD^vPX*"
KINDS = (".png", ".svg", ".pdf")
MOST = len(MARKERS)
"""Methods that one pair of axes can tell apart by colour and marker."""
Axes = Any  # matplotlib has types, but is not installed everywhere


def check(where: Path, style: str | None = None) -> None:
    """To be called before minutes of measuring. Raises DecError where matplotlib is not installed, a style cannot be read, or a
    folder cannot be made."""
    with styled(style):
        pass
    folder = where.parent if where.suffix.lower() in KINDS else where
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


@contextmanager
def styled(style: str | None = None) -> Iterator[None]:
    """Figures have the look of this package, and over it that of a style: a file, or the name of one of matplotlib's. Raises
    DecError for a style that cannot be read."""
    pyplot = _pyplot()
    with pyplot.rc_context():
        try:
            pyplot.style.use([STYLE, *([style] if style else [])])
        except OSError:
            known = ", ".join(name for name in pyplot.style.available if name[0] != "_")
            raise DecError(
                f"cannot read the style {style}", hint=f"a file of matplotlib's settings, or one of {known}"
            ) from None
        yield


def draw(document: Row, where: Path, style: str | None = None) -> list[Path]:
    """Every plot of every run and a file of their captions; what was written. where: a folder, into which PNG and SVG go, or
    `NAME.pdf` (.svg, .png) for `NAME-ratios.pdf` and so on. Captions of PDF are LaTeX's. A plot without data is left out."""
    single = where.suffix.lower() in KINDS
    captions = where.with_suffix(".tex" if where.suffix.lower() == ".pdf" else ".txt") if single else where / "captions.txt"
    written: list[Path] = []
    said: list[str] = []
    with styled(style):
        for number, run in enumerate(document["runs"]):
            for name, (plot, height) in PLOTS.items() if run["rows"] else ():
                figure, axes = _axes(height(run))
                if about := plot(axes, run):
                    stem = name + (f"-{number + 1}" if number else "")
                    path = where.with_name(f"{where.stem}-{stem}{where.suffix}") if single else where / f"{stem}.png"
                    kinds = [path] if single else [path, path.with_suffix(".svg")]
                    for path in kinds:
                        figure.savefig(path)
                    written += kinds
                    said.append(caption(path.name if single else stem, f"{about} {render.caption(run)}.", captions.suffix))
                _pyplot().close(figure)
    captions.write_text("\n".join(said), encoding="utf-8")
    return [*written, captions]


def caption(name: str, text: str, suffix: str) -> str:
    """What stands below a figure: as LaTeX includes it with its picture, or as text."""
    if suffix != ".tex":
        return f"{name}: {text}\n"
    lines = ["\\centering", f"\\includegraphics{{{name}}}", f"\\caption{{{render.tex(text)}}}"]
    return "\n  ".join(["\\begin{figure}", *lines]) + "\n\\end{figure}\n"


def one(plot: Callable[[Axes], None], path: Path, height: float = 1.0) -> None:
    """One figure into an SVG file, whose ink is that of the page's colour scheme, and whose folder is made. height: in those
    of the style's figure. Raises DecError where matplotlib is not installed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with styled():
        figure, axes = _axes(height)
        figure.set_figwidth(4.6)  # inches: letters can be read where a phone shows it
        plot(axes)
        figure.savefig(path, transparent=True, metadata={"Date": None})
        _pyplot().close(figure)
    scheme = "<style>svg{color:#1a1a1b}@media (prefers-color-scheme:dark){svg{color:#dcdce0}}</style>\n <defs>"
    text = path.read_text(encoding="utf-8").replace("#1a1a1b", "currentColor").replace("<defs>", scheme, 1)
    path.write_text(text, encoding="utf-8")


def _axes(height: float) -> tuple[Any, Axes]:
    """A figure so many times as high as the style's, and its axes."""
    made: tuple[Any, Axes] = _pyplot().subplots()
    made[0].set_figheight(made[0].get_figheight() * height)
    return made


def legend(axes: Axes) -> None:
    """Below the axes, in as many columns as there is room for; none of a single line."""
    shown, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        columns = int(axes.figure.get_figwidth() * 13 / (max(map(len, labels)) + 6))
        axes.figure.legend(shown, labels, loc="outside lower center", ncols=max(1, min(columns, len(labels))))


def colour(n: int) -> str:
    """The n-th of the style's colours, from the first again behind the last."""
    found = _pyplot().rcParams["axes.prop_cycle"].by_key().get("color", ["#1a1a1b"])
    return str(found[n % len(found)])


def kinds_of(run: Row) -> list[str]:
    """The kinds of prompts, that of all of them first."""
    return list(dict.fromkeys(row["kind"] for row in run["rows"]))


def by_method(run: Row) -> dict[str, dict[str, Row]]:
    """Rows by method and kind."""
    out: dict[str, dict[str, Row]] = {}
    for row in run["rows"]:
        out.setdefault(row["algorithm"], {})[row["kind"]] = row
    return out


def leading(run: Row) -> tuple[dict[str, int], str]:
    """The methods of a run, at most `MOST`, those with most tokens a call, each with the number of its colour and marker; and
    what a caption says of the others. transformers' `generate`, which makes one token a call by definition, is none."""
    rows = [row for row in render.overall(run) if row["algorithm"] != THEIRS + "generate"]
    best = sorted(rows, key=lambda row: -(row["tokens_per_call"] or 0))[:MOST]
    some = f" The {MOST} of {len(rows)} methods with most tokens a call." if len(rows) > MOST else ""
    return {row["algorithm"]: n for n, row in enumerate(row for row in rows if row in best)}, some


def tokens_per_call(axes: Axes, run: Row) -> str:
    """Bars: committed tokens a call of the target, a group for every kind of prompt, a colour for every method."""
    kinds, methods, (shown, others) = kinds_of(run), by_method(run), leading(run)
    if not shown:
        return ""
    width = 0.8 / len(shown)
    for name, n in shown.items():
        at = [k + (n - (len(shown) - 1) / 2) * width for k in range(len(kinds))]
        heights = [methods[name].get(kind, {}).get("tokens_per_call") or 0 for kind in kinds]
        bars = axes.bar(at, heights, width * 0.92, label=name, color=colour(n))
        if axes.figure.get_figwidth() * 0.8 * width / len(kinds) > 0.16:  # inches: room for the figure on top of a bar
            axes.bar_label(bars, fmt="%.1f", fontsize="x-small", padding=1)
    axes.axhline(1, color=_ink(), linewidth=0.7, linestyle=(0, (4, 3)))
    axes.set_xticks(range(len(kinds)), kinds)
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("tokens a call of the target")
    legend(axes)
    return f"Tokens committed in a call of the target, by kind of prompt; dashed: one token a call.{others}"


def ratios(axes: Axes, run: Row) -> str:
    """Points, with 95% intervals where there were prompts enough: how many times faster than the first baseline, a line for
    every method, a marker for every kind of prompt."""
    base, clock = render.first_baseline(run), render.clock_of(run)
    methods = [name for name, rows in by_method(run).items() if any(base in row["ratios"] for row in rows.values())]
    kinds = kinds_of(run)
    if not methods:
        return ""
    step, barred, bare = 0.7 / len(kinds), False, False
    for k, kind in enumerate(kinds):
        rows = [(m, by_method(run)[name].get(kind, {}).get("ratios", {}).get(base)) for m, name in enumerate(methods)]
        points = [(m + (k - (len(kinds) - 1) / 2) * step, found[clock]) for m, found in rows if found is not None]
        look = {"linestyle": "none", "marker": MARKERS[k % len(MARKERS)], "color": colour(k)}
        for whole in (True, False):
            if not (some := [(y, found) for y, found in points if (found["low"] is not None) is whole]):
                continue
            heights, values = [y for y, _ in some], [found["value"] for _, found in some]
            label = kind if len(kinds) > 1 and (whole or len(some) == len(points)) else None
            if whole:
                ends = [[abs(found["value"] - found[end]) for _, found in some] for end in ("low", "high")]
                axes.errorbar(values, heights, xerr=ends, elinewidth=1, label=label, **look)
            else:
                axes.plot(values, heights, label=label, **look)
            barred, bare = barred or whole, bare or not whole
    axes.axvline(1, color=_ink(), linewidth=0.7, linestyle=(0, (4, 3)))
    axes.set_yticks(range(len(methods)), methods)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    for m in range(1, len(methods)):
        axes.axhline(m - 0.5, color=_ink(), linewidth=0.4, alpha=0.25)
    axes.set_xlabel(f"times as fast as {base}")
    legend(axes)
    bars = ("; bars: 95% bootstrap intervals over prompts" if barred else "") + (
        f"; without a bar: fewer than {FEWEST} prompts" if bare else ""
    )
    return f"Times as fast as {base}, by {'processor time' if clock == 'cpu' else 'the wall clock'}{bars}."


def acceptance(axes: Axes, run: Row) -> str:
    """Lines: of the verifications that came to test a draft at a depth, the share that accepted one there, with its 95 %
    interval."""
    shown, others = leading(run)
    rows = [row for row in render.overall(run) if row["algorithm"] in shown and render.accepted_of(row)]
    if not rows:
        return ""
    depths = []
    for place, row in enumerate(rows):
        n = shown[row["algorithm"]]
        pairs = zip(row["acceptance"]["accepted"], row["acceptance"]["tested"], strict=True)
        counts = [(depth, a, t) for depth, (a, t) in enumerate(pairs, 1) if t]
        depths += [depth for depth, _, _ in counts]
        beside = (place - (len(rows) - 1) / 2) * min(0.1, 0.6 / len(rows))  # so that bars do not lie on each other
        shares = [a / t for _, a, t in counts]
        ends = [[abs(bound[end] - share) for bound, share in zip([wilson(a, t) for _, a, t in counts], shares, strict=True)]
                for end in (0, 1)]  # fmt: skip
        axes.errorbar(
            [depth + beside for depth, _, _ in counts], shares, yerr=ends, elinewidth=0.7, color=colour(n),
            marker=MARKERS[n % len(MARKERS)], label=row["algorithm"],
        )  # fmt: skip
    axes.set_xlabel("depth of the draft")
    axes.set_ylabel("drafts accepted of those tested")
    axes.set_ylim(0, 1.03)
    axes.set_xticks(range(1, max(depths) + 1, max(1, max(depths) // 12)))
    axes.grid(visible=False, axis="x")
    legend(axes)
    counted = "; ".join(f"{row['algorithm']} {render.accepted_of(row)}" for row in rows)
    return f"Share of the drafts tested at a depth that were accepted; bars: Wilson's 95% intervals. Counts: {counted}.{others}"


def _ink() -> Any:
    return _pyplot().rcParams["text.color"]


PLOTS: dict[str, tuple[Callable[[Axes, Row], str], Callable[[Row], float]]] = {
    "tokens_per_call": (tokens_per_call, lambda run: 1.0),
    "ratios": (ratios, lambda run: 0.3 + len(by_method(run)) * (0.05 + 0.045 * len(kinds_of(run)))),
    "acceptance": (acceptance, lambda run: 1.0),
}
"""By name: what draws a plot of a run and returns its caption, "" where there is nothing to draw; and its height, in heights of
the style's figure."""
