"""A recording of a run: its events with seconds, program lines, iterations and the probabilities of what was verified.

A `Recorder` is a listener: `session.run(request, listener=recorder)`. A run that nobody records does nothing for it; one that
is recorded commits the same tokens.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from decgraph.ir.values import Loc
from decgraph.runtime.trace import (
    Accepted,
    Committed,
    Emitted,
    Event,
    ModelCall,
    Pruned,
    Recorded,
    Rejected,
    Remasked,
    Timing,
    Unmasked,
)

NUMBERS = (int, float, np.number, np.ndarray)  # an array without axes is one too


@dataclass(frozen=True)
class Stamped:
    """An event of a run. seconds: since the run began. line: of the algorithm's own file, 1-based; 0 where the backend cannot
    tell. rule: "FILE:LINE" inside a rule or helper of another file, or "". iteration: of the main loop, from 0; -1 before it.
    ran: the lines of that file that have run since the event before, in ascending order. turns: how many iterations of
    outermost loops that call models, and of all loops that do, had begun or come to their end.

    p, q: of a draft that was tested, or a token that was emitted: its probability at that node under what verified it (the
    target), and under the distribution it was drawn from; None where there is none or the backend does not say. raw: p before
    the request's temperature and truncation. canvas: of a cell that was decided or masked again, where in the text its canvas
    begins, the prompt counted, and how many cells it has.
    """

    event: Event
    seconds: float
    line: int = 0
    rule: str = ""
    iteration: int = -1
    ran: tuple[int, ...] = ()
    turns: tuple[int, int] = (0, 0)
    p: float | None = None
    q: float | None = None
    raw: float | None = None
    canvas: tuple[int, int] | None = None


@dataclass(frozen=True)
class ModelSpan:
    """A model computed: `calls` calls (a draft loop is several at once), from `start`, in seconds since the run began, for
    `seconds`. event: how many events of the recording came before its end. The calls of a model's spans are its calls in the
    run's statistics: what a cache answers is no call and has no span."""

    model: str
    start: float
    seconds: float
    calls: int
    event: int


@dataclass(frozen=True)
class Marked:
    """A node of a draft tree got a number: what a program counts at its nodes (`grow x with worth = 0`, `t.visits[n] += 1`), or
    its log-probability. event: how many events of the recording came before. node: the tree's number of it; 0 is the root."""

    event: int
    node: int
    column: str
    value: float


@dataclass(frozen=True)
class Recording:
    """What a recorder has heard, in order."""

    events: tuple[Stamped, ...]
    spans: tuple[ModelSpan, ...]
    seconds: float
    marks: tuple[Marked, ...] = ()


