"""Write docs/gallery: a page for every algorithm of stdlib/, from what there is to know of it.

    decgraph check --all --compare --seconds 60 --json > verdicts.json
    python -m lab gallery [--verdicts verdicts.json] [--only NAME]

A page has the source, links to the paper and the code, a drawing of a step, the claim with its verdict, how it agrees with
published code, what was measured, and what differs from its nearest neighbour. Verdicts are those that `--verdicts` was last
given, in docs/gallery/verdicts.json with a digest of the program's text: one of a text that has changed since is not
shown. Figures are those of docs/leaderboard.md's result file; agreement is read from docs/fidelity.md. Writing the pages runs
no model; the pictures of steps, which the site adds, come from lab/pictures.py.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote_plus

from typer import Option

import decgraph
from decgraph import stdlib
from decgraph.check.verdicts import proof_of
from lab.pages import DOCS, RESULTS, read

FOLDER = DOCS / "gallery"
VERDICTS = FOLDER / "verdicts.json"
FIGURES = RESULTS / "leaderboard.json"
BOARD = "[leaderboard](../leaderboard.md)"
SPEEDS = "times as fast as plain decoding", "with eight prompts at a time"
MOST_LINES = 24
"""Lines of difference that are shown; programs that differ by more have no neighbour."""
Found = Mapping[str, Any]
PAPERS = Path(__file__).parent / "papers.csv"
"""arXiv's number of papers, by algorithm; the others are searched for by their title."""
KNOWN = "Well known"
WELL_KNOWN = (
    "speculative", "eagle1", "eagle2", "eagle3", "medusa", "hydra", "lookahead", "prompt_lookup", "suffix_decoding", "rest",
    "mtp", "sequoia", "kangaroo", "block_verification", "pearl", "llada", "dream", "fast_dllm", "beam",
    "contrastive_search", "cfg", "kgw_watermark", "mirostat", "grammar",
)  # fmt: skip
"""What a visitor is likely to look for, in that order."""
FAMILIES = {
    "model drafter": "A small model guesses, the target verifies.",
    "tree": "Small models guess several continuations, which are verified in one call.",
    "heads": "Heads on the target's hidden states guess.",
    "retrieval": "Guesses come from the text so far, or from a store of texts.",
    "self": "The target guesses for itself, with a part of its layers, weights or cache.",
    "jacobi": "The target improves guesses at many positions at once.",
    "parallel tokens": "The target was tuned to guess several tokens in a call.",
    "diffusion": "Masked models decide a canvas, several positions in a call.",
    "relaxed": "Drafts are accepted that are good enough, though the target would have written others.",
    "search": "Several texts are grown, and the best is kept.",
    "sampling": "The next token is chosen by a rule of its own.",
    "logits": "Scores of a second model or prompt change those of the target.",
    "baseline": "One token a call, with or without a guide or a watermark.",
    "constrained": "The text keeps to a grammar, an automaton or a graph.",
    "cache policy": "Keys and values are kept, dropped or rounded.",
    "depth": "Some tokens do without some layers.",
    "batch": "The sequences of a batch share what is drafted or verified.",
    "image order": "Tokens of an image, in another order than line by line.",
    "audio order": "Codebooks of audio, one behind the other.",
}
"""The families in the order of the gallery, each with what its algorithms have in common."""


def page(name: str, verdicts: Found, figures: Found) -> str:
    """The page of one algorithm, as Markdown."""
    entry, text = stdlib.entry(name), stdlib.text(name)
    told = decgraph.load(name).explain()
    drawing = told[told.index("a step, drawn") :].splitlines()[1:]
    parts = [
        f"# {name}\n\n{summary(name)}.\n",
        " · ".join(filter(None, (f"*{entry.family}*", entry.source, paper(entry)))) + "\n",
        faithful(entry) + "\n",
        f"```dec\n{text.rstrip()}\n```\n",
        "## A step\n\n```text\n" + "\n".join(row.rstrip() for row in drawing) + "\n```\n",
        "## Claim\n\n" + claimed(entry.claim, verdicts.get(name)) + "\n",
        *section("Derivation", derivation(name) if verdicts.get(name, {}).get("verdict") == "proved" else ()),
        *section("Published code", agreement(name)),
        *section("Measured", measured(name, figures)),
        *section("Beside its neighbour", neighbour(name)),
        f"`{tried(name, text)}`, `decgraph explain {name}`, `decgraph check {name}`; [all algorithms](README.md).\n",
    ]
    return "\n".join(parts)


def tried(name: str, text: str) -> str:
    """A command that runs a program on the shipped models, with stand-ins for the functions that it calls."""
    externs = "".join(f" --extern demo:{function}" for function in re.findall(r"^extern[ \t]+(\w+)", text, re.M))
    return f'decgraph run {name} --prompt "def "{externs}'


