"""decgraph list: The published algorithms, what they claim and who published them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from decgraph import stdlib
from decgraph.cli import output


def command(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """The published algorithms, what they claim and who published them."""
    entries = [stdlib.entry(name) for name in stdlib.names()]
    if json:
        output.emit_json([asdict(entry) for entry in entries])
        return
    rows = [(e.name, e.family, e.claim or "-", e.source or "-") for e in entries]
    output.print_table(("name", "family", "claim", "source"), rows)
