"""Measure all of stdlib/ on the shipped models and on a model that chats, and write docs/leaderboard.md.

shipped: every algorithm that the shipped models serve, on code. chat: those that need nothing but the target, and one with the
trained head, on prompts of five kinds through SmolLM2's chat template (`decgraph zoo fetch smollm2`). frontier: masked decoders
(frontier.py). `decgraph bench --all` measures the same algorithms on models of yours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from typer import Option

import decgraph
from decgraph import stdlib
from decgraph.bench import plots, render
from decgraph.bench.benchmark import Benchmark, causal
from decgraph.bench.compare import THEIRS, candidates
from decgraph.bench.measure import MeasureSettings, Row
from lab import frontier, pages, runs

PAGE = pages.DOCS / "leaderboard.md"
PARTS = ("shipped", "chat", "frontier")
HEAD = {"head": "smollm2_eagle"}
SLOWEST = 25
"""Times `generate`'s time for one prompt past which an algorithm is left out: minutes of each."""
MOST = 16
"""Algorithms in the table by kinds of prompts."""
SMALL_TREE = "eagle2:depth=3,k=3,budget=8"
"""The published tree was made for a target fifty times as large."""


def alone() -> list[str]:
    """The algorithms for causal models that need nothing but the target."""
    loaded = [decgraph.load(name) for name in causal()]
    return [
        a.name for a in loaded if list(a.models.values()) == ["causal"] and "heads" not in str(a.function.params[0].value.type)
    ]


def masked() -> list[str]:
    """The algorithms for one masked model that need no function of the caller."""
    loaded = [decgraph.load(name) for name in stdlib.names()]
    return [a.name for a in loaded if list(a.models.values()) == ["masked"] and not a.module.externs]


def ranked(run: Row) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: over all prompts tokens per target call, the share of time that drafting takes, and the ratio of
    `generate`'s time; fastest first, at the end those that learn. Lossless ones are marked by their claim."""
    found = []
    for row in render.overall(run):
        if not row["algorithm"].startswith(THEIRS):
            ratio = next(iter(row["ratios"].values()), None)
            speed = (ratio or {}).get("cpu", ratio) if ratio else None
            found.append((row, speed["value"] if speed else 0.0))
    table = [
        [row["algorithm"], stdlib.entry(row["algorithm"].partition(":")[0]).claim or "-", render.number(row["tokens_per_call"]),
         render.share(row, "draft"), "-" if learns(row["algorithm"]) else f"{speed:.2f}", render.equal(row)]
        for row, speed in sorted(found, key=lambda pair: (learns(pair[0]["algorithm"]), -pair[1]))
    ]  # fmt: skip
    return ["algorithm", "claim", "tokens per target call", "time in drafts", "times generate", "texts as generate's"], table


def by_kind(run: Row) -> tuple[list[str], list[list[str]]] | None:
    """Headings and rows: tokens per target call on each kind of prompt, of algorithms whose texts are all `generate`'s, those
    with most over all prompts first; None for prompts of one kind."""
    kinds = [kind for kind in dict.fromkeys(row["kind"] for row in run["rows"]) if kind != "all"]
    if len(kinds) < 2:
        return None
    found: dict[str, dict[str, Row]] = {}
    for row in run["rows"]:
        if not row["algorithm"].startswith(THEIRS):
            found.setdefault(row["algorithm"], {})[row["kind"]] = row
    same = {
        name: rows for name, rows in found.items()
        if render.equal(rows["all"]).startswith(f"{rows['all']['prompts']} of") and "different" not in render.equal(rows["all"])
    }  # fmt: skip
    best = sorted(same, key=lambda name: -(same[name]["all"]["tokens_per_call"] or 0))[:MOST]
    return ["algorithm", *kinds], [
        [name, *(render.number(same[name][kind]["tokens_per_call"]) for kind in kinds)] for name in best
    ]


def learns(label: str) -> bool:
    """Whether an algorithm carries state from request to request: its timed runs see their prompts again."""
    return any(state.scope != "sequence" for state in decgraph.load(label.partition(":")[0]).function.states)


