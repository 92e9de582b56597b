"""Writes the tables of docs/benchmarks.md from bench/results/*.json; the text around them is kept.

    .venv/bin/python -m decgraph.bench.table [--check]

A table stands between `<!-- table NAME -->` and `<!-- end -->`; what is between them is replaced. With --check nothing
is written, and the exit code is 1 where a table is not what its results say.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
BLOCK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.S)
Row = dict[str, Any]
Cell = Callable[[Row], str]
Columns = tuple[tuple[str, Cell], ...]  # headings, and what stands under each


def written(page: str, results: Path = RESULTS) -> str:
    """The page with every table written again. Raises KeyError for an unknown table."""
    return BLOCK.sub(lambda match: match[1] + TABLES[match[2]](results) + match[3], page)


def read(results: Path, name: str) -> dict[str, Any]:
    """A result file's object; empty where the benchmark was not run."""
    path = results / f"{name}.json"
    made: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return made


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: the first columns are words, those with figures stand to the right."""
    if not rows:
        return "(not measured)\n"
    right = [all(re.match(r"[-\d]", row[i]) for row in rows) for i in range(len(headings))]
    bar = "|".join("---:" if r else "---" for r in right)
    return "".join(
        f"{line}\n" for line in (f"| {' | '.join(headings)} |", f"|{bar}|", *(f"| {' | '.join(row)} |" for row in rows))
    )


def figure(path: str, form: str = "") -> Cell:
    """A cell with a value of a row, "a.b" being `row["a"]["b"]`; a dash where the row has none."""

    def cell(row: Row) -> str:
        value: Any = row
        for key in path.split("."):
            if key not in value:
                return "-"
            value = value[key]
        return format(value, form)

    return cell


def speed(path: str) -> Cell:
    """A cell with a ratio's median and quartiles."""

    def cell(row: Row) -> str:
        parts = [figure(f"{path}.{name}", ".2f")(row) for name in ("median", "low", "high")]
        return "-" if parts[0] == "-" else f"{parts[0]} ({parts[1]} to {parts[2]})"

    return cell


def same(row: Row) -> str:
    """How many greedy requests gave the same tokens on both sides; of a masked model, whether the interpreter's came out."""
    if equal := row.get("tokens_equal"):
        count = equal["same"] + equal["near_ties"] + equal["different"]
        extra = [f"{equal[key]} {key.replace('_', '-')}" for key in ("near_ties", "different") if equal[key]]
        return f"{equal['same']} of {count}" + (f", {', '.join(extra)}" if extra else "")
    if meant := row.get("interpreter"):
        return "as interpreted" if meant["tokens_equal"] else "NOT as interpreted"
    return "-"


def interpreted(row: Row) -> str:
    """Calls and tokens of a masked model's run by the interpreter, beside the compiled run's."""
    meant = row["interpreter"]
    tokens = "the same" if meant["tokens_equal"] else "OTHER"
    return f"{meant['interpreter_calls']}, compiled {meant['calls']}, {tokens} tokens"


def mode(row: Row) -> str:
    """ "greedy", "sampled", or how many requests at a time."""
    return str(row["mode"]) if row["kind"] != "batch" else f"batch {row['batch']}"


def parameters(which: str) -> Cell:
    """A cell with the parameters of a row's target or drafter, in millions."""
    return lambda row: f"{row['weights'][which] / 1e6:.1f}M"


NAMES: Columns = (("algorithm", figure("algorithm")), ("against", figure("baseline")))
RATES: Columns = (
    ("tokens/s", figure("tokens_per_second.ours", ".0f")),
    ("theirs", figure("tokens_per_second.baseline", ".0f")),
)
RATIOS: Columns = (("times as fast", speed("ratio")), ("by CPU time", figure("cpu_ratio.median", ".2f")))
PER_CALL: Columns = (("tokens/call", figure("tokens_per_call", ".2f")),)
MS: Columns = (("ms/call", figure("ms_per_call", ".2f")),)
OUTSIDE: Columns = (("outside models", figure("outside_models.median", ".0%")),)
SAME: Columns = (("same tokens", same),)

EVERY: Columns = (
    NAMES[0], ("models", figure("models")), NAMES[1], ("mode", mode), *RATES, *RATIOS, *PER_CALL, *MS, *OUTSIDE, *SAME,
)  # fmt: skip
"""The columns of a table with rows of all kinds, as `decgraph bench` prints it."""

