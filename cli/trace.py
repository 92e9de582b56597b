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
from decgraph.cli import given, options, output
from decgraph.cli.options import option
from decgraph.cli.output import check_writable
from decgraph.cli.run import open_session
from decgraph.models import request_for
from decgraph.runtime.placement import AUTO, Placement
from decgraph.runtime.prompt_files import Text
from decgraph.runtime.recording import Recorder, Recording
from decgraph.runtime.request import DEFAULT_TEMPERATURE
from decgraph.runtime.session import Result, Session, check_params
from decgraph.runtime.trace import Committed, Event, Stats, Stopped
from decgraph.views.document import Trace, document

settings = {"allow_extra_args": True, "ignore_unknown_options": True}
OWN = ("output", "live", "against", "chrome", "plot", "show", "step", "prompt", "prompt_file", "ids", "chat", "system", "model",
       "set", "max_new", "temperature", "top_k", "top_p", "seed", "stop", "extern", "backend", "device", "dtype", "strict",
       "json")  # fmt: skip
PAUSE = 1.0
"""Seconds between two writes of a page that follows its run."""
WARM = 6
"""New tokens of a run before the one that is recorded, which pays for what models do once; no time line should show that."""


def command(
    context: typer.Context,
    algorithm: Annotated[str, given.algorithm()],
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    ids: options.Ids = None,
    output_: Annotated[
        Path | None, option("--output", "-o", help="Write a page: one HTML file, which needs no network.")
    ] = None,
    against: Annotated[str | None, option("--against", help="Another algorithm, to be seen beside it.")] = None,
    chrome: Annotated[Path | None, option("--chrome", help="Write a trace for chrome://tracing and Perfetto.")] = None,
    plot: Annotated[Path | None, option("--plot", help="Draw it: .png, .svg or .pdf (needs matplotlib).")] = None,
    show: Annotated[bool, option("--show", help="At the terminal; the default where no file is asked for.")] = False,
    live: Annotated[bool, option("--live", help="Write the page while the run goes on; it follows in the browser.")] = False,
    step: Annotated[int | None, typer.Option("--step", min=1, help="With --show: the step whose tree is shown.")] = None,
    chat: options.Chat = False,
    system: options.System = None,
    model: options.Model = None,
    set_: options.Set = None,
    max_new: options.MaxNew = 64,
    temperature: options.Temperature = DEFAULT_TEMPERATURE,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.Seed = 0,
    strict: options.Strict = False,
    stop: options.Stop = None,
    extern: options.Extern = None,
    backend: options.Backend = None,
    device: options.Device = AUTO,
    dtype: options.Dtype = AUTO,
    json: Annotated[bool, option("--json", help="Print what the page shows, as JSON.")] = False,
) -> None:
    """Look into a run, step by step: text by origin, draft trees, canvases, model calls over time, and the program's line.

    Without a file to write it is shown at the terminal.
    """
    placed = Placement.of(device, dtype)
    chosen = [decgraph.load(name) for name in (algorithm, against) if name is not None]
    if system is not None and not chat:
        raise decgraph.DecError("--system goes with --chat", hint='--chat --system "Answer in one sentence."')
    takes = [name for one in chosen for name in one.params]
    asked: dict[str, Any] = given.pairs(set_ or (), "--set") | given.direct(context.args, takes, OWN)
    for name in asked:
        if name not in takes:
            check_params(chosen[0].function, {name: asked[name]}, unread=True)  # says which there are
    folders = given.folders(model or (), chosen[0].models)
    text = given.prompt(prompt, prompt_file, ids)
    said = given.said(chat, system)
    said(text)
    others = f"--plot {output_.name} draws it (.png, .svg, .pdf), --chrome FILE.json is for Perfetto" if output_ else ""
    check_writable(output_, ".html", ".htm", what="a page", instead=others)
    if live and output_ is None:
        raise decgraph.DecError("--live goes with a page", hint="--live -o trace.html")
    check_writable(chrome, ".json")
    check_writable(plot)
    if plot is not None:
        from decgraph.views import plot as plots

        plots.check(plot)
    externs = given.functions(extern or ())
    fields = {
        "limit": max_new,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "strict": strict,
        "stop": tuple(stop or ()),
    }
    if live:
        typer.echo(f"{output_} is written while the run goes on; Ctrl-C ends it", err=True)
    traces: list[Trace] = []
    read: dict[str, Any] = {}
    tokenizer: Any = None
    for one in chosen:
        params = {name: value for name, value in asked.items() if name in one.params}
        models = {name: value for name, value in folders.items() if len(chosen) == 1 or name.split(".")[0] in one.models}
        models |= {name: value for name, value in read.items() if one.models.get(name) == value.kind}  # read once
        functions = {name: function for name, function in externs.items() if name in one.module.externs}
        session = open_session(one, models, params, functions, backend, tokenizer=tokenizer, placed=placed)
        read, tokenizer = {**read, **session.models}, session.tokenizer
        warm = open_session(one, dict(session.models), params, functions, backend, tokenizer=tokenizer)
        write_so_far = partial(live_page, output_, traces) if live and output_ is not None else None
        run = traced(one, session, warm, text, said, fields, write_so_far)
        traces.append(run)
        if run.reason == "interrupted":
            if live and output_ is not None:
                write(output_, page_of(traces))  # what there is, as a page that no longer waits
            raise KeyboardInterrupt
    if output_ is not None:
        write(output_, page_of(traces))
    if chrome is not None:
        from decgraph.views.chrome import chrome_trace

        write(chrome, json_.dumps(chrome_trace(traces), ensure_ascii=False, allow_nan=False) + "\n")
    if plot is not None:
        plots.save(traces, plot)
    if json:
        found = [document(run) for run in traces]
        output.emit_json(found[0] if len(found) == 1 else found)
    else:
        tell(traces, [path for path in (output_, chrome, plot) if path is not None], show=show, step=step)
    if any(run.error for run in traces):
        raise typer.Exit(output.USER_ERROR)


