"""Where the time of a run goes, by line of the program: the generated driver with a clock between its statements.

The driver (program.py) is compiled again with a call of the clock before every statement (`timing.watched`). The clock adds the
time since the last such call to the line before. Model calls leave the driver: the machine adds the time of their forwards to
the line that waits for them, draws inside an engine's draft loop to the line that draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from torch import Tensor

from decgraph.backends.torch.driver import Driver
from decgraph.backends.torch.machine import TorchMachine
from decgraph.backends.torch.pending import Call, DraftLoopCall, MeetingCall
from decgraph.backends.torch.program import compile_function
from decgraph.backends.torch.timing import watched
from decgraph.ir.table import lookup
from decgraph.ir.values import Function, Loc, Op

FORWARD, CALLING, DRAWS, VERIFYING, HOST, WAITING, REST = (
    "forwards", "model calls", "draws", "verification", "host", "waiting", "the rest of the program",
)  # fmt: skip
KINDS = (FORWARD, CALLING, DRAWS, VERIFYING, HOST, WAITING, REST)
"""forwards: of models. model calls: what is made of a place for an engine, and of its scores for the program. draws: noise and
tokens. verification: the walk and its rule. host: indexes, automata, texts, functions of the caller. waiting: for a device, and
for other sequences. Everything else is the rest."""


class Place(NamedTuple):
    """Where time goes: a line of a file ("" and 0 where it is not known), a kind, and for forwards the model."""

    path: str
    line: int
    kind: str
    model: str = ""


@dataclass
class Clock:
    """Time by place: nanoseconds of wall and of processor time (all threads of the process), and how often it was entered.

    spans: (place, start, length) in nanoseconds of wall time since `begun`, where `traced`; neighbours of one place are one.
    """

    traced: bool = False
    wall: dict[Place, int] = field(default_factory=dict)
    cpu: dict[Place, int] = field(default_factory=dict)
    times: dict[Place, int] = field(default_factory=dict)
    spans: list[tuple[Place, int, int]] = field(default_factory=list)
    now: Place | None = None
    since: tuple[int, int] = (0, 0)
    begun: int = 0

    def at(self, place: Place | None) -> None:
        """From here on time goes to a place, or to none."""
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        old = self.now
        if old is not None:
            self.wall[old] = self.wall.get(old, 0) + wall - self.since[0]
            self.cpu[old] = self.cpu.get(old, 0) + cpu - self.since[1]
            if self.traced:
                self.span(old, self.since[0] - self.begun, wall - self.since[0])
        elif self.begun == 0:
            self.begun = wall
        if place is not None:
            self.times[place] = self.times.get(place, 0) + 1
        self.now, self.since = place, (wall, cpu)

    def span(self, place: Place, start: int, length: int) -> None:
        if self.spans and self.spans[-1][0] == place and self.spans[-1][1] + self.spans[-1][2] == start:
            start, length = self.spans[-1][1], self.spans[-1][2] + length
            self.spans.pop()
        self.spans.append((place, start, length))

    @contextmanager
    def inside(self, place: Place) -> Iterator[None]:
        """Time in the block goes to a place; after it again to the one before."""
        before = self.now
        self.at(place)
        try:
            yield
        finally:
            self.at(before)
            if before is not None:
                self.times[before] -= 1  # it was entered once


def timed(clock: Clock, function: Function) -> Driver:
    """The driver of a function with `_at` before its statements, which its generated text does not show."""
    driver = compile_function(function)
    places = DriverPlaces(function, driver.lines)

    def at(line: int) -> None:
        clock.at(places.of(line))

    return watched(driver, at, now=lambda: clock.now, back=clock.at)


class DriverPlaces:
    """The places of a driver's lines. What stands in a verification's rule is verification, at the line of the rule."""

    def __init__(self, function: Function, lines: dict[int, Op]) -> None:
        self.lines, self.known = lines, dict[int, Place]()
        self.last = max(lines, default=0)
        walks = [op for op in function.body.walk() if op.opcode == "tree.walk"]
        self.rules = {where(o.loc) for op in walks for r in op.regions for o in r.walk()}  # the writer makes ops of its own
        self.op = Place("", 0, REST)

    def of(self, line: int) -> Place:
        if line not in self.known:
            near = line  # a line without an op of its own belongs to the statement before it
            while near not in self.lines and near > 0:
                near -= 1
            op = self.lines.get(near)
            self.known[line] = self.place(op) if op is not None else self.op
        return self.known[line]

    def place(self, op: Op) -> Place:
        return Place(*where(op.loc), VERIFYING if where(op.loc) in self.rules else kind_of(op))


def where(loc: Loc) -> tuple[str, int]:
    """The program's own line of a place: of a rule's or helper's, its own file and line."""
    return loc.path, loc.line


