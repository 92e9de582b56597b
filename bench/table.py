"""docs/benchmarks.md: its tables made from bench/results/*.json, the words around them kept.

    .venv/bin/python -m decgraph.bench.table [--check]

A table stands between `<!-- table NAME -->` and `<!-- end -->`; what is between them is written anew. With --check nothing
is written, and the exit code is 1 where a table is not what its results say.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "bench" / "results"
BLOCK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.S)
Rows = list[dict[str, Any]]


def written(page: str, results: Path = RESULTS) -> str:
    """The page with every table made anew. Raises KeyError for a table that there is not."""
    return BLOCK.sub(lambda match: match[1] + TABLES[match[2]](results) + match[3], page)


def read(results: Path, name: str) -> dict[str, Any]:
    """A result file's object; empty where the benchmark was not run."""
    path = results / f"{name}.json"
    made: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return made


def markdown(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table: the first columns are words, those with figures stand to the right."""
    if not rows:
        return "(not measured)\n"
    right = [all(re.match(r"[-\d]", row[i]) for row in rows) for i in range(len(headings))]
    bar = "|".join("---:" if r else "---" for r in right)
    return "".join(
        f"{line}\n" for line in (f"| {' | '.join(headings)} |", f"|{bar}|", *(f"| {' | '.join(row)} |" for row in rows))
    )


def speed(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def same(row: dict[str, Any]) -> str:
    equal = row.get("tokens_equal")
    if not equal:
        return "-"
    count = equal["same"] + equal["near_ties"] + equal["different"]
    extra = [f"{equal[key]} {key.replace('_', '-')}" for key in ("near_ties", "different") if equal[key]]
    return f"{equal['same']} of {count}" + (f", {', '.join(extra)}" if extra else "")


def outside(row: dict[str, Any]) -> str:
    return f"{row['outside_models']['median']:.0%}"


def interpreted(meant: dict[str, Any]) -> str:
    tokens = "the same" if meant["tokens_equal"] else "OTHER"
    return f"{meant['interpreter_calls']}, compiled {meant['calls']}, {tokens} tokens"


def per_call(row: dict[str, Any], name: str = "tokens_per_call") -> str:
    return f"{row[name]:.2f}" if name in row else "-"


def of_kind(results: Path, keep: Callable[[dict[str, Any]], bool]) -> Rows:
    return [row for row in read(results, "decoding").get("rows", []) if keep(row)]


def shipped(results: Path) -> str:
    headings = (
        "algorithm",
        "against",
        "mode",
        "tokens/s",
        "theirs",
        "times as fast",
        "by CPU time",
        "tokens/call",
        "theirs",
        "ms/call",
        "outside models",
        "same tokens",
    )
    rows = of_kind(results, lambda row: row["kind"] == "transformers" and row["models"] == "shipped")
    return markdown(
        headings,
        [
            (
                row["algorithm"],
                f"`{row['baseline']}`",
                row["mode"],
                f"{row['tokens_per_second']['ours']:.0f}",
                f"{row['tokens_per_second']['baseline']:.0f}",
                speed(row["ratio"]),
                f"{row['cpu_ratio']['median']:.2f}",
                per_call(row),
                per_call(row, "baseline_tokens_per_call"),
                f"{row['ms_per_call']:.2f}",
                outside(row),
                same(row),
            )
            for row in rows
        ],
    )


def random(results: Path) -> str:
    headings = (
        "algorithm",
        "target",
        "drafter",
        "against",
        "tokens/s",
        "theirs",
        "times as fast",
        "by CPU time",
        "tokens/call",
        "outside models",
        "same tokens",
    )
    sizes = read(results, "decoding").get("weights", {})
    rows = of_kind(results, lambda row: row["kind"] == "transformers" and row["models"] != "shipped")
    return markdown(
        headings,
        [
            (
                row["algorithm"],
                f"{sizes[row['models']]['target'] / 1e6:.1f}M",
                f"{sizes[row['models']]['drafter'] / 1e6:.1f}M",
                f"`{row['baseline']}`",
                f"{row['tokens_per_second']['ours']:.0f}",
                f"{row['tokens_per_second']['baseline']:.0f}",
                speed(row["ratio"]),
                f"{row['cpu_ratio']['median']:.2f}",
                per_call(row),
                outside(row),
                same(row),
            )
            for row in rows
        ],
    )


def batches(results: Path) -> str:
    headings = (
        "algorithm",
        "requests at a time",
        "tokens/s",
        "one at a time",
        "times the throughput",
        "by CPU time",
        "against generate's batch",
        "same tokens",
    )
    rows = of_kind(results, lambda row: row["kind"] == "batch")
    return markdown(
        headings,
        [
            (
                row["algorithm"],
                str(row["batch"]),
                f"{row['tokens_per_second']['ours']:.0f}",
                f"{row['tokens_per_second']['baseline']:.0f}",
                speed(row["ratio"]),
                f"{row['cpu_ratio']['median']:.2f}",
                speed(row["generate_batched"]["ratio"]) if "generate_batched" in row else "-",
                same(row),
            )
            for row in rows
        ],
    )


def masked(results: Path) -> str:
    headings = (
        "algorithm",
        "against",
        "cells/s",
        "theirs",
        "times as fast",
        "by CPU time",
        "calls",
        "theirs",
        "ms/call",
        "theirs",
        "outside models",
        "calls of the interpreter",
    )
    rows = of_kind(results, lambda row: row["kind"] == "masked")
    return markdown(
        headings,
        [
            (
                row["algorithm"],
                row["baseline"],
                f"{row['tokens_per_second']['ours']:.0f}",
                f"{row['tokens_per_second']['baseline']:.0f}",
                speed(row["ratio"]),
                f"{row['cpu_ratio']['median']:.2f}",
                f"{row['calls']['ours']:.0f}",
                f"{row['calls']['baseline']:.0f}",
                f"{row['ms_per_call']:.1f}",
                f"{row['baseline_ms_per_call']:.1f}",
                outside(row),
                interpreted(row["interpreter"]),
            )
            for row in rows
        ],
    )


def machine(results: Path) -> str:
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
    "shipped": shipped,
    "random": random,
    "batches": batches,
    "masked": masked,
    "machine": machine,
    "compiling": compiling,
}


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    made = written(page)
    if "--check" in sys.argv[1:]:
        sys.exit(made != page)
    PAGE.write_text(made, encoding="utf-8")
    print(f"written {PAGE}")


if __name__ == "__main__":
    main()
