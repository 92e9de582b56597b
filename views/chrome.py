"""A run in Chrome's trace format, which chrome://tracing and Perfetto (ui.perfetto.dev) open: model calls, steps, tokens.

The format: "Trace Event Format" (Google, 2016): complete events (X), metadata (M), counters (C); times in microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decgraph.runtime.trace import Stats
from decgraph.views.document import Trace

STEPS = 0
"""The thread on which the steps are shown; the models follow."""


def chrome_trace(runs: Sequence[Trace]) -> dict[str, Any]:
    """The JSON document: a process for each run, a thread for its steps and one for each model."""
    events: list[dict[str, Any]] = []
    for number, run in enumerate(runs, 1):
        models = list(dict.fromkeys(span.model for span in run.recording.spans))
        events.append(meta(number, STEPS, "process_name", run.name))
        events += [meta(number, i, "thread_name", name) for i, name in enumerate(["steps", *models])]
        for i, step in enumerate(run.steps):
            text = run.detokenizer.text(run.tokens[step.first : step.first + step.count])
            stats = Stats.of(stamped.event for stamped in step.events)
            drafts = {"drafted": stats.drafted, "verified": sum(stats.tested), "accepted": sum(stats.accepted)}
            args = {"tokens": step.count, "text": text, **drafts}
            events.append(complete(number, STEPS, f"step {i + 1}", "step", step.began, step.ended - step.began, args))
            counted = {"name": "committed tokens", "ph": "C", "pid": number, "tid": STEPS, "ts": micro(step.ended)}
            events.append({**counted, "args": {"tokens": step.first + step.count}})
        for span in run.recording.spans:
            thread = 1 + models.index(span.model)
            events.append(complete(number, thread, span.model, "model", span.start, span.seconds, {"calls": span.calls}))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def complete(pid: int, tid: int, name: str, kind: str, start: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    """An event with a beginning and a length, in seconds since the run began and in seconds."""
    times = {"ts": micro(start), "dur": micro(max(0.0, seconds))}
    return {"name": name, "cat": kind, "ph": "X", "pid": pid, "tid": tid, **times, "args": args}


def meta(pid: int, tid: int, what: str, name: str) -> dict[str, Any]:
    """The name of a process or a thread."""
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def micro(seconds: float) -> float:
    """Microseconds, to the nanosecond."""
    return round(seconds * 1e6, 3)
