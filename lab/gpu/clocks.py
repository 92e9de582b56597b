"""Timing kernels: many launches over different memory, captured as one CUDA graph, so that neither the host's time between two
launches nor what the last one left in the cache is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from decgraph.bench.timing import Spread
from lab.gpu.lab import Lab
from lab.gpu.report import Row

Work = Callable[[], object]
CACHE = 128 << 20
"""Bytes that launches go over before one comes back to memory that another has used; more than any cache holds."""


def copies(lab: Lab, each: int) -> int:
    """Into how many pieces of memory of so many bytes launches are spread."""
    return max(2, min(64, -(-CACHE // max(each, 1)))) if lab.cuda else 1


def graphed(work: Work) -> Work:
    """A call as a CUDA graph; what it leaves in memory stays where it was. Everything is compiled before it is captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = work()
    return lambda: (graph.replay(), out)


def launch_ms(lab: Lab, works: Sequence[Work], rounds: int = 20) -> Spread:
    """Milliseconds of a launch, the mean over the works in a row: captured as one CUDA graph, between two events of the
    device."""

    def all_of_them() -> None:
        for work in works:
            work()

    if not lab.cuda:
        return Spread.of([1000 * s / len(works) for s in _each(lab, all_of_them, 1)])
    return Spread.of([ms / len(works) for ms in _events(graphed(all_of_them), rounds)])


def eager_ms(lab: Lab, works: Sequence[Work], rounds: int = 10) -> Spread:
    """The same for what cannot be captured: between two events of the device, the launches of the host in between."""

    def all_of_them() -> None:
        for work in works:
            work()

    if not lab.cuda:
        return launch_ms(lab, works)
    all_of_them()
    return Spread.of([ms / len(works) for ms in _events(all_of_them, rounds)])


def _events(work: Work, rounds: int) -> list[float]:
    """Milliseconds between two events around a call."""
    took = []
    for n in range(rounds + 3):
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        work()
        after.record()
        torch.cuda.synchronize()
        if n >= 3:
            took.append(before.elapsed_time(after))
    return took


def _each(lab: Lab, work: Work, rounds: int) -> list[float]:
    return [lab.seconds(work, 1, 0).median for _ in range(rounds)]


def peer_ms(lab: Lab, works: Sequence[Work]) -> Row:
    """A peer's milliseconds, captured where that works (`graph`), else launched by the host; or why it does not run."""
    try:
        return {"ms": launch_ms(lab, works).to_json(), "graph": lab.cuda}
    except Exception as first:  # a peer that waits for the device cannot be captured
        torch.cuda.synchronize() if lab.cuda else None
        try:
            return {"ms": eager_ms(lab, works).to_json(), "graph": False, "not_captured": _why(first)}
        except Exception as error:
            return {"error": _why(error)}


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def over_copy(lab: Lab, moved: int, took: Spread) -> dict[str, Any]:
    """Bytes that a kernel has to move over its time, and that over the bandwidth of a copy."""
    rate = moved / (took.median / 1000)
    return {
        "bytes": moved,
        "ms": took.to_json(),
        "gb_per_s": round(rate / 1e9, 1),
        "of_copy": round(rate / lab.copy_bandwidth(), 4),
    }
