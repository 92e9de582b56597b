"""decgraph list: The published algorithms, what each does, and what it claims."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from decgraph import stdlib
from decgraph.cli import completion, options, output, parsing
from decgraph.cli.options import option

CLAIMS = (*stdlib.PROMISES, "none")


def command(
    words: Annotated[
        list[str] | None, typer.Argument(help="Only those with these words in name, description, source or title.")
    ] = None,
    family: Annotated[
        str | None,
        option("--family", help="Only those of a family: heads, retrieval, ...", autocompletion=completion.families),
    ] = None,
    status: Annotated[
        str | None,
        option(
            "--status",
            help=f"Only those that are: {', '.join(k for k in stdlib.STATUSES if k != 'none')}.",
            autocompletion=completion.choice(*(k for k in stdlib.STATUSES if k != "none")),
        ),
    ] = None,
    kind: Annotated[
        str | None,
        option(
            "--kind", help="Only those with such a model: causal, masked, ...", autocompletion=completion.choice(*stdlib.KINDS)
        ),
    ] = None,
    claim: Annotated[
        str | None,
        option("--claim", help="Only with this claim: tokens, distribution, ...", autocompletion=completion.choice(*CLAIMS)),
    ] = None,
    long: Annotated[bool, option("--long", "-l", help="With claims as they are written, and sources.")] = False,
    owed: Annotated[bool, option("--owed", help="The published algorithms without a program here, and why.")] = False,
    quiet: Annotated[bool, option("--quiet", "-q", help="Names alone.")] = False,
    json: options.Json = False,
) -> None:
    """The published algorithms, what each does, and what it claims.

    A claim in brackets holds under a condition. Algorithms with a * call functions that you hand over; with a stand-in one is
    tried so: `decgraph run mcts --extern demo:reward`.
    """
    for name, value, known in (("status", status, stdlib.STATUSES), ("kind", kind, stdlib.KINDS), ("claim", claim, CLAIMS),
                               ("family", family, sorted({row.family for row in stdlib.catalogue().values()}))):  # fmt: skip
        parsing.one_of(name, value, known)
    if owed:
        missing = [row for row in stdlib.owed() if family in (None, row.family)]
        if json:
            output.emit_json([asdict(row) for row in missing])
            return
        output.print_table(("name", "family", "wave", "why"), [(r.name, r.family, str(r.wave), r.note) for r in missing])
        return
    entries = [*stdlib.entries()]
    entries = [e for e in entries if family in (None, e.family) and status in (None, e.status)]
    entries = [e for e in entries if kind in (None, *e.kinds) and claim in (None, *(e.promises or ["none"]))]
    for word in words or ():
        entries = [e for e in entries if word.lower() in f"{e.name} {e.about} {e.source} {e.title} {e.family}".lower()]
    if not entries and not json and not quiet:
        print("no algorithm is like that: `decgraph list` shows all", file=sys.stderr)
    elif json:
        output.emit_json([asdict(entry) for entry in entries])
    elif quiet:
        print("\n".join(entry.name for entry in entries))
    elif long:
        rows = [(marked(e), e.family, e.status, e.about, e.claim or "-", e.source or "-") for e in entries]
        output.print_table(("name", "family", "status", "what it does", "claim", "source"), rows)
    else:
        shown = [(marked(e), e.family, e.about, ", ".join(e.promises) or "-") for e in entries]
        output.print_table(("name", "family", "what it does", "claims"), shown)


def marked(entry: stdlib.Entry) -> str:
    """Its name, with a star where it calls functions of its user's."""
    return f"{entry.name}{' *' * bool(entry.externs)}"
