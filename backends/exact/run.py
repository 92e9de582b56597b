"""The reference machine over rationals: a run whose noise is unknown (draws.py), which can stop after some steps and start
in any state."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, cast

import numpy as np

from decgraph.backends.exact.choices import TooMany
from decgraph.backends.exact.draws import ExactDraws
from decgraph.backends.exact.reals import NotSeparated, signature
from decgraph.backends.exact.states import Signer, Unknown, live_values, settled_walks
from decgraph.backends.exact.world import AnyFunction, Enough, World
from decgraph.backends.reference.places import is_soft, read_path, tokens_of
from decgraph.backends.reference.protocols import Context, Machine, RowSource
from decgraph.errors import DecError
from decgraph.ir.data.canvas import Canvas, Cell
from decgraph.ir.data.dist import Draws, Row, resolve_path
from decgraph.ir.data.numbers import Number
from decgraph.ir.data.tree import Tree
from decgraph.ir.intervals import End, Interval
from decgraph.ir.machine import Datum, Vector
from decgraph.ir.ops.common import plain
from decgraph.ir.table import lookup
from decgraph.ir.types import REAL, Type
from decgraph.ir.values import Op, Region, Value
from decgraph.runtime.models.interface import Memory, Model, Scores
from decgraph.runtime.models.reading import AnyReading
from decgraph.runtime.reals.real import Real
from decgraph.runtime.stop import StopMachine
from decgraph.runtime.trace import DraftEnded, Event, Remasked


def settled(value: object) -> Hashable:
    """A host function's result as what it can be compared by."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(settled, value))
    return (type(value).__name__, value)


MOST_FORCED = 20
"""Iterations of a loop that waits for cells, with an imposed outcome; worlds have eight cells at most."""


def counted(region: Region) -> set[Value]:
    """The values that the ops of a region read."""
    return {v for op in region.walk() for v in op.operands} | {v for op in region.walk() for r in op.regions for v in r.yields}


class Beginning(Protocol):
    """Where a run begins and what it leaves: check/initial_states.py has one."""

    def states(self, m: ExactMachine) -> None: ...
    def carried(self, m: ExactMachine, op: Op, values: Sequence[Datum]) -> list[Datum]: ...
    def check_carried(self, m: ExactMachine, op: Op, values: Sequence[Datum]) -> None: ...


class Counts(Protocol):
    """What hears the events of a run and its sub-runs: check/counts.py has one."""

    def hear(self, m: ExactMachine, event: Event) -> None: ...
    def state(self) -> Hashable: ...


