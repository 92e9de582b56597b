"""Times contenders against each other: in one process, alternating, in a random order within every round.

A shared machine drifts by the second, so two long runs one after the other say little. Here every request is run by every
contender before the next request comes, and what is reported is the median over (round, request) of the ratio of the
two times, with its quartiles. Beside the wall clock there is the processor's (`time.process_time`): on a machine with
more to do than cores it leaves out the waiting. Where nobody else runs, the two ratios agree.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Run = Callable[[int], object]  # runs request number n


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
    """Seconds by contender, one entry per (round, request), in the same order for all."""

    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def seconds(self, name: str) -> Spread:
        """A request's time on the wall clock."""
        return Spread.of(self.wall[name])

    def ratio(self, slow: str, fast: str, *, cpu: bool = False) -> Spread:
        """How many times as long `slow` took: over pairs of runs of the same request, one after the other."""
        times = self.cpu if cpu else self.wall
        return Spread.of([a / b for a, b in zip(times[slow], times[fast], strict=True)])


def alternated(contenders: Mapping[str, Run], requests: int, rounds: int, *, warm: int = 1, seed: int = 0) -> Times:
    """Run every request by every contender, `rounds` times over, after `warm` rounds that are not timed."""
    order = random.Random(seed)
    names = list(contenders)
    times = Times({name: [] for name in names}, {name: [] for name in names})
    for round_ in range(warm + rounds):
        for request in range(requests):
            order.shuffle(names)
            gc.collect()  # so that nobody pays for what another left behind
            for name in names:
                wall, cpu = time.perf_counter(), time.process_time()
                contenders[name](request)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                if round_ >= warm:
                    times.wall[name].append(wall)
                    times.cpu[name].append(cpu)
    return times
