"""decgraph trace: Look into a run, step by step: a page, a plot, a trace for Perfetto, or the terminal."""

from __future__ import annotations

import json as json_
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import decgraph
from decgraph.cli import completion, options, output
from decgraph.cli.options import option
from decgraph.cli.output import check_writable
from decgraph.cli.run import open_session
from decgraph.models import request_for
from decgraph.runtime.arguments import Prompt, Tokenizing
from decgraph.runtime.models.interface import Model
from decgraph.runtime.prompt_files import Text
from decgraph.runtime.recording import Recorder, Recording
from decgraph.runtime.session import Result, Session, check_params
from decgraph.runtime.sources import concerns
from decgraph.runtime.trace import Committed, Event, Stats, Stopped
from decgraph.views.document import Trace, document

settings = options.LENIENT
PAUSE = 1.0
"""Seconds between two writes of a page that follows its run."""
WARM = 6
"""New tokens of a run before the one that is recorded, which pays for what models do once; no time line should show that."""


@options.grouped
def command(
    context: typer.Context,
    algorithm: Annotated[str, options.algorithm()],
    given_prompt: options.PromptOptions,
    models: options.AlgorithmOptions,
    request_options: options.RequestOptions,
    shown: options.OutputOptions,
    out: Annotated[Path | None, option("--out", "-o", help="Write a page: one HTML file, which needs no network.")] = None,
    against: Annotated[
        str | None,
        option("--against", help="Another algorithm, to be seen beside it.", autocompletion=completion.algorithms),
    ] = None,
    chrome: Annotated[Path | None, option("--chrome", help="Write a trace for chrome://tracing and Perfetto.")] = None,
    plot: Annotated[Path | None, option("--plot", help="Draw it: .png, .svg or .pdf (needs matplotlib).")] = None,
    show: Annotated[bool, option("--show", help="At the terminal; the default where no file is asked for.")] = False,
    live: Annotated[bool, option("--live", help="Write the page while the run goes on; it follows in the browser.")] = False,
    step: Annotated[int | None, option("--step", min=1, help="With --show: the step whose tree is shown.")] = None,
) -> None:
    """Look into a run, step by step: text by origin, draft trees, canvases, model calls over time, and the program's line.

    Without a file to write it is shown at the terminal.
    """
    placed = models.placed()
    chosen = [decgraph.load(name) for name in (algorithm, against) if name is not None]
    takes = [name for one in chosen for name in one.params]
    values = models.params(context, takes)
    for name in values:
        if name not in takes:
            check_params(chosen[0].function, {name: values[name]}, unread=True)  # raises with a list of those that exist
    folders = models.folders(chosen[0].models)
    text = given_prompt.read()
    others = f"--plot {out.name} draws it (.png, .svg, .pdf), --chrome FILE.json is for Perfetto" if out else ""
    check_writable(out, ".html", ".htm", what="a page", instead=others)
    if live and out is None:
        raise decgraph.DecError("--live goes with a page", hint="--live -o trace.html")
    check_writable(chrome, ".json")
    check_writable(plot)
    if plot is not None:
        from decgraph.views import plot as plots

        plots.check(plot)
    externs = models.functions(chosen[0])
    fields = request_options.fields(chosen[0])
    if live and not shown.quiet:
        typer.echo(f"{out} is written while the run goes on; Ctrl-C ends it", err=True)
    traces: list[Trace] = []
    read: dict[str, Model] = {}
    tokenizer: Tokenizing | None = None
    for one in chosen:
        params = {name: value for name, value in values.items() if name in one.params}
        bound: dict[str, str | Model] = {
            name: value for name, value in folders.items() if len(chosen) == 1 or concerns(one.function, name)
        }
        bound |= {name: value for name, value in read.items() if one.models.get(name) == value.kind}  # read once
        functions = {name: function for name, function in externs.items() if name in one.module.externs}
        session = open_session(one, bound, params, functions, models.backend, tokenizer=tokenizer, placed=placed)
        read, tokenizer = {**read, **session.models}, session.tokenizer
        warm = open_session(one, dict(session.models), params, functions, models.backend, tokenizer=tokenizer)
        write_so_far = partial(live_page, out, traces) if live and out is not None else None
        run = traced(one, session, warm, text, given_prompt.said, fields, write_so_far)
        traces.append(run)
        if run.reason == "interrupted":
            if live and out is not None:
                output.write(out, page_of(traces))  # what there is, as a page that no longer waits
            raise KeyboardInterrupt
    if out is not None:
        output.write(out, page_of(traces))
    if chrome is not None:
        from decgraph.views.chrome import chrome_trace

        output.write(chrome, json_.dumps(chrome_trace(traces), ensure_ascii=False, allow_nan=False) + "\n")
    if plot is not None:
        from decgraph.views import plot as plots

        plots.save(traces, plot)
    if shown.json:
        found = [document(run) for run in traces]
        output.emit_json(found[0] if len(found) == 1 else found)
    else:
        tell(traces, [path for path in (out, chrome, plot) if path is not None], show=show, step=step, quiet=shown.quiet)
    if any(run.error for run in traces):
        raise typer.Exit(output.FAILED)


