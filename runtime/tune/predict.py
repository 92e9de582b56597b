"""Predicting tokens a second of settings that were not run, from a few that were and from the cost of forwards.

Seconds of a step = forwards of each model, at their measured cost for as many new cells, and what is left: the host's own work,
fitted as a + b * drafts. Tokens of a step come from `steps.py`. Calls and cells of a step are straight lines through the
anchors, the settings that were run: for chains over the drafts of a step, for trees over levels and nodes. An anchor whose
own tokens come out wrong shows that an algorithm works otherwise: then nothing is predicted, and its parameter is
searched by measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from decgraph.runtime.tune import steps as steps_
from decgraph.runtime.tune.steps import Step
from decgraph.runtime.tune.trees import best, worth

Cost = Callable[[float, float], float]  # (new cells, context) -> seconds
OFF = 0.2  # by how much an anchor's tokens a step may be mispredicted
FINE = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)


@dataclass
class Anchor:
    """A setting that was run: its steps, and the means of a step. `work`: forwards and new cells by model, those over the
    prompt left out; `seconds`: of a step, likewise; `context`: tokens before it."""

    steps: list[Step]
    work: dict[str, tuple[float, float]]
    seconds: float
    context: float
    drafts: float = field(init=False)
    tokens: float = field(init=False)

    def __post_init__(self) -> None:
        count = max(1, len(self.steps))
        self.drafts = sum(len(s.drafts) for s in self.steps) / count
        self.tokens = sum(s.tokens for s in self.steps) / count


@dataclass(frozen=True)
class Line:
    """y = at_0 + slope * x, never below 0."""

    at_0: float
    slope: float

    def __call__(self, x: float) -> float:
        return max(0.0, self.at_0 + self.slope * x)

    @staticmethod
    def through(xs: Sequence[float], ys: Sequence[float]) -> tuple[Line, float]:
        """The straight line through points by least squares, and its greatest miss; level where all x are one."""
        if max(xs) - min(xs) < 1e-9:
            mean = sum(ys) / len(ys)
            return Line(mean, 0.0), max(abs(y - mean) for y in ys)
        slope, at_0 = np.polyfit(np.asarray(xs), np.asarray(ys), 1)
        line = Line(float(at_0), float(slope))
        return line, max(abs(line(x) - y) for x, y in zip(xs, ys, strict=True))


class Times:
    """Seconds of a step, fitted to anchors. `where`: of each anchor (drafts, levels, inner nodes): what lines run over."""

    def __init__(
        self, anchors: Sequence[Anchor], where: Sequence[tuple[float, float, float]], costs: Mapping[str, Cost]
    ) -> None:
        self.costs = {name: cost for name, cost in costs.items() if any(name in a.work for a in anchors)}
        self.context = sum(a.context for a in anchors) / len(anchors)
        self.calls: dict[str, Line] = {}
        self.cells: dict[str, tuple[int, Line]] = {}  # over which of `where`, and the line
        for name in self.costs:
            worked = [a.work.get(name, (0.0, 0.0)) for a in anchors]
            self.calls[name] = Line.through([w[1] for w in where], [calls for calls, _ in worked])[0]
            fits = [(Line.through([w[of] for w in where], [cells for _, cells in worked]), of) for of in (0, 2)]
            (line, _), of = min(fits, key=lambda fit: fit[0][1])
            self.cells[name] = (of, line)
        left = [max(0.0, a.seconds - self.forwards(*w)) for a, w in zip(anchors, where, strict=True)]
        self.host = _rising([w[0] for w in where], left)

    def forwards(self, drafts: float, levels: float, inner: float) -> float:
        """Seconds that models take in a step."""
        where = (drafts, levels, inner)
        total = 0.0
        for name, cost in self.costs.items():
            calls = self.calls[name](levels)
            of, line = self.cells[name]
            if calls > 0:
                total += calls * cost(max(1.0, line(where[of]) / calls), self.context)
        return total

    def __call__(self, drafts: float, levels: float, inner: float) -> float:
        """Seconds of a step."""
        return self.forwards(drafts, levels, inner) + self.host(drafts)


def _rising(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """A line that neither falls nor starts below 0."""
    line = Line.through(xs, ys)[0]
    if line.slope < 0:
        return Line(sum(ys) / len(ys), 0.0)
    if line.at_0 < 0:
        squares = sum(x * x for x in xs)
        return Line(0.0, sum(x * y for x, y in zip(xs, ys, strict=True)) / squares if squares else 0.0)
    return line


@dataclass(frozen=True)
class Predicted:
    """A value of a parameter that promises `rate` tokens a second, `tokens` of them a step."""

    value: Any
    rate: float
    tokens: float


class Unpredictable(Exception):
    """What was seen does not fit the model that a prediction needs; the message says what."""


def chains(anchors: Mapping[int, Anchor], costs: Mapping[str, Cost], values: Sequence[int]) -> list[Predicted]:
    """For a parameter that is the length of a drafted chain. `anchors` by its value. Raises Unpredictable."""
    ordered = sorted(anchors)
    longest = anchors[ordered[-1]]
    for value in ordered:
        must_be_chains(anchors[value].steps, value)
    if len(ordered) < 2 or max(len(s.drafts) for s in longest.steps) <= ordered[0]:
        raise Unpredictable("it does not set the length of chains")
    for value in ordered[:-1]:
        _fits(anchors[value], steps_.chain(longest.steps, value)[1], longest, f"{value}")
    where = [(a.drafts, a.drafts, a.drafts) for a in anchors.values()]
    times = Times(list(anchors.values()), where, costs)
    out = []
    for value in values:
        if value > ordered[-1]:
            continue  # nothing was seen of longer chains
        drafts, tokens = steps_.chain(longest.steps, value)
        out.append(Predicted(value, tokens / times(drafts, drafts, drafts), tokens))
    return sorted(out, key=lambda p: -p.rate)


def must_be_chains(seen: Sequence[Step], value: int) -> None:
    """Raises Unpredictable for steps that are no chains of at most `value` drafts."""
    made = [s for s in seen if s.drafts]
    if not made:
        raise Unpredictable("nothing is drafted")
    if not all(s.is_chain for s in made):
        raise Unpredictable("drafts are no chains")
    if max(len(s.drafts) for s in made) > value:
        raise Unpredictable("chains are longer than its value")


def _fits(anchor: Anchor, expected: float, other: Anchor, name: str) -> None:
    """Raises Unpredictable where an anchor's tokens a step are not what another run predicts, beyond chance."""
    spread = 0.0
    for seen in (anchor, other):
        counts = [s.tokens for s in seen.steps]
        mean = sum(counts) / len(counts)
        spread += sum((c - mean) ** 2 for c in counts) / max(1, len(counts) - 1) / len(counts)
    if abs(expected - anchor.tokens) > max(OFF * anchor.tokens, 2.5 * math.sqrt(spread)):
        raise Unpredictable(f"at {name} a step commits {anchor.tokens:.2f} tokens, where {expected:.2f} were predicted")


