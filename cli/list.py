"""decgraph list: The published algorithms, what they claim and who published them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from decgraph import stdlib
from decgraph.cli import output
from decgraph.errors import DecError


def command(
    family: Annotated[
        str | None, typer.Option("--family", help="Only those of a family: heads, retrieval, diffusion, ...")
    ] = None,
    owed: Annotated[
        bool, typer.Option("--owed", help="The published algorithms without a program here, and what they lack.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON; `catalogue` is the catalogue's id, where it has the algorithm.")
    ] = False,
) -> None:
    """The published algorithms, what they claim and who published them."""
    if owed:
        missing = [row for row in stdlib.owed() if family in (None, row.family)]
        check(family, {row.family for row in stdlib.catalogue().values()})
        if json:
            output.emit_json([asdict(row) for row in missing])
            return
        output.print_table(
            ("name", "family", "wave", "lacks"), [(r.name, r.family, str(r.wave), r.lacks or "-") for r in missing]
        )
        return
    entries = [stdlib.entry(name) for name in stdlib.names()]
    check(family, {entry.family for entry in entries})
    entries = [entry for entry in entries if family in (None, entry.family)]
    if json:
        known = stdlib.catalogue()
        output.emit_json([{**asdict(entry), "catalogue": entry.name if entry.name in known else None} for entry in entries])
        return
    rows = [(e.name, e.family, e.claim or "-", e.source or "-") for e in entries]
    output.print_table(("name", "family", "claim", "source"), rows)


def check(family: str | None, known: set[str]) -> None:
    """Raises DecError for a family that no algorithm is of."""
    if family is not None and family not in known:
        raise DecError(f"there is no family {family!r}", hint=f"one of {', '.join(sorted(known))}")
