"""decgraph's side of comparisons on the device: sessions, and what a run of one counted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

import decgraph
from decgraph.bench import shares
from decgraph.bench.contenders import params_for, run
from decgraph.hf import modules
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from lab.gpu.lab import Lab
from lab.gpu.report import Row


def masked_session(name: str, module: Any, *, backend: str = "torch", **given: Any) -> Session:
    """An algorithm of masked models on a module."""
    algorithm = decgraph.load(name)
    models = modules.Binder(algorithm.module, algorithm.function, {}, backend)(module)
    made: Session = algorithm.session(models, backend=backend, **params_for(algorithm, given))
    return made


def watched(session: Session, made: list[Any]) -> Session:
    """The session, its machines put into `made`."""

    class Watched(session.machine):  # type: ignore[name-defined]
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            made.append(self)

    return Session(session.module, session.models, session.params, machine=Watched, tokenizer=session.tokenizer)


def counted(lab: Lab, session: Session, request: Request) -> Row:
    """Of one run, a target call: the waits that the machine and the engines count, those that CUDA warns of, forwards, and
    the host's milliseconds inside and outside of them."""
    machines: list[Any] = []
    watching = watched(session, machines)
    run(watching, request)
    engines = shares.engines(session)
    before = [(e.counted.syncs, e.counted.calls) for e in engines]
    with shares.timing(watching) as share:
        took = lab.seconds(lambda: run(watching, request), 1, 0).median
    after = [(e.counted.syncs, e.counted.calls) for e in engines]
    result = run(watching, request)
    calls = max(result.stats.target_calls, 1)
    row: Row = {
        "target_calls": calls,
        "tokens_per_call": round(result.stats.tokens_per_call, 3),
        "waits_of_machine": machines[-1].syncs / calls,
        "waits_of_engines": sum(a - b for (a, _), (b, _) in zip(after, before)) / calls,
        "forwards": sum(a - b for (_, a), (_, b) in zip(after, before)) / calls,
        "ms_per_call": 1000 * took / calls,
        "host_ms_in_forwards": 1000 * share.inside / calls,
    }
    if lab.cuda:
        row["waits_seen_by_cuda"] = waits_seen(lambda: run(watching, request)) / calls
    return {name: round(value, 4) for name, value in row.items()}


def waits_seen(work: Callable[[], object]) -> int:
    """How many operations of a run CUDA says to have waited."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum("synchronizing" in str(warning.message) for warning in seen)


def profiled(lab: Lab, work: Callable[[], object], rows: int = 18) -> Row:
    """The costliest operations of a run, by the device's time (on the CPU, by its own); the device's time in all."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if lab.cuda else [])]
    with profile(activities=activities) as seen:
        took = lab.seconds(work, 1, 0).median
    found = seen.key_averages()
    # A kernel's time is also that of the operation that started it; count the kernels.
    kernels = [e for e in found if str(e.device_type) != "DeviceType.CPU" and not e.is_user_annotation]
    busy = sum(event.self_device_time_total for event in kernels) / 1e6
    order = "self_device_time_total" if lab.cuda else "self_cpu_time_total"
    table = found.table(sort_by=order, row_limit=rows, max_name_column_width=60)
    return {"seconds": took, "device_seconds": busy, "kernels": sum(event.count for event in kernels), "table": table}
