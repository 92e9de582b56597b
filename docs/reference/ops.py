"""Writes the reference page of the ops beside it, from the op table and the backends' own: `python docs/reference/ops.py`.

With `--check` it writes nothing and says whether the page is up to date (exit 1 where it is not). It needs torch and triton,
whose tables it reads; no GPU.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

from decgraph.backends.torch import lowering
from decgraph.backends.triton.machine import TritonMachine
from decgraph.ir import labels
from decgraph.ir.opdef import OpDef
from decgraph.ir.table import TABLE, surface

PAGE = Path(__file__).with_suffix(".md")

HEAD = """# Ops

*Made from the op table by `python docs/reference/ops.py`; change `ir/ops/`, not this page.*

Every op of the IR, with what the compiler knows of it. Its rules and its NumPy meaning stand in the file named above each
group, its torch lowering in the file of the same name in `backends/torch/ops/`.

- **called**: how a program calls it, where that is a plain call; the other forms are in [the language](../language.md).
- **attributes** are static; one that ends in `?` may be left out.
- **regions**: how many blocks of ops it holds.
- **effects**: what it changes, or `read` where it looks at what effects change. An op without is pure: it may be moved,
  merged and dropped.
- **label**: what the label check does with it (`ir/labels.py`; what is tested at or before a draw may not depend on the draw).
- **batch**: how a batch of sequences runs it.

Each group begins with what the backends have:

- **reference** runs the NumPy meaning of every op, over float64.
- **exact** runs the same meaning over rationals; it *splits* a run at a draw, and lets an *adversary* decide what is not the
  program's.
- **torch**: *lowered* to calls of torch; *generated*, Python written for it (loops, branches, model calls); or *host*: it runs
  the NumPy meaning, for the reason given.
- **triton**: *step*, where whole decoding steps have a torch form of it (`backends/triton/ops/`); else a program with it runs
  as on torch.
"""


def page() -> str:
    """The whole page, in the order of the files and of the ops in them."""
    groups: dict[str, list[OpDef]] = {}
    for row in TABLE.values():
        groups.setdefault(row.topic, []).append(row)
    parts = [HEAD, f"{len(TABLE)} ops.\n"]
    for topic, rows in sorted(groups.items()):
        doc = (inspect.getdoc(inspect.getmodule(rows[0].type)) or "").split("\n\n")[0].replace("\n", " ")
        parts.append(f"## {topic}\n\n`ir/ops/{topic}.py`: {doc}\n")
        parts.append(backends(rows))
        parts += [section(row) for row in rows]
    return "\n".join(parts)


def backends(rows: Sequence[OpDef]) -> str:
    """A table of what each backend does with each op."""
    lines = ["| op | reference | exact | torch | triton |", "|---|---|---|---|---|"]
    for row in rows:
        cells = ["–"] * 3 + [f"no: {row.unavailable}"]
        if not row.unavailable:
            exact = {"same": "yes", "choice": "splits", "adversary": "adversary"}[row.exact]
            cells = ["yes", exact, on_torch(row.name), "as torch" if TritonMachine.supports(row.name) else "step"]
        lines.append(f"| `{row.name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def on_torch(opcode: str) -> str:
    """The cell of torch."""
    lowering.load()
    if opcode in lowering.HOSTED:
        return f"host: {lowering.HOSTED[opcode]}"
    return "generated" if opcode in lowering.WRITTEN else "lowered"


def section(row: OpDef) -> str:
    """One op: its docstring and its columns."""
    called = [form.signature for form in surface().values() if form.opcode == row.name]
    shared = row.label.__module__ == labels.__name__
    columns = [
        ("called", ", ".join(f"`{s}`" for s in called)),
        ("attributes", ", ".join(f"`{a}`" for a in row.attrs)),
        ("regions", "" if row.regions is None else "2" if row.name in ("if", "while") else "1"),
        ("effects", row.effects),
        ("label", row.label.__name__ if shared else "its own rule"),
        ("batch", row.batch),
    ]
    shown = " · ".join(f"{name}: {value}" for name, value in columns if value)
    text = "\n".join(line.strip() for line in row.doc.splitlines())
    return f"### `{row.name}`\n\n{text}\n\n{shown}\n"


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    text = page()
    if arguments == ["--check"]:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE} is {'up to date' if same else 'out of date: run python docs/reference/ops.py'}")
        return 0 if same else 1
    if arguments:
        print("usage: python docs/reference/ops.py [--check]")
        return 2
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE}: {len(TABLE)} ops")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
