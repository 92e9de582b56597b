"""Events of a run, one per action of a step, the statistics computed from them, and what a run tells a recorder beside them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from decgraph.ir.values import Loc, Op

T = TypeVar("T")


@dataclass(frozen=True)
class Drafted:
    """A draft was grown into a tree: node `node` under `parent`. `prob` is its probability under the distribution that it was
    drawn from, `x.law[x]` for a rule: shaped by the request, and after earlier siblings where it was drawn without replacement.
    `source` is the model or store that proposed it, `score` what that gave it before shaping (`x.prob`). drawn: False for a
    draft that was chosen without randomness, as by `topk`; its distribution is one-hot, so `prob` is 1."""

    node: int
    parent: int
    token: int
    prob: float
    source: str
    score: float = 1.0
    drawn: bool = True


@dataclass(frozen=True)
class DraftEnded:
    """An error ended the draft of a tree before its program did: what was grown until then is verified. `error` names the line
    and what went wrong."""

    tree: str
    error: str


@dataclass(frozen=True)
class Noted:
    """The program noted a figure. token: whether the value is the id of one."""

    name: str
    value: float
    token: bool = False


@dataclass(frozen=True)
class Pruned:
    """A tree was pruned before verification: node i was node `kept[i]` before, and `dropped` drafts were removed."""

    kept: tuple[int, ...]
    dropped: int


@dataclass(frozen=True)
class Accepted:
    """Verification followed this draft. `depth` is 1 for a child of the root."""

    node: int
    token: int
    depth: int


@dataclass(frozen=True)
class Rejected:
    """Verification tested this draft and went on without it; `why` in a few words."""

    node: int
    token: int
    depth: int
    why: str = ""


@dataclass(frozen=True)
class Emitted:
    """Verification emitted a token of the target: after the last draft of a path (bonus), without any draft (plain), or in
    place of rejected ones, as its rule has it: drawn from what they left (residual), or from the distribution itself (own)."""

    token: int
    kind: Literal["bonus", "residual", "own", "plain"]


@dataclass(frozen=True)
class Unmasked:
    """A position of a canvas was decided."""

    position: int
    token: int
    confidence: float


@dataclass(frozen=True)
class Remasked:
    """A decided position was masked again."""

    position: int


@dataclass(frozen=True)
class Committed:
    """These tokens are now part of the run; `cut` more were not, since the run ended before them."""

    tokens: tuple[int, ...]
    cut: int = 0


@dataclass(frozen=True)
class Stopped:
    """The run ended: "eos", "stop", "limit", or "capacity" where a static bound was reached first."""

    reason: str


@dataclass(frozen=True)
class ModelCall:
    """One call of a model: `rows` of scores returned, `cells` positions read by all rows together, cached ones too. `role` says
    whose calls count as target calls: the model a claim is about is the target, every other one drafts, and so does the target
    itself at nodes of a tree on a memory, unless a verification reads what it says (`ir/drafting.py`).
    `computed`: the positions among them that were not cached from earlier calls (None: nothing is cached, all are computed).
    """

    model: str
    rows: int
    cells: int
    role: Literal["target", "draft"] = "target"
    computed: int | None = None


Event = (Drafted | DraftEnded | Noted | Pruned | Accepted | Rejected | Emitted | Unmasked | Remasked | Committed | Stopped
         | ModelCall)  # fmt: skip


class Commits:
    """A listener to commits alone: `tell` is called with `Committed` and `Stopped`. A run with such a listener may decode in
    graph mode, which has no other events, and whose tokens arrive whenever the host looks at the device.

    A run that starts again in eager mode commits its first tokens again; `tell` gets each of them once.
    """

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell, self._told, self._count = tell, 0, 0

    def begin(self) -> None:
        """The run starts: the next committed token is its first."""
        self._count = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Stopped):
            self._tell(event)
        elif isinstance(event, Committed):
            new = event.tokens[max(0, self._told - self._count) :]
            self._count += len(event.tokens)
            self._told = max(self._told, self._count)
            if new or event.cut:
                self._tell(Committed(new, event.cut))


def wilson(taken: int, tested: int) -> tuple[float, float]:
    """Wilson's interval of 95 % for a share.

    >>> [round(x, 2) for x in wilson(2, 2)]
    [0.34, 1.0]
    """
    if not tested:
        return 0.0, 1.0
    z, share = 1.959964, taken / tested
    middle = share + z * z / (2 * tested)
    half = z * (share * (1 - share) / tested + z * z / (4 * tested * tested)) ** 0.5
    whole = 1 + z * z / tested
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


@dataclass(frozen=True)
class Figure:
    """What a program noted under a name: how many times, the last value, and of numbers the mean and both ends."""

    count: int
    last: float
    total: float
    low: float
    high: float
    token: bool = False

    @property
    def mean(self) -> float:
        """The mean of numbers; of conditions the share that held."""
        return self.total / self.count

    def then(self, e: Noted) -> Figure:
        """With one more value."""
        ends = min(self.low, e.value), max(self.high, e.value)
        return Figure(self.count + 1, e.value, self.total + e.value, *ends, e.token)

    def to_json(self) -> dict[str, float | None]:
        """last and count, and of numbers mean, min and max; None for what is no finite number, which JSON does not have."""
        ends = {} if self.token else {"mean": self.mean, "min": self.low, "max": self.high}
        return {k: v if math.isfinite(v) else None for k, v in {"last": self.last, **ends, "count": self.count}.items()}

    def __str__(self) -> str:
        if self.count == 1:
            return f"{self.last:.4g}"
        return f"{self.last:.4g} at last, {self.mean:.4g} on average of {self.count}, from {self.low:.4g} to {self.high:.4g}"


@dataclass(frozen=True)
class Stats:
    """The numbers of one run. `drafted` counts the drafts of its own trees that were not pruned away; `tested` and `accepted`
    count them by depth, the children of a root first, up to the end of the text. Calls are those of sub-runs too.
    `draft_errors`: how often an error ended a draft, by what it said. `notes`: what the program noted, by name.
    """

    tokens: int = 0
    target_calls: int = 0
    draft_calls: int = 0
    drafted: int = 0
    unmasked: int = 0
    remasked: int = 0
    tested: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    stopped: str = ""
    calls: dict[str, int] = field(default_factory=dict, compare=False)
    draft_errors: dict[str, int] = field(default_factory=dict, compare=False)
    notes: dict[str, Figure] = field(default_factory=dict, compare=False)

    @property
    def ended_drafts(self) -> int:
        """How many drafts ended with an error."""
        return sum(self.draft_errors.values())

    @property
    def noted(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """The field `notes` of a record in JSON; {} where nothing was noted."""
        return {"notes": {name: figure.to_json() for name, figure in self.notes.items()}} if self.notes else {}

    @staticmethod
    def errors_of(runs: Iterable[Stats]) -> dict[str, int]:
        """The draft errors of several runs together."""
        out: dict[str, int] = {}
        for stats in runs:
            for error, count in stats.draft_errors.items():
                out[error] = out.get(error, 0) + count
        return out

    @property
    def tokens_per_call(self) -> float:
        """Committed tokens per call of the target; 0 when it was never called."""
        return self.tokens / self.target_calls if self.target_calls else 0.0

    @property
    def acceptance(self) -> tuple[float, ...]:
        """By depth, how often verification that came to test a draft there accepted one."""
        return tuple(a / t if t else 0.0 for a, t in zip(self.accepted, self.tested, strict=True))

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """By depth, Wilson's interval of 95 % for the share of an endless run, as if tests were independent."""
        return tuple(wilson(a, t) for a, t in zip(self.accepted, self.tested, strict=True))

    @staticmethod
    def of(events: Iterable[Event]) -> Stats:
        """The statistics of a run's events, in the order they happened."""
        tally = Tally()
        open_depth = 0  # siblings rejected at one depth are one test, closed by an acceptance or an emission
        for e in events:
            match e:
                case ModelCall():
                    tally.call(e.model, e.role == "target")
                    open_depth = 0
                case Drafted():
                    tally.drafted += 1
                case DraftEnded():
                    tally.errors[e.error] = tally.errors.get(e.error, 0) + 1
                case Noted():
                    tally.note(e)
                case Pruned():
                    tally.drafted -= e.dropped
                case Rejected():
                    if e.depth != open_depth:
                        tally.test(e.depth, False)
                        open_depth = e.depth
                case Accepted():
                    if e.depth == open_depth:
                        tally.last.pop()
                    tally.test(e.depth, True)
                    open_depth = 0
                case Emitted():
                    open_depth = 0
                case Committed():
                    open_depth = 0
                    tally.commit(len(e.tokens), bool(e.cut))
                case Unmasked():
                    tally.unmasked += 1
                case Remasked():
                    tally.remasked += 1
                case Stopped():
                    tally.stopped = e.reason
        return tally.stats()


