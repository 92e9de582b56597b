"""Writes the page beside it: which programs of stdlib/ fit which interface of vLLM and SGLang, found
by trying, and why the others fit none: `python docs/reference/engines.py`.

With `--check` it writes nothing and says whether the page is up to date (exit 1 where it is not). It needs torch; no GPU and no
engine.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from decgraph import api, stdlib
from decgraph.backends.seams.file import KINDS, interfaces
from decgraph.backends.seams.fits import Trial, trial
from decgraph.check.worlds import params_for

PAGE = Path(__file__).with_suffix(".md")
ENGINES = ("vLLM", "SGLang")
HEAD = """# Programs inside engines

*Made by `python docs/reference/engines.py`, by a trial step of each program of stdlib/ at each interface; change
`backends/seams/`, not this page.*

`decgraph export vllm NAME` and `decgraph export sglang NAME` write a file for the engine ([how to run it](../engines.md)). A
program that fits no interface is run by `decgraph serve`; the last table says why.
"""


def tried(name: str) -> dict[str, Trial]:
    """What was found of a program, by core."""
    algorithm = api.load(name)
    small = params_for(algorithm.function, 1, vocab=61)
    values = {p.name: small[p.name] for p in algorithm.function.params if p.default is None and p.name in small}
    cores = {one.core for engine in ENGINES for one in interfaces(engine)}
    return {core: trial(algorithm.module, values, core) for core in sorted(cores)}


def nearest(name: str, found: dict[str, Trial]) -> str:
    """Why a program fits nowhere, by the interface that is nearest to it."""
    function = api.load(name).function
    models = [str(p.value.type.of[0]) for p in function.params if p.value.type.elem == "model"]
    drafts = any(op.opcode == "tree.walk" for op in function.body.walk())
    core = "blocks" if models == ["masked"] else "trees" if drafts else "rows"
    misfits = found[core].misfits
    about = [m for m in misfits if "the engine computes one model" in m.why] or list(misfits)
    return about[0].why if not about[0].line else f"line {about[0].line}: {about[0].why}"


def page(found: dict[str, dict[str, Trial]]) -> str:
    """The whole page."""
    lines, inside = [HEAD], set[str]()
    counts = []
    for engine in ENGINES:
        for one in interfaces(engine):
            fit = [name for name, by in found.items() if not by[one.core].misfits]
            inside |= {*fit}
            counts.append(f"| {engine} | {KINDS[one.key]} (`--as {one.key}`) | {len(fit)} |")
            lines += [f"## {engine}, as {KINDS[one.key]}: {len(fit)}\n", ", ".join(f"`{name}`" for name in fit) + "\n"]
    table = ["| engine | interface | programs |", "|---|---|---:|", *counts, f"| either | | {len(inside)} of {len(found)} |\n"]
    lines[1:1] = table
    out = {name: nearest(name, by) for name, by in found.items() if name not in inside}
    common = Counter(why.split(": ", 1)[-1] for why in out.values())
    lines += [f"## In none: {len(out)}\n", "| program | why |", "|---|---|"]
    lines += [
        f"| `{name}` | {why} |"
        for name, why in sorted(out.items(), key=lambda item: (-common[item[1].split(": ", 1)[-1]], item))
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    if arguments not in ([], ["--check"]):
        print("usage: python docs/reference/engines.py [--check]")
        return 2
    text = page({name: tried(name) for name in stdlib.names()})
    if arguments:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE} is {'up to date' if same else 'out of date: run python docs/reference/engines.py'}")
        return 0 if same else 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE}: written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
