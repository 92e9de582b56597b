"""A sweep of a lossy program over its own knob: its values, the shape that its paper leads one to expect, and the result file.

The sweeps of a kind stand in `KIND.toml`, and what measures them in `KIND.py`. Results hold what was measured; whether a shape
is there is judged from them and the table whenever a page is written. A measure of `SHARES` lies in 0..1 and is compared as it
is; the others are counts, whose tolerances are parts of the largest one.

>>> points = [{"calls": 2, "agreement": 0.8}, {"calls": 32, "agreement": 1.0}]
>>> [Shape(text).fits("01", points) for text in ("calls rise", "agreement falls", "calls are 2 at 0")]
[True, False, True]
"""

from __future__ import annotations

import importlib
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from decgraph import stdlib
from decgraph.errors import DecError
from lab import pages

KINDS = ("masked", "causal")
SHARES = frozenset({"agreement", "accuracy", "valid", "order", "reward"})
LEAST = {True: 0.02, False: 0.1}
"""How far apart the ends of a trend must be, where its shape does not say: a share, and a count in parts of the largest."""
SLACK = {True: 0.03, False: 0.05}
"""How far apart equal numbers may be, in the same way."""
CORRELATION = 0.5
"""The rank correlation that a trend has at least."""
SHAPE = re.compile(
    r"(.+?) (rise|fall|stay|exceed|is|are|above|below|not below)s?(?: (?:by |within )?([\d.]+))?( rival's)?(?: at (.+))?"
)
SWEEP = re.compile(r"(\w+)\.(.*?)((?: [\d.]+)+)")
Numbers = Mapping[str, float]
Row = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """One expectation of a measure, as it stands on the page.

    `calls rise`, `log p falls by 0.1`: the values in the order of the sweep have this trend, and their ends this least
    difference. `agreement stays within 0.05` has a largest difference, `z exceeds 0` a bound of all. `calls are 32 at 1.0`
    speaks of one value of the knob. `computed below rival's at 0.9`, `above` and `not below` compare one value (all without
    `at`) with the sweep's rival.
    """

    text: str

    def __post_init__(self) -> None:
        if SHAPE.fullmatch(self.text) is None:
            raise ValueError(f"{self.text!r} is no shape")

    @property
    def parts(self) -> tuple[str, ...]:
        """Measure, verb, number, `rival's`, and value of the knob; "" for what is not there."""
        found = SHAPE.fullmatch(self.text)
        assert found is not None
        return found.groups("")

    @property
    def measure(self) -> str:
        """What it speaks of."""
        return self.parts[0]

    def fits(self, labels: Sequence[str], points: Sequence[Numbers], rival: Numbers | None = None) -> bool:
        """Whether points have the shape. labels: the values of the knob. Raises ValueError where the sweep lacks what the shape
        speaks of."""
        measure, verb, bound, _, value = self.parts
        if not points or any(measure not in p for p in points):
            raise ValueError(f"{measure} was not measured")
        numbers, share = [p[measure] for p in points], measure in SHARES
        there = [n for label, n in zip(labels, numbers, strict=True) if value in ("", label)]
        if not there:
            raise ValueError(f"{value} is not in the sweep")
        unit, number = 1.0 if share else max(map(abs, numbers)) or 1.0, float(bound or 0)
        match verb:
            case "rise" | "fall":
                sign, least = (1 if verb == "rise" else -1), number if bound else LEAST[share] * unit
                return sign * (numbers[-1] - numbers[0]) >= least and sign * correlation(numbers) >= CORRELATION
            case "stay":
                return max(numbers) - min(numbers) <= (number if bound else SLACK[share] * unit)
            case "exceed":
                return min(numbers) > number
            case "is" | "are":  # a share is exactly that
                return all(abs(n - number) <= (0 if share else SLACK[share] * unit) for n in there)
        if rival is None or measure not in rival:
            raise ValueError(f"{self.text} needs a rival")
        theirs = rival[measure]
        return all(n < theirs if verb == "below" else n > theirs - SLACK[share] * unit * (verb == "not below") for n in there)


def correlation(values: Sequence[float]) -> float:
    """Spearman's rank correlation of values with their places, ties by their mean rank; 0 where all are equal."""
    n = len(values)
    ranks = [sum(w < v for w in values) + (sum(w == v for w in values) - 1) / 2 for v in values]
    middle = (n - 1) / 2
    spread = sum((r - middle) ** 2 for r in ranks) * sum((i - middle) ** 2 for i in range(n))
    return sum((r - middle) * (i - middle) for i, r in enumerate(ranks)) / math.sqrt(spread) if spread else 0.0