def ended_text(errors: Mapping[str, int]) -> str:
    """Draft errors in words, the most frequent one named; "" for none: a run whose drafts fail must not look like one that
    drafts."""
    if not errors:
        return ""
    most, count = max(errors.items(), key=lambda item: item[1]), sum(errors.values())
    others = f", and {len(errors) - 1} others" if len(errors) > 1 else ""
    return f"{count} {'drafts' if count > 1 else 'draft'} ended by an error: {most[0]}{others}"


def _settle(last: list[tuple[int, bool]], end: int | None, tested: dict[int, int], accepted: dict[int, int]) -> None:
    """Count the tests up to the depth `end` (None: all of them): drafts after the end of a text do not count."""
    for depth, taken in last:
        if end is None or depth <= end:
            tested[depth] = tested.get(depth, 0) + 1
            if taken:
                accepted[depth] = accepted.get(depth, 0) + 1
    last.clear()


class Tally:
    """Counters of a run: `Stats.of` fills them from events, and a backend that nobody listens to counts in them directly."""

    __slots__ = ("tokens", "target", "draft", "drafted", "unmasked", "remasked", "tested", "accepted", "stopped", "calls",
                 "last", "errors", "notes")  # fmt: skip

    def __init__(self) -> None:
        self.tokens = self.target = self.draft = self.drafted = self.unmasked = self.remasked = 0
        self.tested: dict[int, int] = {}
        self.accepted: dict[int, int] = {}
        self.calls: dict[str, int] = {}
        self.errors: dict[str, int] = {}
        self.notes: dict[str, Figure] = {}
        self.last: list[tuple[int, bool]] = []  # the tests since the last commit: depth, and whether a draft was accepted
        self.stopped = ""

    def call(self, model: str, target: bool) -> None:
        """A model was called."""
        self.calls[model] = self.calls.get(model, 0) + 1
        if target:
            self.target += 1
        else:
            self.draft += 1

    def test(self, depth: int, accepted: bool) -> None:
        """Verification tested the drafts at a depth (1: children of the root) and accepted one or none."""
        self.last.append((depth, accepted))

    def commit(self, tokens: int, cut: bool) -> None:
        """`tokens` tokens were committed. cut: the run ended before the rest of them."""
        self.tokens += tokens
        if self.last:
            _settle(self.last, tokens if cut else None, self.tested, self.accepted)

    def note(self, e: Noted) -> None:
        """The program noted a figure."""
        before = self.notes.get(e.name, Figure(0, 0, 0, math.inf, -math.inf))
        self.notes[e.name] = before.then(e)

    def called(self, other: Tally) -> None:
        """Count a sub-run's calls."""
        self.target += other.target
        self.draft += other.draft
        for name, n in other.calls.items():
            self.calls[name] = self.calls.get(name, 0) + n

    def stats(self) -> Stats:
        """The numbers so far, as `Stats.of` computes them from events."""
        _settle(self.last, None, self.tested, self.accepted)
        depths = range(1, max(self.tested, default=0) + 1)
        return Stats(self.tokens, self.target, self.draft, self.drafted, self.unmasked, self.remasked,
                     tuple(self.tested.get(d, 0) for d in depths), tuple(self.accepted.get(d, 0) for d in depths),
                     self.stopped, dict(self.calls), dict(self.errors),
                     dict(self.notes))  # fmt: skip


