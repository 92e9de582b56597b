"""Sweeps of lossy programs: what one is, which programs need one, and its row in the result file."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import decgraph
from decgraph import stdlib
from decgraph.errors import DecError
from lab.tradeoff_shapes import Point, Shape, held

KINDS = ("masked",)
RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"
PAGES = {"masked": "tradeoffs.md"}
LOSSLESS = ("in tokens", "in distribution")


@dataclass(frozen=True)
class Sweep:
    """One program and its knob.

    knob: a parameter's name; "" for a program without one, which has one value, "", and is compared with its rival. values: as
    on the command line, in the order that the shapes speak of. shapes: all must hold. paper: what the paper reports, in a line,
    with the place it is from. fixed: other parameters. reference: the decoder that agreement is measured with, as
    `name:key=value`; "" for the kind's own. rival: a decoder that shapes compare with. why: if the shape is not shown here,
    the reason. note: what else differs from the paper's experiment. temperature, seeds: of the requests.
    """

    algorithm: str
    knob: str
    values: tuple[str, ...]
    shapes: tuple[Shape, ...]
    paper: str
    fixed: Mapping[str, str] = field(default_factory=dict)
    reference: str = ""
    rival: str = ""
    why: str = ""
    note: str = ""
    temperature: float = 0.0
    seeds: int = 1

    @property
    def label(self) -> str:
        """The program and its knob."""
        return f"{self.algorithm}.{self.knob}" if self.knob else self.algorithm

    @property
    def expected(self) -> str:
        """The shapes in words."""
        return "; ".join(shape.text.format(rival=self.rival) for shape in self.shapes)


class Kind(Protocol):
    """What a module of sweeps has: `SWEEPS`, the page's `HEADING`, `COLUMNS` (numbers that tables show if they were
    measured, in order), `X` and `Y` (the numbers that plots show, alternatives in order), and a measurer of points."""

    SWEEPS: Sequence[Sweep]
    HEADING: str
    COLUMNS: Sequence[str]
    X: Sequence[str]
    Y: Sequence[str]

    def measurer(self) -> Measurer:
        """Made once for all sweeps of a run, so that it may keep what they share."""
        ...


class Measurer(Protocol):
    """Measures one point; `facts` says on what: counts of prompts, seeds, models."""

    facts: Mapping[str, Any]

    def __call__(self, sweep: Sweep, spec: str) -> Mapping[str, float]:
        """The numbers of `name:key=value,...`, under the sweep's reference, temperature and seeds. Raises DecError."""
        ...


def kind_of(kind: str) -> Kind:
    """The module of a kind. Raises DecError for an unknown kind."""
    if kind not in KINDS:
        raise DecError(f"there is no kind {kind!r} of sweeps", hint=f"one of {', '.join(KINDS)}")
    module: Any = importlib.import_module(f"lab.tradeoffs_{kind}")
    return module


def is_lossy(name: str) -> bool:
    """Whether a program claims neither tokens nor distribution of another one. A claim with a condition (`when ...`) is of
    some parameters only, so that the program is lossy at others."""
    claims = stdlib.entry(name).claim.split("; ")
    return not any(words in claim and " when " not in f"{claim} " for claim in claims for words in LOSSLESS)


def lossy(kind: str) -> list[str]:
    """The lossy programs of the standard library that decode with a masked model, or without one."""
    masked = kind == "masked"
    found = (name for name in stdlib.names() if is_lossy(name))
    return [name for name in found if ("masked" in decgraph.load(name).models.values()) is masked]


def spec_of(sweep: Sweep, value: str) -> str:
    """A point as `name:key=value,...`."""
    params = dict(sweep.fixed) | ({sweep.knob: value} if sweep.knob else {})
    return sweep.algorithm + (":" + ",".join(f"{k}={v}" for k, v in params.items()) if params else "")


def found(sweep: Sweep, points: Sequence[Point], rival: Point | None) -> dict[str, Any]:
    """A row of the result file: the points, each expectation and whether it held."""
    held_ = [held(shape, points, rival) for shape in sweep.shapes]
    return {
        "algorithm": sweep.algorithm,
        "family": stdlib.entry(sweep.algorithm).family,
        "knob": sweep.knob,
        "fixed": dict(sweep.fixed),
        "reference": sweep.reference,
        "rival": sweep.rival,
        "temperature": sweep.temperature,
        "seeds": sweep.seeds,
        "paper": sweep.paper,
        "note": sweep.note,
        "points": [{"value": p.value, **p.numbers} for p in points],
        "rival_numbers": dict(rival.numbers) if rival else None,
        "expected": [[shape.text.format(rival=sweep.rival), ok] for shape, ok in zip(sweep.shapes, held_, strict=True)],
        "shown": all(held_),
        "why": "" if all(held_) else sweep.why,
    }


def judged_again(sweep: Sweep, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the same figures under the table's present shapes and words."""
    points = [Point(p["value"], {k: v for k, v in p.items() if k != "value"}) for p in row["points"]]
    return found(sweep, points, Point("", row["rival_numbers"]) if row["rival_numbers"] else None)


def run(sweeps: Iterable[Sweep], measure: Measurer) -> Iterable[dict[str, Any]]:
    """Measures sweeps, a row for each. Raises DecError as a decoder does."""
    for sweep in sweeps:
        points = [Point(value, measure(sweep, spec_of(sweep, value))) for value in sweep.values]
        rival = Point("", measure(sweep, sweep.rival)) if sweep.rival else None
        yield found(sweep, points, rival)


def chosen(kind: Kind, only: Sequence[str]) -> list[Sweep]:
    """The sweeps of the programs named, or all. Raises DecError for a name without a sweep."""
    known = {sweep.algorithm for sweep in kind.SWEEPS}
    if unknown := sorted(set(only) - known):
        raise DecError(f"there is no sweep of {unknown[0]!r}", hint="python -m lab.tradeoffs --help")
    return [sweep for sweep in kind.SWEEPS if not only or sweep.algorithm in only]


def assembled(name: str, kind: Kind, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The result file: of the given rows those of the table's sweeps, the last of each, judged by it, in its order."""
    known = {(row["algorithm"], row["knob"]): row for row in rows}
    kept = []
    for sweep in kind.SWEEPS:
        row = known.get((sweep.algorithm, sweep.knob))
        if row is not None and is_of(row, sweep):
            kept.append(judged_again(sweep, row))
    return {"version": 1, "kind": name, "facts": dict(facts), "rows": kept}


def is_of(row: Mapping[str, Any], sweep: Sweep) -> bool:
    """Whether a row was measured as the table has the sweep now."""
    values = tuple(point["value"] for point in row["points"])
    asked = (sweep.values, dict(sweep.fixed), sweep.reference, sweep.rival, sweep.temperature, sweep.seeds)
    return (values, row["fixed"], row["reference"], row["rival"], row["temperature"], row["seeds"]) == asked


def missing(kind: Kind, document: Mapping[str, Any]) -> list[Sweep]:
    """The table's sweeps that a result file lacks."""
    known = {(row["algorithm"], row["knob"]) for row in document["rows"]}
    return [sweep for sweep in kind.SWEEPS if (sweep.algorithm, sweep.knob) not in known]


def measured(kind: Kind, sweeps: Sequence[Sweep]) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """The facts of the measurement, and a row, for every sweep; progress on stderr."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    torch.set_num_threads(1)
    measure = kind.measurer()
    columns = (TextColumn("{task.description:28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=len(sweeps))
        for sweep in sweeps:
            progress.update(bar, description=sweep.label)
            for row in run([sweep], measure):
                yield measure.facts, row
            progress.advance(bar)