class LiveRecorder(Recorder):
    """A recorder that hands over what it has heard, about once a second: less often where that takes long."""

    def __init__(self, tell: Callable[[Recording], None]) -> None:
        super().__init__()
        self.tell, self.next = tell, 0.0

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        now = time.perf_counter()
        if now >= self.next and not isinstance(event, Stopped):
            self.tell(self.so_far())
            took = time.perf_counter() - now
            self.next = now + took + PAUSE * max(1.0, 10 * took)


def traced(
    chosen: decgraph.Algorithm,
    session: Session,
    warm: Session,
    text: Text,
    said: Callable[[Text], Prompt],
    fields: dict[str, Any],
    write_so_far: Callable[[Trace], None] | None = None,
) -> Trace:
    """A recorded run, after a short one that is not recorded. write_so_far: called with the run so far, repeatedly."""
    text.check_ids(next(iter(session.models.values())).vocab.size)
    request = request_for(session, said(text), **fields)
    short: dict[str, Any] = {**fields, "max_tokens": min(WARM, request.max_tokens)}
    warm.run(request_for(warm, said(text), **short), keep_events=False)

    def of(result: Result, recording: Recording) -> Trace:
        about: dict[str, Any] = {"source": chosen.text, "path": chosen.path, "temperature": request.temperature}
        return Trace.of(session, request.prompt, result, recording, **about)

    def tell_so_far(recording: Recording) -> None:
        heard = [stamped.event for stamped in recording.events]
        tokens = tuple(token for event in heard if isinstance(event, Committed) for token in event.tokens)
        if write_so_far is not None:
            write_so_far(replace(of(Result(tokens, "", Stats.of(heard), "", recording.seconds), recording), live=True))

    recorder = Recorder() if write_so_far is None else LiveRecorder(tell_so_far)
    result = session.run(request, listener=recorder, keep_events=False)
    return of(result, recorder.recording())


def page_of(traces: Sequence[Trace]) -> str:
    """The page of one run or two."""
    from decgraph.views.page import trace_page

    return trace_page(traces)


def live_page(path: Path, before: Sequence[Trace], run: Trace) -> None:
    """Write the page of an unfinished run atomically: a browser may read it at any time."""
    part = path.with_name(path.name + ".part")
    try:
        output.write(part, page_of([*before, run]))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def tell(traces: list[Trace], written: list[Path], *, show: bool, step: int | None, quiet: bool) -> None:
    """What was written, and the run itself where it is to be shown."""
    from decgraph.cli import tracing

    console = output.console()
    if show or not written:
        for run in traces:
            tracing.show(console, run, step)
    for run in traces:
        if run.error:
            console.print(f"{run.name}: {run.error}", markup=False)
    for path in [] if quiet else written:
        said = ", ".join(f"{run.name}: {tracing.sizes(run)}" for run in traces)
        console.print(f"wrote {path}  ({said})", markup=False)
