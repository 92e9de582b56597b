"""Capture of an iteration as a CUDA graph, the same for causal and masked models."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from decgraph.errors import InternalError


class NothingRecorded(InternalError):
    """A captured iteration did nothing when it was replayed."""


_ONE = threading.Lock()
"""One capture at a time: those of a device share a stream."""


@lru_cache
def _side(index: int) -> tuple[torch.cuda.Stream, torch.cuda.MemPool]:
    """The stream on which a device's iterations are captured, and the memory pool that its graphs share. They are replayed one
    after the other, and none leaves anything in the pool that another needs: what lasts is in buffers of before the capture.
    The pool is an object that lives as long as the process: one that is known by its number alone ends with its last graph, and
    the next capture fails."""
    with torch.cuda.device(index):
        return torch.cuda.Stream(), torch.cuda.MemPool()


def warm(iteration: Callable[[], Any], device: torch.device) -> Any:
    """Run an iteration as the first of its kind: what is compiled, measured or allocated for a stream is ready when it is
    captured."""
    stream, _ = _side(torch.cuda.current_device() if device.index is None else device.index)
    with _ONE, torch.cuda.device(device):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            out = iteration()
        torch.cuda.current_stream().wait_stream(stream)
    return out


def captured(iteration: Callable[[], Any], device: torch.device) -> tuple[Callable[[], None], Any]:
    """(a function that replays an iteration, its return value). The iteration is not run here, and has run before (`warm`).
    Other threads may use the device meanwhile.

    The first replay raises NothingRecorded where what the iteration does was not recorded: replays of it would never end.
    """
    done = torch.zeros(1, dtype=torch.int64, device=device)
    stream, pool = _side(done.get_device())
    graph = torch.cuda.CUDAGraph()
    with _ONE, torch.cuda.device(device):
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=pool.id, stream=stream, capture_error_mode="thread_local"):
            out = iteration()
            done += 1
    checked = False

    def replay() -> None:
        nonlocal checked
        before = 0 if checked else int(done)
        graph.replay()
        if not checked and int(done) != before + 1:
            raise NothingRecorded(f"a captured iteration recorded nothing: replaying it does nothing on {device}")
        checked = True

    return replay, out
