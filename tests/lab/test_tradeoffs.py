"""Trade-offs of lossy programs: tables are complete, pages are those of the figures, shapes are judged rightly."""

from __future__ import annotations

from collections import Counter

import pytest

import decgraph
from decgraph import stdlib
from decgraph.errors import DecError
from lab.tradeoffs import sweeps
from lab.tradeoffs.page import DOCS, PAGES, charts, page
from lab.tradeoffs.sweeps import Numbers, Shape, Sweep, above, at, below, exceeds, falls, near, rises, stays

EVERY = pytest.mark.parametrize("name", sweeps.KINDS)


def points(**numbers: tuple[float, ...]) -> tuple[str, list[Numbers]]:
    """Labels 0, 1, ... and the numbers there."""
    count = len(next(iter(numbers.values())))
    return "".join(map(str, range(count))), [{name: values[n] for name, values in numbers.items()} for n in range(count)]


def test_shapes_are_told_apart() -> None:
    sweep = points(calls=(1, 4, 32), agreement=(0.8, 0.79, 1.0))
    rival = {"calls": 8, "agreement": 0.9}
    assert rises("calls").fits(*sweep) and not falls("calls").fits(*sweep) and not stays("calls").fits(*sweep)
    assert rises("agreement").fits(*sweep) and not falls("agreement").fits(*sweep)
    assert not rises("agreement").fits(*points(agreement=(0.9, 0.9, 0.91))), "equal ends are no trend"
    assert stays("agreement", 0.3).fits(*sweep) and not stays("agreement").fits(*sweep)
    assert at("2", "calls", 32, 0.0).fits(*sweep) and not at("1", "calls", 32).fits(*sweep)
    assert below("calls", "1").fits(*sweep, rival) and not below("calls").fits(*sweep, rival)
    assert above("agreement", "2").fits(*sweep, rival) and not near("agreement").fits(*sweep, rival)
    assert near("agreement", "2").fits(*sweep, rival)


@pytest.mark.parametrize(
    ("shape", "values", "true"),
    [
        (rises("m", 1.0), (0, 0.5, 1), True),
        (rises("m", 1.0), (0, 0.5, 0.9), False),
        (rises("m", 0.5), (0, 3, 2.5, 1), False),
        (falls("m", 0.5), (1, 0.2, 0.3), True),
        (stays("m", 0.1), (1, 1.05, 1), True),
        (stays("m", 0.1), (1, 1.2, 1), False),
        (rises("m", 0.0), (1, 1, 1), False),
        (exceeds("m", 0.0), (0.1, 0.2, 0.1), True),
        (exceeds("m", 0.0), (0.1, 0.0), False),
    ],
)
def test_a_stated_difference_decides(shape: Shape, values: tuple[float, ...], true: bool) -> None:
    assert shape.fits(*points(m=values)) == true


def test_a_shape_of_what_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="kv was not measured"):
        rises("kv").fits(*points(calls=(1, 2)))
    with pytest.raises(ValueError, match="7 is not in the sweep"):
        at("7", "calls", 1).fits(*points(calls=(1, 2)))
    with pytest.raises(ValueError, match="needs a rival"):
        below("calls").fits(*points(calls=(1, 2)))


def lossy(kind: str) -> set[str]:
    """Programs of stdlib that decode with a masked model, or with causal ones, and claim tokens or distribution of no other
    program; a claim with a condition is of some parameters only, so that the program is lossy at others."""
    found = set()
    for name in stdlib.names():
        algorithm = decgraph.load(name)
        exact = any(claim.kind == "refines" and not claim.when for claim in algorithm.claims)
        kinds = set(algorithm.models.values())
        if not exact and ("masked" in kinds if kind == "masked" else "masked" not in kinds and "causal" in kinds):
            found.add(name)
    return found


@EVERY
def test_every_lossy_program_has_a_sweep_or_a_reason(name: str) -> None:
    kind = sweeps.kind_of(name)
    swept, left = {sweep.algorithm for sweep in kind.SWEEPS}, set(kind.LEFT_OUT)
    assert lossy(name) - swept == left and not swept & left
    assert max(Counter(s.label for s in kind.SWEEPS).values()) == 1
    for sweep in kind.SWEEPS:
        knob = {sweep.knob} - {""} if getattr(sweep, "at", None) is None else set()
        assert set(sweep.fixed) | knob <= set(decgraph.load(sweep.algorithm).params), sweep.label
        assert len(set(sweep.values)) == len(sweep.values) >= 2 and sweep.shapes and sweep.paper


@EVERY
def test_the_page_says_what_the_results_say(name: str) -> None:
    written, document = (DOCS / PAGES[name]).read_text("utf-8"), sweeps.load(name)
    assert written == page(name, document), f"python -m lab.tradeoffs {name} --page-only"
    for stem, _ in charts(name, list(sweeps.current(sweeps.kind_of(name), document["rows"]))):
        assert (DOCS / "images" / f"{stem}.png").is_file() and f"images/{stem}.png" in written


@EVERY
def test_failures_are_explained_and_nothing_else(name: str) -> None:
    kind, rows = sweeps.kind_of(name), sweeps.load(name)["rows"]
    assert sweeps.missing(kind, rows) == []
    for sweep, row in sweeps.current(kind, rows):
        assert bool(sweep.failed(row)) == bool(sweep.why), f"{sweep.label}: a reason where the shape is not shown, only there"


def test_unknown_programs_and_kinds_are_refused() -> None:
    with pytest.raises(DecError, match="no sweep of 'speculative'"):
        sweeps.chosen(sweeps.kind_of("masked"), ["speculative"])
    with pytest.raises(DecError, match="no kind 'neither'"):
        sweeps.kind_of("neither")


def test_rows_stand_in_the_tables_order_and_stale_ones_are_dropped() -> None:
    kind, (first, second, *_) = sweeps.kind_of("masked"), sweeps.load("masked")["rows"]
    assert [row for _, row in sweeps.current(kind, [second, first])] == [first, second]
    stale = {**first, "values": first["values"][1:]}
    assert [row for _, row in sweeps.current(kind, [stale, second])] == [second]
    assert first["sweep"] in {sweep.label for sweep in sweeps.missing(kind, [stale])}


def test_a_sweep_says_what_it_is() -> None:
    sweep = Sweep("fast_dllm", "tau", (0.5,), (rises("calls"), below("computed")), "", {"block": "8"}, rival="llada")
    assert sweep.label == "fast_dllm.tau" and sweep.labels == ["0.5"]
    assert [sweep.text(shape) for shape in sweep.shapes] == ["calls rise", "computed below llada's"]
