"""Runs of a result file as tables: for the terminal, Markdown, CSV and LaTeX (booktabs).

A ratio is written with its 95% interval, where there were prompts enough for one. A row is a method; where there are prompts of
several kinds, a second table has a column for each kind. CSV has one row for every method and kind, with every figure.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from decgraph.bench.bootstrap import FEWEST, METHOD
from decgraph.bench.compare import THEIRS
from decgraph.bench.machine import named
from decgraph.bench.measure import ALL, Row
from decgraph.runtime.trace import ended_text

FORMATS = ("table", "md", "csv", "latex", "json")
Table = tuple[list[str], list[list[str]]]  # headings, and the cells of each row


def clock_of(run: Row) -> str:
    """ "cpu" where the work is done by the processor, else "wall": the clock whose ratios a table shows first."""
    return "cpu" if run["models"]["device"].startswith("cpu") else "wall"


def shown(interval: Row | None, digits: int = 2) -> str:
    """A ratio with its interval, or that there were too few prompts for one; a dash for no ratio."""
    if interval is None:
        return "-"
    if interval["low"] is None:
        return f"{interval['value']:.{digits}f} (n={interval['n']}, no interval)"
    if interval["low"] == interval["high"]:
        return f"{interval['value']:.{digits}f}"
    return f"{interval['value']:.{digits}f} ({interval['low']:.{digits}f} to {interval['high']:.{digits}f})"


def number(value: float | None, digits: int = 2) -> str:
    """A figure; a dash for none."""
    return "-" if value is None else f"{value:.{digits}f}"


def equal(row: Row) -> str:
    """How many greedy texts are those of the first baseline."""
    found = row.get("tokens_equal")
    if found is None:
        meant = row.get("interpreter")
        return "-" if meant is None else "as interpreted" if meant["tokens_equal"] else "NOT as interpreted"
    many = found["same"] + found["near_ties"] + found["different"]
    extra = [f"{found[key]} {word}" for key, word in (("near_ties", "near-tie"), ("different", "different")) if found[key]]
    return f"{found['same']} of {many}" + (f", {', '.join(extra)}" if extra else "")


def accepted_of(row: Row) -> str:
    """By depth, how many of the tested drafts were accepted: 7/9 3/7."""
    tested, accepted = (row.get("acceptance", {}).get(key, []) for key in ("tested", "accepted"))
    return " ".join(f"{a}/{t}" for a, t in zip(accepted, tested, strict=True) if t)


def share(row: Row, name: str) -> str:
    """A share of a row's time."""
    return f"{row['time'][name]:.0%}" if "time" in row else "-"


def first_baseline(run: Row) -> str:
    """What every row is compared with."""
    return next((name for row in run["rows"] for name in row["ratios"]), "")


def overall(run: Row) -> list[Row]:
    """The rows about all prompts."""
    kind = run["rows"][0]["kind"] if run["rows"] else ALL
    return [row for row in run["rows"] if row["kind"] == kind]


def summary(run: Row) -> Table:
    """The table of a run, a row a method."""
    base, clock = first_baseline(run), clock_of(run)
    others = any(name != base for row in run["rows"] for name in row["ratios"])
    headings = ["method", "tokens/call", "tokens/s", f"times {base.removeprefix(THEIRS)}"]
    if clock == "cpu":
        headings.append("by CPU time")
    headings += (["times its counterpart", "by CPU time"] if clock == "cpu" else ["times its counterpart"]) if others else []
    headings += ["drafting", "outside models", "same tokens"]
    rows = []
    for row in overall(run):
        counterpart = next((name for name in row["ratios"] if name != base), base if row["side"] == "decgraph" else None)
        cells = [row["algorithm"], number(row["tokens_per_call"]), number(row["tokens_per_second"], 1)]
        for name in (base, counterpart) if others else (base,):
            found = row["ratios"].get(name)
            cells.append(shown(found["wall"]) if found else "-")
            if clock == "cpu":
                cells.append(shown(found["cpu"]) if found else "-")
        rows.append([*cells, share(row, "draft"), share(row, "outside"), equal(row)])
    return headings, rows


