"""Continuous batching: many runs at a time, their model calls computed together.

Every run is a generator of calls (machine.py). In a round the runs that can continue are advanced to their next call, in the
order in which they joined; then one engine computes all of its waiting calls in one forward. A run that ends makes room for the
next one at once, so runs join and leave between any two forwards. Runs of different algorithms share forwards where they call
the same model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from decgraph.backends.torch.pending import Call, DraftLoopCall, EngineCall, MeetingCall, Steps
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.transfer import watch
from decgraph.runtime.faults import fault, noted_outside
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import ForwardCall, OverCore
from decgraph.runtime.models.engine.saved_rows import fill, lacks

FEW = 16
"""Tokens of a context that are computed with its call in any round: those of a decoding step."""

OVERDUE = 64
"""Rounds after which a call is computed whatever others wait."""

M = TypeVar("M", bound=Machine)
R = TypeVar("R")
Ended: TypeAlias = Callable[[int, R, BaseException | None], None]
"""Called as a run ends, with its number, its machine and what it raised."""


@dataclass
class Running(Generic[M]):
    """A run in flight: its machine, its generator, and the call that it waits for."""

    number: int
    machine: M
    steps: Steps[None]
    call: Call | None = None
    answer: object = None  # of the call; an exception where there is none
    ready: bool = True
    over: bool = False
    waited: int = 0  # rounds since its call was made, in which another call was computed

    @property
    def waiting(self) -> Call:
        """The call of a run that waits for one."""
        assert self.call is not None
        return self.call


class Schedule(Generic[M]):
    """Runs in flight. To be used by one thread: engines have no locks.

    ended(number, machine, error): called as each run ends, when its KV cache is freed (or kept, under a cache key). What one
    run raises ends that run alone. chunk: how many tokens of prompts a round computes at most; a longer prompt is computed over
    several rounds, and the other runs' calls go on in between. None: a prompt is computed in the round that asks for it.
    apart: operations over the batch (`batch.fold`, `batch.top`) see each run as a batch of one, so its tokens do not depend
    on the others.
    """

    def __init__(self, ended: Ended[M], *, chunk: int | None = None, apart: bool = False) -> None:
        self.ended, self.chunk, self.apart = ended, chunk, apart
        self.flight: deque[Running[M]] = deque()
        self._turn = -1  # the run whose prompt was computed last
        self.prefilled = 0
        """Prompt tokens that were computed in chunks before the calls that need them."""

    def __len__(self) -> int:
        return len(self.flight)

    def join(self, number: int, machine: M) -> None:
        """Take up a run; `number` is what `ended` and `cancel` call it."""
        self.flight.append(Running(number, machine, machine.steps()))

    def drives(self, machine: M) -> bool:
        """Whether a machine is driven call by call here, so that engines keep its keys and values."""
        return True

    def cancel(self, number: int) -> bool:
        """End a run between two forwards and free its KV cache; `ended` is not called. False where it is not in flight."""
        for run in self.flight:
            if run.number == number:
                self.flight.remove(run)
                self._close(run)
                return True
        return False

    def advance(self) -> bool:
        """One round: every run to its next call, then one engine's calls. Whether any run is left."""
        self.proceed()
        self.answer()
        return bool(self.flight)

    def proceed(self) -> None:
        """Advance the runs whose call was answered to their next one; `ended` is called for those that end instead."""
        self.flight = deque([run for run in self.flight if not advance(run, self.ended)])

    def answer(self) -> None:
        """Compute all calls that wait for one engine."""
        if self.flight:
            answer(self.flight, self)

    def with_prompts(self, waiting: Sequence[Running[M]], chunk: int) -> list[Running[M]]:
        """The runs whose calls can be computed now: those that lack few tokens of their context, and of the others, in turn, as
        many as lack `chunk` tokens together. Of a context that lacks more, a chunk is computed."""
        now, left = [], chunk
        lacking: list[tuple[Running[M], int]] = []
        for run in waiting:
            lacks = missing(run.waiting)
            if lacks <= FEW:
                now.append(run)
            else:
                lacking.append((run, lacks))
        first = next((n for n, (run, _) in enumerate(lacking) if run.number > self._turn), 0)  # after the last one served
        for run, lacks in [*lacking[first:], *lacking[:first]]:
            if lacks <= left:
                now.append(run)
                left -= lacks
            elif left == chunk:
                self._turn, left = run.number, 0
                self.prefilled += chunk
                problem = prefill(run.waiting, chunk)
                if problem is not None:
                    now.append(run)  # its call fails for the same reason, and says so at its line
        return now

    def close(self, stop: BaseException | None = None) -> None:
        """End all runs and free their KV caches. `ended` is called with `stop` where that is a KeyboardInterrupt."""
        for run in self.flight:
            if not run.over:
                self._close(run)
                if isinstance(stop, KeyboardInterrupt):
                    self.ended(run.number, run.machine, stop)
        self.flight.clear()

    def _close(self, run: Running[M]) -> None:
        run.over = True
        run.steps.close()
        run.machine.release()


