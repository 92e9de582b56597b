"""What a sweep over a knob is expected to look like, and whether measured points do.

A point is a knob's value with numbers by name (calls, agreement, ...). Numbers of SHARES lie in 0..1 and are compared as they
are; all others are counts, and tolerances are parts of the largest one of the sweep.

>>> points = [Point("0.5", {"calls": 2, "agreement": 0.8}), Point("1.0", {"calls": 32, "agreement": 1.0})]
>>> [held(shape, points) for shape in (rises("calls"), rises("agreement"), falls("agreement"))]
[True, True, False]
>>> rises("calls").text
'calls rise'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

SHARES = frozenset({"agreement", "accuracy", "valid", "order", "reward"})
LEAST = {True: 0.02, False: 0.1}
"""How far the ends of a trend must be apart: of a share, and of a count in parts of the largest."""
SLACK = {True: 0.03, False: 0.05}
"""How far a single step may go the other way, and how far apart equal numbers may be."""


@dataclass(frozen=True)
class Point:
    """What was measured at one value of a knob; `value` is its text as a parameter of the program."""

    value: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Shape:
    """One expectation. kind: `rises` and `falls` speak of the points in the order of the sweep, `level` says that they are
    equal; `at` that the number at `value` is `number`; `below` and `above` that the number at `value` (or everywhere, if
    that is "") is smaller or larger than the rival's, `near` that it is not worse than the rival's by more than `slack`.
    slack: None for SLACK's."""

    kind: Literal["rises", "falls", "level", "at", "below", "above", "near"]
    measure: str
    value: str = ""
    number: float = 0.0
    slack: float | None = None

    @property
    def text(self) -> str:
        """The expectation in a few words, for a table."""
        plural = self.measure.endswith("s")
        match self.kind:
            case "rises" | "falls":
                return f"{self.measure} {self.kind[:-1] if plural else self.kind}"
            case "level":
                return f"{self.measure} {'stay' if plural else 'stays'}"
            case "at":
                return f"{self.measure} {'are' if plural else 'is'} {self.number:g} at {self.value}"
            case "below" | "above":
                where = f" at {self.value}" if self.value else ""
                return f"{self.measure} {self.kind} {{rival}}'s{where}"
            case "near":
                where = f" at {self.value}" if self.value else ""
                return f"{self.measure} not below {{rival}}'s{where}"


def rises(measure: str, slack: float | None = None) -> Shape:
    """It grows along the sweep."""
    return Shape("rises", measure, slack=slack)


def falls(measure: str, slack: float | None = None) -> Shape:
    """It shrinks along the sweep."""
    return Shape("falls", measure, slack=slack)


def level(measure: str, slack: float | None = None) -> Shape:
    """It is the same along the sweep."""
    return Shape("level", measure, slack=slack)


def at(value: str, measure: str, number: float, slack: float | None = None) -> Shape:
    """It is `number` at this value of the knob."""
    return Shape("at", measure, value, number, slack)


def below(measure: str, value: str = "") -> Shape:
    """It is smaller than the rival's."""
    return Shape("below", measure, value)


def above(measure: str, value: str = "") -> Shape:
    """It is larger than the rival's."""
    return Shape("above", measure, value)


def near(measure: str, value: str = "", slack: float | None = None) -> Shape:
    """It is the rival's or larger, up to `slack`."""
    return Shape("near", measure, value, slack=slack)


def held(shape: Shape, points: Sequence[Point], rival: Point | None = None) -> bool:
    """Whether points in the order of the sweep have the shape. Raises ValueError where the sweep lacks what it speaks of."""
    share = shape.measure in SHARES
    if not points or any(shape.measure not in p.numbers for p in points):
        raise ValueError(f"{shape.measure} was not measured")
    values = [p.numbers[shape.measure] for p in points]
    unit = 1.0 if share else max(map(abs, values)) or 1.0
    slack = SLACK[share] * unit if shape.slack is None else shape.slack * unit
    chosen = [v for p, v in zip(points, values, strict=True) if shape.value in ("", p.value)]
    if not chosen:
        raise ValueError(f"{shape.value} is not in the sweep")
    match shape.kind:
        case "rises" | "falls":
            sign = 1 if shape.kind == "rises" else -1
            steps = [sign * (b - a) for a, b in zip(values, values[1:], strict=False)]
            return sign * (values[-1] - values[0]) >= LEAST[share] * unit and all(step >= -slack for step in steps)
        case "level":
            return max(values) - min(values) <= slack
        case "at":
            return all(abs(v - shape.number) <= slack for v in chosen)
    if rival is None or shape.measure not in rival.numbers:
        raise ValueError(f"{shape.text} needs a rival")
    theirs = rival.numbers[shape.measure]
    if shape.kind == "near":
        return all(v >= theirs - slack for v in chosen)
    return all(v < theirs if shape.kind == "below" else v > theirs for v in chosen)
