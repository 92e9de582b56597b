"""State that the runs of one exact check share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

import numpy as np

from decgraph.backends.exact.choices import Choices, FollowedChoices
from decgraph.backends.exact.coverage import CoveredRun
from decgraph.backends.exact.races import Race
from decgraph.errors import InternalError
from decgraph.ir.data.dist import Row
from decgraph.ir.data.numbers import Number
from decgraph.ir.machine import Datum
from decgraph.ir.values import Op
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.noise import Key
from decgraph.runtime.reals.limits import NotSeparated
from decgraph.runtime.request import Request


class Enough(Exception):
    """Raised to end a run after the wanted number of steps."""


class Unlikely(Exception):
    """The distribution of this program needs a joint distribution of races that is not computed here (undecided, not wrong)."""


class RaceKey:
    """The race key of a token among its siblings: which row, and its place in the row's order."""

    def __init__(self, row: Row, rank: int) -> None:
        self.row, self.rank = row, rank

    def __mul__(self, weight: Number) -> Number:
        """Noise that counts nothing is nothing; another multiple has no place among exact numbers."""
        return Fraction(0) if weight == 0 else self.unknown()

    def unknown(self, *_: object) -> NoReturn:
        """Raises NotSeparated: which of the keys of several growths is larger depends on noise that is not followed."""
        raise NotSeparated("race keys are followed where `top(xs, k, by = xs.race)` chooses among the draws of one `race` only")

    __rmul__ = __mul__
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = unknown
    __add__ = __radd__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = unknown


@dataclass
class AnyFunction:
    """A function of the caller's whose results an adversary chooses among `answers`."""

    name: str
    answers: Sequence[Datum]

    def __call__(self, *args: object) -> object:
        raise InternalError(f"the adversary's choices answer for `{self.name}`")


class World:
    """What runs of one check share: the choices of the run, the noise read so far, and rows already computed.

    ran: records the branches that are taken (backends/exact/coverage.py), or None. enough: how many new tokens a claim is
    about; tokens committed after them are not followed where nothing else depends on them (None: all are).
    """

    def __init__(self, coupled: bool, ran: CoveredRun | None = None) -> None:
        self.choices = Choices(())
        self.coupled = coupled
        self.ran = ran
        self.enough: int | None = None
        self.races: dict[Key, Race] = {}
        self.groups: dict[Key, list[int]] = {}
        self.units: dict[Key, tuple[Fraction, Fraction]] = {}
        self.adversary: dict[tuple[str, tuple[str, ...]], Datum] = {}
        self.rows: dict[tuple[object, ...], tuple[np.ndarray, Scores, Request]] = {}
        self.alive: list[object] = []

    def restart(self, choices: Choices) -> None:
        """Forget a run; computed rows stay, but where it is shown which the models gave."""
        self.choices = choices
        if isinstance(choices, FollowedChoices):
            self.rows, self.alive = {}, []
        self.races, self.groups, self.units, self.adversary = {}, {}, {}, {}


def said(op: Op, place: Key, path: str, output: bool = False) -> str:
    """A draw in the author's words: its name, its line (and file, if not `path`), and the iteration of each loop, from 1."""
    name = (op.results[0].name if op.results else "") or op.opcode
    file = "" if op.loc.path in ("", path) else op.loc.path.rsplit("/", 1)[-1] + " "
    line = f", {file}line {op.loc.line}" if op.loc.line else ""
    if output:
        return f"{name}{line} (output noise, position {place.counters[-1] if place.counters else '?'})"
    numbers = [str(n + 1) for n in place.counters]  # people count from one
    words = ([f"iteration {numbers[0]}"] if numbers else []) + ([f"inner {'.'.join(numbers[1:])}"] if numbers[1:] else [])
    cells = any(d.kind == "cells" for d in op.results[0].type.dims[:1]) if op.results else False
    if place.lane and (cells or place.lane[0]):
        words.append(f"{'cell' if cells else 'number'} {place.lane[0]}")
    inside = ", ".join(words)
    return f"{name}{line}" + (f" ({inside})" if inside else "")
