"""docs/gallery: a page for every algorithm of stdlib/, written from what there is to know of it.

    decgraph check --all --json > verdicts.json
    .venv/bin/python -m lab.gallery [--verdicts verdicts.json] [--only NAME ...]

A page has the source, a drawing of a step, the claim with its verdict, how it agrees with published code, what was measured,
and what differs from its nearest neighbour. Verdicts are those that `--verdicts` was last given, kept in
docs/gallery/verdicts.json with a digest of the program's text: one of a text that has changed since is not shown. Figures are
those of docs/leaderboard.md's result file; agreement is read from docs/fidelity.md. Writing the pages runs no model.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import decgraph
from decgraph import stdlib
from decgraph.check.verdicts import FOR_ALL, proof_of

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "gallery"
VERDICTS = FOLDER / "verdicts.json"
FIGURES = Path(__file__).parent / "results" / "leaderboard.json"
BOARD = "[leaderboard](../leaderboard.md)"
MOST_LINES = 24
"""Lines of difference that are shown; programs that differ by more have no neighbour."""
Found = Mapping[str, Any]


def known(path: Path) -> Any:
    """What a JSON file holds; an empty object where there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def page(name: str, verdicts: Found, figures: Found) -> str:
    """The page of one algorithm, as Markdown."""
    entry, text = stdlib.entry(name), stdlib.text(name)
    told = decgraph.load(name).explain()
    drawing = told[told.index("a step, drawn") :].splitlines()[1:]
    parts = [
        f"# {name}\n\n*{entry.family}*" + (f", {entry.source}" if entry.source else "") + "\n",
        faithful(entry) + "\n",
        f"```dec\n{text.rstrip()}\n```\n",
        "## A step\n\n```text\n" + "\n".join(row.rstrip() for row in drawing) + "\n```\n",
        "## Claim\n\n" + claimed(entry.claim, verdicts.get(name)) + "\n",
        *section("Derivation", derivation(name) if verdicts.get(name, {}).get("verdict") == "proved" else ()),
        *section("Published code", agreement(name)),
        *section("Measured", measured(name, figures)),
        *section("Beside its neighbour", neighbour(name)),
        f"`decgraph run {name}`, `decgraph explain {name}`, `decgraph check {name}`; [all algorithms](README.md).\n",
    ]
    return "\n".join(parts)


def faithful(entry: stdlib.Entry) -> str:
    """What is known of a program's faithfulness to its publication, in a sentence."""
    code = f" ([{entry.code}](https://github.com/{entry.code}))" if entry.code else ""
    return f"**{entry.status}**: {stdlib.STATUSES[entry.status]}{code}." + (f" {entry.note}" if entry.note else "")


def section(title: str, lines: Iterable[str]) -> list[str]:
    """A section, or nothing where it has no lines."""
    found = list(lines)
    return [f"## {title}\n\n" + "\n".join(found) + "\n"] if found else []


def claimed(claim: str, verdict: Found | None) -> str:
    """The claim and what a check found."""
    if not claim:
        return "None: what it generates is its own, by design. `tests/stdlib` holds it to what it equals at some setting."
    found = f"`{claim}`"
    if verdict is not None:
        found += f": **{verdict['verdict']}**" + (f" ({verdict['note']})" if verdict.get("note") else "")
    return found


def derivation(name: str) -> list[str]:
    """The lines of a program that its derivation speaks of, each with what is concluded there (docs/proof.md)."""
    module, lines, faults = decgraph.load(name).module, stdlib.text(name).splitlines(), list[str]()
    found = dict.fromkeys(step for claim in module.entry.claims for step in proof_of(module, claim, faults).steps)
    return [f"- `{lines[s.line - 1].strip()}`: {s.text} ([{s.rule}](../proof.md#derivations))" for s in found]


