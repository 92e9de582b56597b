"""Checks in processes of their own: kernels compile side by side, and one that breaks the device breaks its process only."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from lab.gpu.lab import SIZES, Lab
from lab.gpu.report import Row

PROCESSES = 8
Check = tuple[str, float, float]  # what was compared, how far it is off, how far it may be
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


def judged(lab: Lab, checked: Callable[[Lab, Any], list[Check]], cases: Sequence[Any], more: Sequence[str] = ()) -> Row:
    """The row of an item that compares kernels with what they must give: `checked` of every case, in processes of their own.
    `more` is what was found wrong besides."""
    worst: dict[str, float] = {}
    wrong, count = [*more], 0
    for case, found in zip(cases, spread(lab, checked, cases), strict=True):
        if isinstance(found, str):
            wrong.append(f"{case}: {found}")
            continue
        for what, gap, allowed in found:
            worst[what], count = max(gap, worst.get(what, 0.0)), count + 1
            wrong += [f"{what} of {case}: {gap:.1e}"] if not gap <= allowed else []
    says = f"{count} comparisons, {len(wrong)} wrong" + (f": {', '.join(wrong[:4])}" if wrong else "")
    return {"worst": worst, "wrong": wrong, "right": not wrong, "says": says}


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
