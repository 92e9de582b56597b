"""How much a computation does, counted: seconds measure the machine and what else it does, calls measure the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.walk import counted

__all__ = ["counted", "work"]


def work(call: Callable[[], Any]) -> int:
    """How many calls a computation makes, Python's and C's; made twice, since the first time may fill caches."""
    call()
    with counted() as calls:
        call()
    return calls.total()
