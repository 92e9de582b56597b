"""decgraph profile: Say where the time of a run goes, by line of the program."""

from __future__ import annotations

import json as json_
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import decgraph
from decgraph.cli import options, output
from decgraph.cli.clock import brief
from decgraph.runtime.session import check_params

if TYPE_CHECKING:
    from decgraph.backends.torch.profiling import Clock
    from decgraph.runtime.request import Request
    from decgraph.runtime.session import Session

settings = options.LENIENT
COLUMNS = f"{'wall s':>8}  {'%':>6}  {'cpu s':>8}  {'%':>6}"
OUTSIDE = "outside of the program"


@dataclass(frozen=True)
class Spent:
    """Time at one line. path, line: where ("" and 0 outside of the program). kind: of work; model: of a forward. seconds: of
    wall time; cpu: of processor time of all threads; times: how often it was entered."""

    path: str
    line: int
    kind: str
    model: str
    seconds: float
    cpu: float
    times: int


@dataclass(frozen=True)
class ProfiledRun:
    """A profiled run. path: of the program. seconds, cpu: of the whole run, which `spent` adds up to; overhead: processor time
    of the run with the clock over that of one without, less one (medians of `repeats` each, in turns)."""

    name: str
    path: str
    tokens: int
    seconds: float
    cpu: float
    spent: tuple[Spent, ...]
    overhead: float
    repeats: int

    def kinds(self) -> dict[str, tuple[float, float, int]]:
        """Wall time, processor time and calls of each kind of work; forwards by model."""
        out: dict[str, tuple[float, float, int]] = {}
        for s in self.spent:
            name = f"forwards of {s.model}" if s.model else s.kind
            a, b, c = out.get(name, (0.0, 0.0, 0))
            out[name] = (a + s.seconds, b + s.cpu, c + s.times)
        return dict(sorted(out.items(), key=lambda item: (item[0] == OUTSIDE, -item[1][0])))

    def lines(self) -> dict[tuple[str, int], tuple[float, float]]:
        """Wall time and processor time by line."""
        out: dict[tuple[str, int], tuple[float, float]] = {}
        for s in self.spent:
            a, b = out.get((s.path, s.line), (0.0, 0.0))
            out[s.path, s.line] = (a + s.seconds, b + s.cpu)
        return out

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "processor_seconds": self.cpu,
            "overhead": self.overhead,
            "repeats": self.repeats,
            "spent": [vars(s) for s in self.spent],
        }

    def text(self, text_of: Callable[[str], str]) -> str:
        """The kinds of work, then the program with the time of every line, and what was used of other files.

        text_of: the text of a file by its path.
        """
        out = [
            f"{self.name}: {self.tokens} tokens in {brief(self.seconds)} s: {brief(self.tokens / self.seconds)} tokens/s",
            f"{brief(self.cpu)} s of processor time",
            f"with the clock {self.overhead:+.1%} processor time (medians of {self.repeats} runs each way, in turns)",
            "",
            f"{COLUMNS}  {'times':>6}",
        ]
        for name, (wall, cpu, times) in self.kinds().items():
            out.append(f"{self.row(wall, cpu)}  {times if name != OUTSIDE else '':>6}  {name}")
        spent = self.lines()
        for path in sorted({path for path, line in spent if line}, key=lambda path: path != self.path):
            out += ["", path, f"{COLUMNS}  {'line':>6}"]
            for number, line in enumerate(text_of(path).splitlines(), 1):
                timed = (path, number) in spent
                if timed or path == self.path:
                    said = self.row(*spent[path, number]) if timed else " " * len(COLUMNS)
                    out.append(f"{said}  {number:>6}  {line}".rstrip())
        return "\n".join(out)

    def row(self, wall: float, cpu: float) -> str:
        """Wall time, its share, processor time, its share."""
        return f"{wall:>8.3f}  {wall / (self.seconds or 1):>6.1%}  {cpu:>8.3f}  {cpu / (self.cpu or 1):>6.1%}"


