"""Writes the tables of docs/checking.md about the claims of stdlib: `python docs/reference/claims.py`.

They say how many claims of each kind have a derivation, and where the others' stop. No world is decided. With `--check` it
writes nothing and says whether the tables are up to date (exit 1 where they are not).
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import decgraph
from decgraph import stdlib
from decgraph.check.verdicts import Proof, proof_of
from decgraph.ir.values import Claim, Module

PAGE = Path(__file__).parents[1] / "checking.md"
BEGIN, END = "<!-- python docs/reference/claims.py -->\n", "<!-- end of what it writes -->\n"
ROWS = 10
"""Reasons that have a row of their own."""
KINDS = (
    "`refines autoregressive(...)`",
    "`refines` another specification",
    "`refines` a specification that decides a canvas",
    "`keeps support`",
    "`ensures`",
    "`at most ... calls`",
    "`at most ... remasked`",
)


def kind(module: Module, claim: Claim) -> str:
    """The row of a claim without its condition: one of KINDS."""
    if claim.kind != "refines":
        return dict(zip(("keeps_support", "ensures", "calls", "remasked"), KINDS[3:]))[claim.kind]
    if claim.spec == "autoregressive":
        return KINDS[0]
    models = [p.value.type for p in module.functions[claim.spec].params if p.value.type.elem == "model"]
    return KINDS[2 if any(t.of[0] == "masked" for t in models) else 1]


def claims() -> list[tuple[str, str, Proof]]:
    """The program, the row and the derivation of every claim of stdlib."""
    found, faults = [], list[str]()
    for name in stdlib.names():
        module = decgraph.load(name).module
        for claim in module.entry.claims:
            row = kind(module, claim) + (", `when ...`" if claim.conditional else "")
            found.append((name, row, proof_of(module, claim, faults)))
    if faults:
        raise SystemExit("\n".join(faults))
    return found


def tables() -> str:
    """Both tables, with the sentence before each."""
    told = claims()
    programs = {name: all(proof.derived for other, _, proof in told if other == name) for name, _, _ in told}
    lines = [
        f"Of {len(programs)} programs with claims, {sum(programs.values())} have a derivation for each of theirs.",
        "",
        "| claims | of stdlib | with a derivation |",
        "|---|---|---|",
    ]
    for row in (f"{k}{when}" for k in KINDS for when in ("", ", `when ...`")):
        proofs = [proof for _, other, proof in told if other == row]
        if proofs:
            lines.append(f"| {row} | {len(proofs)} | {sum(p.derived for p in proofs)} |")
    open_ = [(name, proof) for name, _, proof in told if not proof.derived]
    lines += [f"| all | {len(told)} | {len(told) - len(open_)} |", "", "Where the others' stop:", ""]
    why = [(re.sub(r" \(lines? [\d, ]+\)", "", proof.why), name, proof.line) for name, proof in open_]
    lines += ["| reason | claims | for example |", "|---|---|---|"]
    often = Counter(reason for reason, _, _ in why).most_common()
    for reason, count in often[:ROWS]:
        name, line = next((n, at) for r, n, at in why if r == reason)
        lines.append(f"| {reason} | {count} | [{name}](gallery/{name}.md){f', line {line}' if line else ''} |")
    if len(often) > ROWS:
        lines.append(f"| {len(often) - ROWS} other reasons | {sum(count for _, count in often[ROWS:])} | |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with the tables as they should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{tables()}{END}{after}"


def main(arguments: list[str]) -> int:
    """Write the tables, or with `--check` say whether they are up to date."""
    if arguments not in ([], ["--check"]):
        print("usage: python docs/reference/claims.py [--check]")
        return 2
    text = page()
    if arguments:
        same = PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE} is {'up to date' if same else 'out of date: run python docs/reference/claims.py'}")
        return 0 if same else 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE}: written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
