"""Steps as CUDA graphs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import torch

from decgraph.errors import InternalError

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE


class NothingRecorded(InternalError):
    """A captured step did nothing when it was replayed."""


_ONE = threading.Lock()
"""One capture at a time: those of a device share a stream."""


@lru_cache
def _side(index: int) -> tuple[torch.cuda.Stream, torch.cuda.MemPool]:
    """The stream on which a device's steps are captured, and the memory pool that its graphs share: they are replayed one after
    the other, and what lasts is in buffers of before the capture. The pool lives as long as the process: one that is known by
    its number alone ends with its last graph, and the next capture fails."""
    with torch.cuda.device(index):
        return torch.cuda.Stream(), torch.cuda.MemPool()


def aside(step: Callable[[], object], device: torch.device) -> None:
    """Run a step on the stream of captures: what is compiled or allocated at a first run is ready when the step is captured."""
    stream, _ = _side(torch.cuda.current_device() if device.index is None else device.index)
    with _ONE, torch.cuda.device(device):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step()
        torch.cuda.current_stream().wait_stream(stream)


def captured(step: Callable[[], object], device: torch.device) -> Callable[[], None]:
    """A function that replays a step on a CUDA device, which ran before (`aside`). Other threads may use the device meanwhile.
    The first replay raises NothingRecorded where what the step does was not recorded: replays of it would never end."""
    done = torch.zeros(1, dtype=torch.int64, device=device)
    stream, pool = _side(done.get_device())
    graph = torch.cuda.CUDAGraph()
    try:
        with _ONE, torch.cuda.device(device):
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, pool=cast("_POOL_HANDLE", pool.id), stream=stream, capture_error_mode="thread_local"):
                step()
                done += 1
    except Exception:
        _side.cache_clear()  # a pool whose capture was broken off takes no other
        raise
    checked = False

    def replay() -> None:
        nonlocal checked
        before = 0 if checked else int(done)
        graph.replay()
        if not checked and int(done) != before + 1:
            raise NothingRecorded(f"a captured step recorded nothing: replaying it does nothing on {device}")
        checked = True

    return replay
