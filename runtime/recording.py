"""A recording of a run: its events with seconds, program lines, iterations and the probabilities of what was verified.

A `Recorder` is a listener: `session.run(request, listener=recorder)`. A run that nobody records does nothing for it; one that
is recorded commits the same tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from decgraph.ir.values import Loc
from decgraph.runtime.trace import Accepted, Committed, Emitted, Event, ModelCall, Rejected, Remasked, Unmasked


class Recorded(Protocol):
    """The run that a recorder listens to (backends/run.py)."""

    def places(self) -> Iterable[Loc]:
        """Where the program is, the innermost operation first; empty where the backend cannot tell."""
        ...


@dataclass(frozen=True)
class Stamped:
    """An event of a run. seconds: since the run began. line: of the algorithm's own file, 1-based; 0 where the backend cannot
    tell. rule: "FILE:LINE" inside a rule or helper of another file, or "". iteration: of the main loop, from 0; -1 before it.

    p, q: of a draft that was tested, or a token that was emitted: its probability at that node under what verified it (the
    target), and under what drafted it; None where there is none or the backend does not say. canvas: of a cell that was
    decided or masked again, where in the text its canvas begins, the prompt counted, and how many cells it has.
    """

    event: Event
    seconds: float
    line: int = 0
    rule: str = ""
    iteration: int = -1
    p: float | None = None
    q: float | None = None
    canvas: tuple[int, int] | None = None


@dataclass(frozen=True)
class Span:
    """A model computed: `calls` calls (a draft loop is several at once), from `start`, in seconds since the run began, for
    `seconds`. event: how many events of the recording came before its end."""

    model: str
    start: float
    seconds: float
    calls: int
    event: int


@dataclass(frozen=True)
class Recording:
    """What a recorder has heard, in order."""

    events: tuple[Stamped, ...]
    spans: tuple[Span, ...]
    seconds: float


class Timing:
    """What a run tells of its model calls."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.events: list[Stamped] = []
        self.spans: list[Span] = []

    def computed(self, model: str, start: float, calls: int) -> None:
        """A model has computed since `start` (time.perf_counter)."""
        now = time.perf_counter()
        self.spans.append(Span(model, start - self.began, now - start, calls, len(self.events)))

    def timed(self, apply: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Applying an operation, with the time of those that call models: for the interpreter."""

        def watched(op: Any) -> Any:
            if not op.opcode.startswith(("model.", "head.")):
                return apply(op)
            heard, start = len(self.calls()), time.perf_counter()
            try:
                return apply(op)
            finally:
                made = self.calls()[heard:]
                for name in dict.fromkeys(made):
                    self.computed(name, start, made.count(name))

        return watched

    def calls(self) -> list[str]:
        """The models of the calls so far, in order."""
        raise NotImplementedError

    def turn(self, i: int) -> None:
        """Iteration i of the loop `while not done` begins."""

    def offer(self, node: int, p: float | None, q: float | None) -> None:
        """The probabilities of a draft that a rule is about to test."""

    def emits(self, p: float | None) -> None:
        """The probability of the token that a rule is about to emit."""

    def canvas(self, start: int, cells: int) -> None:
        """Cells of a canvas that begins after `start` tokens are about to be decided or masked again."""

    def inside(self) -> Timing:
        """What a sub-run tells: its model calls and nothing else, since its events are not the run's."""
        return Inside(self)


class Inside(Timing):
    """The recorder of a sub-run."""

    def __init__(self, outer: Timing) -> None:
        self.outer = outer

    def computed(self, model: str, start: float, calls: int) -> None:
        self.outer.computed(model, start, calls)

    def calls(self) -> list[str]:
        return self.outer.calls()


class Recorder(Timing):
    """Hears one run and keeps it: `session.run(request, listener=recorder)`, then `recorder.recording()`.

    >>> from decgraph.runtime.trace import Committed
    >>> recorder = Recorder()
    >>> recorder(Committed((1, 2)))
    >>> [type(stamped.event).__name__ for stamped in recorder.recording().events]
    ['Committed']
    """

    def __init__(self) -> None:
        super().__init__()
        self.run: Recorded | None = None
        self.path = ""
        self.iteration = -1
        self.offers: dict[int, tuple[float | None, float | None]] = {}
        self.emission: float | None = None
        self.called: list[str] = []
        self.on: tuple[int, int] | None = None

    def start(self, run: Recorded, path: str) -> None:
        """Called by the session with the run that it will hear, and the file of its algorithm. Forgets an earlier run."""
        self.__init__()  # type: ignore[misc]  # a recorder of a second run is a new one
        self.run, self.path = run, path

    def __call__(self, event: Event) -> None:
        seconds = time.perf_counter() - self.began
        p = q = None
        match event:
            case Accepted() | Rejected():
                p, q = self.offers.pop(event.node, (None, None))
            case Emitted():
                p, self.emission = self.emission, None
            case Committed():
                self.offers.clear()
                self.emission = None
            case ModelCall():
                self.called.append(event.model)
        line, rule = self.place()
        on = self.on if isinstance(event, Unmasked | Remasked) else None
        self.events.append(Stamped(event, seconds, line, rule, self.iteration, p, q, on))

    def place(self) -> tuple[int, str]:
        """The line of the algorithm's file that runs, and where in a rule or helper of another file it is."""
        rule = ""
        for place in self.run.places() if self.run is not None else ():
            at: Loc | None = place
            while at is not None:
                if at.path == self.path and at.line:
                    return at.line, rule
                rule = rule or (f"{at.path.rsplit('/', 1)[-1]}:{at.line}" if at.line else "")
                at = at.called
        return 0, rule

    def calls(self) -> list[str]:
        return self.called

    def turn(self, i: int) -> None:
        self.iteration = i

    def offer(self, node: int, p: float | None, q: float | None) -> None:
        self.offers[node] = (p, q)

    def emits(self, p: float | None) -> None:
        self.emission = p

    def canvas(self, start: int, cells: int) -> None:
        self.on = (start, cells)

    def recording(self) -> Recording:
        """What was heard so far."""
        self.run = None
        return Recording(tuple(self.events), tuple(self.spans), time.perf_counter() - self.began)
