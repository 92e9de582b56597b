"""Steps on a device, one a call: recorded, replayed as a CUDA graph of torch's kernels, then as one of compiled regions.

A thread compiles, one program at a time. A second process would need a context of its own on the device, and seconds to begin.
While the thread runs, Python hands the interpreter on fifty times as often as usual: each wait of a step's host may last as
long as that interval. (A loop of three waits of 2 ms took 6.2 ms alone, 11 to 22 beside a compilation, 6.8 so.) What the thread
compiled stays on disk (regions.py). `DECGRAPH_COMPILE=0` in the environment leaves it out.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable
from functools import lru_cache, partial

import torch

from decgraph.backends.triton.capture import aside, captured
from decgraph.backends.triton.graph import traced
from decgraph.backends.triton.regions import Compiled, inductor, regions
from decgraph.backends.triton.state import Step

_ONE = threading.Lock()
"""One compilation at a time."""
INTERVAL = 0.0001
"""Seconds after which a thread that computes hands the interpreter on, while regions are compiled."""


class Replayed:
    """Steps of a function, one a call; the first is run and recorded when this is made. On a CUDA device the next runs, and is
    captured; when regions are compiled, which takes a thread seconds to minutes, one more runs, and they are captured. On a CPU
    the recording is run.

    out: what the last step gave, in tensors that the next one may write. mode: "eager", "graph" or "compiled": how it ran.
    thread: compiles. failed: why there are no compiled regions, if compiling them failed; the steps go on without. Raises
    NotSteppable where the function reads a value."""

    def __init__(self, run: Callable[[], object], step: Step | None, device: torch.device) -> None:
        self.graph, self.device, self.mode = traced(run, step), device, "eager"
        self.out = self.graph.first
        self.failed: Exception | None = None
        self._replay: Callable[[], None] | None = None
        self._static: object = None
        self._compiled: Compiled | None = None
        self.thread = threading.Thread(target=self._compile, daemon=True)
        if device.type == "cuda" and os.environ.get("DECGRAPH_COMPILE") != "0":
            self.thread.start()

    def _compile(self) -> None:
        end, before = partial(_ended, threading.current_thread()), sys.getswitchinterval()
        try:
            atexit.register(end)
            with _ONE:
                try:
                    sys.setswitchinterval(INTERVAL)
                    self._compiled = regions(self.graph, inductor)
                finally:
                    sys.setswitchinterval(before)
        except Exception as error:  # whatever the compiler raises: torch's own kernels do the same
            with _ONE:  # a cached function that two threads enter at once runs twice
                _logged(f"{type(error).__name__}: {error}".splitlines()[0])
            self.failed = error
        finally:
            atexit.unregister(end)

    def _run(self, function: Compiled) -> object:
        with torch.no_grad():
            return function(*self.graph.tensors.values())

    def __call__(self) -> None:
        """One step."""
        if self.device.type != "cuda":
            self.out = self._run(self.graph.module)
        elif self._compiled is not None and self.mode != "compiled":
            self._record(self._compiled, "compiled")
        elif self._replay is None:
            self._record(self.graph.module, "graph")
        else:
            self._replay()
            self.out = self._static

    def _record(self, function: Compiled, mode: str) -> None:
        """Run one step, and record another."""
        self._replay, self._static, self._compiled, self.mode = None, None, None, mode

        def run() -> None:
            self._static = self._run(function)

        aside(run, self.device)
        self.out = self._static
        self._replay = captured(run, self.device)


def recorded(run: Callable[[], object], step: Step) -> Replayed:
    """The same of a function that may turn out to read a value only after it has written some: it is captured first, which runs
    nothing."""
    captured(run, step.device)
    return Replayed(run, step, step.device)


def _ended(thread: threading.Thread) -> None:
    """End a thread that compiles: it must not run while the interpreter ends."""
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
        thread.join(20)


@lru_cache
def _logged(why: str) -> None:
    """Log it, once."""
    logging.getLogger("decgraph").warning("torch's own kernels run, since regions were not compiled: %s", why)