def by_kind(run: Row) -> Table | None:
    """Ratio to the first baseline and tokens a call, a column a kind; None where there is one kind."""
    kinds = list(dict.fromkeys(row["kind"] for row in run["rows"]))
    if len(kinds) < 2:
        return None
    base, clock = first_baseline(run), clock_of(run)
    rows = []
    for one in overall(run):
        cells = [one["algorithm"]]
        for kind in kinds:
            row = next((r for r in run["rows"] if (r["algorithm"], r["kind"]) == (one["algorithm"], kind)), None)
            found = row["ratios"].get(base) if row is not None else None
            per_call = f"{number(row['tokens_per_call'])} a call" if row is not None else "-"
            cells.append(per_call if found is None else f"{shown(found[clock])}, {per_call}")
        rows.append(cells)
    return ["method", *kinds], rows


def caption(run: Row) -> str:
    """Model and settings, in a line."""
    models, settings, prompts = run["models"], run["settings"], run["prompts"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in prompts["kinds"].items())
    heat = "greedy" if settings["temperature"] == 0 else f"temperature {settings['temperature']:g}"
    drafter = f", drafter {models['drafter'] / 1e6:.1f}M" if "drafter" in models else ""
    batch = f", {settings['batch']} prompts at a time" if settings["batch"] > 1 else ""
    rounds = f"{settings['rounds']} round{'s' * (settings['rounds'] != 1)}"
    return (
        f"{models['name']} ({models['target'] / 1e6:.1f}M parameters{drafter}), {models['dtype']} on {models['device']}, "
        f"{heat}, at most {settings['limit']} new tokens, {rounds}{batch}; prompts: {kinds} "
        f"({prompts['tokens']['least']} to {prompts['tokens']['most']} tokens)"
    )


def notes(document: Row, run: Row) -> list[str]:
    """What stands below a table: how it was measured, on what, the models' digests, what failed."""
    machine = document["machine"]
    clocks = "wall clock and processor time" if clock_of(run) == "cpu" else "wall clock"
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    busy = f"; the machine had other work (load {run['load']})" if run["load"] > (machine["cores"] or 1) else ""
    lines = [
        (
            f"Ratios: times as many tokens a second as the baseline, by {clocks}; {METHOD}, of {FEWEST} prompts and more. "
            f"Order within rounds drawn "
            f"with seed {run['settings']['seed']}."
        ),
        (
            f"{named(machine)}, {machine['cores']} core{'s' * (machine['cores'] != 1)}, "
            f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}, load {machine['load']} before "
            f"and {run['load']} after{busy}; Python {machine['python']}, {versions}."
        ),
    ]
    if document.get("command"):
        lines.append(f"Command: {document['command']}")
    if source := run["prompts"].get("source"):
        lines.append(f"Prompts: {source}, sha256 {run['prompts']['sha256'][:16]}.")
    for name, files in run.get("digests", {}).items():
        weights = [
            f"{file} {digest[:16]}" for file, digest in files.items() if file.endswith((".safetensors", ".bin", ".pt", ".gguf"))
        ]
        lines.append(f"Weights of {name} (sha256): {', '.join(weights)}.")
    own = [f"{label} {facts['sha256'][:16]}" for label, facts in run["contenders"].items() if "sha256" in facts]
    if own:
        lines.append(f"Programs (sha256): {', '.join(own)}.")
    if tested := [f"{row['algorithm']} {accepted_of(row)}" for row in overall(run) if accepted_of(row)]:
        lines.append(f"Accepted of the drafts that were tested, by depth: {'; '.join(tested)}.")
    for row in overall(run):
        if ended := ended_text(row.get("draft_errors", {})):
            lines.append(f"{row['algorithm']}: {ended}.")
    if run["interrupted"]:
        lines.append(f"Interrupted: {len(run['times']['groups'])} groups were measured.")
    lines += [f"Not measured: {label}: {reason}" for label, reason in run["failed"].items()]
    return lines


