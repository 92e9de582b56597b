"""Continuous batching: many runs at a time, their model calls computed together.

Every run is a generator of calls (machine.py). In a round the runs that can continue are advanced to their next call, in the
order of their requests; then one engine computes all of its waiting calls in one forward. A run that ends makes room for the
next request at once, so runs join and leave between any two forwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from decgraph.backends.torch.pending import FoldCall
from decgraph.backends.torch.transfer import watch
from decgraph.runtime.faults import fault


@dataclass
class Running:
    """A run in flight: its machine, its generator, and the call that it waits for."""

    number: int
    machine: Any
    steps: Generator[Any, Any, None]
    call: Any = None
    answer: Any = None  # of the call; an exception where there is none
    ready: bool = True
    over: bool = False


def run_many(waiting: Iterator[tuple[int, Any]], width: int, ended: Callable[[int, Any, BaseException | None], None]) -> None:
    """Run machines, at most `width` at a time. `ended(number, machine, error)` is called as each ends.

    What one run raises ends that run alone. A KeyboardInterrupt ends all that are in flight and is raised again.
    """
    flight: deque[Running] = deque()
    open_for_more = True
    try:
        while True:
            while open_for_more and len(flight) < width:
                entry = next(waiting, None)
                if entry is None:
                    open_for_more = False
                else:
                    flight.append(Running(entry[0], entry[1], entry[1].steps()))
            if not flight:
                return
            flight = deque([run for run in flight if not advance(run, ended)])
            if flight and (len(flight) == width or not open_for_more):  # else others join before the next forward
                answer(flight)
    except BaseException as stop:  # whatever it was, nothing stays open
        for run in flight:
            if not run.over:
                run.steps.close()
                run.machine.release()
                if isinstance(stop, KeyboardInterrupt):
                    ended(run.number, run.machine, stop)
        raise


def advance(run: Running, ended: Callable[[int, Any, BaseException | None], None]) -> bool:
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


def _resumed(run: Running, value: Any) -> Any:
    """Send a run the result of its call; returns its next call. An exception of the call is raised at the line that made it."""
    if run.call is None:
        return next(run.steps)
    try:
        if isinstance(value, Exception):
            raise value
        taken = run.call.take(value)
    except Exception as error:
        return run.steps.throw(error)
    return run.steps.send(taken)


def answer(flight: deque[Running]) -> None:
    """Compute all calls that wait for one engine."""
    groups: dict[Any, list[Running]] = {}
    for run in [r for r in flight if not isinstance(r.call, FoldCall)] or flight:  # folds wait for all sequences
        groups.setdefault((id(run.call.engine), run.call.kind), []).append(run)
    # Drafters come first, so that late runs catch up and the target, which costs most, is called for all at once.
    chosen = max(groups.values(), key=lambda g: (not _target(g[0]), len(g)))
    alone = [run for run in chosen if run.call.alone]
    together = [run for run in chosen if not run.call.alone]
    for group in ([together] if together else []) + [[run] for run in alone]:
        for run, value in zip(group, answered(group), strict=True):
            run.answer, run.ready = value, True


def answered(group: list[Running]) -> list[Any]:
    """The results of the calls of several runs; an exception is the result of the run that caused it.

    An engine's exception does not say whose call it was, and the KV cache of these runs may be half written: it is dropped, and
    each call is computed alone. A batch that did not fit into memory succeeds this way, too.
    """
    try:
        got: list[Any] = group[0].call.compute_all([run.call for run in group])
        return got
    except Exception as error:
        for run in group:
            run.call.engine.close(run.call.sequence)
            run.call.again()
        if len(group) == 1:
            return [error]
    return [answered([run])[0] for run in group]


def _target(run: Running) -> bool:
    main = run.machine.main
    return main is not None and run.call.engine is run.machine.engine(main)