def trees(
    anchors: Mapping[Any, Anchor],
    costs: Mapping[str, Cost],
    make: Callable[[Sequence[tuple[int, ...]]], Any],
    most: int,
    *,
    regular: bool = False,
) -> tuple[list[Predicted], list[list[float]]]:
    """For a parameter that is a tree's shape: the best trees of all sizes up to `most` and all depths, and the acceptance by
    depth and rank that they rest on. `anchors` by `Topology`, `make` from paths to one. With `regular`, only trees whose
    nodes of a level have equally many children. Raises Unpredictable."""
    if any(not any(s.drafts for s in a.steps) for a in anchors.values()):
        raise Unpredictable("nothing is drafted")
    table = steps_.ranks(step for a in anchors.values() for step in a.steps).table()
    if not table:
        raise Unpredictable("too little was seen")
    emitted = _mean([s.tokens - len(s.accepted) for a in anchors.values() for s in a.steps])
    for shape, anchor in anchors.items():
        _fits(anchor, emitted + worth(paths_of(shape), table), anchor, getattr(shape, "name", "") or "a shape")
    where = [_extent(paths_of(shape)) for shape in anchors]
    times = Times(list(anchors.values()), where, costs)
    out: list[Predicted] = []
    for paths in even(table, most) if regular else likeliest(table, most):
        tokens = emitted + worth(paths, table)
        out.append(Predicted(make(paths), tokens / times(*_extent(paths)), tokens))
    return sorted(out, key=lambda p: -p.rate), table


def likeliest(table: Sequence[Sequence[float]], most: int) -> Iterator[list[tuple[int, ...]]]:
    """The best trees by size and depth limit, as paths of ranks; each that reaches its limit."""
    for depth in range(1, len(table) + 1):
        found = best(table, most, depth)
        for size in (n for n in FINE if n <= most and np.isfinite(found.worths[n])):
            paths = found.paths(size)
            if max(map(len, paths)) == depth:  # else it was met at a smaller limit
                yield paths


def even(table: Sequence[Sequence[float]], most: int) -> Iterator[list[tuple[int, ...]]]:
    """Trees of at most `most` drafts with a number of children for each level, which never rises with the depth."""
    waiting: list[tuple[list[tuple[int, ...]], list[tuple[int, ...]], int]] = [([], [()], max(map(len, table)))]
    while waiting:
        above, last, widest = waiting.pop()
        if above:
            yield above
        depth = len(last[0])
        if depth < len(table):
            for width in range(1, min(widest, len(table[depth])) + 1):
                if len(above) + len(last) * width > most:
                    break
                level = [(*path, rank) for path in last for rank in range(width)]
                waiting.append(([*above, *level], level, width))


def paths_of(shape: Any) -> list[tuple[int, ...]]:
    """A topology's paths of ranks, level by level."""
    out: list[tuple[int, ...]] = []
    above: list[tuple[int, ...]] = [()]
    for n in range(len(shape)):
        level = shape[n]
        above = [(*above[parent], rank) for parent, rank in zip(level.parent, level.rank, strict=True)]
        out += above
    return out


def _extent(paths: Sequence[tuple[int, ...]]) -> tuple[float, float, float]:
    """(nodes, levels, nodes above the last level, the root among them): what calls and cells are straight lines over."""
    levels = max(map(len, paths), default=0)
    return float(len(paths)), float(levels), 1.0 + sum(len(path) < levels for path in paths)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def apart(found: Sequence[Predicted], count: int, size: Callable[[Any], tuple[float, float]]) -> list[Predicted]:
    """The first of a ranking that are not nearly the same: `size` of a value in two numbers, which differ by a fifth."""
    out: list[Predicted] = []
    for candidate in found:
        a = size(candidate.value)
        if all(any(abs(x - y) > 0.2 * max(x, y) for x, y in zip(a, size(other.value), strict=True)) for other in out):
            out.append(candidate)
        if len(out) == count:
            break
    return out
