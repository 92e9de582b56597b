"""Garbage collection held back while much is made that stays: imports and models.

Python walks all young objects whenever some hundred more were made, and all old ones from time to time. Importing torch and
transformers makes more than a million that live to the end, and the walks over them cost a fifth of a start.

A model and its engine are a cycle (`ir/memo.py`), which only a walk over the old objects frees. Python decides on one by the
number of objects, and a tensor of a gigabyte is one of them; so memory that grows decides on one too.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GROWTH = 256 * 2**20
"""Bytes by which a process grows before dropped models are looked for; where a quarter of what it held is more, by that."""


class _Process:
    ours = False
    held: int | None = None
    """Bytes after the last walk over all objects; before the first, when torch was there already."""


def process_is_ours() -> None:
    """From now on what `uncollected` leaves behind is walked again only when memory grows: for a process that ends with its
    command. One of somebody else's, which may drop its models, wants them freed."""
    _Process.ours = True
    atexit.register(gc.unfreeze)  # extension modules (nanobind's) report what is not freed at the end


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection inside, if there was any. Modules that were imported inside count as old afterwards, without
    a walk; models that were dropped are freed before, where the process grew by more than `GROWTH`."""
    had = gc.isenabled()
    if had:
        _free_what_was_dropped()
    gc.disable()
    modules = len(sys.modules)
    try:
        yield
    finally:
        if had:
            if _Process.ours:
                gc.freeze()
            # Without an import, what is young may as well be dropped soon: it grows old by itself. Whoever pushes it among the
            # old each time lets Python never see that there are many.
            elif len(sys.modules) > modules and not gc.get_freeze_count():  # somebody's frozen objects stay frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _free_what_was_dropped() -> None:
    """Walks all objects if the process grew much since the last time."""
    if "torch" not in sys.modules:  # nothing to free
        return
    now = _memory()
    if _Process.held is None:
        _Process.held = now
    if now - _Process.held < max(GROWTH, _Process.held // 4):
        return
    if _Process.ours:
        gc.unfreeze()
    gc.collect()
    if _Process.ours:
        gc.freeze()
    with suppress(AttributeError, OSError):  # glibc keeps what was freed, in pieces between what is used
        ctypes.CDLL(None).malloc_trim(0)
    _Process.held = _memory()


def _memory() -> int:
    """Bytes that this process holds now, those of its CUDA tensors included; where a system does not say it, 0."""
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except OSError:  # not Linux
        held = 0
    else:
        import resource

        held = pages * resource.getpagesize()
    cuda = getattr(sys.modules["torch"], "cuda", None)  # another thread may be importing it
    if cuda is not None and cuda.is_initialized():
        held += sum(cuda.memory_allocated(n) for n in range(cuda.device_count()))
    return held