class Recorded(Protocol):
    """The run that a recorder listens to (backends/run.py)."""

    def places(self) -> Iterable[Loc]:
        """Where the program is, the innermost operation first; empty where the backend cannot tell."""
        ...


class Timing:
    """What a run tells beside its events: when its models computed, and which lines ran."""

    def computed(self, start: float, later: int = 0) -> None:
        """Models have computed since `start` (time.perf_counter), or a cache has answered: the calls are those whose events no
        span has yet. later: more calls of the last one's model, whose events follow (a draft loop)."""

    def ran(self, loc: Loc) -> None:
        """An operation at a place of the program is about to run."""

    def timed(self, apply: Callable[[Op], T], loops: Mapping[Op, bool]) -> Callable[[Op], T]:
        """Applying an operation, with its line, the time of those that call models, and the end of loops: for the interpreter.
        loops: as `turn` is told of them."""

        def watched(op: Op) -> T:
            self.ran(op.loc)
            start = time.perf_counter()
            try:
                return apply(op)
            finally:
                if op.opcode.startswith(("model.", "head.")):
                    self.computed(start)
                elif op in loops:
                    self.turn(outermost=loops[op])

        return watched

    def turn(self, *, outermost: bool) -> None:
        """An iteration of a loop that calls models begins, or such a loop has ended. outermost: it is in no other one."""

    def begin_iteration(self, i: int) -> None:
        """Iteration i of the loop `while not done` begins."""

    def offer(self, node: int, p: float | None, q: float | None, raw: float | None) -> None:
        """The probabilities of a draft that a rule is about to test. raw: p before the request's shaping."""

    def emits(self, p: float | None, raw: float | None) -> None:
        """The probability of the token that a rule is about to emit, and that before the request's shaping."""

    def marks(self, columns: Mapping[str, Sequence[object]]) -> None:
        """What the nodes of the tree that is being drafted hold, a value a node; None where one holds none."""

    def canvas(self, start: int, cells: int) -> None:
        """Cells of a canvas that begins after `start` tokens are about to be decided or masked again."""

    def inside(self) -> Timing:
        """What a sub-run tells: its model calls and nothing else, since its events are not the run's."""
        return Inside(self)

    def start(self, run: Recorded, path: str) -> None:
        """Called by the session with the run that it will hear, and the file of its algorithm."""


class Inside(Timing):
    """The recorder of a sub-run."""

    def __init__(self, outer: Timing) -> None:
        self.outer = outer

    def computed(self, start: float, later: int = 0) -> None:
        self.outer.computed(start, later)

    def ran(self, loc: Loc) -> None:
        self.outer.ran(loc)
