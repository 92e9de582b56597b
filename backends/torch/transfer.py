"""Device-to-host transfers: every one is a synchronisation, counted on the machine.

On the CPU nothing waits and nothing is counted. `TorchMachine.syncs` is the number of synchronisations of a run; the static
report (passes/placement.py) predicts them for a step, and tests/backends/torch/test_torch_syncs.py compares the two.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Waits(Protocol):
    """A machine that waits for a device."""

    syncs: int

    def waited(self, copy: Callable[[], Tensor]) -> Tensor: ...


class _Watched(threading.local):
    """The machine that runs in this thread, by a weak reference: so a finished run keeps no model alive."""

    machine: Callable[[], Waits | None] = staticmethod(lambda: None)


_NOW = _Watched()
HOST = "cpu"
"""The type of device whose tensors are read without waiting."""


def watch(machine: Waits) -> None:
    """Count the synchronisations of this thread on `machine` from here on."""
    _NOW.machine = weakref.ref(machine)


def fetched(t: Tensor) -> np.ndarray:
    """A tensor's values on the host, in its shape; bfloat16 as float32. A device synchronisation, counted."""
    if t.device.type != HOST and (machine := _NOW.machine()) is not None:
        machine.syncs += 1
        held = machine.waited(t.detach().cpu)
    else:
        held = t.detach().cpu()
    out: np.ndarray = (held.float() if held.dtype == torch.bfloat16 else held).numpy()  # NumPy has no bfloat16
    return out


def picked(table: Tensor, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The entries at rows and columns int64[*shape] of a table [R, V], on the host; bfloat16 as float32. A device
    synchronisation, counted. On the CPU the table itself is read: a tensor for each index takes longer than the reading."""
    if table.device.type != HOST or table.dtype == torch.bfloat16:
        at = [torch.from_numpy(np.array(i, dtype=np.int64)).to(table.device) for i in (rows, columns)]
        return fetched(table[at[0], at[1]])
    return np.asarray(fetched(table)[rows, columns])


def number(t: Tensor) -> float:
    """The one value of a tensor as a Python number."""
    return float(fetched(t))
