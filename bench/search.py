"""Searching by measurement: successive halving of all that enters, and of each parameter's values along the parameters."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence

from decgraph.bench.race import AlgorithmRace
from decgraph.runtime.tune.space import Axis, Entrant

Left = Callable[[], float]
SLOW = 0.5  # of the base's speed: what is slower than that in its first run has no second one
TOGETHER = 6  # of many: so many run a turn, so that what there is time for is measured whole
HOPELESS = 0.75  # of the fastest one's speed: what is slower than that after its first runs is dropped


def until(seconds: float, clock: Callable[[], float] = time.monotonic) -> Left:
    """A function that says how many of these seconds are left."""
    end = clock() + seconds
    return lambda: end - clock()


def looked_at(
    race: AlgorithmRace,
    entrants: Sequence[Entrant],
    seconds_left: Left,
    *,
    rounds: int,
    tokens: int | None,
    told: Callable[[str], None],
) -> Sequence[Entrant]:
    """Those, of different entrants, that there was time for to run the same `rounds` groups."""
    first, reached = race.turns, 0
    while reached < len(entrants) and seconds_left() > 0:
        some = entrants[reached : reached + TOGETHER]
        reached += len(some)
        race.warm(some)
        for n in range(rounds):
            if seconds_left() <= 0:
                break
            race.once([one for one in some if race.ratio(one) > SLOW], tokens, first + n)
        best = max(entrants[:reached], key=race.ratio)
        told(f"{reached} of {len(entrants)} ran {tokens or race.limit} tokens; {race.ratio(best):.2f}: {best.label}")
    return entrants[:reached]


def halved(
    race: AlgorithmRace,
    entrants: Sequence[Entrant],
    seconds_left: Left,
    *,
    rounds: int = 2,
    tokens: int | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> list[Entrant]:
    """Entrants from the fastest down, as far as measured: all run `rounds` groups, the better half twice as many and twice as
    long, and so on. tokens: of the first requests; None: whole ones.

    What fails is not among them, and what there was no time to run comes last. Stops when the time is up.
    """
    alive = list(dict.fromkeys(entrants))
    reached = looked_at(race, alive, seconds_left, rounds=rounds, tokens=tokens, told=told)
    late = alive[len(reached) :]
    alive = sorted((s for s in reached if s.label not in race.failed), key=lambda s: (not race.ran(s), -race.ratio(s)))
    if len(alive) <= 2 or seconds_left() <= 0:
        return [*alive, *late]
    best, half = race.ratio(alive[0]), (len(alive) + 1) // 2
    stay = [s for n, s in enumerate(alive) if n < half and race.ratio(s) > HOPELESS * best]
    longer = None if tokens is None or 2 * tokens >= race.limit else 2 * tokens
    again = halved(race, stay, seconds_left, rounds=2 * rounds, tokens=longer, told=told)
    return [*again, *(s for s in alive if s not in stay), *late]


def descend(
    race: AlgorithmRace,
    axes: Sequence[Axis],
    start: Entrant,
    seconds_left: Left,
    *,
    told: Callable[[Entrant], None] = lambda _: None,
    gain: float = 1.01,
) -> Entrant:
    """Coordinate descent from a setting: along each axis to the fastest neighbour, until no axis has a faster one by `gain`,
    or the time is up. An axis is looked at far and wide first, then near the fastest. `told` hears every setting that is moved
    to."""
    now = start
    stuck, wide = 0, {axis.name for axis in axes if len(axis.values) > 5}
    while stuck < len(axes):
        for axis in axes:
            if stuck >= len(axes) or seconds_left() <= 0:
                return now
            near = [now.moved(axis.name, value) for value in axis.around(dict(now.setting)[axis.name], wide=axis.name in wide)]
            if axis.name in wide:  # of so many a first look leaves time for a second one
                near = near[: max(3, int(seconds_left() / (4 * max(race.lasts, 1e-9))))]
            ranked = halved(race, [now, *near], seconds_left, rounds=1 if axis.name in wide else 2)
            first = next((s for s in ranked if race.ran(s)), now)
            if first != now and race.ratio(first) > gain * race.ratio(now):
                now, stuck = first, 0
                told(now)
            elif axis.name not in wide:
                stuck += 1
            wide.discard(axis.name)
    return now


def fastest(race: AlgorithmRace, count: int, *, each: int) -> list[Entrant]:
    """The fastest that were measured, without the base; at most `each` settings of an algorithm."""
    met = [one for one in race.entrants.values() if one != race.base and race.pairs(one) and one.label not in race.failed]
    out: list[Entrant] = []
    weight = {one: (n := race.ran(one)) / (n + 2) for one in met}  # what ran once may have been lucky
    for one in sorted(met, key=lambda s: -weight[s] * math.log(race.ratio(s))):
        if sum(one.algorithm == other.algorithm for other in out) < each:
            out.append(one)
    return out[:count]


def best_of_each(entrants: Iterable[Entrant]) -> list[Entrant]:
    """The first of every algorithm."""
    return list({one.algorithm: one for one in reversed(list(entrants))}.values())[::-1]