def faithful(entry: stdlib.Entry) -> str:
    """What is known of a program's faithfulness to its publication, in a sentence."""
    recorded = re.findall(r"https://github\.com/([\w.-]+/[\w.-]+)/tree/", " ".join(agreement(entry.name)))
    code = dict.fromkeys(filter(None, (entry.code, *recorded)))
    found = f"**{entry.status}**: {linked(entry.status)}."
    for said in filter(None, (entry.searched, entry.note)):
        found += f" {said[0].upper()}{said[1:].rstrip('.')}."
    return found + (" Code: " + ", ".join(f"[{name}](https://github.com/{name})" for name in code) + "." if code else "")


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
            program = re.sub(r"^\[?(\w+).*", r"\1", cells[2])  # the first of several that play together
            found.setdefault(program, []).append(f"- {cells[0]}, recorded from {at_github(cells[1])}: {cells[4]}")
    return found


def at_github(source: str) -> str:
    """A repository and its commit as a link; anything else as it is."""
    return re.sub(
        r"^(?:https://github\.com/)?([\w.-]+/[\w.-]+) ([0-9a-f]{7,40})\b", r"[\1 \2](https://github.com/\1/tree/\2)", source
    )


def agreement(name: str) -> list[str]:
    """How its runs agree with recordings of published decoders (docs/fidelity.md)."""
    return rows_of_fidelity().get(name, [])


