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


def measured(model: Any, contexts: Sequence[int], cells: Sequence[int], *, clock: Timer = time.perf_counter,
             sequence: Hashable = "decgraph tune") -> Curve:
    """A model's curve: a star of new cells below a context that is held, all of their rows asked for.

    Raises DecError for a model that answers no asks of causal cells (masked models, layers), and for what the model says.
    """
    from decgraph.runtime.models.engine.ask import Ask
    from decgraph.runtime.models.engine.of import engine_of

    if model.kind not in ("causal", "features"):
        raise DecError(f"a {model.kind} model's forward is not timed alone")
    engine = engine_of(model)
    uids = 0
    rows = []
    try:
        for length in sorted(set(contexts)):
            context = [1 + n % max(1, model.vocab.size - 1) for n in range(length)]
            given = length - 1 if model.kind == "features" else None
            row = []
            for count in sorted(set(cells)):

                def once(count: int = count, context: list[int] = context, given: int | None = given) -> float:
                    nonlocal uids
                    ask = Ask(sequence, context, (), [1] * count, [-1] * count, range(uids, uids + count), range(count),
                              given=given)
                    uids += count
                    started = clock()
                    (answer,) = engine.answer([ask])
                    if isinstance(answer, DecError):
                        raise answer
                    synchronise(answer)
                    return clock() - started

                once()  # the context is read, and what is compiled or allocated at first use is there
                row.append(_time_of(once, clock))
            rows.append(tuple(row))
            engine.close(sequence)
    finally:
        engine.close(sequence)
    return Curve(tuple(sorted(set(contexts))), tuple(sorted(set(cells))), tuple(rows))


def _time_of(once: Callable[[], float], clock: Timer) -> float:
    """The median of enough timed forwards."""
    taken: list[float] = []
    began = clock()
    while len(taken) < LEAST or (len(taken) < MOST and clock() - began < SPENT):
        taken.append(max(once(), 1e-9))
    return statistics.median(taken)


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


def known(model: Any, content: str, device: dict[str, Any], contexts: Sequence[int], cells: Sequence[int], *,
          fresh: bool = False, clock: Timer = time.perf_counter, clock_name: str = "wall") -> tuple[Curve, bool]:
    """A model's curve and whether it was kept from earlier: one that covers these contexts and cells, measured now where
    there is none, or with `fresh`. `content`: the model's fingerprint; nothing is kept for a model without."""
    name = " | ".join([content, model.kind, clock_name, *(f"{k} {v}" for k, v in sorted(device.items()))])
    if content and not fresh:
        try:
            held = Curve.of(kept.read(file()).get(name))
        except ValueError:
            held = None
        if held is not None and held.cells[-1] >= max(cells) and held.contexts[-1] >= max(contexts) \
                and held.contexts[0] <= min(contexts):
            return held, True
    made = measured(model, contexts, cells, clock=clock)
    if content:
        kept.add(file(), {name: made.to_json()})
    return made, False
