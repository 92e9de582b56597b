"""A sweep of a lossy program over its own knob: its values, the shape that its paper leads one to expect, and the result file.

Results hold what was measured; whether a shape is there is judged from them and the table whenever a page is written. A number
of `SHARES` lies in 0..1 and is compared as it is; the others are counts, whose tolerances are parts of the largest one.

>>> points = [{"calls": 2, "agreement": 0.8}, {"calls": 32, "agreement": 1.0}]
>>> [rises("calls").fits("01", points), rises("agreement").fits("01", points), falls("agreement").fits("01", points)]
[True, True, False]
>>> rises("calls").text, falls("log p", 0.1).text
('calls rise', 'log p falls by 0.1')
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from decgraph import stdlib
from decgraph.errors import DecError

KINDS = ("masked", "causal")
RESULTS = Path(__file__).parents[1] / "results"
SHARES = frozenset({"agreement", "accuracy", "valid", "order", "reward"})
LEAST = {True: 0.02, False: 0.1}
"""How far apart the ends of a trend must be, where its shape does not say: a share, and a count in parts of the largest."""
SLACK = {True: 0.03, False: 0.05}
"""How far apart equal numbers may be, in the same way."""
CORRELATION = 0.5
"""The rank correlation that a trend has at least."""
Numbers = Mapping[str, float]
Row = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """One expectation of a measure. kind: `rises` and `falls` speak of the values in the order of the sweep and of the least
    difference of its ends; `stays` of the largest difference; `exceeds` says that all are above `number`, `at` that the one at
    `value` is `number`; `below`, `above` and `near` compare the one at `value` (all, if that is "") with the rival's."""

    kind: Literal["rises", "falls", "stays", "exceeds", "at", "below", "above", "near"]
    measure: str
    number: float | None = None
    value: str = ""
    slack: float | None = None

    @property
    def text(self) -> str:
        """The expectation in a few words; a rival stands as `{rival}`."""
        verb = self.kind[:-1] if self.measure.endswith("s") else self.kind
        if self.kind in ("below", "above", "near"):
            relation = "not below" if self.kind == "near" else self.kind
            return f"{self.measure} {relation} {{rival}}'s" + (f" at {self.value}" if self.value else "")
        if self.kind == "at":
            return f"{self.measure} {'are' if self.measure.endswith('s') else 'is'} {self.number:g} at {self.value}"
        if self.number is None:
            return f"{self.measure} {verb}"
        return f"{self.measure} {verb} { {'stays': 'within ', 'exceeds': ''}.get(self.kind, 'by ') }{self.number:g}"

    def fits(self, labels: Sequence[str], points: Sequence[Numbers], rival: Numbers | None = None) -> bool:
        """Whether points have the shape. labels: the values of the knob. Raises ValueError where the sweep lacks what the shape
        speaks of."""
        if not points or any(self.measure not in p for p in points):
            raise ValueError(f"{self.measure} was not measured")
        numbers, share = [p[self.measure] for p in points], self.measure in SHARES
        there = [n for label, n in zip(labels, numbers, strict=True) if self.value in ("", label)]
        if not there:
            raise ValueError(f"{self.value} is not in the sweep")
        unit = 1.0 if share else max(map(abs, numbers)) or 1.0
        slack = SLACK[share] * unit if self.slack is None else self.slack * unit
        match self.kind:
            case "rises" | "falls":
                sign, least = (1 if self.kind == "rises" else -1), LEAST[share] * unit if self.number is None else self.number
                return sign * (numbers[-1] - numbers[0]) >= least and sign * correlation(numbers) >= CORRELATION
            case "stays":
                return max(numbers) - min(numbers) <= (slack if self.number is None else self.number)
            case "exceeds":
                return min(numbers) > (self.number or 0)
            case "at":
                return all(abs(n - (self.number or 0)) <= slack for n in there)
        if rival is None or self.measure not in rival:
            raise ValueError(f"{self.text} needs a rival")
        theirs = rival[self.measure]
        return all(n < theirs if self.kind == "below" else n > theirs - slack * (self.kind == "near") for n in there)


