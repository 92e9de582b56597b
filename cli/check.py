"""decgraph check: Prove what an algorithm claims, or refute it with the smallest counterexample found."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

import decgraph
from decgraph import stdlib
from decgraph.check import check_algorithm, check_all
from decgraph.cli import given, output

settings = {"allow_extra_args": True, "ignore_unknown_options": True}
OWN = ("all", "vocab", "models", "param", "mutants", "jobs", "json")
COLOURS = {"proved": "bold green", "refuted": "bold red", "undecided": "bold yellow", "none": "dim"}


def command(
    context: typer.Context,
    algorithm: Annotated[str | None, typer.Argument(help="A name that `decgraph list` prints, or a .dec file.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every algorithm of the standard library.")] = False,
    vocab: Annotated[int, typer.Option("--vocab", help="Tokens of the models it is checked with.")] = 3,
    models: Annotated[int, typer.Option("--models", help="Worlds (models, context, request) per claim.")] = 20,
    param: Annotated[list[str] | None, typer.Option("--param", "--set", help="A parameter: gamma=3.")] = None,
    mutants: Annotated[bool, typer.Option("--mutants/--no-mutants", help="Plant bugs; each must be found.")] = True,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes for --all; 0: as many as there are cores.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prove what an algorithm claims, or refute it with the smallest counterexample found.

    Exact: every outcome of every draw is followed, with rational probabilities. Exit code 1 if a claim is refuted.
    """
    if (algorithm is None) != all_:
        raise decgraph.DecError("check what?", hint="decgraph check speculative, decgraph check mine.dec, or --all")
    options: dict[str, Any] = {"vocab": vocab, "models": models, "mutants": mutants}
    reports = []
    if algorithm is None:
        given.direct(context.args, (), OWN)
        if param:
            raise decgraph.DecError("--param goes with one algorithm, not with --all")
        names = stdlib.names()
        with progress_bar("checking", show=not json and at_terminal()) as progress:
            for report in check_all(names, jobs=jobs or os.cpu_count() or 1, **options):
                reports.append(report)
                if not json:
                    show(report, brief=True)
                if progress is not None and len(reports) < len(names):
                    progress(names[len(reports)], len(reports), len(names))
    else:
        one = decgraph.load(algorithm)
        params = given.pairs(param or (), "--param") | given.direct(context.args, one.params, OWN)
        with progress_bar(one.name, show=not json and at_terminal()) as progress:
            reports = [check_algorithm(one, params=params, progress=progress, **options)]
        if not json:
            show(reports[0], brief=False)
            for warning in one.warnings():
                print(f"\n{warning}", file=sys.stderr)
    if json:
        found = [{"claim": "; ".join(r.claims), **r.to_json()} for r in reports]
        output.emit_json(found if all_ else found[0])
    elif all_:
        show_total(reports)
    missed = all_ and any(r.killed < r.planted for r in reports)
    if missed or any(r.verdict == "refuted" for r in reports):
        raise typer.Exit(output.USER_ERROR)


def at_terminal() -> bool:
    """Whether a person watches both streams: the bar moves aside for what is printed, which is no use in a file."""
    return sys.stderr.isatty() and sys.stdout.isatty()


@contextmanager
def progress_bar(name: str, *, show: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """What a check is at, on stderr: a function that it calls with (what, done, of)."""
    if not show:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=output.console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda what, done, of: bar.update(task, description=f"{name}: {what}", completed=done, total=of)


def show(report: Any, *, brief: bool) -> None:
    """The verdict in a line, what it rests on in a second, and the counterexample if there is one."""
    from rich.text import Text

    console = output.console()
    line = Text.assemble((f"{report.verdict:<10}", COLOURS.get(report.verdict, "")), f"{report.name}: ")
    line.append("; ".join(report.claims) or "it claims nothing, so there is nothing to prove")
    console.print(line)
    counted = [f"{report.models} worlds, {report.runs:,} runs, {report.seconds:.1f} s"]
    if report.planted:
        counted.append(f"{report.killed} of {report.planted} planted bugs found")
    open_ = any("not decided" in note for note in report.notes)  # never a bare "proved" over worlds that were given up
    if not brief or open_ or report.killed < report.planted or report.verdict in ("refuted", "undecided"):
        console.print(Text(" " * 10 + "; ".join(counted), "dim"))
        for note in report.notes:
            console.print(Text(f"{' ' * 10}note: {note}", "dim"))
        if report.counterexample is not None:
            console.print()
            console.print(Text(report.counterexample.render()))


def show_total(reports: list[Any]) -> None:
    """One line over the whole shelf."""
    counts = {verdict: sum(r.verdict == verdict for r in reports) for verdict in COLOURS}
    said = ", ".join(f"{count} {'without a claim' if verdict == 'none' else verdict}"
                     for verdict, count in counts.items() if count)  # fmt: skip
    planted, killed = sum(r.planted for r in reports), sum(r.killed for r in reports)
    print(f"{said}; {killed} of {planted} planted bugs found; {sum(r.seconds for r in reports):.0f} s")
