"""Measure how `decgraph map --ray` scales: the same prompts on one worker and on two, in turns.

Printed for every run: wall seconds from the first task's beginning to the last one's end, the workers' processor seconds, and
the memory that each holds. On a machine that others use, wall seconds say what was left over; what the work itself allows is
said by processor time: that of one worker's run, divided by that of the busier of two.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from decgraph.bench.prompts import CODE
from decgraph.runtime.prompt_files import Text
from decgraph.scale import on_ray
from decgraph.scale.decoder import Decoder
from decgraph.scale.rows import PromptLine


class Timed(Decoder):
    """A decoder that says with the last record of a task what the task took, and when."""

    def decode(self, rows: Iterable[PromptLine], finished: Any) -> None:
        """As `Decoder.decode`; the last record has a `task`."""
        _ = self.session
        records: list[dict[str, Any]] = []
        began, spent = time.perf_counter(), time.process_time()
        super().decode(rows, records.append)
        took = {"ended": time.perf_counter(), "cpu": time.process_time() - spent}
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        records[-1]["task"] = {"pid": os.getpid(), "began": began, "mib": memory, **took}
        for record in records:
            finished(record)


def measured(rows: list[PromptLine], workers: int, algorithm: str, limit: int) -> dict[str, Any]:
    """One run: wall seconds, processor seconds by worker, and tokens."""
    records: list[dict[str, Any]] = []
    started = time.perf_counter()
    on_ray.run(Timed(algorithm, max_tokens=limit), rows, records.append, on_ray.Pool(workers))
    tasks, cpu = [record["task"] for record in records if "task" in record], Counter[int]()
    for task in tasks:
        cpu[task["pid"]] += task["cpu"]
    began = min(task["began"] for task in tasks)
    return {
        "workers": workers,
        "rows": len(records),
        "tokens": sum(len(record["tokens"]) for record in records),
        "wall": round(max(task["ended"] for task in tasks) - began, 2),
        "start": round(began - started, 2),
        "cpu": sorted((round(seconds, 2) for seconds in cpu.values()), reverse=True),
        "tasks": len(tasks),
        "mib": max(task["mib"] for task in tasks),
        "load": round(os.getloadavg()[0], 1),
    }


def command(rows: int = 200, rounds: int = 2, limit: int = 128, algorithm: str = "speculative") -> None:
    """Run one worker and two in turns; each run is printed as it ends, then the ratios."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"], os.environ["RAY_BACKEND_LOG_LEVEL"] = "0", "fatal"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error", address="local")
    texts = [f"# {n}\n{CODE[n % len(CODE)]}" for n in range(rows)]
    lines = [PromptLine(n, json.dumps({"id": n, "prompt": text}), Text("prompts", text)) for n, text in enumerate(texts)]
    runs = []
    for workers in (1, 2) * rounds:
        runs.append(measured(lines, workers, algorithm, limit))
        print(json.dumps(runs[-1]), flush=True)
    ray.shutdown()
    best = {n: min((run for run in runs if run["workers"] == n), key=lambda run: run["wall"]) for n in (1, 2)}
    print(f"wall time, 1 worker over 2: {best[1]['wall'] / best[2]['wall']:.2f}")
    print(f"processor time, 1 worker over the busier of 2: {sum(best[1]['cpu']) / best[2]['cpu'][0]:.2f}")
