"""Writes the tables of docs/benchmarks.md from lab/results/*.json; the text around them is kept.

    .venv/bin/python -m lab.table [--check]

A table stands between `<!-- table NAME -->` and `<!-- end -->`; what is between them is replaced. With --check nothing
is written, and the exit code is 1 where a table is not what its results say.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from decgraph.bench import peers, render
from decgraph.bench.machine import named

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "lab" / "results"
BLOCK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.S)


def written(page: str, results: Path = RESULTS) -> str:
    """The page with every table written again. Raises KeyError for an unknown table."""
    return BLOCK.sub(lambda match: match[1] + TABLES[match[2]](results) + match[3], page)


def read(results: Path, name: str) -> dict[str, Any]:
    """A result file's object; empty where the benchmark was not run."""
    path = results / f"{name}.json"
    made: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return made


def measured(name: str, results: Path) -> str:
    """The tables of a run."""
    run = run_of(results, name)
    if run is None:
        return "(not measured)\n"
    shown = "\n".join(render.markdown_table(found) for found in render.tables(run))
    failed = "".join(f"\nNot measured: {label}: {why}\n" for label, why in run["failed"].items())
    return f"{render.caption(run)}.\n\n{shown}{failed}"


def masked(results: Path) -> str:
    """The table of masked models, and whether calls and tokens are the reference interpreter's."""
    run = run_of(results, "masked")
    if run is None:
        return "(not measured)\n"
    said = []
    for row in run["rows"]:
        if meant := row.get("interpreter"):
            tokens = "the same tokens" if meant["tokens_equal"] else "OTHER TOKENS"
            said.append(f"{row['algorithm']} {meant['calls']} calls, interpreted {meant['interpreter_calls']}, {tokens}")
    return f"{measured('masked', results)}\nOne request compiled and by the reference interpreter: {'; '.join(said)}.\n"


def run_of(results: Path, name: str) -> dict[str, Any] | None:
    """A run of the result file by its name; None where it was not measured."""
    runs: list[dict[str, Any]] = read(results, "decoding").get("runs", [])
    return next((run for run in runs if run["name"] == name), None)


def machine(results: Path) -> str:
    """What the runs were measured on, and when."""
    found = read(results, "decoding")
    facts = found.get("machine")
    if not facts:
        return "(not measured)\n"
    loads = [run["load"] for run in found["runs"]]
    versions = facts["versions"]
    threads = f"{facts['threads']} thread{'s' * (facts['threads'] != 1)}"
    return (
        f"{named(facts)}, {facts['cores']} cores, {threads} for both sides; Python {facts['python']}, "
        f"torch {versions['torch']}, transformers {versions['transformers']}; {found['started'][:10]}. "
        f"Load average after the runs {min(loads):.1f} to {max(loads):.1f}.\n"
    )


def compiling(results: Path) -> str:
    """The times of compile.py: some files of stdlib/, and generated programs by length."""
    found = read(results, "compile")
    if not found:
        return "(not measured)\n"
    files = sorted(found["files"].items(), key=lambda item: -item[1]["total"])
    totals = [took["total"] for _, took in files]
    shown = [files[0], files[1], files[2], *[f for f in files[3:] if f[0] in ("speculative", "eagle2", "autoregressive")]]
    table = render.markdown_table(
        (
            ["program", "parse", "passes", "code", "milliseconds"],
            [[name, *(f"{took[stage]:.1f}" for stage in ("parse", "passes", "code", "total"))] for name, took in shown],
        )
    )
    grown = render.markdown_table(
        (
            ["generated", "lines", "milliseconds", "times half as long"],
            [
                [what, str(row["lines"]), f"{row['total']:.0f}", f"{row['to_half']:.2f}" if "to_half" in row else "-"]
                for what, key in (("several algorithms", "algorithms"), ("one long step", "long_step"))
                for row in found[key]
            ],
        )
    )
    return f"{len(files)} files: median {totals[len(totals) // 2]:.0f} ms, longest {totals[0]:.0f} ms.\n\n{table}\n{grown}"


def against(results: Path) -> str:
    """What `decgraph bench --peer` measured."""
    found = read(results, "peers")
    if not found:
        return "(not measured)\n"
    notes = "\n\n".join(peers.notes(found))
    return f"{peers.caption(found)}.\n\n{render.markdown_table(peers.table(found))}\n{notes}\n"


PARTS = {
    "chat": "SmolLM2-135M-Instruct, chat template",
    "context": "the same, 2,000 tokens of context",
    "random135": "its shape, random weights",
    "random25": "25M, random weights",
    "shipped": "shipped pair",
    "batch": "shipped, 8 at a time",
    "prefill": "25M, 3,000-token prompt and 16 tokens",
    "first_token": "25M, first token after 3,000",
}


def goals(results: Path) -> str:
    """The speeds that decgraph sets itself, reached or not."""
    found = read(results, "goals")
    if not found:
        return "(not measured)\n"
    rows = []
    for row in found["goals"]:
        low, _, high = row["quartiles"]
        what = (
            PARTS.get(row["part"], row["part"]),
            row["kind"],
            row["algorithm"],
            row["baseline"].removeprefix("transformers "),
        )
        figures = (f"{row['ratio']:.2f} ({low:.2f} to {high:.2f})", f"{row['goal']:.1f}", "yes" if row["reached"] else "no")
        rows.append([*what, *figures, f"{row['tokens_per_call']:.2f}"])
    head = ["model", "prompts", "algorithm", "against", "times as fast", "goal", "reached", "tokens a call"]
    reached = sum(bool(row["reached"]) for row in found["goals"])
    machine = found["machine"]
    return (
        f"{named(machine)}, {machine['threads']} thread, float32, load {machine['load']} before; "
        f"{reached} of {len(rows)} goals reached.\n\n{render.markdown_table((head, rows))}"
    )


TABLES: dict[str, Callable[[Path], str]] = {
    **{name: partial(measured, name) for name in ("shipped", "sampled", "batches", "random25", "random135", "chat")},
    "peers": against,
    "masked": masked,
    "machine": machine,
    "compiling": compiling,
    "goals": goals,
}


def main() -> None:
    """Write the page, or with --check say by the exit code whether it is as it would be written."""
    page = PAGE.read_text(encoding="utf-8")
    made = written(page)
    if "--check" in sys.argv[1:]:
        sys.exit(made != page)
    PAGE.write_text(made, encoding="utf-8")
    print(f"written {PAGE}")


if __name__ == "__main__":
    main()
