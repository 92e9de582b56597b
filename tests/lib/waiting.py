"""Waiting in tests: always for something that has a name, and never for ever.

A machine with other work takes ten times as long as an idle one: a bound is there to end a wait that nothing will end, not to
say how fast something should be.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

SECONDS = 300.0
"""The bound of a wait: more than anything takes that a test waits for, on a machine with ten programs for each core."""


def until(what: str, holds: Callable[[], object], *, seconds: float = SECONDS) -> None:
    """Return once `holds()`; fail the test and say `what` it waited for when that takes longer than `seconds`."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            pytest.fail(f"waited {seconds:g} s until {what}")
        time.sleep(0.005)


def ended(what: str, *threads: threading.Thread, seconds: float = SECONDS) -> None:
    """Join threads; fail the test and say `what` it waited for when one of them does not end in time."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            pytest.fail(f"waited {seconds:g} s until {what} ended ({thread.name})")


def listens(port: int) -> bool:
    """Whether something listens on a port of this machine."""
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def started(words: Sequence[str], *, seconds: float = SECONDS, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A process with pipes, whose output can be read without a bound: after `seconds` it is killed, and the test fails and says
    so. It does not outlive the block."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    late = threading.Event()
    with subprocess.Popen(words, **pipes) as process:

        def kill() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()
            if late.is_set():
                pytest.fail(f"waited {seconds:g} s for {shlex.join(words)}")