class Recorder(Timing):
    """Hears one run and keeps it: `session.run(request, listener=recorder)`, then `recorder.recording()`.

    >>> from decgraph.runtime.trace import Committed
    >>> recorder = Recorder()
    >>> recorder(Committed((1, 2)))
    >>> [type(stamped.event).__name__ for stamped in recorder.recording().events]
    ['Committed']
    """

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.events: list[Stamped] = []
        self.spans: list[ModelSpan] = []
        self.run: Recorded | None = None
        self.path = ""
        self.iteration = -1
        self.turns = (0, 0)
        self.offers: dict[int, tuple[float | None, ...]] = {}
        self.emission: tuple[float | None, float | None] = (None, None)
        self.marked: list[Marked] = []
        self.size = 0
        self.known: dict[tuple[int, str], float] = {}
        """The last mark of each node of the tree that is being drafted."""
        self.owed: dict[str, list[float]] = {}
        """When the calls that no span has yet were heard, by model."""
        self.ahead: Counter[str] = Counter()
        """How many calls of each model a span has whose events were not heard yet."""
        self.latest = ""
        self.lines: set[int] = set()
        """The lines that have run since the last event."""
        self.line_of: dict[Loc, tuple[int, str]] = {}
        self.on: tuple[int, int] | None = None

    def start(self, run: Recorded, path: str) -> None:
        """Called by the session with the run that it will hear, and the file of its algorithm. Forgets an earlier run."""
        Recorder.__init__(self)  # that of a second run is a new one
        self.run, self.path = run, path

    def __call__(self, event: Event) -> None:
        seconds = time.perf_counter() - self.began
        p = q = raw = None
        match event:
            case Accepted() | Rejected():
                p, q, raw = self.offers.pop(event.node, (None, None, None))
            case Emitted():
                (p, raw), self.emission = self.emission, (None, None)
            case Committed():
                self.offers.clear()
                self.known.clear()
                self.emission = (None, None)
            case Pruned():  # the nodes have other numbers
                self.known.clear()
            case ModelCall():
                self.latest = event.model
                if self.ahead[event.model]:
                    self.ahead[event.model] -= 1
                else:
                    self.owed.setdefault(event.model, []).append(seconds)
        line, rule = self.place()
        ran = tuple(sorted(self.lines | ({line} if line else set())))
        self.lines.clear()
        on = self.on if isinstance(event, Unmasked | Remasked) else None
        self.events.append(Stamped(event, seconds, line, rule, self.iteration, ran, self.turns, p, q, raw, on))

    def place(self) -> tuple[int, str]:
        """The line of the algorithm's file that runs, and where in a rule or helper of another file it is."""
        outside = ""
        for place in self.run.places() if self.run is not None else ():
            line, rule = self.line_at(place)
            outside = outside or rule
            if line:
                return line, outside
        return 0, outside

    def line_at(self, loc: Loc) -> tuple[int, str]:
        """The line of the algorithm's file that a place is at, or from which it was called (0: neither), and "FILE:LINE" of the
        place where that is in another file."""
        if loc not in self.line_of:
            at: Loc | None = loc
            rule = ""
            while at is not None and not (at.path == self.path and at.line):
                rule = rule or (f"{at.path.rsplit('/', 1)[-1]}:{at.line}" if at.line else "")
                at = at.called
            self.line_of[loc] = (at.line if at is not None else 0, rule)
        return self.line_of[loc]

    def ran(self, loc: Loc) -> None:
        line, _ = self.line_at(loc)
        if line:
            self.lines.add(line)

    def computed(self, start: float, later: int = 0) -> None:
        now, begin = time.perf_counter() - self.began, start - self.began
        for model, heard in self.owed.items():
            calls = len(heard)
            if model == self.latest:
                calls += later
                self.ahead[model] += later
            if model == self.latest or heard[0] >= begin:
                self.spans.append(ModelSpan(model, begin, now - begin, calls, len(self.events)))
            else:  # of a head that was read without waiting: between its event and this call
                self.spans.append(ModelSpan(model, heard[0], begin - heard[0], calls, len(self.events)))
        self.owed.clear()

    def begin_iteration(self, i: int) -> None:
        self.iteration = i

    def turn(self, *, outermost: bool) -> None:
        self.turns = (self.turns[0] + outermost, self.turns[1] + 1)

    def offer(self, node: int, p: float | None, q: float | None, raw: float | None) -> None:
        self.offers[node] = (p, q, raw)

    def emits(self, p: float | None, raw: float | None) -> None:
        self.emission = (p, raw)

    def marks(self, columns: Mapping[str, Sequence[object]]) -> None:
        size = max(map(len, columns.values()), default=0)
        if size < self.size:  # another tree, whose nodes have the numbers of the last one's
            self.known.clear()
        self.size = size
        for name, values in columns.items():
            for node, value in enumerate(values):
                if not isinstance(value, NUMBERS) or np.ndim(value) or np.asarray(value).dtype == bool:  # a flag is no number
                    continue
                x = float(value)
                if self.known.get((node, name)) != x:
                    self.known[node, name] = x
                    self.marked.append(Marked(len(self.events), node, name, x))

    def canvas(self, start: int, cells: int) -> None:
        self.on = (start, cells)

    def recording(self) -> Recording:
        """What was heard so far."""
        self.run = None
        self.computed(time.perf_counter())
        return self.so_far()

    def so_far(self) -> Recording:
        """What was heard of a run that goes on."""
        return Recording(tuple(self.events), tuple(self.spans), time.perf_counter() - self.began, tuple(self.marked))