@dataclass(frozen=True)
class Sweep:
    """One program and its knob, an entry of `KIND.toml`.

    values: of the knob, in the order that the shapes speak of. expected: shapes that all must hold. paper: what the paper
    reports, or leads one to expect. fixed: other parameters. reference: the decoder that agreement is measured with; "" for the
    kind's own. rival: a decoder that shapes compare with. why: if the shape is not shown here, the reason. note: what else
    differs from the paper's experiment. temperature, seeds: of the requests. model: the target, if not the shipped one.
    heading: what it stands under on the page, if not the program's family.
    """

    algorithm: str
    knob: str
    values: tuple[Any, ...]
    expected: tuple[str, ...]
    paper: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    reference: str = ""
    rival: str = ""
    why: str = ""
    note: str = ""
    temperature: float = 0.0
    seeds: int = 1
    model: str = "target"
    heading: str = ""

    @classmethod
    def of(cls, sweep: str, **entry: Any) -> Self:
        """An entry of a table, whose `sweep` is `program.knob value value ...`. Raises ValueError for another text."""
        if (found := SWEEP.fullmatch(sweep)) is None:
            raise ValueError(f"{sweep!r} is no program, knob and values")
        family = stdlib.entry(found[1]).family
        entry = {"heading": family[0].upper() + family[1:]} | entry
        return cls(found[1], found[2], tuple(map(cls.value, found[3].split())), **entry)

    @staticmethod
    def value(text: str) -> Any:
        """A value of the knob."""
        return text

    @property
    def shapes(self) -> list[Shape]:
        """What is expected."""
        return list(map(Shape, self.expected))

    @property
    def label(self) -> str:
        """The program, its knob and its model; no two sweeps have the same."""
        return f"{self.algorithm}.{self.knob}" + (f" ({self.model})" if self.model != "target" else "")

    @property
    def labels(self) -> list[str]:
        """The values as text."""
        return [f"{v:g}" if isinstance(v, int | float) else str(v) for v in self.values]

    @property
    def setting(self) -> Row:
        """What measured numbers depend on, as it stands in a result file."""
        fixed = {name: str(value) for name, value in self.fixed.items()}
        requests = {"temperature": float(self.temperature), "seeds": self.seeds}
        return {"values": self.labels, "fixed": fixed, "reference": self.reference, "rival": self.rival, **requests}

    def words(self, shapes: Sequence[Shape]) -> str:
        """Shapes as the page has them."""
        return "; ".join(shape.text.replace("rival's", f"{self.rival}'s") for shape in shapes)

    def failed(self, row: Mapping[str, Any]) -> list[Shape]:
        """The shapes that a row of a result file does not have."""
        return [shape for shape in self.shapes if not shape.fits(self.labels, row["points"], row["rival_numbers"])]


def table(kind: str, of: Callable[..., Any]) -> tuple[tuple[Any, ...], dict[str, str]]:
    """The sweeps of a kind's table, and the programs left out, with the reason. What a group says holds for each of its sweeps
    that does not say otherwise."""
    found = tomllib.loads((Path(__file__).parent / f"{kind}.toml").read_text("utf-8"))
    return tuple(of(**{**group, **entry}) for group in found["group"] for entry in group.pop("sweep")), found["left_out"]


class Measurer(Protocol):
    """Measures one value of a knob, or (None) the rival. `facts` says on what: counts of prompts, models."""

    @property
    def facts(self) -> Mapping[str, Any]: ...

    def __call__(self, sweep: Any, value: Any) -> Numbers:
        """The numbers, under the sweep's reference, temperature and seeds. Raises DecError as a decoder does."""
        ...


class Kind(Protocol):
    """What a module of sweeps has: its table, the beginning of the page, the numbers that plots show across and up (the first
    that was measured and differs), numbers in words, and a measurer, which is made once for all sweeps of a run, so that it may
    keep what they share."""

    SWEEPS: Sequence[Sweep]
    LEFT_OUT: Mapping[str, str]
    HEADING: str
    X: Sequence[str]
    Y: Sequence[str]
    WORDS: Mapping[str, str]
    measurer: Callable[[], Measurer]


def kind_of(kind: str) -> Kind:
    """The module of a kind. Raises DecError for an unknown kind."""
    if kind not in KINDS:
        raise DecError(f"there is no kind {kind!r} of sweeps", hint=f"one of {', '.join(KINDS)}")
    module: Any = importlib.import_module(f"lab.tradeoffs.{kind}")
    return module


def chosen(kind: Kind, only: Sequence[str]) -> list[Sweep]:
    """The sweeps of the programs named, or all. Raises DecError for a name without a sweep."""
    if unknown := sorted(set(only) - {sweep.algorithm for sweep in kind.SWEEPS}):
        raise DecError(f"there is no sweep of {unknown[0]!r}", hint="python -m lab tradeoffs --help")
    return [sweep for sweep in kind.SWEEPS if not only or sweep.algorithm in only]


def measured(sweep: Sweep, measure: Measurer) -> Row:
    """A row of a result file. Raises DecError as a decoder does."""
    rival = measure(sweep, None) if sweep.rival else None
    points = [measure(sweep, value) for value in sweep.values]
    return {"sweep": sweep.label, **sweep.setting, "points": points, "rival_numbers": rival}


def current(kind: Kind, rows: Sequence[Row]) -> Iterator[tuple[Sweep, Row]]:
    """The table's sweeps that were measured as the table has them now, in its order, each with the last of its rows."""
    found = {row["sweep"]: row for row in rows}
    for sweep in kind.SWEEPS:
        row = found.get(sweep.label, {})
        if all(row.get(name) == value for name, value in sweep.setting.items()):
            yield sweep, row


def missing(kind: Kind, rows: Sequence[Row]) -> list[Sweep]:
    """The table's sweeps that were not measured."""
    there = [sweep.label for sweep, _ in current(kind, rows)]
    return [sweep for sweep in kind.SWEEPS if sweep.label not in there]


def load(kind: str) -> Row:
    """The result file of a kind; empty where nothing was measured."""
    return pages.result(f"tradeoffs-{kind}") or {"facts": {}, "rows": []}


def save(kind: str, document: Row) -> None:
    """Write a result file, without the rows of sweeps that the table has no longer."""
    rows = [row for _, row in current(kind_of(kind), document["rows"])]
    pages.keep(f"tradeoffs-{kind}", {"facts": document["facts"], "rows": rows})