@lru_cache(maxsize=1)
def rows_of_fidelity() -> dict[str, list[str]]:
    """By program, the rows of docs/fidelity.md: recording, source, and what agrees on torch."""
    found: dict[str, list[str]] = {}
    for line in (DOCS / "fidelity.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[3] == "torch":
            program = re.sub(r"^\[(\w+)\].*", r"\1", cells[2]).split(",")[0]
            found.setdefault(program, []).append(f"- {cells[0]}, recorded from {cells[1]}: {cells[4]}")
    return found


def agreement(name: str) -> list[str]:
    """How its runs agree with recordings of published decoders (docs/fidelity.md)."""
    return rows_of_fidelity().get(name, [])


def measured(name: str, figures: Found) -> list[str]:
    """What the leaderboard has of it."""
    out = []
    for run in figures.get("runs", ()):
        first = run["rows"][0]["kind"] if run["rows"] else ""
        for row in run["rows"]:
            if row["side"] != "decgraph" or row["algorithm"].partition(":")[0] != name or row["kind"] != first:
                continue
            said = []
            if row["tokens_per_call"] is not None:  # there are algorithms that never call the whole target
                said.append(f"{row['tokens_per_call']:.2f} tokens per target call")
            if row.get("ratios"):  # none for what learns from one run to the next
                said.append(f"{next(iter(row['ratios'].values()))['cpu']['value']:.2f} times `generate`")
            if said:
                out.append(f"- {run['name']}, {row['algorithm']}: {', '.join(said)} ({BOARD})")
    for point in figures.get("frontier", ()):
        if point["label"] == name and not point["failed"]:
            out.append(
                f"- masked: {point['calls']:.1f} calls for 32 positions, {point['agreement']:.0%} of them those of "
                f"one token a call; tasks right {point['accuracy']:.0%} ({BOARD})"
            )
    return out


@lru_cache(maxsize=1)
def bodies() -> dict[str, list[str]]:
    """Every program without its docstring, line by line."""
    return {name: re.sub(r'\n\s*"""[\s\S]*?"""', "", stdlib.text(name), count=1).splitlines() for name in stdlib.names()}


def neighbour(name: str) -> list[str]:
    """The program of the same family that is nearest, and the lines in which they differ."""
    own, family = bodies()[name], stdlib.entry(name).family
    others = [other for other in stdlib.names() if other != name and stdlib.entry(other).family == family]
    if not others:
        return []
    near = max(others, key=lambda other: difflib.SequenceMatcher(None, bodies()[other], own).ratio())
    lines = [line for line in difflib.unified_diff(bodies()[near], own, lineterm="", n=0) if line[:3] not in ("---", "+++")]
    lines = [line for line in lines if not line.startswith("@@")]
    if len(lines) > MOST_LINES:
        return []
    return [f"What it has (`+`) that [{near}]({near}.md) has not, and the other way round (`-`):", "", "```diff", *lines, "```"]


def index(verdicts: Found) -> str:
    """The page of all algorithms, by family."""
    parts = [
        "# Gallery\n\n*Generated by `python -m lab.gallery`; a page for every algorithm of stdlib/.*\n",
        (
            "A page shows an algorithm's program, a drawing of its step, its claim with the verdict of `decgraph check`,\n"
            "and what a step costs. To start with: [speculative](speculative.md) drafts a chain, [eagle2](eagle2.md) a tree,\n"
            "[llada](llada.md) decides a canvas, [beam](beam.md) searches.\n"
        ),
        "`decgraph list --owed` names the published algorithms that have no program yet, and what they lack.\n",
    ]
    entries = [stdlib.entry(name) for name in stdlib.names()]
    for family in sorted({entry.family for entry in entries}):
        rows = [entry for entry in entries if entry.family == family]
        parts.append(f"## {family}\n\n| algorithm | source | claim | verdict |\n|---|---|---|---|")
        for entry in rows:
            verdict = verdicts.get(entry.name, {}).get("verdict", "-") if entry.claim else "-"
            claim = entry.claim.replace("|", "\\|") or "-"
            parts.append(f"| [{entry.name}]({entry.name}.md) | {entry.source or '-'} | {claim} | {verdict} |")
        parts.append("")
    return "\n".join(parts)


def digest(name: str) -> str:
    """Of a program's text."""
    return hashlib.sha256(stdlib.text(name).encode()).hexdigest()[:16]


def current(verdicts: Found) -> Found:
    """The verdicts on programs whose text is still the one that was checked."""
    return {n: v for n, v in verdicts.items() if n in stdlib.names() and v.get("digest") == digest(n)}


def verdict_of(report: Found) -> Found:
    """What is kept of a report of `decgraph check --json`."""
    mutants = report["mutants"]
    said = [f"{report['models']} small models, every outcome of {report['runs']:,} runs"]
    if report["verdict"] == "proved":
        said = [f"{FOR_ALL}; compared in {said[0]}"]
    if mutants["planted"]:
        said.append(f"{mutants['killed']} of {mutants['planted']} planted bugs found")
    if report["verdict"] == "undecided":
        said += report["reasons"][:1]
    if report["verdict"] == "holds":
        said += [stopped(claim["stopped"]) for claim in report["claims"] if "stopped" in claim][:1]
    return {"verdict": report["verdict"], "note": "; ".join(said), "digest": digest(report["name"])}


def stopped(where: Found) -> str:
    """Where a derivation stopped, and why."""
    return f"no derivation: {'line {line}: '.format(**where) if where['line'] else ''}{where['why']}"


def write(names: Iterable[str] | None = None) -> None:
    """Write the pages, of all algorithms or of these, and the index; pages of algorithms that are gone are removed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    verdicts, figures = current(known(VERDICTS)), known(FIGURES)
    for name in names or stdlib.names():
        (FOLDER / f"{name}.md").write_text(page(name, verdicts, figures), encoding="utf-8")
    (FOLDER / "README.md").write_text(index(verdicts), encoding="utf-8")
    for path in FOLDER.glob("*.md"):
        if path.stem not in (*stdlib.names(), "README"):
            path.unlink()


def main(arguments: list[str] | None = None) -> None:
    """Keep verdicts, if there are new ones, and write."""
    parser = argparse.ArgumentParser(prog="python -m lab.gallery", description=__doc__)
    parser.add_argument("--verdicts", type=Path, metavar="FILE", help="what `decgraph check --all --json` printed")
    parser.add_argument("--only", nargs="*", help="these algorithms")
    given = parser.parse_args(arguments)
    if given.verdicts:
        FOLDER.mkdir(parents=True, exist_ok=True)
        new = {r["name"]: verdict_of(r) for r in known(given.verdicts) if r["claims"] and not r["interrupted"]}
        VERDICTS.write_text(
            json.dumps(dict(sorted({**current(known(VERDICTS)), **new}.items())), indent=1) + "\n", encoding="utf-8"
        )
    write(given.only)


if __name__ == "__main__":
    main()
