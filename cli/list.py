"""decgraph list: The published algorithms, what they claim and who published them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from decgraph import stdlib
from decgraph.cli import options, output
from decgraph.errors import DecError


def command(
    family: Annotated[
        str | None, typer.Option("--family", help="Only those of a family: heads, retrieval, diffusion, ...")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option("--status", help=f"Only those that are: {', '.join(k for k in stdlib.STATUSES if k != 'none')}."),
    ] = None,
    owed: Annotated[bool, typer.Option("--owed", help="The published algorithms without a program here, and why.")] = False,
    json: options.Json = False,
) -> None:
    """The published algorithms, how far they were compared with their authors' code, what they claim and who published them."""
    if status is not None and status not in stdlib.STATUSES:
        raise DecError(f"there is no status {status!r}", hint=f"one of {', '.join(stdlib.STATUSES)}")
    if owed:
        missing = [row for row in stdlib.owed() if family in (None, row.family)]
        check(family, {row.family for row in stdlib.catalogue().values()})
        if json:
            output.emit_json([asdict(row) for row in missing])
            return
        output.print_table(("name", "family", "wave", "why"), [(r.name, r.family, str(r.wave), r.note) for r in missing])
        return
    entries = [stdlib.entry(name) for name in stdlib.names()]
    check(family, {entry.family for entry in entries})
    entries = [e for e in entries if family in (None, e.family) and status in (None, e.status)]
    if json:
        output.emit_json([asdict(entry) for entry in entries])
        return
    rows = [(e.name, e.family, e.status, e.claim or "-", e.source or "-") for e in entries]
    output.print_table(("name", "family", "status", "claim", "source"), rows)


def check(family: str | None, known: set[str]) -> None:
    """Raises DecError for a family that no algorithm is of."""
    if family is not None and family not in known:
        raise DecError(f"there is no family {family!r}", hint=f"one of {', '.join(sorted(known))}")
