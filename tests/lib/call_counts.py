"""How much a computation does, counted: seconds measure the machine and what else it does, calls measure the code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Calls:
    """How many functions were called, Python's and C's."""

    count = 0


@contextmanager
def counted() -> Iterator[Calls]:
    """`with counted() as calls: ...; assert calls.count < 10_000`. What was set with sys.setprofile is set again."""
    calls, before = Calls(), sys.getprofile()

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            calls.count += 1

    sys.setprofile(seen)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def work(call: Callable[[], Any]) -> int:
    """How many calls a computation makes; made twice, since the first time may fill caches."""
    call()
    with counted() as calls:
        call()
    return calls.count