class ExactMachine(ExactDraws):
    """A machine whose noise is unknown: every draw is a choice of `world`."""

    steps: int | None = None
    seen: dict[int, tuple[Hashable, ...]]  # of each loop that may not end, what its next iteration reads
    faults = (LookupError, ValueError, TypeError, ZeroDivisionError, AttributeError, OverflowError)
    begin: Beginning | None = None  # initial values of states and carried values; None: the program's own
    # called with a canvas before cells are decided on it; what it returns is kept in found_on_canvas, and ends the run
    watch_canvas: Callable[[Canvas, list[int], list[Cell]], Sequence[tuple[int, str]]] | None = None
    counted: Counts | None = None  # what a claim about cost counts of the request
    step = 0  # iteration of the outer `while not done`

    def on(self, world: World, steps: int | None = None) -> ExactMachine:
        """Set the world, and how many decoding steps to run (None: all)."""
        self.world, self.steps, self.read_before = world, steps, []
        self.found_on_canvas: list[tuple[int, str]] = []
        self.seen = {}
        return self

    def bounds(self, until: Sequence[str]) -> tuple[int | None, frozenset[int]]:
        """Useless drafts are tried as well: they must do no harm, and to skip them their tokens would have to be read."""
        return None, frozenset()

    def adopt(self, parent: Machine) -> None:
        self.world, self.seen = cast(ExactMachine, parent).world, {}

    def while_iteration(self, op: Op, i: int, values: tuple[Datum, ...] = ()) -> None:
        if op.attrs.get("bound") == "done" and self.parent is None:
            self.step = i
            if self.steps is not None and i >= self.steps:
                self.stopped(op, values)
                raise Enough
        super().while_iteration(op, i, values)
        self.repeats(op, i, values)
        if i and self.parent is None and self.world.choices.new:
            self.arrive(op, i, values)

    def repeats(self, op: Op, i: int, values: tuple[Datum, ...]) -> None:
        """Raises DecError where a loop never ends: an iteration has left all that the next one reads as it was, and read no
        noise."""
        if op.attrs.get("bound") != "progress" or any(region.args[0] in counted(region) for region in op.regions):
            return
        signer = Signer(self.world.races)
        try:
            kept = tuple(map(signer.of, (list(values), self.sequence_states, {str(k): v for k, v in self.shared.items()})))
        except Unknown:
            return
        now = (*kept, self.future(), self.decided, len(self.world.choices.points))
        before = self.seen.get(id(op)) if i else None
        self.seen[id(op)] = now
        self.kept_alive.append((signer, values))
        if before == now:
            raise DecError(f"{op.loc}: this loop does not end: an iteration leaves everything as it was")

    def end_draft(self, event: DraftEnded) -> None:
        if self.world.ran is not None:
            self.world.ran.draft_errors.setdefault(":".join(event.error.split(":")[:2]), event.error)
        super().end_draft(event)

    def check_bound(self, where: str, i: int) -> None:
        """As the reference, sooner: a run that goes on for so long is not decided. Raises TooMany."""
        if i > self.most_iterations:
            raise TooMany(f"{where}: this loop has run {i} iterations without ending")

    def check_waiting(self, where: str, i: int) -> None:
        """As the reference, sooner where a condition's outcome is imposed: with it many a loop never ends, and a world in which
        that happens says nothing. Raises DecError after MOST_FORCED iterations then, else where the reference does."""
        if i > MOST_FORCED and self.world.ran is not None and self.world.ran.forced:
            raise DecError(f"{where}: this loop has run {i} iterations with a condition's outcome imposed")
        super().check_waiting(where, i)

    def for_iteration(self, op: Op, i: int, values: tuple[Datum, ...]) -> None:
        if self.parent is None and self.world.choices.new:
            self.arrive(op, i, values)

    def stopped(self, op: Op, values: tuple[Datum, ...]) -> None:
        """Called before the first step that is not run, with the values that would be carried into it."""
        if self.begin is not None:
            self.begin.check_carried(self, op, values)

    most_iterations = 2_000

    def start_states(self, values: Sequence[Datum]) -> None:
        super().start_states(values)
        if self.begin is not None and self.parent is None:
            self.begin.states(self)

    def carried(self, op: Op, values: tuple[Datum, ...]) -> tuple[Datum, ...]:
        if self.begin is not None and self.parent is None and op.attrs.get("bound") == "done":
            return tuple(self.begin.carried(self, op, values))
        return super().carried(op, values)

    def apply(self, op: Op) -> Sequence[Datum]:
        ran, env = self.world.ran, self.env
        if ran is None or id(op) not in ran.watched:
            return self.table[op.opcode].meaning(self, op, *[env[v] for v in op.operands])
        return ran.apply(self.world.choices, env, op, super().apply)

    def region(self, region: Region, args: Sequence[Datum]) -> list[Datum]:
        if self.world.ran is not None:
            self.world.ran.entered(region)
        try:
            return super().region(region, args)
        except NotSeparated as error:  # with the line of the op
            raise error.at(self.op.loc if self.op is not None else "") from None

    def check_end(self, op: Op, values: Sequence[Datum], yielded: Sequence[Datum]) -> None:
        """Nothing: a run that imposes outcomes may end early where the program does not."""

    def decide(self, op: Op, cond: Datum) -> bool:
        ran = self.world.ran
        found = super().decide(op, cond)
        return found if ran is None else ran.decided(self.world.choices, op, found)

    # -- states that were enumerated before
    def future(self) -> tuple[Hashable, ...]:
        """What the rest of the run depends on besides values: committed tokens, states, the reads of the output noise,
        the results of functions, and what is counted."""
        reads = {k: tuple((signature(q), y) for q, y in r.reads) for k, r in self.world.races.items() if k.site == "output"}
        output = frozenset((k, r) for k, r in reads.items() if r)
        answers = frozenset((key, settled(value)) for key, value in self.world.adversary.items())
        counted = None if self.counted is None else self.counted.state()
        return (tuple(self.committed_tokens()), output, answers, counted)

    def emit_event(self, event: Event) -> None:
        if isinstance(event, Remasked):
            line = self.whole.op.loc.line if self.whole.op is not None else 0
            self.world.choices.note(f"cell {event.position} is masked again, line {line}")
        if self.whole.counted is not None:
            self.whole.counted.hear(self, event)
        super().emit_event(event)

    def arrive(self, op: Op, i: int, values: tuple[Datum, ...]) -> None:
        """Report the state in which a loop begins its next iteration."""
        live = live_values(self.function).get(id(op))
        if live is None:
            return
        signer = Signer(self.world.races)
        try:
            state = (
                id(op),
                i,
                signer.of(list(values)),
                signer.of([self.env[v] for v in live if v in self.env]),
                signer.of(self.sequence_states),
                signer.of({str(k): v for k, v in self.shared.items()}),
                self.future(),
            )
        except Unknown:
            return
        self.kept_alive.append((signer, values))
        self.world.choices.arrive(state)

    def walked_enough(self, op: Op, t: Tree, evidence: Datum, node: int, depth: int) -> bool:
        """A verification may end where the rest of the run cannot see what follows, and where the same subtree was verified
        before."""
        if id(op) not in settled_walks(self.function) or self.parent is not None:
            return False
        last = self.steps is not None and self.step >= self.steps - 1
        if not last and (self.function.states or any(o.results for o in self.function.body.ops if o.opcode == "while")):
            return False
        enough = self.world.enough
        if depth and enough is not None and self.committed() + depth >= enough:
            return True
        if depth and self.world.choices.new and type(self).key is ExactMachine.key:
            signer = Signer(self.world.races)
            try:
                below = signer.tree(t, node)
                rows = [signer.of(self.evidence_at(evidence, n)) for n in range(len(t)) if self.under(t, n, node)]
                path = resolve_path(t.tokens(node))
                state = (id(op), self.step, depth, path, below, tuple(rows), self.future())
            except (Unknown, LookupError, IndexError):
                return False
            self.kept_alive.append((signer, t))
            self.world.choices.arrive(state)
        return False

    @staticmethod
    def under(t: Tree, n: int, node: int) -> bool:
        """Whether node n is `node` or a descendant of it."""
        while n > node:
            n = t.nodes[n].parent
        return n == node

    @property
    def kept_alive(self) -> list[object]:
        """Objects whose ids are part of the states of this enumeration."""
        return self.world.alive

    def release(self) -> None:
        super().release()
        self.sequence_states, self.memo = {}, {}

    def unmasked(self, c: Canvas, positions: list[int], values: list[Cell]) -> None:
        if self.watch_canvas is not None:
            self.found_on_canvas += self.watch_canvas(c, positions, values)
            if self.found_on_canvas:
                raise Enough
        super().unmasked(c, positions, values)

    def committed_context(self) -> tuple[int, ...]:
        """The prompt and the committed tokens."""
        return resolve_path(self.tokens)

    def resume(self, tokens: Sequence[int]) -> ExactMachine:
        """Start with tokens already committed."""
        for t in tokens:
            self.tokens.append(int(t))
            if not self.stop_state.done:
                self.stop_state = StopMachine.feed(self.stop_state, int(t))
        return self

    # -- models: a row is computed when it is read, once for all runs
    def score_paths(self, model: Model, states: Sequence[Context], memory: Memory | None) -> list[Callable[[], Scores]]:
        return [partial(self.score_path, model, s, memory) for s in states]

    def score_path(self, model: Model, state: Context, memory: Memory | None) -> Scores:
        return model.eval([read_path(state)], memory)[0]

    def model_row(self, source: RowSource) -> Row:
        row, (scores, path, allow) = super().model_row(source), (source.scores, source.path, source.allow)
        slow, request = row.face, self.request
        by_path = request.penalised or request.min_length or request.allow is not None

        def face(name: str) -> np.ndarray:
            s = scores()
            key = (id(s), id(request), name, None if allow is None else allow.tobytes(), tokens_of(path) if by_path else 0)
            found = self.world.rows.get(key)
            if found is None:
                found = self.world.rows[key] = (slow(name), s, request)  # what has its id in the key is kept alive
            return found[0]

        plain = allow is None and isinstance(scores, partial) and len(scores.args) == 3 and scores.args[2] is None
        plain = plain and not is_soft(path)  # what is said after a soft node is not said of a text
        origin = (source.model,) if plain else None
        return Row(face, position=row.position, node=source.node, path=path, label=row.label, origin=origin)

    def scores_of_values(self, values: np.ndarray, is_probs: bool) -> Scores:
        return Scores(weights=tuple(self.num.weights(values, is_probs)))

    # -- the caller's functions: an adversary whose results depend on the arguments alone
    def extern_once(
        self, name: str, f: Callable[..., object] | AnyReading, args: tuple[object, ...], returns: Type
    ) -> Any:  # Any: as `Run`
        key = (name, tuple(str(a) for a in args))
        if key not in self.world.adversary:
            if not isinstance(f, AnyFunction | AnyReading):
                return super().extern_once(name, f, args, returns)
            options = f.answers
            self.world.adversary[key] = self.world.choices.choose(
                [Fraction(0)] * len(options), options, f"{name}{args}", "adversary"
            )
        return self.world.adversary[key]

    def head_values(self, head: Model, paths: list[tuple[int, ...]]) -> Sequence[Number]:
        """What a head says after each path: as the caller's functions, an adversary's choice where the world says so."""
        if not (isinstance(head, AnyReading) and head.chosen):
            return super().head_values(head, paths)
        return [self.extern_once(head.name, head, (path,), REAL) for path in paths]

    def state_values(self, head: Model, rows: np.ndarray, layer: int | None, tokens: list[int] | None) -> Sequence[Number]:
        """What a head says of hidden states [n]: a number for each, an adversary's where the world says so."""
        if not (isinstance(head, AnyReading) and head.chosen):
            return super().state_values(head, rows, layer, tokens)
        beside = [""] * len(rows) if tokens is None else tokens
        return [self.extern_once(head.name, head, (str(layer), str(row), x), REAL) for row, x in zip(rows, beside, strict=True)]

    others: Sequence[Number] | None = None  # scores of other sequences' candidates; None: an adversary's
    folded: Mapping[int, Interval] = MappingProxyType(
        {}
    )  # what a sequence's number can be at a fold (low, high), by the op's id

    def batch_top(self, op: Op, x: Vector | Draws, k: Datum, by: Sequence[Datum]) -> Datum:
        """Those of the batch's best k candidates that are this sequence's: its own best few, as many as the others leave."""
        best = lookup("select.top").meaning(self, op, x, k, *by)[0]
        count = len(best.items) if isinstance(best, Draws) else len(best)
        if self.others is None:
            line = f", line {op.loc.line}" if op.loc.line else ""
            where = f"how many candidates of this sequence are among the batch's best{line}"
            mine = int(self.world.choices.choose([Fraction(0)] * (count + 1), list(range(count + 1)), where, "adversary"))
        else:
            keys = sorted((v for v in np.ravel(np.asarray(by[0], dtype=object))), reverse=True)
            mine = min(count, sum(sum(o > s for o in self.others) + n < int(cast(int, k)) for n, s in enumerate(keys[:count])))
        return Draws(best.items[:mine], None if best.at is None else best.at[:mine]) if isinstance(best, Draws) else best[:mine]

    noted: dict[int, set[End]] | None = None  # the numbers that sequences had at each fold, by the op's id

    def batch_fold(self, op: Op, x: Datum) -> Datum:
        """This sequence's number, or one that other sequences' numbers make of it: an adversary's choice."""
        mine = plain(x)
        assert isinstance(mine, int | float | Fraction | Real), "numbers are folded"
        if self.noted is not None and not isinstance(mine, Real):  # what is read of these is the least length of a path
            self.noted.setdefault(id(op), set()).add(mine)
        if self.others is not None and not self.others:  # a batch of one
            return mine
        line = f", line {op.loc.line}" if op.loc.line else ""
        options = folds_of(op.attrs["fn"], mine, op.operands[0].type.elem == "prob", self.folded.get(id(op)))
        where = f"{op.attrs['fn']} over the batch{line}"
        return self.world.choices.choose([Fraction(0)] * len(options), options, where, "adversary")


