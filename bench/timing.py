"""Times contenders against each other: in one process, alternating, in a random order within every round.

A shared machine drifts by the second, so two long runs one after the other say little. Here every request is run by every
contender before the next request comes, so that ratios of times are of runs one after the other. Beside the wall clock there
is the processor's (`time.process_time`): on a machine with more to do than cores it leaves out the waiting. Where nobody else
runs, the two ratios agree.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from decgraph.errors import DecError

Run = Callable[[int], object]  # runs request number n; may return how many tokens it made


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Of one value or more."""
        if len(values) == 1:
            return Spread(values[0], values[0], values[0])
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        return Spread(middle, low, high)

    def to_json(self) -> dict[str, float]:
        """Rounded to four digits."""
        return {name: float(f"{value:.4g}") for name, value in vars(self).items()}


class TimedRun(NamedTuple):
    """One run: seconds by the wall clock and by the processor's, and the tokens that it made."""

    wall: float
    cpu: float
    tokens: int


@dataclass
class Times:
    """What runs took. groups: (round, request) of each turn. runs: what each contender took in it; a contender need not be in
    every turn.

    `failed`: what ended a contender, which then has no times. `interrupted`: whether Ctrl-C came before the last group."""

    groups: list[tuple[int, int]] = field(default_factory=list)
    runs: list[dict[str, TimedRun]] = field(default_factory=list)
    failed: dict[str, DecError] = field(default_factory=dict)
    interrupted: bool = False

    def of(self, what: str) -> dict[str, list[Any]]:
        """By contender, its "wall", "cpu" or "tokens" of every turn that it took part in."""
        names = dict.fromkeys(name for turn in self.runs for name in turn)
        return {name: [getattr(turn[name], what) for turn in self.runs if name in turn] for name in names}

    def drop(self, name: str, error: DecError) -> None:
        """A contender that failed takes no further part."""
        self.failed[name] = error
        for turn in self.runs:
            turn.pop(name, None)

    def turn(
        self,
        contenders: Mapping[str, Run],
        round_: int,
        request: int,
        order: random.Random,
        waited: Callable[[], object] = bool,
    ) -> None:
        """Run one request by every contender that has not failed, in a drawn order. Raises KeyboardInterrupt, and keeps nothing
        of the turn then."""
        names = [name for name in contenders if name not in self.failed]
        order.shuffle(names)
        gc.collect()  # so that nobody pays for what another left behind
        taken: dict[str, TimedRun] = {}
        for name in names:
            waited()
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                made = contenders[name](request)
            except DecError as error:
                self.drop(name, error)
                continue
            waited()
            tokens = made if isinstance(made, int) else 0
            taken[name] = TimedRun(time.perf_counter() - wall, time.process_time() - cpu, tokens)
        self.groups.append((round_, request))
        self.runs.append(taken)


def alternated(
    contenders: Mapping[str, Run],
    requests: int,
    rounds: int,
    *,
    seed: int = 0,
    waited: Callable[[], object] = bool,
    on_progress: Callable[[int, int], None] = lambda round_, request: None,
    enough: Callable[[], bool] = lambda: False,
) -> Times:
    """Run every request by every contender, `rounds` times over.

    Within a (round, request) the contenders run in an order drawn with `seed`. A contender that raises a DecError is dropped
    (`Times.failed`) and the others go on; Ctrl-C ends the measuring after the last group that is whole. A contender may return
    how many tokens it made. waited: called before a clock is read, where work goes on elsewhere (a GPU). on_progress: called
    with the (round, request) that is over. enough: whether it may end before all rounds are over.
    """
    order, times = random.Random(seed), Times()
    try:
        for round_ in range(rounds):
            for request in range(requests):
                if times.groups and enough():
                    return times
                times.turn(contenders, round_, request, order, waited)
                on_progress(round_, request)
    except KeyboardInterrupt:
        times.interrupted = True
    return times