def correlation(values: Sequence[float]) -> float:
    """Spearman's rank correlation of values with their places, ties by their mean rank; 0 where all are equal."""
    n = len(values)
    ranks = [sum(w < v for w in values) + (sum(w == v for w in values) - 1) / 2 for v in values]
    middle = (n - 1) / 2
    spread = sum((r - middle) ** 2 for r in ranks) * sum((i - middle) ** 2 for i in range(n))
    return sum((r - middle) * (i - middle) for i, r in enumerate(ranks)) / math.sqrt(spread) if spread else 0.0


def _shape(kind: Any, measure: str, number: float | None = None) -> Shape:
    return Shape(kind, measure, number)


def _against(kind: Any, measure: str, value: str = "") -> Shape:
    return Shape(kind, measure, value=value)


rises, falls, stays, exceeds = (partial(_shape, kind) for kind in ("rises", "falls", "stays", "exceeds"))
below, above, near = (partial(_against, kind) for kind in ("below", "above", "near"))


def at(value: str, measure: str, number: float, slack: float | None = None) -> Shape:
    """It is `number` at this value of the knob."""
    return Shape("at", measure, number, value, slack)


@dataclass(frozen=True)
class Sweep:
    """One program and its knob.

    values: of the knob, in the order that the shapes speak of. shapes: all must hold. paper: what the paper reports, or leads
    one to expect. fixed: other parameters. reference: the decoder that agreement is measured with; "" for the kind's own.
    rival: a decoder that shapes compare with. why: if the shape is not shown here, the reason. note: what else differs from
    the paper's experiment. temperature, seeds: of the requests. model: the target, if not the shipped one. group: the heading
    of the page that it stands under, if not the program's family.
    """

    algorithm: str
    knob: str
    values: tuple[Any, ...]
    shapes: tuple[Shape, ...]
    paper: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    reference: str = ""
    rival: str = ""
    why: str = ""
    note: str = ""
    temperature: float = 0.0
    seeds: int = 1
    model: str = "target"
    group: str = ""

    @property
    def label(self) -> str:
        """The program, its knob and its model; no two sweeps have the same."""
        return f"{self.algorithm}.{self.knob}" + (f" ({self.model})" if self.model != "target" else "")

    @property
    def heading(self) -> str:
        """What it stands under on the page."""
        family = self.group or stdlib.entry(self.algorithm).family
        return family[0].upper() + family[1:]

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

    def text(self, shape: Shape) -> str:
        """A shape in words."""
        return shape.text.format(rival=self.rival)

    def failed(self, row: Mapping[str, Any]) -> list[Shape]:
        """The shapes that a row of a result file does not have."""
        return [shape for shape in self.shapes if not shape.fits(self.labels, row["points"], row["rival_numbers"])]


class Measurer(Protocol):
    """Measures one value of a knob, or (None) the rival. `facts` says on what: counts of prompts, models."""

    @property
    def facts(self) -> Mapping[str, Any]: ...

    def __call__(self, sweep: Any, value: Any) -> Numbers:
        """The numbers, under the sweep's reference, temperature and seeds. Raises DecError as a decoder does."""
        ...


class Kind(Protocol):
    """What a module of sweeps has: the table, the programs that have no sweep with the reason, the beginning of the page, the
    numbers that plots show across and up (the first that was measured and differs), and a measurer, which is made once for all
    sweeps of a run, so that it may keep what they share."""

    SWEEPS: Sequence[Sweep]
    LEFT_OUT: Mapping[str, str]
    HEADING: str
    X: Sequence[str]
    Y: Sequence[str]
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
        raise DecError(f"there is no sweep of {unknown[0]!r}", hint="python -m lab.tradeoffs --help")
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
    path = RESULTS / f"tradeoffs-{kind}.json"
    found: Row = json.loads(path.read_text("utf-8")) if path.is_file() else {"facts": {}, "rows": []}
    return found


def save(kind: str, document: Row) -> None:
    """Write a result file, a sweep a line, without the rows of sweeps that the table has no longer."""
    rows = ",\n".join(json.dumps(row) for _, row in current(kind_of(kind), document["rows"]))
    text = f'{{"facts": {json.dumps(document["facts"])}, "rows": [\n{rows}\n]}}\n'
    (RESULTS / f"tradeoffs-{kind}.json").write_text(text, encoding="utf-8")