def run_many(waiting: Iterator[tuple[int, M]], width: int, ended: Ended[M]) -> None:
    """Run machines, at most `width` at a time. `ended(number, machine, error)` is called as each ends.

    What one run raises ends that run alone. A KeyboardInterrupt ends all that are in flight and is raised again.
    """
    schedule = Schedule(ended)
    open_for_more = True
    try:
        while True:
            while open_for_more and len(schedule) < width:
                entry = next(waiting, None)
                if entry is None:
                    open_for_more = False
                else:
                    schedule.join(*entry)
            if not len(schedule):
                return
            schedule.proceed()
            if len(schedule) == width or not open_for_more:  # else others join before the next forward
                schedule.answer()
    except BaseException as stop:  # whatever it was, nothing stays open
        schedule.close(stop)
        raise


def advance(run: Running[M], ended: Ended[M]) -> bool:
    """Take a run to its next call; True where it ended instead."""
    if not run.ready:
        return False
    watch(run.machine)
    problem: Exception | None = None
    try:
        while True:
            value, run.answer = run.answer, None
            run.call = _resumed(run, value)
            if run.call.engine is not None:
                run.ready = False
                return False
    except StopIteration:
        pass
    except Exception as error:
        problem = fault(error, request=run.machine.title)
    run.over = True
    run.steps.close()
    run.machine.release()
    ended(run.number, run.machine, problem)
    return True


def _resumed(run: Running[M], value: object) -> Call:
    """Send a run the result of its call; returns its next call. An exception of the call is raised at the line that made it."""
    if run.call is None:
        return next(run.steps)
    try:
        if isinstance(value, Exception):
            raise value
        taken = run.call.take(value)
    except Exception as error:
        return run.steps.throw(noted_outside(error))
    return run.steps.send(taken)


def answer(flight: Sequence[Running[M]], how: Schedule[M]) -> None:
    """Compute all calls that wait for one engine."""
    groups: dict[Hashable, list[Running[M]]] = {}
    meeting = [run for run in flight if isinstance(run.call, MeetingCall)]
    if how.apart and meeting:
        for run in meeting:
            run.answer, run.ready = answered([run])[0], True
        return
    waiting = [run for run in flight if not isinstance(run.call, MeetingCall)] or flight  # they wait for all sequences
    for run in waiting if how.chunk is None else how.with_prompts(waiting, how.chunk):
        groups.setdefault((id(run.waiting.engine), run.waiting.kind), []).append(run)
    if not groups:
        return
    for run in flight:
        run.waited += 1
    chosen = max(groups.values(), key=_first)
    for run in chosen:
        run.waited = 0
    alone = [run for run in chosen if run.waiting.alone]
    together = [run for run in chosen if not run.waiting.alone]
    for group in ([together] if together else []) + [[run] for run in alone]:
        for run, value in zip(group, answered(group), strict=True):
            run.answer, run.ready = value, True


def answered(group: list[Running[M]]) -> Sequence[object]:
    """The results of the calls of several runs; an exception is the result of the run that caused it.

    An engine's exception does not say whose call it was, and the KV cache of these runs may be half written: it is dropped, and
    each call is computed alone. A batch that did not fit into memory succeeds this way, too.
    """
    try:
        calls = [run.waiting for run in group]
        return calls[0].compute_all(calls)
    except Exception as error:
        for run in group:
            if run.waiting.engine is not None:
                run.waiting.engine.close(run.waiting.sequence)
            run.waiting.again()
        if len(group) == 1:
            return [error]
    return [answered([run])[0] for run in group]


def _first(group: list[Running[M]]) -> tuple[bool, bool, int, int]:
    """Which group's turn it is: drafters come first, so that late runs catch up and the target, which costs most, is called for
    all at once. Of the others the one that waits longest, or a kind of call that few runs make would never be computed."""
    waited = max(run.waited for run in group)
    return waited > OVERDUE, not _target(group[0]), waited, len(group)


def _target(run: Running[M]) -> bool:
    main = run.machine.main
    return main is not None and run.waiting.engine is run.machine.engines[main]


def missing(call: Call) -> int:
    """How many tokens of a call's context are not in its engine's cache; 0 where that cannot be told, or has no chunks."""
    found = _of(call)
    return 0 if found is None else lacks(*found)


def prefill(call: Call, count: int) -> Exception | None:
    """Compute the next `count` uncached tokens of a call's context; the error, where the engine has one."""
    found = _of(call)
    if found is None:
        return None
    engine, ask = found
    try:
        return fill(engine, ask, count)
    except Exception as error:
        engine.close(ask.sequence)
        return error


def _of(call: Call) -> tuple[CausalEngine, ForwardCall] | None:
    """The causal engine that caches a call's context, and the first of the call's requests."""
    engine = call.engine.core if isinstance(call.engine, OverCore) else call.engine  # heads read a causal engine's states
    if type(engine) is not CausalEngine:
        return None
    asks = [call.loop.call] if isinstance(call, DraftLoopCall) else call.asks if isinstance(call, EngineCall) else ()
    ask = next(iter(asks), None)
    return (engine, ask) if isinstance(ask, ForwardCall) and ask.memory is None else None