class Live(Recorder):
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
    said: Any,
    fields: dict[str, Any],
    write_so_far: Callable[[Trace], None] | None = None,
) -> Trace:
    """A recorded run, after a short one that nobody records. write_so_far: called with the run as it is, while it goes on."""
    text.check_ids(next(iter(session.models.values())).vocab.size)
    request = request_for(session, said(text), **fields)
    warm.run(request_for(warm, said(text), **{**fields, "limit": min(WARM, request.limit)}), keep_events=False)

    def of(result: Result, recording: Recording) -> Trace:
        about: dict[str, Any] = {"source": chosen.text, "path": chosen.path, "temperature": request.temperature}
        return Trace.of(session, request.prompt, result, recording, **about)

    def tell_so_far(recording: Recording) -> None:
        heard = [stamped.event for stamped in recording.events]
        tokens = tuple(token for event in heard if isinstance(event, Committed) for token in event.tokens)
        if write_so_far is not None:
            write_so_far(replace(of(Result(tokens, "", Stats.of(heard), "", recording.seconds), recording), live=True))

    recorder = Recorder() if write_so_far is None else Live(tell_so_far)
    result = session.run(request, listener=recorder, keep_events=False)
    return of(result, recorder.recording())


def page_of(traces: Sequence[Trace]) -> str:
    """The page of one run or two."""
    from decgraph.views.page import trace_page

    return trace_page(traces)


def live_page(path: Path, before: Sequence[Trace], run: Trace) -> None:
    """Write the page of a run that goes on, all at once: a browser may read it at any time."""
    part = path.with_name(path.name + ".part")
    try:
        write(part, page_of([*before, run]))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def tell(traces: list[Trace], written: list[Path], *, show: bool, step: int | None) -> None:
    """What was written, and the run itself where it is to be shown."""
    from decgraph.cli import tracing

    console = output.console()
    if show or not written:
        for run in traces:
            tracing.show(console, run, step)
    for run in traces:
        if run.error:
            console.print(f"{run.name}: {run.error}", markup=False)
    for path in written:
        said = ", ".join(f"{run.name}: {tracing.sizes(run)}" for run in traces)
        console.print(f"wrote {path}  ({said})", markup=False)


def write(path: Path, text: str) -> None:
    """Raises DecError where the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise decgraph.DecError(f"cannot write {path}: {error.strerror or error}") from None
