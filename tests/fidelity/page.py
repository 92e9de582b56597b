"""docs/fidelity.md, made by replaying everything: `python tests/fidelity/page.py`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

from fidelity.entry import FOLDER, GOLDEN, Entry, columns, entries, later, recording

PAGE = FOLDER.parents[1] / "docs" / "fidelity.md"
HEAD = """# Fidelity

*Made by `python tests/fidelity/page.py`, which replays everything; change the entries in tests/fidelity, not this page.*

Published code was run on tiny models and written down call by call ([how](../tests/fidelity/golden/ar/README.md)). Here the
same prompts go through decgraph. A number is how many cases agree; `tests/fidelity/test_fidelity.py` holds every case to it,
and fails where a difference is not explained below, as it does where an explained difference has gone. Accepted and drafted
tokens are compared call by call, as the target was asked; `drafted` as the set of paths of a call's tree. Where a recorded loop
runs past its limit, ours does too, and is compared up to the last recorded call. Drafts that transformers' prompt lookup makes
behind the limit are left out: decgraph makes none. A program with a link is not in stdlib, but says the decoder. On Triton's
interpreter a file's first case is replayed; `output unheard` is that of a run by steps on the device, where the program and its
model can.
"""
TITLES = {
    "causal": "Autoregressive decoders",
    "setting": "Settings of a request",
    "rule": "Rules of verification",
    "masked": "Masked decoders",
}
COLUMNS = "| recording | source | program | backend | cases that agree |\n|---|---|---|---|---|"
SAID = {
    "setting": "The distributions that tokens are drawn from, after every recorded token, and the greedy text.",
    "rule": "The recorded drafts and uniforms are forced upon one step. On the exact interpreter (`exact`) the extra token's "
    "distribution and all odds are fractions, and equal; elsewhere they agree to nine digits.",
}
CANNOT = {
    "guidance reads a second context, which a program cannot ask for": (
        "logits/cfg",
        "logits/context_aware_decoding",
        "logits/instructive_decoding",
        "dllm/llada_cfg",
    ),
    "its table is filled from the target's rows over the prompt, which a program cannot read": ("ar/sam_decoding",),
}


def source(entry: Entry) -> str:
    """Repository and commit, or version."""
    s = recording(entry.file)["source"]
    return f"{s['repo']} {str(s.get('commit') or s.get('version') or '')[:12]}".strip()


Agreeing = Callable[[Entry, str], dict[str, int]]
"""In how many of an entry's cases each column agrees on a backend."""


def replayed(entry: Entry, backend: str) -> dict[str, int]:
    """By replaying them all."""
    names, found = columns(entry), [entry.replay(case, backend) for case in entry.replayed_on(backend)]
    shown = [*names, *(c for c in found[0].recorded if c not in names)]
    return {c: sum(c not in o.differing for o in found) for c in shown}


def said(text: str) -> Agreeing:
    """By what the entries say: the columns of the page's text, the cases without those that are known to differ. The tests hold
    every case to what its entry says, so that this is what replaying gives."""
    lines = re.findall(r"^\| .* \| (?:torch|reference|exact|triton) \| (.*/\d+) \|$", text, re.M)
    keys = [(id(e), b) for kind in TITLES for e in entries() if e.kind == kind for b in e.everywhere]
    assert len(lines) == len(keys), "an entry or a backend without its line"
    found = {k: [c.rpartition(" ")[0] for c in line.split(", ")] for k, line in zip(keys, lines)}
    return lambda e, b: {c: sum(c not in e.expected(case) for case in e.replayed_on(b)) for c in found[id(e), b]}


def rows(entry: Entry, agreeing: Agreeing) -> list[str]:
    """A line of the table for each backend."""
    out = []
    for backend in entry.everywhere:
        count = len(entry.replayed_on(backend))
        counts = ", ".join(f"{c} {n}/{count}" for c, n in agreeing(entry, backend).items())
        first = f"{entry.file} | {source(entry)} | {entry.program}" if backend == entry.backends[0] else " | | "
        out.append(f"| {first} | {backend} | {counts} |")
    return out


def remarks(entry: Entry) -> list[str]:
    """What is said of an entry: its mapping, its differences, the cases left out."""
    out = [f"- {entry.file}: {entry.note}."] if entry.note else []
    for why in dict.fromkeys(entry.differs.values()):
        here: dict[str, list[str]] = {}
        for (case, column), reason in entry.differs.items():
            if reason == why:
                here.setdefault(case, []).append(column)
        cases = [f"case {c}: {', '.join(columns)}" for c, columns in here.items()]
        out.append(f"- {entry.file}, {'; '.join(cases)}: {why}.")
    for why in dict.fromkeys(entry.leaves_out.values()):
        cases = [case for case, reason in entry.leaves_out.items() if reason == why]
        out.append(f"- {entry.file}, not replayed: {', '.join(cases)}: {why}.")
    return out


def without() -> list[str]:
    """What is said of recordings without an entry: those that cannot be said, each with its reason, then the others."""
    known = {e.file for e in entries()}
    files = [str(p.relative_to(GOLDEN).with_suffix("")) for p in sorted(GOLDEN.glob("*/*.json")) if p.stem != "index"]
    left = [f for f in files if f not in known]
    out = [f"- {', '.join(f for f in found if f in left)}: {why}." for why, found in CANNOT.items() if {*found} & {*left}]
    rest = [f for f in left if not any(f in found for found in CANNOT.values()) and f not in later()]
    return [*out, f"- No program in stdlib yet: {', '.join(rest)}."] if rest else out


def page(agreeing: Agreeing = replayed) -> str:
    """The whole page."""
    out = [HEAD]
    for kind, title in TITLES.items():
        found = [e for e in entries() if e.kind == kind]
        if not found:
            continue
        out.append(f"## {title}\n\n" + (f"{SAID[kind]}\n\n" if kind in SAID else "") + COLUMNS)
        for e in found:
            out += rows(e, agreeing)
        out.append("")
        told = [line for e in found for line in remarks(e)]
        out += [*told, ""] if told else []
    out.append(
        "## Not replayed yet\n\n" + "\n".join(without()) + "\n\nMasked decoders that no program of stdlib says, with "
        "what each has that none of them has:\n\n| recording | what it does |\n|---|---|"
    )
    out += [f"| {file} | {why} |" for file, why in later().items()]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE}: {len(entries())} entries")