def folds_of(fn: str, x: Number, share: bool, numbers: Interval | None = None) -> list[Number]:
    """What a fold over a batch may be where this sequence's number is x: x itself, the next values that other sequences can
    make of it, and far ones. share: x is a probability. numbers: what a sequence's number can be (low and high), where that is
    known. Where x is not negative, no number of the batch is."""
    half = Fraction(1, 2)
    low = numbers.low if numbers is not None else -math.inf
    high = numbers.high if numbers is not None else math.inf
    if isinstance(x, int) and low > -math.inf:
        low = math.ceil(low)
    if isinstance(x, int) and high < math.inf:
        high = math.floor(high)
    if fn in ("any", "all"):
        other = fn == "any"
        return [bool(x)] if bool(x) == other or not low <= other <= high else [bool(x), other]
    if fn == "min":
        low = max(low, 0) if x >= 0 else low
        below = x * half if share or not isinstance(x, int) else x - 1
        return list(dict.fromkeys([x, *(v for v in (max(below, low), low) if -math.inf < v < x)]))
    if fn == "max":
        above = [(x + 1) * half, Fraction(1)] if share else [x + 1, x + 4]
        return list(dict.fromkeys([x, *(v for v in (min(a, high) for a in above) if v > x)]))
    least = max(low, 0) if x >= 0 else 1
    return list(dict.fromkeys([x, x + max(least, 1), x + max(least, 4)]))
