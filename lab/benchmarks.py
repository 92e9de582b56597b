"""Write the tables of docs/benchmarks.md from lab/results/, or (--check) say whether they are what the results say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from typer import Option

from decgraph.bench import render
from decgraph.bench.machine import named
from decgraph.bench.measure import Row
from lab import pages, peers

PAGE = pages.DOCS / "benchmarks.md"


def written(page: str, results: Path = pages.RESULTS) -> str:
    """The page with every table written again. Raises KeyError for an unknown table."""

    def region(name: str, file: str) -> Callable[[], str]:
        found = pages.result(file, results)
        if file == "decoding" and name != "machine":
            found = next((run for run in found.get("runs", ()) if run["name"] == name), {})
        return lambda: TABLES.get(name, measured)(found) if found else "(not measured)\n"

    files = {**dict.fromkeys(RUNS, "decoding"), "peers": "peers", "compiling": "compile", "goals": "goals"}
    return pages.filled(page, {name: region(name, file) for name, file in files.items()})


def measured(run: Row) -> str:
    """The tables of a run."""
    shown = "\n".join(render.markdown_table(found) for found in render.tables(run))
    failed = "".join(f"\nNot measured: {label}: {why}\n" for label, why in run["failed"].items())
    return f"{render.caption(run)}.\n\n{shown}{failed}"


def masked(run: Row) -> str:
    """The table of masked models, and whether calls and tokens are the reference interpreter's."""
    said = []
    for row in run["rows"]:
        if meant := row.get("interpreter"):
            tokens = "the same tokens" if meant["tokens_equal"] else "OTHER TOKENS"
            said.append(f"{row['algorithm']} {meant['calls']} calls, interpreted {meant['interpreter_calls']}, {tokens}")
    return f"{measured(run)}\nOne request compiled and by the reference interpreter: {'; '.join(said)}.\n"


def machine(found: Row) -> str:
    """What the runs were measured on, and when."""
    facts, loads = found["machine"], [run["load"] for run in found["runs"]]
    versions, threads = facts["versions"], f"{facts['threads']} thread{'s' * (facts['threads'] != 1)}"
    return (
        f"{named(facts)}, {facts['cores']} cores, {threads} for both sides; Python {facts['python']}, "
        f"torch {versions['torch']}, transformers {versions['transformers']}; {found['started'][:10]}. "
        f"Load average after the runs {min(loads):.1f} to {max(loads):.1f}.\n"
    )


def compiling(found: Row) -> str:
    """The times of compile.py: some files of stdlib/, and generated programs by length."""
    stages = ("parse", "passes", "code", "total")
    files = sorted(found["files"].items(), key=lambda item: -item[1]["total"])
    totals = [took["total"] for _, took in files]
    shown = [*files[:3], *[f for f in files[3:] if f[0] in ("speculative", "eagle2", "autoregressive")]]
    rows = [[name, *(f"{took[stage]:.1f}" for stage in stages)] for name, took in shown]
    grown = [
        [what, str(row["lines"]), f"{row['total']:.0f}", f"{row['to_half']:.2f}" if "to_half" in row else "-"]
        for what, key in (("several algorithms", "algorithms"), ("one long step", "long_step"))
        for row in found[key]
    ]
    return "\n".join(
        [
            f"{len(files)} files: median {totals[len(totals) // 2]:.0f} ms, longest {totals[0]:.0f} ms.\n",
            render.markdown_table((["program", "parse", "passes", "code", "milliseconds"], rows)),
            render.markdown_table((["generated", "lines", "milliseconds", "times half as long"], grown)),
        ]
    )


def against(found: Row) -> str:
    """What `python -m lab peers` measured."""
    notes = "\n\n".join(peers.notes(found))
    return f"{peers.caption(found)}.\n\n{render.markdown_table(peers.table(found))}\n{notes}\n"


PARTS = {
    "chat": "SmolLM2-135M-Instruct, chat template",
    "context": "the same, 2,000 tokens of context",
    "random135": "its shape, random weights",
    "random25": "25M, random weights",
    "shipped": "shipped pair",
    "batches": "shipped, 8 at a time",
    "prefill": "25M, 3,000-token prompt and 16 tokens",
    "first_token": "25M, first token after 3,000",
}


def goals(found: Row) -> str:
    """The speeds that decgraph sets itself, reached or not."""
    rows = []
    for row in found["goals"]:
        low, _, high = row["quartiles"]
        rows.append(
            [PARTS.get(row["part"], row["part"]), row["kind"], row["algorithm"], row["baseline"].removeprefix("transformers "),
             f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})", f"{row['goal']:.1f}", "yes" if row["reached"] else "no",
             f"{row['tokens_per_call']:.2f}"]
        )  # fmt: skip
    head = ["model", "prompts", "algorithm", "against", "times as fast", "goal", "reached", "tokens a call"]
    reached, facts = sum(bool(row["reached"]) for row in found["goals"]), found["machine"]
    return (
        f"{named(facts)}, {facts['threads']} thread, float32, load {facts['load']} before; "
        f"{reached} of {len(rows)} goals reached.\n\n{render.markdown_table((head, rows))}"
    )


RUNS = ("machine", "shipped", "sampled", "batches", "masked", "random25", "random135", "chat")
TABLES = {"machine": machine, "masked": masked, "compiling": compiling, "peers": against, "goals": goals}
"""What is no table of a run alone."""


def command(
    check: Annotated[bool, Option("--check", help="Write nothing; exit code 1 where a table differs.")] = False,
) -> None:
    """Write the page, or say by the exit code whether it is as it would be written."""
    page = PAGE.read_text("utf-8")
    made = written(page)
    if check:
        sys.exit(made != page)
    PAGE.write_text(made, encoding="utf-8")
    print(f"written {PAGE}")
