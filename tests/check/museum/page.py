"""Writes docs/museum.md from the table of entries: `python tests/check/museum/page.py`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from entries import GROUPS  # pytest finds it by `pythonpath`, a script here
from entry import Entry, Program

PAGE = Path(__file__).parents[3] / "docs" / "museum.md"
WORDS = {
    "refuted": "refuted",
    "refused": "refused",
    "outside": "cannot be written",
    "engine test": "engine test",
}
HEAD = """# The museum

*Generated from tests/check/museum/entries.py by `python tests/check/museum/page.py`; change the table, not this page.*

Engines have shipped decoding loops that commit the wrong tokens. This page has 57 such bugs, numbered as in a survey of
engines, and a few wrong forms of published rules. Each program was written for decgraph. `tests/check/test_museum.py` checks
every program linked here and looks up every test named here, so every line of this page is verified.

| status | |
|---|---|
| refuted | The wrong program loads, and `decgraph check` finds a counterexample. Its right twin is proved, or holds. |
| refused | The wrong program is refused at the line, with a code. |
| cannot be written | The language cannot express the bug; the linked program is an attempt, with the code that refuses it. |
| engine test | The bug is below the level of the language; a test looks for it in decgraph's engine. |

`python -m pytest tests/check/test_museum.py tests/check/test_museum_engine.py` runs all of it.
"""


def link(p: Program) -> str:
    return f"[{p.name}](../tests/check/museum/{p.name}.dec): {p.verdict}"


def shown(e: Entry) -> str:
    parts = [link(p) for p in e.programs]
    parts += [f"test: {', '.join(f'`{t}`' for t in e.tests)}"] if e.tests else []
    parts += [e.why] if e.why else []
    return "<br>".join(parts)


def page() -> str:
    """The whole page."""
    out = [HEAD]
    counts = {word: sum(word in e.status for _, group in GROUPS for e in group if e.number.startswith("M")) for word in WORDS}
    out.append(
        "Of the 57, " + ", ".join(f"{n} {WORDS[word]}" for word, n in counts.items()) + "; most have more than one of these.\n"
    )
    for title, group in GROUPS:
        out.append(f"## {title}\n\n| | where | what was wrong | status | shown by |\n|---|---|---|---|---|")
        for e in group:
            status = ", ".join(WORDS[s] for s in e.status)
            out.append(f"| {e.number} | {e.source} | {e.wrong} | {status} | {shown(e)} |")
        out.append("")
    return "\n".join(out)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