def page(document: dict[str, Any]) -> str:
    """The page, from the result file."""
    parts, commands = [HEADING], document["commands"]
    for run in document["runs"]:
        headings, rows = ranked(run)
        parts += [f"## {run['name']}\n", f"`{commands[run['name']]}`\n", render.caption(run) + "\n", _markdown(headings, rows)]
        if (kinds := by_kind(run)) is not None:
            parts += [
                f"Tokens per target call by kind of prompt, the {len(kinds[1])} with most that write `generate`'s text:\n"
            ]
            parts += [_markdown(*kinds)]
        if run["failed"]:
            parts.append("Not measured: " + "; ".join(f"{name} ({why})" for name, why in sorted(run["failed"].items())) + "\n")
    if document.get("frontier"):
        points = [frontier.Point(**point) for point in document["frontier"]]
        failed = "; ".join(f"{p.label} ({p.failed})" for p in points if p.failed)
        parts += [
            "## Masked models\n",
            f"`{commands['frontier']}`\n",
            FRONTIER,
            _markdown(*frontier.table(points)),
            "![frontier](images/frontier.png)\n",
        ]
        parts += [f"Not measured: {failed}\n"] if failed else []
    return "\n".join(parts)


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in [headings, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(headings), *lines[1:]]) + "\n"


HEADING = """# Leaderboard

*Generated by `python -m lab leaderboard`; the figures are of that machine, and `lab/results/leaderboard.json` has
all of them. Each part names the command that measured it.*

Every algorithm of stdlib/ that the models serve, with published defaults, in one interleaved run against transformers'
`generate` on the same weights: processor time, one thread, float32, greedy. A ratio above 1 is faster than `generate`. Trees
of 60 nodes were made for targets that read gigabytes a call on a GPU: on a CPU their nodes cost arithmetic, and a small tree
or chain is faster.
"""
FRONTIER = f"""The shipped masked model, canvases of {frontier.CANVAS} positions, greedy. Kept positions per call are those of
one token a call (`{frontier.BASE}`) on tasks with more digits than the model was trained on; `*` marks what no other decoder
beats in both agreement and calls.
"""


def command(
    only: Annotated[str, Option(help=f"Parts, comma separated: {', '.join(PARTS)}; the others' figures stay.")] = "",
    take: Annotated[int, Option(help="Prompts of each kind.")] = 1,
    limit: int = 48,
    slowest: Annotated[float, Option(help="Times `generate`'s time past which one is left out.")] = SLOWEST,
    chat: str = "smollm2",
    page_only: Annotated[bool, Option(help="Write the page from the result file.")] = False,
) -> None:
    """Measure, write the result file, the plot and the page. Raises DecError as `decgraph bench` does."""
    import torch

    found = pages.result("leaderboard")
    if not page_only:
        torch.set_num_threads(1)
        chosen, settings = runs.chosen(PARTS, only), MeasureSettings(limit, 1, slowest=slowest)
        small = tuple(candidates([*alone(), SMALL_TREE], {}))
        parts = {
            "shipped": Benchmark(tuple(candidates(causal(), {})), settings, most=2 * take).runs,
            "chat": Benchmark(small, settings, target=chat, parts=HEAD, chat=True, most=take).runs,
        }
        made = runs.measured(parts, [name for name in chosen if name in parts], found if only else {})
        made["commands"] = {**found.get("commands", {}), **dict.fromkeys(chosen, made["command"])}
        made["frontier"] = found.get("frontier", [])
        if "frontier" in chosen:
            made["frontier"] = [asdict(p) for p in frontier.measure(masked(), on_progress=runs.on_progress)]
        pages.keep("leaderboard", found := made)
    PAGE.write_text(page(found), encoding="utf-8")
    if found["frontier"]:
        plots.one(frontier.plot([frontier.Point(**p) for p in found["frontier"]]), pages.DOCS / "images" / "frontier.png")
