"""Enumeration of a program's outcomes: chance with rational probabilities, and an adversary. A program is run again and again,
each time down another branch; a choice is made only once something reads it.

Runs that reach the same state continue alike. A program reports its state with `Choices.arrive`: the first run to arrive
there continues, and every later one ends, since its continuation has been enumerated already. `combine` puts the distribution
of that continuation in the place of the runs that were skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any, TypeVar, overload

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class TooMany(Exception):
    """More runs than allowed: the check gives up, undecided."""


class Arrived(Exception):
    """Raised to end a run in a state that an earlier run has reached; `path` is that run's choices."""

    def __init__(self, path: tuple[int, ...]) -> None:
        super().__init__("this state was enumerated before")
        self.path = path


class AdversaryWins(Exception):
    """Two results of the adversary for the same call lead to different distributions."""

    def __init__(self, point: Point, laws: list[dict[Any, Fraction]], before: Sequence[Point] = ()) -> None:
        super().__init__(point.label)
        self.point, self.laws, self.before = point, laws, list(before)


@dataclass(frozen=True)
class Point:
    """One choice of a run: the options, and which was taken. `kind` is "chance" or "adversary"."""

    kind: str
    weights: tuple[Fraction | int, ...]
    taken: int
    label: str
    value: object


class Choices:
    """The choices of one run: those of a given prefix, then always the first. `known`: for every state reached, the choices of
    the first run that reached it; shared by the runs of one enumeration (None: states are not kept)."""

    def __init__(self, prefix: tuple[int, ...], known: dict[Hashable, tuple[int, ...]] | None = None) -> None:
        self.prefix = prefix
        self.known = known
        self.points: list[Point] = []

    def choose(self, weights: Sequence[Fraction | int], values: Sequence[T], label: str, kind: str = "chance") -> T:
        """One of `values`, by their weights (which sum to 1; zero weights are never taken)."""
        live = [(w, v) for w, v in zip(weights, values, strict=True) if kind == "adversary" or w > 0]
        if len(live) == 1 and kind == "chance":
            return live[0][1]
        at = len(self.points)
        taken = self.prefix[at] if at < len(self.prefix) else 0
        self.points.append(Point(kind, tuple(w for w, _ in live), taken, label, live[taken][1]))
        return live[taken][1]

    @property
    def new(self) -> bool:
        """Whether states are kept, and the run is where none has been before: the states on the way to there are known, and
        none of them has ended a run."""
        return self.known is not None and len(self.points) >= len(self.prefix)

    def arrive(self, state: Hashable) -> None:
        """Report that the run is in `state`, on which all of its future depends. Raises Arrived where an earlier run reached
        it."""
        if self.known is None:
            return
        here = tuple(p.taken for p in self.points)
        first = self.known.setdefault(state, here)
        if first != here:
            raise Arrived(first)

    def note(self, words: str) -> None:
        """Hear what happens between two choices. Kept by `FollowedChoices` alone."""

    def weight(self) -> Fraction:
        """The probability of this run's chances."""
        out = Fraction(1)
        for p in self.points:
            if p.kind == "chance":
                out *= p.weights[p.taken]
        return out


class FollowedChoices(Choices):
    """The choices of a run that is told by hand, each with its place among `notes`: those that are certain too."""

    def __init__(self, prefix: tuple[int, ...]) -> None:
        super().__init__(prefix)
        self.notes: list[str] = []

    def choose(self, weights: Sequence[Fraction | int], values: Sequence[T], label: str, kind: str = "chance") -> T:
        points = len(self.points)
        found = super().choose(weights, values, label, kind)
        self.note(f"{label}: {answer(found, token=kind == 'chance')}{', certain' * (len(self.points) == points)}")
        return found

    def note(self, words: str) -> None:
        self.notes.append(words)


def answer(v: object, token: bool = True) -> str:
    """What was chosen. token: whether a whole number is one."""
    if isinstance(v, bool):
        return "yes" if v else "no"
    return f"token {v}" if isinstance(v, int) and token else str(v)


