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


@dataclass
class Times:
    """Seconds by contender, one entry per group, in the same order for all. groups: (round, request) of each entry.

    `failed`: what ended a contender, which then has no times. `interrupted`: whether Ctrl-C came before the last group."""

    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    groups: list[tuple[int, int]] = field(default_factory=list)
    failed: dict[str, DecError] = field(default_factory=dict)
    interrupted: bool = False

    def drop(self, name: str, error: DecError) -> None:
        """A contender that failed takes no further part."""
        self.failed[name] = error
        for times in (self.wall, self.cpu, self.tokens):
            times.pop(name, None)


def alternated(
    contenders: Mapping[str, Run],
    requests: int,
    rounds: int,
    *,
    seed: int = 0,
    waited: Callable[[], object] = lambda: None,
    on_progress: Callable[[int, int], None] = lambda round_, request: None,
) -> Times:
    """Run every request by every contender, `rounds` times over.

    Within a (round, request) the contenders run in an order drawn with `seed`. A contender that raises a DecError is dropped
    (`Times.failed`) and the others go on; Ctrl-C ends the measuring after the last group that is whole. A contender may return
    how many tokens it made. waited: called before a clock is read, where work goes on elsewhere (a GPU). on_progress: called
    with the (round, request) that is over.
    """
    order = random.Random(seed)
    names = list(contenders)
    times = Times({name: [] for name in names}, {name: [] for name in names}, {name: [] for name in names})
    try:
        for round_ in range(rounds):
            for request in range(requests):
                names = [name for name in names if name not in times.failed]
                order.shuffle(names)
                gc.collect()  # so that nobody pays for what another left behind
                group: dict[str, tuple[float, float, int]] = {}
                for name in names:
                    waited()
                    wall, cpu = time.perf_counter(), time.process_time()
                    try:
                        made = contenders[name](request)
                    except DecError as error:
                        times.drop(name, error)
                        continue
                    waited()
                    group[name] = time.perf_counter() - wall, time.process_time() - cpu, made if isinstance(made, int) else 0
                times.groups.append((round_, request))
                for name, (wall, cpu, tokens) in group.items():
                    times.wall[name].append(wall)
                    times.cpu[name].append(cpu)
                    times.tokens[name].append(tokens)
                on_progress(round_, request)
    except KeyboardInterrupt:
        times.interrupted = True
    return times
