"""The training loop that every trained model shares: schedule, progress, checkpoints, export.

A loss is a function of (step, progress) that yields one scalar per micro-batch; it draws its data from a
generator seeded by (seed, step), so a resumed run sees what an uninterrupted one would have seen. Progress is
measured in steps when `steps` is given, which is the reproducible way, and in minutes otherwise.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from decgraph.runtime import progress
from lab.shipped.optim import Optimizer

LossOf = Callable[[int, float], Iterator[torch.Tensor]]


@dataclass(frozen=True)
class Budget:
    """How long to train and where to keep what. One of `steps` and `minutes` decides the schedule."""

    work: Path
    seed: int = 0
    steps: int | None = None
    minutes: float = 10.0
    resume: bool = False
    checkpoint_minutes: float = 4.0
    decay: float = 0.35
    warmup: float = 0.02

    def progress(self, step: int, seconds: float) -> float:
        """How much of the run is done after so many steps or seconds, in 0..1."""
        done = step / self.steps if self.steps else seconds / (60 * self.minutes)
        return min(1.0, done)

    def rate(self, progress: float) -> float:
        """The schedule: a short warm-up, a plateau, a straight line to 2 % at the end."""
        if progress < self.warmup:
            return 0.1 + 0.9 * progress / self.warmup
        return min(1.0, 0.02 + 0.98 * (1 - progress) / self.decay)


@dataclass(frozen=True)
class TrainingOutcome:
    """What a run amounted to; written as training.json beside the weights."""

    name: str
    seed: int
    steps: int
    seconds: float
    loss: float
    settings: dict[str, Any]
    finished: bool = True


@contextmanager
def stop_asked() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that a step is finished before a run stops; a second one interrupts at once.

    Outside the main thread, where Python takes no signals, nothing sets it.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def asked(number: int, frame: Any) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, asked)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def rng(seed: int, step: int, stream: int = 0) -> torch.Generator:
    """The generator of one step: a function of seed, step and stream only."""
    return torch.Generator().manual_seed((seed * 1_000_003 + step) * 16 + stream)


def _save(path: Path, value: object) -> None:
    temporary = path.with_suffix(".partial")
    torch.save(value, temporary)
    os.replace(temporary, path)


def averaged(model: nn.Module, optimizer: Optimizer, *, final: bool) -> dict[str, torch.Tensor]:
    """The weights to export: the moving average on the way, the weights themselves at the end; by
    name, in the shapes of the model's own."""
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    if not final:
        aliases = {id(p): optimizer.average[n] for n, p in optimizer.named.items()}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if id(parameter) in aliases:
                state[name] = aliases[id(parameter)].clone()
    return state


def fit(
    model: nn.Module,
    loss_of: LossOf,
    export: Callable[[dict[str, torch.Tensor], TrainingOutcome], None],
    *,
    name: str,
    budget: Budget,
    optimizer: Optimizer | None = None,
    settings: dict[str, Any] | None = None,
) -> TrainingOutcome:
    """Train `model` in place and call `export` with its weights every few minutes and at the end, which may be Ctrl-C.

    `loss_of` yields scalars. Checkpoints (`<work>/<name>.pt`) hold model, optimiser and counters; `<work>/<name>.jsonl` is
    the log.
    """
    budget.work.mkdir(parents=True, exist_ok=True)
    optimizer = optimizer or Optimizer(model)
    checkpoint, log = budget.work / f"{name}.pt", budget.work / f"{name}.jsonl"
    step, before, mean = 0, 0.0, float("nan")
    if budget.resume and checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.restore(saved["optimizer"])
        step, before, mean = saved["step"], saved["seconds"], saved["loss"]
    start = kept = time.monotonic()
    details = {**(settings or {}), **{k: v for k, v in asdict(budget).items() if k not in ("work", "resume")}}

    def keep() -> None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state()}
        _save(checkpoint, {**state, "step": step, "seconds": before + time.monotonic() - start, "loss": mean})

    def outcome(finished: bool = True) -> TrainingOutcome:
        seconds = round(before + time.monotonic() - start, 1)
        return TrainingOutcome(name, budget.seed, step, seconds, round(mean, 4), details, finished)

    with stop_asked() as stop, progress.shown(name) as shown, log.open("a", encoding="utf-8") as lines:
        while (share := budget.progress(step, before + time.monotonic() - start)) < 1.0 and not stop.is_set():
            model.train()
            losses = []
            for loss in loss_of(step, share):
                loss.backward()
                losses.append(loss.item())
            rate = budget.rate(share)
            optimizer.step(rate)
            step += 1
            now = sum(losses)
            mean = now if mean != mean else mean + (now - mean) / min(step, 50)
            shown(f"step {step} loss {mean:.3f}", share, 1.0)
            if step % 20 == 0:
                record = {"step": step, "progress": round(share, 4), "rate": round(rate, 4), "loss": round(mean, 4)}
                lines.write(json.dumps({**record, "seconds": round(before + time.monotonic() - start, 1)}) + "\n")
                lines.flush()
            if time.monotonic() - kept > 60 * budget.checkpoint_minutes:
                kept = time.monotonic()
                keep()
                export(averaged(model, optimizer, final=False), outcome(finished=False))
        keep()
        result = outcome(finished=share >= 1.0)
        export(averaged(model, optimizer, final=result.finished), result)
    return result
