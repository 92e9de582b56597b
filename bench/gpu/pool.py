"""Checks in processes of their own: kernels compile side by side, and one that breaks the device breaks its process only."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from decgraph.bench.gpu.lab import SIZES, Lab

PROCESSES = 8
_HERE: list[Lab] = []


def spread(lab: Lab, work: Callable[[Lab, Any], Any], tasks: Sequence[Any], processes: int = PROCESSES) -> list[Any]:
    """`work` of every task, in order. An exception is the task's result, as text. On the CPU nothing is started."""
    if not lab.cuda:
        return [_told(work, lab, task) for task in tasks]
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _start, (str(lab.device), lab.sizes.name))
    try:
        return [future.result() for future in [pool.submit(_work, work, task) for task in tasks]]
    finally:  # a kernel that never ends must not keep the device from what comes next
        for process in multiprocessing.active_children():
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)


def _start(device: str, sizes: str) -> None:
    _HERE[:] = [Lab(torch.device(device), SIZES[sizes])]


def _work(work: Callable[[Lab, Any], Any], task: Any) -> Any:
    return _told(work, _HERE[0], task)


def _told(work: Callable[[Lab, Any], Any], lab: Lab, task: Any) -> Any:
    try:
        out = work(lab, task)
        lab.sync()
        return out
    except Exception as error:  # it is what there is to tell about this task
        return f"{type(error).__name__}: {error}"[:600]