def kind_of(op: Op) -> str:
    """What a line that computes an op does."""
    code = op.opcode
    if code == "segment":
        kinds = {kind_of(o) for o in op.regions[0].ops}
        return DRAWS if DRAWS in kinds else REST
    if code == "tree.walk":
        return VERIFYING
    if code.startswith("head.") or code in (
        "model.eval",
        "model.evals",
        "model.read",
        "model.memory",
        "model.states",
        "model.attention",
    ):
        return CALLING
    if code.startswith("draw") or code in ("bernoulli", "beta", "noise"):
        return DRAWS
    if code.startswith("batch."):
        return WAITING
    return HOST if lookup(code).batch == "host" or code.startswith("index.") else REST


class Profiled(TorchMachine):
    """The torch machine with a clock; `profiled` makes a class of it for each clock."""

    clock: Clock

    def start_run(self) -> None:
        super().start_run()
        self.loops: dict[tuple[str, int], tuple[Place, Place]] = {}

    def run(self) -> tuple[int, ...]:
        try:
            return super().run()
        finally:
            self.clock.at(None)

    def answered(self, call: Call) -> object:
        """The value of a call: its engine's time to the forwards, what is made of its result to the line."""
        place = self.clock.now or Place("", 0, CALLING)
        if isinstance(call, MeetingCall):
            with self.clock.inside(place._replace(kind=WAITING)):
                return call.compute_alone()
        model = self.called(call)
        at, drawn = self.in_loop(place)
        self.time_draws(call, drawn._replace(kind=DRAWS))
        with self.clock.inside(at._replace(kind=FORWARD, model=model)):
            (got,) = call.compute_all([call])
        with self.clock.inside(at._replace(kind=CALLING)):
            return call.take(got)

    def waited(self, copy: Callable[[], Tensor]) -> Tensor:
        with self.clock.inside((self.clock.now or Place("", 0, WAITING))._replace(kind=WAITING, model="")):
            return copy()

    def time_draws(self, call: Call, place: Place) -> None:
        """The draws of a draft loop, which its engine makes, count for the line that draws."""
        if isinstance(call, DraftLoopCall):
            call.loop = replace(call.loop, choose=self.timed(call.loop.choose, place))

    def timed(self, choose: Callable[..., int], place: Place) -> Callable[..., int]:
        def chosen(scores: Tensor) -> int:
            with self.clock.inside(place):
                return choose(scores)

        return chosen

    def called(self, call: Call) -> str:
        """The name of the model whose engine computes a call; of a derived one, with how it is derived."""
        for model, engine in self.engines.items():
            if engine is call.engine:
                named = next((name for name, m in self.models.items() if m is model), "")
                if named:
                    return named
        return next((model.name for model, engine in self.engines.items() if engine is call.engine), "a model")

    def in_loop(self, place: Place) -> tuple[Place, Place]:
        """The lines of the model call and of the draw of a draft loop, which is one statement of the driver (draft_loops.py);
        elsewhere the line itself, twice."""
        if place[:2] not in self.loops:
            self.loops[place[:2]] = place, place
            for op in self.function.body.walk():
                if op.opcode == "for" and where(op.loc) == place[:2]:
                    found = {o.opcode: Place(*where(o.loc), REST) for o in reversed(list(op.regions[0].walk()))}
                    self.loops[place[:2]] = found.get("model.eval", place), found.get("draw", place)
        return self.loops[place[:2]]


def profiled(clock: Clock) -> type[Profiled]:
    """A machine whose runs are timed by a clock."""
    own = {"compiled": staticmethod(partial(timed, clock)), "clock": clock, "__doc__": Profiled.__doc__}
    return type("ProfiledMachine", (Profiled,), own)
