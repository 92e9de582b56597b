"""decgraph check: Prove what an algorithm claims, or refute it with the smallest counterexample found."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import decgraph
from decgraph import stdlib
from decgraph.check import CheckOptions, Report, check_algorithm, check_all
from decgraph.check.engines import ENGINES, InEngine, inside
from decgraph.check.stated import SECONDS
from decgraph.cli import certificates, completion, options, output, parsing
from decgraph.cli.options import option
from decgraph.runtime import progress

settings = options.LENIENT
MODELS = 20
FEWER = 6
EACH = 3.0
"""With --all: small worlds per claim, and seconds for each algorithm, so that the whole library takes less than three minutes
on two cores. What is not decided by then is undecided."""
COLOURS = {"proved": "bold green", "holds": "green", "refuted": "bold red", "undecided": "bold yellow", "none": "dim"}
COLOURS_INSIDE = {"inside": "bold", "kept": "green", "weaker": "yellow", "lost": "bold red"}


@options.grouped
def command(
    context: typer.Context,
    shown: options.OutputOptions,
    algorithms: Annotated[list[str] | None, options.algorithm("Names that `decgraph list` prints, and .dec files.")] = None,
    all_: Annotated[bool, option("--all", help="Every algorithm of the standard library.")] = False,
    vocab: Annotated[int, option("--vocab", help="Tokens of the models it is checked with.")] = 3,
    models: Annotated[
        int | None,
        option(
            "--models",
            help=f"Small worlds per claim, besides those generated for the program; default: {MODELS}, with --all {FEWER}.",
        ),
    ] = None,
    set_: options.Set = None,
    extern: Annotated[
        list[str] | None,
        option("--extern", help="A function it calls: file.py:name; else any function.", autocompletion=completion.externs),
    ] = None,
    proof: Annotated[bool, option("--proof", help="Print the derivation beside the program.")] = False,
    require: Annotated[
        str | None, option("--require", help="Exit code 1 for less than this: proved, or holds.", metavar="proved|holds")
    ] = None,
    coverage: Annotated[bool, option("--coverage", help="Print the program; ! marks what no world has shown.")] = False,
    compare: Annotated[
        bool, option("--compare", help="Compare what is proved in all its worlds, not for half a second only.")
    ] = False,
    seconds: Annotated[
        float | None, option("--seconds", help=f"For each algorithm; then say what is known. With --all {EACH:g}.")
    ] = None,
    jobs: Annotated[int, option("--jobs", "-j", help="Processes for several algorithms; 0: as many as cores.")] = 0,
    certificate: Annotated[
        Path | None,
        option("--certificate", help="Write derivations as data: a file, or of several algorithms a folder.", metavar="FILE"),
    ] = None,
    verify: Annotated[
        Path | None,
        option("--verify", help="Only check the certificates of a file, with a checker of its own.", metavar="FILE"),
    ] = None,
    engine: Annotated[
        str | None, option("--engine", help="Also say what is left of each claim inside an engine.", metavar="vllm|sglang")
    ] = None,
    html: Annotated[Path | None, option("--html", help="Write the verdicts and counterexamples as a page.")] = None,
) -> None:
    """Prove what an algorithm claims, or refute it with the smallest counterexample found.

    Proved: a derivation, for every vocabulary, model, context and request. Holds: no counterexample in the worlds that are
    counted; exact, every outcome of every draw is followed, with rational probabilities. After so many --seconds it says what
    is known. Exit code 0 for both verdicts; 1 if a claim is refuted, --require asks for more, or with --engine drafts are not
    drawn from what they state; 3 if it is undecided; 70 if decgraph itself failed.
    """
    words = list(algorithms or ())
    rest = [w for w in words if w.startswith("-")]
    if rest:  # parameters given as options stand after the names: `decgraph check speculative --gamma 3`
        first = words.index(rest[0])
        words, context.args = words[:first], [*words[first:], *context.args]
    if bool(words) == all_:
        raise decgraph.DecError("check what?", hint="decgraph check speculative, decgraph check mine.dec, or --all")
    if seconds is not None and not seconds > 0:
        raise decgraph.DecError("--seconds needs a number above 0", hint="--seconds 60")
    parsing.one_of("verdict", require, ("proved", "holds"))
    output.check_writable(html, ".html", ".htm", what="a page", instead="--json prints JSON")
    fewest = models if models is not None else FEWER if all_ else MODELS
    worlds: CheckOptions = {
        "vocab": vocab,
        "models": fewest,
        "compare": compare,
        "seconds": EACH if seconds is None and all_ else seconds,
    }
    certificates.check_place(certificate, len(words) != 1)
    parsing.one_of("engine", engine, ENGINES)
    if engine is not None and len(words) != 1:
        raise decgraph.DecError("--engine goes with one algorithm", hint=f"decgraph check speculative --engine {ENGINES[0]}")
    one = decgraph.load(words[0]) if len(words) == 1 else None
    if verify is not None:
        if one is None:
            raise decgraph.DecError("--verify goes with one algorithm", hint="decgraph check speculative --verify proof.json")
        raise typer.Exit(0 if certificates.verified(one, verify, not shown.quiet) else output.FAILED)
    if one is not None:
        worlds["params"] = parsing.pairs(set_ or (), "--set") | parsing.direct(context.args, one.params, context)
        worlds["externs"] = parsing.functions(extern or ())
    else:
        parsing.direct(context.args, (), context)
        for name, value in (("--set", set_), ("--extern", extern)):
            if value:
                raise decgraph.DecError(f"{name} goes with one algorithm, not with several")
    reports = decide(words or stdlib.names(), one, worlds, jobs or os.cpu_count() or 1, coverage, proof, shown)
    there = None
    if engine is not None and one is not None:
        refuted = [place for place in range(len(reports[0].claims)) if reports[0].verdict_of(place) == "refuted"]
        there = inside(one.module, engine, worlds["params"], seconds=SECONDS if seconds is None else seconds, wrong=refuted)
        if not (shown.json or shown.quiet):
            show_inside(there)
    if html is not None:
        write_page(html, reports, [one] if one is not None else [decgraph.load(name) for name in words or stdlib.names()])
        if not shown.quiet:
            print(f"wrote {html}", file=sys.stderr)
    if certificate is not None:
        written = [one] if one is not None else [decgraph.load(name) for name in words or stdlib.names()]
        certificates.write(certificate, written, one is None, shown.quiet)
    if shown.json:
        found = [{"claim": "; ".join(r.claims), **r.to_json()} for r in reports]
        if there is not None:
            found[0]["inside"] = there.to_json()
        output.emit_json(found[0] if one is not None else found)
    elif one is None and not shown.quiet:
        show_total(reports)
    if any(r.interrupted for r in reports):
        raise typer.Exit(output.INTERRUPTED)
    if any(r.faults for r in reports):
        raise typer.Exit(output.INTERNAL_ERROR)
    if any(r.verdict == "refuted" for r in reports) or there is not None and there.drafts.verdict == "refuted":
        raise typer.Exit(output.FAILED)
    less = [r for r in reports if require is not None and not r.suffices(require) and (r.claims or not all_)]
    for r in less:
        if r.verdict == "proved":
            said = "; ".join(premise.says for premise in r.premises)
            print(f"--require proved: {r.name} is proved under a premise ({said})", file=sys.stderr)
    if less:
        raise typer.Exit(output.FAILED)
    if any(r.verdict == "undecided" for r in reports):
        raise typer.Exit(output.UNDECIDED)


def decide(
    names: Sequence[str],
    one: decgraph.Algorithm | None,
    worlds: CheckOptions,
    jobs: int,
    coverage: bool,
    proof: bool,
    output_options: options.OutputOptions,
) -> list[Report]:
    """The reports, shown as they come."""
    reports: list[Report] = []
    with progress.shown("check" if one is None else f"check {one.name}:", quiet=output_options.quiet) as report_progress:
        if one is not None:
            worlds["progress"] = report_progress
            early: list[Report] = []

            def derived_first(report: Report) -> None:
                early.append(report)
                head(report)

            if not (output_options.json or output_options.quiet):
                worlds["derived_first"] = derived_first
            reports.append(check_algorithm(one, **worlds))
            if not output_options.json:
                show(reports[0], brief=output_options.quiet, said=bool(early) and reports[0].verdict == "proved")
                for warning in one.warnings():
                    print(f"\n{warning}", file=sys.stderr)
                if proof:
                    show_proof(reports[0])
                if coverage:
                    show_coverage(one, reports[0])
            return reports
        try:
            for report in check_all(names, jobs=min(jobs, len(names)), **worlds):
                reports.append(report)
                if not output_options.json:
                    show(report, brief=True)
                    if proof:
                        show_proof(report)
                if len(reports) < len(names):
                    report_progress(names[len(reports)], len(reports), len(names))
                if report.interrupted:
                    break
        except KeyboardInterrupt:
            print(f"interrupted: {len(reports)} of {len(names)} were checked", file=sys.stderr)
            show_total(reports)
            raise typer.Exit(output.INTERRUPTED) from None
    return reports


def write_page(path: Path, reports: Sequence[Report], algorithms: Sequence[decgraph.Algorithm]) -> None:
    """The reports as a page; where a check was interrupted, of the first alone. Raises DecError where it cannot be written."""
    from decgraph.views.counterexample import report_page

    found = [(report, algorithm.text) for report, algorithm in zip(reports, algorithms)]
    output.write(path, report_page(found))


STARTS = {"any": "steps from carried values of any kind", "reached": "steps from the carried values that runs reach"}


def head(report: Report, *, brief: bool = False) -> None:
    """The verdict in a line, and how far it goes in a second."""
    from rich.text import Text

    console = output.console()
    beside = Text(" " * 10)
    by_verdict: dict[str, list[str]] = {}
    for place, claim in enumerate(report.claims):
        by_verdict.setdefault(report.verdict_of(place), []).append(claim)
    said = "; ".join(by_verdict.pop(report.verdict, report.claims)) or "it claims nothing, so there is nothing to prove"
    verdict = Text(f"{report.verdict:<10}", COLOURS.get(report.verdict, ""))
    well = report.verdict in ("proved", "holds")
    took = f" ({report.seconds:.1f} s)" if brief and well else ""
    output.print_hanging(console, verdict, Text.assemble(f"{report.name}: {said}", (took, "dim")))
    if report.verdict == "none":
        return
    for other, claims in by_verdict.items():
        if other == "proved":
            told = "; ".join([*claims, *(premise.says for premise in report.premises)])
            output.print_hanging(console, beside, Text.assemble((other, COLOURS[other]), f": {told}"))
    if well:
        output.print_hanging(
            console, beside, Text(report.reach() + " (--proof shows why)" * (report.verdict == "proved" and not brief))
        )
    console.file.flush()


def show(report: Report, *, brief: bool, said: bool = False) -> None:
    """The verdict in a line, how far it goes in a second (both unless they are `said`), what it rests on, and the
    counterexample if there is one."""
    from rich.text import Text

    console = output.console()
    beside = Text(" " * 10)
    tell = lambda text: output.print_hanging(console, beside, Text(text, "dim"))
    if not said:
        head(report, brief=brief)
    if report.verdict == "none" or brief and report.verdict in ("proved", "holds"):
        return
    if report.verdict != "refuted":
        for words in report.stopped():
            tell(words)
    tell("compared in " * (report.verdict == "proved") + report.counted())
    for reason in report.reasons[:8]:
        output.print_hanging(console, beside, Text(reason))
    if len(report.reasons) > 8:
        tell(f"and {len(report.reasons) - 8} more reasons (--json has all)")
    if not brief and report.verdict in ("holds", "undecided"):
        for words in report.tried.words():
            tell(f"tried: {words}")
        if report.states in STARTS:
            tell(STARTS[report.states])
    for note in report.notes[:3]:
        tell(f"note: {note}")
    if len(report.notes) > 3:
        tell(f"and {len(report.notes) - 3} more notes (--json has all)")
    if report.counterexample is not None:
        console.print()
        console.print(Text(report.counterexample.render()))


def show_inside(there: InEngine) -> None:
    """What is left of a program's claims inside an engine."""
    from rich.text import Text

    console = output.console()
    console.print()
    for first, text in there.lines():
        output.print_hanging(console, Text(f"{first:<10}", COLOURS_INSIDE.get(first, COLOURS.get(first, ""))), Text(text))
    if there.drafts.counterexample is not None:
        console.print()
        console.print(Text(there.drafts.counterexample.render()))


def show_proof(report: Report) -> None:
    """The derivations beside the program."""
    from decgraph.check.proof_page import proof_page

    print(f"\n{proof_page(report)}")


def show_coverage(algorithm: decgraph.Algorithm, report: Report) -> None:
    """The program with its lines marked."""
    from decgraph.check.coverage import marked

    if report.ran is None or not algorithm.text:
        print("there is no text to mark", file=sys.stderr)
        return
    print()
    print(
        marked(
            algorithm.text,
            report.groups[0].function if report.groups else algorithm.module.entry,
            report.ran,
            algorithm.module.path,
            report.harmless,
        )
    )
    print("\n! no decided world has shown this; ~ it was forced, and made no difference")


def show_total(reports: list[Report]) -> None:
    """One line over several algorithms."""
    counts = {verdict: sum(r.verdict == verdict for r in reports) for verdict in COLOURS}
    said = ", ".join(f"{count} {'without a claim' if verdict == 'none' else verdict}"
                     for verdict, count in counts.items() if count)  # fmt: skip
    print(f"{said}; {sum(r.seconds for r in reports):.0f} s")