@options.grouped
def command(
    context: typer.Context,
    algorithm: Annotated[str, options.algorithm()],
    given_prompt: options.PromptOptions,
    models: options.AlgorithmOptions,
    request_options: options.RequestOptions,
    shown: options.OutputOptions,
    repeat: Annotated[int, options.option("--repeat", min=1, help="Runs with and without the clock.")] = 3,
    chrome: Annotated[Path | None, options.option("--chrome", help="Write a trace for chrome://tracing or Perfetto.")] = None,
) -> None:
    """Say where the time of a run goes, by line of the program: forwards by model, draws, verification, host work, waiting.

    On the torch backend. The first run, in which models get their decoders, is not counted.
    """
    from decgraph.cli.explain import texts
    from decgraph.cli.run import open_session
    from decgraph.models import request_for

    if models.backend not in (None, "torch"):
        raise decgraph.DecError("the clock of a program's lines is in the torch backend", hint="--backend torch, or none")
    placed = models.placed()
    chosen = decgraph.load(algorithm)
    params = models.params(context, chosen.params)
    check_params(chosen.function, params, unread=True)
    text = given_prompt.read()
    output.check_writable(chrome, ".json")
    fields = request_options.fields(chosen)
    folders, externs = models.folders(chosen.models), models.functions(chosen)
    session = open_session(chosen, folders, params, externs, "torch", placed=placed)
    text.check_ids(next(iter(session.models.values())).vocab.size)
    request = request_for(session, given_prompt.said(text), **fields)
    session.load_seconds = time.perf_counter() - context.obj
    first = once(session, request)[0] / 1e9
    profile, clock = measured(session, request, repeat, traced=chrome is not None)
    if chrome is not None:
        write_chrome(chrome, clock)
    apart = {"load_seconds": session.load_seconds, "first_run_seconds": first}
    if shown.json:
        output.emit_json({**profile.to_json(), **apart})
        return
    print(profile.text(texts(chosen)))
    if not shown.quiet:
        print(f"\nnot counted: load {brief(session.load_seconds)} s, first run {brief(first)} s")


def measured(session: Session, request: Request, repeats: int, *, traced: bool = False) -> tuple[ProfiledRun, Clock]:
    """The run of median time of `repeats` runs with the clock; between them the same runs without it. A first run, in which
    models get their decoders, has to come before. Raises DecError for a run that ends with an error."""
    from decgraph.backends.torch.profiling import Clock, profiled

    plain = session.machine
    runs: list[tuple[int, int, Clock, int]] = []
    without: list[int] = []
    try:
        for _ in range(repeats):
            session.machine = plain
            without.append(once(session, request)[1])
            clock = Clock(traced)
            session.machine = profiled(clock)
            wall, cpu, tokens = once(session, request)
            runs.append((wall, cpu, clock, tokens))
    finally:
        session.machine = plain
    wall, cpu, clock, tokens = sorted(runs, key=lambda run: run[0])[len(runs) // 2]
    overhead = statistics.median(run[1] for run in runs) / (statistics.median(without) or 1) - 1
    return profile_of(session, wall, cpu, clock, tokens, overhead, repeats), clock


def once(session: Session, request: Request) -> tuple[int, int, int]:
    """Wall and processor time of one run in nanoseconds, and its tokens. What it learned for later runs is forgotten."""
    session.shared = {}
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    result = session.run(request, keep_events=False)
    wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
    if result.error is not None:
        raise result.error
    return wall, cpu, len(result.tokens)


def profile_of(session: Session, wall: int, cpu: int, clock: Clock, tokens: int, overhead: float, repeats: int) -> ProfiledRun:
    """What a clock counted of a run, with what it did not see as a place of its own."""
    spent = [
        Spent(p.path, p.line, p.kind, p.model, clock.wall[p] / 1e9, clock.cpu[p] / 1e9, clock.times.get(p, 0))
        for p in sorted(clock.wall)
    ]
    rest = Spent("", 0, OUTSIDE, "", (wall - sum(clock.wall.values())) / 1e9, (cpu - sum(clock.cpu.values())) / 1e9, 1)
    function = session.function
    return ProfiledRun(function.name, function.loc.path, tokens, wall / 1e9, cpu / 1e9, (*spent, rest), overhead, repeats)


def write_chrome(path: Path, clock: Clock) -> None:
    """The time line of a run as trace events (Chrome's format, microseconds). Raises DecError where it cannot be written."""
    events = [
        {
            "name": f"{p.kind} {p.model}".strip(),
            "cat": p.kind,
            "ph": "X",
            "ts": start / 1e3,
            "dur": length / 1e3,
            "pid": os.getpid(),
            "tid": 1,
            "args": {"line": f"{p.path}:{p.line}"},
        }
        for p, start, length in clock.spans
    ]
    output.write(path, json_.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n")
