"""Garbage collection held back while much is made that stays: imports, models and captured graphs.

Python walks all young objects whenever some hundred more were made, and all old ones from time to time. Importing torch and
transformers makes more than a million that live to the end, and the walks over them cost a fifth of a start.
"""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


class _Process:
    ours = False


def process_is_ours() -> None:
    """From now on what `uncollected` leaves behind is never walked again: for a process that ends with its command. One
    of somebody else's, which may drop its models, wants them freed."""
    _Process.ours = True
    atexit.register(gc.unfreeze)  # extension modules (nanobind's) report what is not freed at the end


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection inside, if there was any. What exists afterwards counts as old, without a walk."""
    had = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if had:
            if _Process.ours:
                gc.freeze()
            elif not gc.get_freeze_count():  # somebody's frozen objects stay frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
