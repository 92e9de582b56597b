"""Running requests of one session side by side, as the attribute `joint` says, to see whether that changes anything.

Each request runs in the reference interpreter, in a thread of its own of which one moves at a time. A call with a group waits;
now and then the calls that wait in one group are answered together, by the model of the first of them. In what order threads
move and groups are answered is drawn from a seed, so two seeds are two timings of the same batch. Groups of one step
("target@step") make all requests wait for each other before every step, and what they wrote to shared states is applied there,
in request order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from decgraph.backends.run import Stop
from decgraph.check.observing import Seen, Watched
from decgraph.errors import DecError
from decgraph.ir.values import Module, Op
from decgraph.passes.batching import STEP
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request

MOST_MOVES = 100_000
FOLD = "@fold "
"""What a request waits for at a fold over the batch, with the place."""


@dataclass
class Member:
    """One request of the batch: its thread, and what it waits for ("" to go on, "@step", or a group)."""

    machine: Any
    thread: threading.Thread
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waits: str = ""
    model: Any = None
    over: bool = False


class Batch:
    """A session's requests, side by side."""

    def __init__(self, module: Module, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: list[Member] = []
        self.back = threading.Semaphore(0)
        self.shared: dict[Any, Any] = {}
        self.steps = any(str(op.attrs.get("joint", "")).endswith(STEP) for op in module.entry.body.walk())

    def add(self, machine: Any, work: Callable[[], None]) -> None:
        """One more request; `work` runs it."""
        row: Member

        def body() -> None:
            row.go.acquire()
            try:
                work()
            finally:
                row.over = True
                self.back.release()

        row = Member(machine, threading.Thread(target=body, daemon=True))
        machine.batch, machine.row = self, row
        self.rows.append(row)

    def wait(self, row: Member, what: str, model: Any = None) -> Any:
        """Called by a request's thread: the others move until the result that it waits for is there."""
        row.waits, row.model = what, model
        self.back.release()
        row.go.acquire()
        return row.model

    def run(self) -> None:
        """Move the requests until all are over. Raises DecError after `MOST_MOVES` moves."""
        for row in self.rows:
            row.thread.start()
        for _ in range(MOST_MOVES):
            live = [r for r in self.rows if not r.over]
            if not live:
                return
            ready = [r for r in live if not r.waits]
            groups = sorted({r.waits for r in live if not r.waits.startswith(FOLD)} - {"", STEP})
            folds = sorted({r.waits for r in live if r.waits.startswith(FOLD)})
            if ready and (not groups or self.random.random() < 0.7):
                self.move(self.random.choice(ready))
            elif groups:
                group = self.random.choice(groups)
                self.answer([r for r in live if r.waits == group])
            elif folds:  # of all sequences that come here: none waits for a model
                self.fold([r for r in live if r.waits == folds[0]])
            else:
                self.step(live)
        raise DecError("the batch does not come to an end")

    def move(self, row: Member) -> None:
        row.go.release()
        self.back.acquire()

    def answer(self, rows: Sequence[Member]) -> None:
        """One forward for all requests that wait in a group, of the model that the first one calls."""
        for row in rows:
            row.waits, row.model = "", rows[0].model

    def fold(self, rows: Sequence[Member]) -> None:
        """What all requests that wait at a place make of one another's values."""
        for row, found in zip(rows, rows[0].model[0]([row.model[1] for row in rows]), strict=True):
            row.waits, row.model = "", found

    def step(self, live: Sequence[Member]) -> None:
        """All wait before a step: what was written is there for everybody."""
        for row in self.rows:
            self.shared.update(row.machine.written)
            row.machine.written.clear()
        for row in live:
            row.waits = ""


class Batched(Watched):
    """A request of a batch."""

    batch: Batch
    row: Member
    inside = False

    def start_run(self) -> None:
        super().start_run()
        self.written: dict[Any, Any] = {}
        if self.parent is not None:  # a sub-run belongs to the request that runs it
            outer: Any = self.parent
            self.batch, self.row, self.written = outer.batch, outer.row, outer.written

    def joint(self, op: Op, model: Any) -> Any:
        """The model that is called: that of the group, once all of the group wait."""
        group = op.attrs.get("joint")
        if group is None or self.inside or self.parent is not None:
            return model
        return self.batch.wait(self.row, str(group), model)

    def evaluate(self, op: Op, model: Any, place: Any, extra: Any) -> Any:
        return super().evaluate(op, self.joint(op, model), place, extra)

    def evaluate_parts(self, op: Op, model: Any, parts: Any) -> Any:
        model = self.joint(op, model)
        self.inside = True
        try:
            return super().evaluate_parts(op, model, parts)
        finally:
            self.inside = False

    def memory(self, op: Op, model: Any, place: Any, extra: Any) -> Any:
        return super().memory(op, self.joint(op, model), place, extra)

    def meet(self, op: Op, mine: Any, of_all: Callable[[list[Any]], list[Any]]) -> Any:
        return self.batch.wait(self.row, f"{FOLD}{op.loc.line}:{op.loc.column}", (of_all, mine))

    def turn(self, op: Op, i: int, values: tuple[Any, ...] = ()) -> None:
        super().turn(op, i, values)
        if self.parent is None and self.batch.steps and op.attrs.get("bound") == "done":
            self.batch.wait(self.row, STEP)

    def read_state(self, name: str) -> Any:
        store, key = self._state(name)
        return self.written[key] if store is self.shared and key in self.written else store[key]

    def write_state(self, name: str, value: Any) -> None:
        store, key = self._state(name)
        if store is self.shared and self.batch.steps:
            self.written[key] = value
        else:
            store[key] = value


def side_by_side(
    module: Module,
    models: Mapping[str, Model],
    params: Mapping[str, ParamValue],
    requests: Sequence[Request],
    seed: int,
    **more: Any,
) -> tuple[Seen, str]:
    """What the requests of one session did side by side, and the shared states after them."""
    seen = Seen()
    batch = Batch(module, seed)
    ends: list[Any] = [None] * len(requests)
    engine = type("Batching", (Batched,), {"seen": seen})
    for n, request in enumerate(requests):
        machine = engine(module, module.main, models, params, request, shared=batch.shared, **more)

        def work(n: int = n, machine: Any = machine) -> None:
            try:
                machine.run()
                ends[n] = machine.reason
            except Stop:
                ends[n] = "stopped"
            except DecError as error:
                ends[n] = f"error: {error}".split(": ")[-1]
            except Exception as error:  # a wrong pass may break anything: that is a difference, not a crash
                ends[n] = f"{type(error).__name__}: {error}"

        batch.add(machine, work)
    batch.run()
    batch.step([])
    for row, end in zip(batch.rows, ends, strict=True):
        m = row.machine
        seen.runs.append((m.committed_tokens(), tuple(map(tuple, m.results)), end))
    return seen, repr(sorted(batch.shared.items(), key=lambda item: str(item[0])))
