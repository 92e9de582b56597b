"""Measuring in parts: which parts, what stays of those that are not measured anew, and how far it is."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from decgraph.bench.benchmark import document
from decgraph.bench.compare import wrong
from decgraph.bench.measure import OnProgress, Row
from decgraph.errors import DecError

Part = Callable[[OnProgress], list[Row]]


def chosen(parts: Collection[str], only: str) -> list[str]:
    """The parts named, comma separated, or all. Raises DecError for an unknown one."""
    names = only.split(",") if only else list(parts)
    if unknown := [name for name in names if name not in parts]:
        raise DecError(f"there is no part {unknown[0]!r}", hint=f"one of {', '.join(parts)}")
    return names


def on_progress(what: str, share: float) -> None:
    """How far it is, on stderr."""
    print(f"... {what} ({share:.0%})", file=sys.stderr, flush=True)


def command_line() -> str:
    """The command, as it would be written again."""
    return shlex.join(["python", "-m", "lab", *sys.argv[1:]])


def measured(parts: Mapping[str, Part], names: Sequence[str], before: Row, shown: Callable[[Row], object] = bool) -> Row:
    """A document as `decgraph bench` writes it, each run with the name of its part; runs of other parts stay. shown: gets
    each run as it ends."""

    def runs() -> Iterator[Row]:
        yield from (run for run in before.get("runs", ()) if run["name"] not in names)
        for name in names:
            for run in parts[name](on_progress):
                shown(made := {"name": name, **run})
                yield made

    return document(lambda: list(runs()), command=command_line())


def judge(runs: Sequence[Row]) -> None:
    """Raises DecError where tokens differ by more than near-ties, or calls are not the interpreter's."""
    if faults := [f"{run['name']}: {fault}" for run in runs for fault in wrong(run)]:
        raise DecError("; ".join(faults))