def markdown_table(table: Table) -> str:
    """A table in Markdown; columns of figures stand to the right."""
    headings, rows = table
    right = [i > 0 and all(cell[:1] in "-0123456789" for cell in column) for i, column in enumerate(zip(*rows, strict=True))]
    bar = "|".join("---:" if r else "---" for r in (right or [False] * len(headings)))
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (headings, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "".join(f"{line}\n" for line in (lines[0], f"|{bar}|", *lines[1:]))


def markdown(document: Row) -> str:
    """Every run as Markdown."""
    parts = []
    for run in document["runs"]:
        parts.append(f"**{caption(run)}**\n")
        parts += [markdown_table(table) for table in tables(run)]
        parts.append("".join(f"- {line}\n" for line in notes(document, run)))
    return "\n".join(parts)


SPECIAL = {
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip


def tex(text: str) -> str:
    """A text as LaTeX prints it."""
    return "".join(SPECIAL.get(character, character) for character in text)


def tex_cell(cell: str) -> str:
    """A cell in LaTeX: an interval becomes `1.52 [1.40, 1.66]`, a lone dash a long one."""
    if cell == "-":
        return "--"
    return tex(cell.replace(" (", " [").replace(" to ", ", ").replace(")", "]") if " to " in cell else cell)


def latex(document: Row) -> str:
    """Every run as a `table` with booktabs rules; what stands below a table elsewhere are comments above it."""
    parts = ["% \\usepackage{booktabs}"]
    brackets = f"In brackets: 95\\% bootstrap intervals, of {FEWEST} prompts and more."
    for run in document["runs"]:
        parts += [f"% {line}" for line in notes(document, run)]
        for place, (headings, rows) in enumerate(tables(run)):
            what = "" if place == 0 else "; ratio to the baseline and tokens a call by kind of prompt"
            parts += [
                "\\begin{table}",
                "  \\centering",
                f"  \\caption{{{tex(caption(run) + what)}. {brackets}}}",
                f"  \\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}",
                "    \\toprule",
                f"    {' & '.join(map(tex, headings))} \\\\",
                "    \\midrule",
                *(f"    {' & '.join(map(tex_cell, row))} \\\\" for row in rows),
                "    \\bottomrule",
                "  \\end{tabular}",
                "\\end{table}",
            ]
    return "\n".join(parts) + "\n"


def records(document: Row) -> Iterator[dict[str, Any]]:
    """A flat record for every method and kind."""
    for run in document["runs"]:
        base = first_baseline(run)
        for row in run["rows"]:
            equality = row.get("tokens_equal", {})
            record: dict[str, Any] = {
                "model": run["models"]["name"],
                "dtype": run["models"]["dtype"],
                "device": run["models"]["device"],
                "temperature": run["settings"]["temperature"],
                "batch": run["settings"]["batch"],
                "side": row["side"],
                "algorithm": row["algorithm"],
                "kind": row["kind"],
                "prompts": row["prompts"],
                "tokens_per_call": row["tokens_per_call"],
                "tokens_per_second": row["tokens_per_second"],
                "draft_calls_per_call": row.get("draft_calls_per_call"),
                "draft_share": row.get("time", {}).get("draft"),
                "outside_share": row.get("time", {}).get("outside"),
                "acceptance": accepted_of(row),
                "ended_drafts": sum(row.get("draft_errors", {}).values()),
                **{key: equality.get(key) for key in ("same", "near_ties", "different")},
            }
            counterpart = next((name for name in row["ratios"] if name != base), None)
            for prefix, name in (("", base), ("counterpart_", counterpart)):
                record[f"{prefix}baseline"] = name if name in row["ratios"] else None
                for clock in ("wall", "cpu"):
                    found = row["ratios"].get(name, {}).get(clock, {})
                    record |= {
                        f"{prefix}{clock}_ratio{end}": found.get(key)
                        for key, end in (("value", ""), ("low", "_low"), ("high", "_high"), ("n", "_n"))
                    }
            yield record


def comma_separated(document: Row) -> str:
    """CSV with a heading: one row for every method and kind."""
    out = io.StringIO()
    found = list(records(document))
    writer = csv.DictWriter(out, list(found[0]) if found else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return out.getvalue()


TEXT: dict[str, Callable[[Row], str]] = {"md": markdown, "csv": comma_separated, "latex": latex}


def tables(run: Row) -> Sequence[Table]:
    """The tables of a run as the terminal shows them."""
    return [table for table in (summary(run), by_kind(run)) if table is not None]