def measured(name: str, figures: Found) -> list[str]:
    """What the leaderboard has of it."""
    out = []
    for label, entry in figures["entries"].items():
        if label.partition(":")[0] == name and (found := [rows[0] for rows in entry["batches"].values()]):
            said = [f"{row['ratio']['value']:.2f} {words}" for row, words in zip(found, SPEEDS, strict=False)]
            if found[0]["tokens_per_call"] is not None:  # there are algorithms that never call the whole target
                said.append(f"{found[0]['tokens_per_call']:.2f} tokens a call of the target")
            out.append(f"- SmolLM2, {label}: {', '.join(said)} ({BOARD})")
    if "calls" in (row := figures["frontier"].get(name, {})):
        out.append(
            f"- masked: {row['calls']:.1f} calls for 32 positions, {row['agreement']:.0%} of them those of one token a call; "
            f"tasks right {row['accuracy']:.0%} ({BOARD})"
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


@lru_cache(maxsize=1)
def arxiv() -> dict[str, str]:
    """arXiv's number of the paper of an algorithm, where it is known."""
    with PAPERS.open(encoding="utf-8", newline="") as file:
        return {row["id"]: row["arxiv"] for row in csv.DictReader(file)}


def paper(entry: stdlib.Entry) -> str:
    """A link to an algorithm's paper: on arXiv, or a search for its title; "" for an algorithm without one."""
    if not entry.title:
        return ""
    if number := arxiv().get(entry.name):
        return f"[{entry.title}](https://arxiv.org/abs/{number})"
    return f"[{entry.title}](https://scholar.google.com/scholar?q={quote_plus(chr(34) + entry.title + chr(34))})"


def summary(name: str) -> str:
    """What an algorithm does: the first sentence of its docstring after the citation, as Markdown."""
    found = re.search(rf'^algorithm {name}\([\s\S]*?"""([\s\S]*?)"""', stdlib.text(name), re.M)
    doc = " ".join(found[1].split()) if found else ""
    cited = re.sub(r"\([^()\"]*\b(?:19|20)\d\d[a-z]?(?:: \"[^\"]*\")?\)", "\0", doc)
    said = cited.partition("\0")[2].partition(": ")[2] or cited
    first = re.split(r"(?<=[.])\s(?=[A-Z`])", said.replace(" \0", ""), maxsplit=1)[0].rstrip(".")
    return markdown(first[:1].upper() + first[1:])


def markdown(text: str) -> str:
    """A plain text with code in backticks, as Markdown: its other signs are no markup."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_<|])", r"\\\1", p) for p in pieces)


def promised(claim: str) -> str:
    """What a claim comes to, in few words: the strongest of its parts."""
    parts = claim.split("; ")
    lossless = [part for part in parts if part.startswith("refines ")]
    if any(part.endswith(" in tokens") for part in lossless):
        return "same tokens"
    if any(part.endswith(" in distribution") for part in lossless):
        return "same distribution"
    if lossless:
        return "lossless at a setting"
    return "support kept" if any(part.startswith("keeps ") for part in parts) else "a property" if claim else "none"


def row(entry: stdlib.Entry, verdicts: Found) -> str:
    """An algorithm's row in the tables of the index."""
    verdict = verdicts.get(entry.name, {}).get("verdict", "") if entry.claim else ""
    claim = promised(entry.claim) + (f", {verdict}" if verdict else "")
    about = markdown(entry.about[:1].upper() + entry.about[1:])
    return f"| [{entry.name}]({entry.name}.md) | {about} | {entry.source or '-'} | {claim} | {entry.status} |"


def index(verdicts: Found) -> str:
    """The page of all algorithms: the well-known ones, then all by family."""
    head = "| algorithm | what it does | source | claim | status |\n|---|---|---|---|---|"
    entries = {name: stdlib.entry(name) for name in stdlib.names()}
    families, statuses = ({getattr(entry, of) for entry in entries.values()} for of in ("family", "status"))
    parts = [
        "# Gallery\n",
        (
            f"{len(entries)} published decoding algorithms, each as a program that runs.\n"
            "A page shows the program, a step of a real run, the claim with the verdict of `decgraph check`,\n"
            "and how it compares with its authors' code; [what the columns say](#what-the-columns-say) is below the tables.\n"
        ),
        "<!-- filter -->\n",
        f"## {KNOWN}\n\n{head}",
        *(row(entries[name], verdicts) for name in WELL_KNOWN),
        "",
    ]
    for family in [*FAMILIES, *sorted(families - FAMILIES.keys())]:
        found = [entry for entry in entries.values() if entry.family == family]
        if found:
            parts.append(f"## {family[:1].upper()}{family[1:]}\n\n{FAMILIES.get(family, '')}\n\n{head}")
            parts += [*(row(entry, verdicts) for entry in found), ""]
    meanings = "".join(f"- *{word}*: {linked(word)}\n" for word in stdlib.STATUSES if word in statuses)
    parts.append(
        "## What the columns say\n\n"
        "The claim:\n\n"
        "- *same tokens*, *same distribution*: as its model alone, a token at a time, or as the reference that its page names\n"
        "- *lossless at a setting*: the same, for the settings or requests that its page names\n"
        "- *support kept*: it writes nothing that the model gives no probability\n\n"
        "Behind it stands the verdict of `decgraph check` ([what a verdict covers](../checking.md)). The status:\n\n"
        f"{meanings}\n"
        "`decgraph list --owed` names the published algorithms that have no program yet, and what they lack.\n"
        "This page is written by `python -m lab gallery`.\n"
    )
    return "\n".join(parts)


def linked(status: str) -> str:
    """What a status means, as Markdown."""
    return stdlib.STATUSES[status].replace("(docs/fidelity.md)", "([fidelity](../fidelity.md))")


def digest(name: str) -> str:
    """Of a program's text."""
    return hashlib.sha256(stdlib.text(name).encode()).hexdigest()[:16]


def current(verdicts: Found) -> Found:
    """The verdicts on programs whose text is still the one that was checked."""
    return {n: v for n, v in verdicts.items() if n in stdlib.names() and v.get("digest") == digest(n)}


def verdict_of(report: Found) -> Found:
    """What is kept of a report of `decgraph check --json`."""
    said = [f"{report['models']} small models, every outcome of {report['runs']:,} runs"]
    if report["verdict"] == "proved":
        said = [f"{report['reach']}; compared in {said[0]}"]
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
    verdicts, figures = current(read(VERDICTS)), read(FIGURES)
    for name in names or stdlib.names():
        (FOLDER / f"{name}.md").write_text(page(name, verdicts, figures), encoding="utf-8")
    (FOLDER / "README.md").write_text(index(verdicts), encoding="utf-8")
    for path in FOLDER.glob("*.md"):
        if path.stem not in (*stdlib.names(), "README"):
            path.unlink()


def write_figures() -> None:
    """Write the section of figures of every page anew; to find what else stands there takes minutes."""
    figures, place = read(FIGURES), re.compile(r"(?:^## Measured\n.*?)?(?=^(?:## Beside|`decgraph run ))", re.M | re.S)
    for name in stdlib.names():
        path = FOLDER / f"{name}.md"
        new = "".join(f"{part}\n" for part in section("Measured", measured(name, figures)))
        path.write_text(place.sub(lambda _, new=new: new, path.read_text("utf-8"), count=1), encoding="utf-8")  # type: ignore[misc]


def command(
    verdicts: Annotated[Path | None, Option(help="What `decgraph check --all --json` printed.")] = None,
    only: Annotated[list[str] | None, Option(help="An algorithm; can be given several times.")] = None,
) -> None:
    """Keep verdicts, if there are new ones, and write."""
    if verdicts:
        new = {r["name"]: verdict_of(r) for r in read(verdicts) if r["claims"] and not r["interrupted"]}
        text = json.dumps(dict(sorted({**current(read(VERDICTS)), **new}.items())), indent=1)
        VERDICTS.write_text(text + "\n", encoding="utf-8")
    write(only)
