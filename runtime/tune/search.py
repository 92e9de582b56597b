"""Searching by measurement: one parameter after the other, and along each successive halving of the settings in question."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from decgraph.runtime.tune.space import Axis, Setting
from decgraph.runtime.tune.trial import Trials

Left = Callable[[], float]
HOPELESS = 0.75  # of the fastest one's speed: a setting slower than that after its first runs is dropped


def until(seconds: float, clock: Callable[[], float] = time.monotonic) -> Left:
    """A function that says how many of these seconds are left."""
    end = clock() + seconds
    return lambda: end - clock()


def halved(trials: Trials, settings: Sequence[Setting], seconds_left: Left, rounds: int = 2) -> list[Setting]:
    """Settings from the fastest down, as far as measured: all run `rounds` requests, the better half twice as many, and so on.

    What fails is not among them. Stops when the time is up.
    """
    alive = list(dict.fromkeys(settings))
    trials.warm(alive)
    for _ in range(rounds):
        if seconds_left() <= 0:
            break
        trials.once(alive)
    alive = sorted((s for s in alive if not trials.of(s).failed), key=lambda s: -trials.of(s).ratio)
    if len(alive) <= 2 or seconds_left() <= 0:
        return alive
    best, half = trials.of(alive[0]).ratio, (len(alive) + 1) // 2
    stay = [s for n, s in enumerate(alive) if n < half and trials.of(s).ratio > HOPELESS * best]
    return [*halved(trials, stay, seconds_left, 2 * rounds), *(s for s in alive if s not in stay)]


def descend(
    trials: Trials,
    axes: Sequence[Axis],
    start: Setting,
    seconds_left: Left,
    *,
    told: Callable[[Setting], None] = lambda _: None,
    gain: float = 1.01,
) -> Setting:
    """Coordinate descent from a setting: along each axis to the fastest neighbour, until no axis has a faster one by `gain`,
    or the time is up. An axis is looked at far and wide first, then near the fastest. `told` hears every setting that is moved
    to."""
    now = start
    stuck, wide = 0, {axis.name for axis in axes if len(axis.values) > 5}
    while stuck < len(axes):
        for axis in axes:
            if stuck >= len(axes) or seconds_left() <= 0:
                return now
            near = [moved(now, axis.name, value) for value in axis.around(dict(now)[axis.name], wide=axis.name in wide)]
            if axis.name in wide:  # of so many a first look leaves time for a second one
                near = near[: max(3, int(seconds_left() / (4 * max(trials.lasts, 1e-9))))]
            ranked = halved(trials, [now, *near], seconds_left, rounds=1 if axis.name in wide else 2)
            first = next((s for s in ranked if trials.of(s).runs), now)
            if first != now and trials.of(first).ratio > gain * _ratio(trials, now):
                now, stuck = first, 0
                told(now)
            elif axis.name not in wide:
                stuck += 1
            wide.discard(axis.name)
    return now


def _ratio(trials: Trials, chosen: Setting) -> float:
    return 1.0 if chosen == trials.default else trials.of(chosen).ratio


def moved(chosen: Setting, name: str, value: object) -> Setting:
    """A setting with another value of one parameter."""
    return tuple((n, value if n == name else v) for n, v in chosen)


def fastest(trials: Trials, settings: Iterable[Setting], count: int) -> list[Setting]:
    """The fastest measured settings, without the default."""
    met = [s for s in dict.fromkeys(settings) if s != trials.default and trials.of(s).ratios and not trials.of(s).failed]
    return sorted(met, key=lambda s: -trials.of(s).ratio)[:count]
