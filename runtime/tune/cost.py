"""What a forward of a model costs on this device: seconds by new cells and by length of the context, measured.

A curve is piecewise linear between the measured points, in both directions, and goes on as its last piece does. Curves are
kept in `costs.json` of the measurements' folder by model, device and versions.
"""

from __future__ import annotations

import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decgraph.errors import DecError
from decgraph.runtime.tune import kept

LEAST, MOST = 5, 25  # timed forwards of a point, at least and at most
SPENT = 0.06  # seconds after which a point has enough of them


@dataclass(frozen=True)
class Curve:
    """`seconds[i][j]`: of a forward of `cells[j]` new cells after `contexts[i]` tokens. Both ascend."""

    contexts: tuple[int, ...]
    cells: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]

    def __call__(self, cells: float, context: float) -> float:
        """Seconds of one forward."""
        rows = [_along(self.cells, row, cells) for row in self.seconds]
        return max(0.0, _along(self.contexts, rows, context))

    def to_json(self) -> dict[str, Any]:
        """As lists, times in microseconds."""
        rows = [[round(1e6 * s, 1) for s in row] for row in self.seconds]
        return {"contexts": list(self.contexts), "cells": list(self.cells), "microseconds": rows}

    @staticmethod
    def of(value: Any) -> Curve:
        """From what `to_json` gave. Raises ValueError for anything else."""
        try:
            contexts, cells = (tuple(int(n) for n in value[name]) for name in ("contexts", "cells"))
            seconds = tuple(tuple(float(s) / 1e6 for s in row) for row in value["microseconds"])
        except (TypeError, KeyError, ValueError):
            raise ValueError("not a curve") from None
        ascending = all(list(axis) == sorted(set(axis)) and axis for axis in (contexts, cells))
        if not ascending or len(seconds) != len(contexts) or any(len(row) != len(cells) for row in seconds):
            raise ValueError("not a curve")
        if any(not 0 < s < float("inf") for row in seconds for s in row):
            raise ValueError("a curve's times are positive")
        return Curve(contexts, cells, seconds)


def _along(axis: Sequence[int], values: Sequence[float], at: float) -> float:
    """Linear between the points of an axis, the outermost pieces going on; below the first point its value."""
    if len(axis) == 1 or at <= axis[0]:
        return values[0]
    right = min(bisect_right(axis, at), len(axis) - 1)
    low, high = axis[right - 1], axis[right]
    return values[right - 1] + (values[right] - values[right - 1]) * (at - low) / (high - low)


def ladder(most: int) -> tuple[int, ...]:
    """1, 2, 4, 8, ... and `most` itself."""
    steps = [1 << n for n in range(max(1, most).bit_length())]
    return tuple(dict.fromkeys([*(n for n in steps if n < most), max(1, most)]))


Timer = Callable[[], float]


def measured(
    model: Any,
    contexts: Sequence[int],
    cells: Sequence[int],
    *,
    clock: Timer = time.perf_counter,
    sequence: Hashable = "decgraph tune",
) -> Curve:
    """A model's curve: a star of new cells below a context that is held, all of their rows asked for.

    Raises DecError for a model that answers no asks of causal cells (masked models, layers), and for what the model says.
    """
    from decgraph.runtime.models.engine.ask import Ask, Remembered
    from decgraph.runtime.models.engine.of import engine_of

    if model.kind not in ("causal", "features"):
        raise DecError(f"a {model.kind} model's forward is not timed alone")
    engine = engine_of(model)
    contexts, cells = sorted(set(contexts)), sorted(set(cells))
    uids = 0

    def once(context: list[int], count: int) -> float:
        nonlocal uids
        given = Remembered(model.target, context, len(context) - 1) if model.kind == "features" else None
        ask = Ask(sequence, context, (), [1] * count, [-1] * count, range(uids, uids + count), range(count), given=given)
        uids += count
        started = clock()
        (answer,) = engine.answer([ask])
        if isinstance(answer, DecError):
            raise answer
        synchronise(answer)
        return max(clock() - started, 1e-9)

    rows = []
    try:
        for length in contexts:
            context = [1 + n % max(1, model.vocab.size - 1) for n in range(length)]
            for count in cells:
                once(context, count)  # the context is read, and what is compiled or allocated at first use is there
            rows.append(tuple(rising([statistics.median(times) for times in _in_turns(once, context, cells, clock)])))
            engine.close(sequence)
    finally:
        engine.close(sequence)
    return Curve(tuple(contexts), tuple(cells), tuple(rows))


def _in_turns(
    once: Callable[[list[int], int], float], context: list[int], cells: Sequence[int], clock: Timer
) -> list[list[float]]:
    """Timed forwards of every number of cells, in turns: a moment in which the machine is busy is nobody's alone."""
    taken: list[list[float]] = [[] for _ in cells]
    began = clock()
    while len(taken[-1]) < LEAST or (len(taken[-1]) < MOST and clock() - began < SPENT * len(cells)):
        for times, count in zip(taken, cells, strict=True):
            times.append(once(context, count))
    return taken


def rising(values: Sequence[float]) -> list[float]:
    """The nearest values that never fall (pooled neighbours): more cells cost no less, whatever a noisy clock says."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (b, m), (a, n) = pools.pop(), pools.pop()
            pools.append(((a * n + b * m) / (n + m), n + m))
    return [value for value, count in pools for _ in range(count)]


def synchronise(answer: Any) -> None:
    """Wait until the device has done what it was asked."""
    if getattr(answer, "is_cuda", False):
        import torch

        torch.cuda.synchronize(answer.device)


def device_of(models: Sequence[Any]) -> str:
    """Where models compute, as torch names it; "cpu" for what has no device."""
    for model in models:
        for holder in (model, getattr(model, "net", None), getattr(model, "module", None)):
            device = getattr(holder, "device", None)
            if device is not None and str(device):
                return str(device)
            parameters = getattr(holder, "parameters", None)
            if callable(parameters):
                first = next(iter(parameters()), None)
                if first is not None:
                    return str(first.device)
    return "cpu"


def file() -> Path:
    """Where curves are kept."""
    return kept.folder() / "costs.json"


def known(
    model: Any,
    content: str,
    device: dict[str, Any],
    contexts: Sequence[int],
    cells: Sequence[int],
    *,
    fresh: bool = False,
    clock: Timer = time.perf_counter,
    clock_name: str = "wall",
) -> tuple[Curve, bool]:
    """A model's curve and whether it was kept from earlier: one that covers these contexts and cells, measured now where
    there is none, or with `fresh`. `content`: the model's fingerprint; nothing is kept for a model without."""
    name = " | ".join([content, model.kind, clock_name, *(f"{k} {v}" for k, v in sorted(device.items()))])
    if content and not fresh:
        try:
            held = Curve.of(kept.read(file()).get(name))
        except ValueError:
            held = None
        if (
            held is not None
            and held.cells[-1] >= max(cells)
            and held.contexts[-1] >= max(contexts)
            and held.contexts[0] <= min(contexts)
        ):
            return held, True
    made = measured(model, contexts, cells, clock=clock)
    if content:
        kept.add(file(), {name: made.to_json()})
    return made, False