COLUMNS: dict[str, tuple[Callable[[Row], bool], Columns]] = {
    "shipped": (
        lambda row: row["kind"] == "transformers" and row["models"] == "shipped",
        (*NAMES, ("mode", mode), *RATES, *RATIOS, *PER_CALL, ("theirs", figure("baseline_tokens_per_call", ".2f")), *MS,
         *OUTSIDE, *SAME),
    ),
    "random": (
        lambda row: row["kind"] == "transformers" and row["models"] != "shipped",
        (NAMES[0], ("target", parameters("target")), ("drafter", parameters("drafter")), NAMES[1], *RATES, *RATIOS, *PER_CALL,
         *OUTSIDE, *SAME),
    ),
    "batches": (
        lambda row: row["kind"] == "batch",
        (NAMES[0], ("requests at a time", figure("batch")), RATES[0], ("one at a time", RATES[1][1]),
         ("times the throughput", RATIOS[0][1]), RATIOS[1],
         ("against generate's batch", speed("generate_batched.ratio")), *SAME),
    ),
    "masked": (
        lambda row: row["kind"] == "masked",
        (*NAMES, ("cells/s", RATES[0][1]), RATES[1], *RATIOS, ("calls", figure("calls.ours", ".0f")),
         ("theirs", figure("calls.baseline", ".0f")), ("ms/call", figure("ms_per_call", ".1f")),
         ("theirs", figure("baseline_ms_per_call", ".1f")), *OUTSIDE, ("calls of the interpreter", interpreted)),
    ),
}  # fmt: skip


def cells(columns: Columns, row: Row) -> tuple[str, ...]:
    """A row's cells under the headings of these columns."""
    return tuple(cell(row) for _, cell in columns)


def measured(name: str, results: Path) -> str:
    """A table of COLUMNS from the result file."""
    found = read(results, "decoding")
    keep, columns = COLUMNS[name]
    rows = [{**row, "weights": found.get("weights", {}).get(row["models"])} for row in found.get("rows", []) if keep(row)]
    return markdown([heading for heading, _ in columns], [cells(columns, row) for row in rows])


def machine(results: Path) -> str:
    """What the rows were measured on, and how often."""
    facts = read(results, "decoding").get("machine")
    if not facts:
        return "(not measured)\n"
    loads = [row["load"] for row in read(results, "decoding")["rows"]]
    versions = facts["versions"]
    settings = read(results, "decoding")["settings"]
    threads = f"{facts['threads']} thread{'s' * (facts['threads'] != 1)}"
    return (
        f"{facts['processor']}, {facts['cores']} cores, {threads} for both sides, float32; Python {facts['python']}, "
        f"torch {versions['torch']}, transformers {versions['transformers']}. "
        f"{settings['requests']} prompts, {settings['limit']} new tokens, {settings['rounds']} timed rounds after "
        f"{settings['warm']}. Load average during the run {min(loads):.1f} to {max(loads):.1f}.\n"
    )


def compiling(results: Path) -> str:
    """The times of bench.compile: some files of stdlib/, and generated programs by length."""
    found = read(results, "compile")
    if not found:
        return "(not measured)\n"
    files = sorted(found["files"].items(), key=lambda item: -item[1]["total"])
    totals = [took["total"] for _, took in files]
    shown = [files[0], files[1], files[2], *[f for f in files[3:] if f[0] in ("speculative", "eagle2", "autoregressive")]]
    table = markdown(
        ("program", "parse", "passes", "code", "milliseconds"),
        [(name, *(f"{took[stage]:.1f}" for stage in ("parse", "passes", "code", "total"))) for name, took in shown],
    )
    grown = markdown(
        ("generated", "lines", "milliseconds", "times half as long"),
        [
            (what, str(row["lines"]), f"{row['total']:.0f}", f"{row['to_half']:.2f}" if "to_half" in row else "-")
            for what, key in (("several algorithms", "algorithms"), ("one long step", "long_step"))
            for row in found[key]
        ],
    )
    return f"{len(files)} files: median {totals[len(totals) // 2]:.0f} ms, longest {totals[0]:.0f} ms.\n\n{table}\n{grown}"


TABLES: dict[str, Callable[[Path], str]] = {
    **{name: partial(measured, name) for name in COLUMNS},
    "machine": machine,
    "compiling": compiling,
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