@overload
def runs(program: Callable[[Choices], T], limit: int) -> Iterator[tuple[Choices, T]]: ...
@overload
def runs(program: Callable[[Choices], T], limit: int, *, merge: bool) -> Iterator[tuple[Choices, T | Arrived]]: ...
def runs(program: Callable[[Choices], T], limit: int, *, merge: bool = False) -> Iterator[tuple[Choices, T | Arrived]]:
    """Every run of a program with its return value, depth first. Raises TooMany beyond `limit` runs, and before where the
    first of them show that there are more (`hopeless`). With `merge` a run that reaches a state again ends there, and its
    value is the `Arrived`."""
    prefix: tuple[int, ...] | None = ()
    known: dict[Hashable, tuple[int, ...]] | None = {} if merge else None
    count = merged = 0
    share = early = 0.0
    while prefix is not None:
        count += 1
        if count > limit:
            raise TooMany(f"more than {limit} runs")
        choices = Choices(prefix, known)
        value: T | Arrived
        try:
            value = program(choices)
        except Arrived as again:
            value = again
            merged += 1
        yield choices, value
        share += 1 / prod(len(p.weights) for p in choices.points)
        if count == limit // 8:
            early = share
        stuck = merged and count == limit // 4 and share - early < STUCK
        if stuck or hopeless(count, limit, choices.points, share, merged=merged * 8 >= count):
            raise TooMany(f"more than {limit} runs, by the first {count}")
        path = [p.taken for p in choices.points]
        while path and path[-1] + 1 >= len(choices.points[len(path) - 1].weights):
            path.pop()
        prefix = None if not path else (*path[:-1], path[-1] + 1)


FAR = {8: 3, 4: 1.75, 2: 1.3}
"""After an eighth, a quarter and a half of the limit: how many times the limit there seem to be. Trees are uneven: of 1,400
enumerations of the library's 38 slowest checks that came to their end, this would have given up one in a hundred, each of which
is tried again smaller; it saves half of the time of those that come to none."""
FAR_MERGED = {4: 4, 2: 2}
"""... where an eighth of the runs or more were merged: later ones are shorter."""
FAR_SHORT = {8: 64, 4: 5, 2: 3}
SHORT = 200
"""... and with a smaller limit, whose first runs say less: in half of bass's."""
STUCK = 1e-6
"""... and where the second eighth adds less of the tree than this: every run goes one iteration further, as in a loop of 256
that rarely decides anything."""
SOON, VAST = 8, 10_000
"""... and after so few runs: a loop of thirty iterations in each of which a condition is answered both ways."""


def hopeless(count: int, limit: int, points: Sequence[Point], share: float, *, merged: bool = False) -> bool:
    """Whether the first `count` runs, the last of which made the choices `points`, show that there are more than `limit`: as
    many options are left on its way, each of which is a run at least, or the runs are a small `share` of a tree in which the
    options of every choice have equal parts."""
    if count == SOON and not merged and count > VAST * limit * share:
        return True
    for part, far in (FAR_SHORT if limit < SHORT else FAR_MERGED if merged else FAR).items():
        if count == limit // part:
            left = count + sum(len(p.weights) - 1 - p.taken for p in points) > limit
            return left or (not (merged and limit < SHORT) and count > far * limit * share)
    return False


def combine(leaves: Sequence[tuple[Sequence[Point], dict[K, Fraction] | Arrived]]) -> dict[K, Fraction]:
    """The distribution of an enumeration whose runs returned distributions (or `Arrived`): chances weigh them, and at an
    adversary's choice every option must lead to the same one. Raises AdversaryWins where they do not.

    Runs come depth first, so the distribution of a state's first visit is complete before a later run refers to it. Only those
    are kept.
    """
    wanted = {law.path for _, law in leaves if isinstance(law, Arrived)}
    known: dict[tuple[int, ...], dict[K, Fraction]] = {}

    def at(first: int, last: int, depth: int, path: tuple[int, ...]) -> dict[K, Fraction]:
        points, law = leaves[first]
        if last - first == 1 and len(points) == depth:
            out = known[law.path] if isinstance(law, Arrived) else law
        else:
            point = points[depth]
            laws: dict[int, dict[K, Fraction]] = {}
            start = first
            for i in range(first + 1, last + 1):
                if i == last or leaves[i][0][depth].taken != leaves[start][0][depth].taken:
                    taken = leaves[start][0][depth].taken
                    laws[taken] = at(start, i, depth + 1, (*path, taken))
                    start = i
            out = _joined(point, laws, points[:depth])
        if path in wanted:
            known[path] = out
        return out

    return at(0, len(leaves), 0, ())


def _joined(point: Point, laws: dict[int, dict[K, Fraction]], before: Sequence[Point]) -> dict[K, Fraction]:
    if point.kind == "adversary":
        first = laws[min(laws)]
        if any(law != first for law in laws.values()):
            raise AdversaryWins(point, list(laws.values()), before)
        return first
    out: dict[K, Fraction] = {}
    for taken, law in laws.items():
        for key, w in law.items():
            out[key] = out.get(key, Fraction(0)) + point.weights[taken] * w
    return out
