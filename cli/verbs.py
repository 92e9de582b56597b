"""The verbs of the command, by the first lines of this folder's files, and the groups in which the help shows them."""

from __future__ import annotations

import re
from pathlib import Path

GROUPS = {
    "Write": ("new", "explain", "fmt", "lsp"),
    "Prove": ("check",),
    "Run": ("list", "run", "repl", "map", "trace"),
    "Measure": ("bench", "tune", "profile", "compile"),
    "Serve and export": ("serve", "export"),
    "Models": ("zoo", "convert"),
}
FIRST_LINE = re.compile(r'"""decgraph (?P<verb>\w+): (?P<help>.*?)(?:""")?\s*$')


def verbs() -> dict[str, str]:
    """The verbs and one line about each, in the order of the groups."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        with path.open(encoding="utf-8") as file:
            if match := FIRST_LINE.match(file.readline()):
                found[match["verb"]] = match["help"]
    order = [verb for group in GROUPS.values() for verb in group]
    return dict(sorted(found.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))
