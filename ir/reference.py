"""The reference page of the ops, made from the op table: `python -m decgraph.ir.reference` writes it.

With `--check` it writes nothing and says whether the page is up to date (exit 1 where it is not).
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from decgraph.ir.opdef import OpDef
from decgraph.ir.table import TABLE

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "ops.md"

HEAD = """# Ops

*Made from the op table by `python -m decgraph.ir.reference`; change `ir/ops/`, not this page.*

Every op of the IR, with what the compiler knows of it. The NumPy meaning of each stands beside these rules in the file
named above each group.

- **attributes** are static; one that ends in `?` may be left out.
- **regions**: how many blocks of ops it holds.
- **effects**: what it changes, or `read` where it looks at what effects change. An op without is pure: it may be moved,
  merged and dropped.
- **label**: what the check of draws does with it (what is tested at or before a draw may not depend on the draw).
- **batch**: how a batch of sequences runs it.
- **exact**: how the exact checker decides it: by the same meaning over rationals, by splitting on a choice, or against
  an adversary who decides it.
"""


def page() -> str:
    """The whole page, in the order of the files and of the ops in them."""
    groups: dict[str, list[OpDef]] = {}
    for row in TABLE.values():
        groups.setdefault(row.type.__module__.rsplit(".", 1)[-1], []).append(row)
    parts = [HEAD, f"{len(TABLE)} ops.\n"]
    for name in sorted(groups):
        parts.append(f"## {name}\n\n`ir/ops/{name}.py`: {_first_sentence(groups[name][0])}\n")
        parts += [section(row) for row in groups[name]]
    return "\n".join(parts)


def section(row: OpDef) -> str:
    """One op: its docstring and its columns."""
    columns = [
        ("attributes", ", ".join(f"`{a}`" for a in row.attrs)),
        ("regions", _regions(row)),
        ("effects", row.effects),
        ("label", row.label),
        ("batch", row.batch),
        ("exact", row.exact if row.exact != "same" else ""),
    ]
    shown = " · ".join(f"{name}: {value}" for name, value in columns if value)
    text = "\n".join(line.strip() for line in row.doc.splitlines())
    return f"### `{row.name}`\n\n{text}\n\n{shown}\n"


def _regions(row: OpDef) -> str:
    return "" if row.regions is None else "2" if row.name in ("if", "while") else "1"


def _first_sentence(row: OpDef) -> str:
    doc = inspect.getdoc(inspect.getmodule(row.type)) or ""
    return doc.split("\n\n")[0].replace("\n", " ")


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    text = page()
    if arguments == ["--check"]:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE} is {'up to date' if same else 'out of date: run python -m decgraph.ir.reference'}")
        return 0 if same else 1
    if arguments:
        print("usage: python -m decgraph.ir.reference [--check]")
        return 2
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE}: {len(TABLE)} ops")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
