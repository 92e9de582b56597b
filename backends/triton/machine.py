"""The triton machine: whole decoding steps on the device where a program and its request have them, the torch backend's driver
for all else.

A run has one of two modes and commits the same tokens in both. Graph mode: lanes of a program (program.py, lanes.py). Eager
mode: programs without a step, requests with what is no row of tensors, runs whose listener hears every event
(`runtime.trace.Commits` does not). `mode` says which it was, and why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import cast

from decgraph.backends.torch.lowering import supports
from decgraph.backends.torch.machine import TorchMachine
from decgraph.backends.torch.schedule import Ended, Schedule
from decgraph.backends.triton import evaluate
from decgraph.backends.triton.lanes import Steps, wants
from decgraph.backends.triton.program import programs_of
from decgraph.backends.triton.run import DeviceRun
from decgraph.backends.triton.support import NotSteppable
from decgraph.runtime.backend import Backend
from decgraph.runtime.models.interface import Model
from decgraph.runtime.trace import Commits

_LOG = logging.getLogger("decgraph")
EVERY_EVENT = "its listener hears of every draft, and only what is committed leaves the device"


class TritonMachine(DeviceRun):
    """One request; its arguments are `Backend`'s."""

    name = "triton"

    @classmethod
    def supports(cls, opcode: str) -> str | None:
        """None for an operation that steps have; else what happens instead. Raises OpError for an opcode in no table."""
        evaluate.load()
        why = supports(opcode)
        has = opcode in evaluate.STEP or hasattr(evaluate.Evaluator, "op_" + opcode.replace(".", "_"))
        return None if has else why or "programs with it run as on torch"

    @classmethod
    def schedule(cls, ended: Ended[TorchMachine], *, width: int = 8, chunk: int | None = None, apart: bool = False) -> Flight:
        """What runs machines for a caller that advances it by itself."""
        return Flight(ended, width=width, chunk=chunk, apart=apart, more=True)

    @classmethod
    def limit_memory(cls, models: Mapping[str, Model], budget: int) -> None:
        super().limit_memory(models, budget)
        for model in models.values():
            programs_of(model).limit(budget)

    def run(self) -> tuple[int, ...]:
        if self.parent is not None:
            return super().run()
        problems: list[BaseException] = []
        flight = Flight(lambda _, m, problem: problems.append(problem) if problem is not None else None, width=1, alone=True)
        flight.join(0, self)
        try:
            while flight.steps.advance():
                pass
        except BaseException as stop:
            flight.close()
            raise stop
        if problems:
            raise problems[0]
        return super().run() if flight.alone else self.committed_tokens()

    @classmethod
    def run_many(
        cls, waiting: Iterator[tuple[int, Backend]], width: int, ended: Callable[[int, Backend, BaseException | None], None]
    ) -> None:
        """Run several at a time: on the device those that can, the others by the driver with their model calls together."""
        flight = Flight(ended, width=width)
        entries = cast(Iterator[tuple[int, TorchMachine] | None], chain(waiting, iter((None,))))
        more = True
        try:
            while more or len(flight):
                while more and len(flight) < width:
                    entry = next(entries)
                    if entry is None:
                        more = False
                    else:
                        flight.join(*entry)
                flight.advance(gathered=len(flight) >= width or not more)
        except BaseException as stop:
            flight.close(stop)
            raise


class Flight:
    """Runs in flight, on the device and by the driver; otherwise as `torch.schedule.Schedule`. alone: those for the driver are
    kept in a list, for whoever runs them one by one."""

    def __init__(
        self, ended: Ended[TorchMachine], *, width: int = 8, chunk: int | None = None, apart: bool = False, alone: bool = False,
        more: bool = False,
    ) -> None:  # fmt: skip
        self.driver = Schedule(ended, chunk=chunk, apart=apart)
        self.steps = Steps(ended, self._left, width=width, chunk=chunk, more=more)
        self.alone: list[TorchMachine] | None = [] if alone else None

    def __len__(self) -> int:
        return len(self.driver) + len(self.steps)

    def drives(self, machine: TorchMachine) -> bool:
        """Whether the driver runs a machine, so that engines keep its keys and values."""
        return self.reason(machine) is not None

    def reason(self, machine: TorchMachine) -> str | None:
        """Why the driver runs a machine; None where it has steps."""
        if not isinstance(machine, DeviceRun):
            return "it has no steps"
        if not (machine.listener is None or isinstance(machine.listener, Commits)):
            return EVERY_EVENT
        try:
            wants(machine)
        except NotSteppable as error:
            return str(error)
        except Exception as error:  # a bug, or no memory: the driver may work
            _LOG.warning("%s has no steps: %s: %s", machine.function.name, type(error).__name__, error)
            return f"{type(error).__name__}: {error}"
        return None

    def join(self, number: int, machine: TorchMachine) -> None:
        """Take up a run."""
        why = self.reason(machine)
        if why is not None:
            self._left(number, machine, why)
        elif isinstance(machine, DeviceRun):
            machine.mode = "graph mode"
            self.steps.join(number, machine)

    def _left(self, number: int, machine: TorchMachine, why: str) -> None:
        if isinstance(machine, DeviceRun):
            machine.driven(why)
        if self.alone is None:
            self.driver.join(number, machine)
        else:
            self.alone.append(machine)

    def cancel(self, number: int) -> bool:
        """End a run between two steps; `ended` is not called. False where it is not in flight."""
        return self.steps.cancel(number) or self.driver.cancel(number)

    def advance(self, gathered: bool = True) -> bool:
        """One round of both. gathered: whether all runs that the driver's calls may be computed with are there."""
        self.steps.advance()
        self.driver.proceed()
        if gathered:
            self.driver.answer()
        return len(self) > 0

    def close(self, stop: BaseException | None = None) -> None:
        """End all runs; `ended` is called with `stop` where that is a KeyboardInterrupt."""
        self.steps.close(stop)
        self.driver.close(stop)
