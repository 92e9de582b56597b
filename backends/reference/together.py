"""Runs of the reference side by side, where a program reads the other sequences of its batch (`across batch`).

Each run has a thread of its own, of which one moves at a time: to the next place where sequences wait for one another, or to
its end. When all that are in flight wait, those at the place of the first go on with what is made of their values.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from decgraph.runtime.backend import Backend

A = TypeVar("A")
B = TypeVar("B")


class Meeting(Protocol):
    """Called by a run at a place, with its value and what is made of the values of all: gives its own part, once all are
    there."""

    def __call__(self, place: str, value: A, of_all: Callable[[list[A]], list[B]], /) -> B: ...


class BatchEnded(BaseException):
    """Raised in a run whose batch ends before it: nobody hears of it."""


@dataclass
class BatchedRun:
    """A run of the batch; place: where it waits for the others, "" while it can go on."""

    number: int
    run: Any
    back: threading.Semaphore
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    place: str = ""
    value: Any = None  # Any: each place has values of its own type, and makes others of them
    of_all: Callable[..., Sequence[object]] = list
    error: BaseException | None = None
    over: bool = False
    stopped: bool = False

    def start(self) -> None:
        """Make its thread, which waits to be moved."""
        self.run.meeting = self.meet
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        self.go.acquire()
        try:
            if not self.stopped:
                self.run.run()
        except BaseException as error:  # it is told in the thread of the batch
            self.error = error
        self.over = True
        self.back.release()

    def move(self) -> None:
        """To the next place where it waits, or to its end."""
        self.go.release()
        self.back.acquire()

    def meet(self, place: str, value: A, of_all: Callable[[list[A]], list[B]]) -> B:
        """The run waits at a place; see `Meeting`."""
        self.place, self.value, self.of_all = place, value, of_all
        self.back.release()
        self.go.acquire()
        if self.stopped:
            raise BatchEnded
        answer: B = self.value
        return answer


def run_together(
    waiting: Iterator[tuple[int, Backend]], width: int, ended: Callable[[int, Backend, BaseException | None], None]
) -> None:
    """`Backend.run_many` for such programs: runs join and leave where sequences wait."""
    flight: list[BatchedRun] = []
    back = threading.Semaphore(0)
    try:
        while True:
            while len(flight) < width and (entry := next(waiting, None)) is not None:
                flight.append(BatchedRun(*entry, back))
                flight[-1].start()
            if not flight:
                return
            ready = [m for m in flight if not m.place]
            for member in ready:
                member.move()
                if member.over:
                    flight.remove(member)
                    ended(member.number, member.run, member.error)
            if not ready:
                here = [m for m in flight if m.place == flight[0].place]
                for member, answer in zip(here, here[0].of_all([m.value for m in here]), strict=True):
                    member.place, member.value = "", answer
    finally:
        for member in flight:
            member.stopped = True
            member.go.release()
