"""Trade-offs of lossy programs: tables are complete, pages are those of the figures, shapes are judged rightly."""

from __future__ import annotations

from collections import Counter

import pytest

import decgraph
from decgraph import stdlib
from decgraph.errors import DecError
from lab.pages import DOCS
from lab.tradeoffs import sweeps
from lab.tradeoffs.page import PAGES, charts, page
from lab.tradeoffs.sweeps import Numbers, Shape, Sweep

EVERY = pytest.mark.parametrize("name", sweeps.KINDS)


def points(**numbers: tuple[float, ...]) -> tuple[str, list[Numbers]]:
    """Labels 0, 1, ... and the numbers there."""
    count = len(next(iter(numbers.values())))
    return "".join(map(str, range(count))), [{name: values[n] for name, values in numbers.items()} for n in range(count)]


RIVAL = {"calls": 8, "agreement": 0.9}


@pytest.mark.parametrize(
    ("shape", "values", "true"),
    [
        ("calls rise", (1, 4, 32), True),
        ("calls fall", (1, 4, 32), False),
        ("calls stay", (1, 4, 32), False),
        ("agreement rises", (0.8, 0.79, 1.0), True),
        ("agreement falls", (0.8, 0.79, 1.0), False),
        ("agreement rises", (0.9, 0.9, 0.91), False),  # equal ends are no trend
        ("agreement stays within 0.3", (0.8, 0.79, 1.0), True),
        ("agreement stays", (0.8, 0.79, 1.0), False),
        ("calls are 32 at 2", (1, 4, 32), True),
        ("calls are 31 at 2", (1, 4, 32), True),
        ("calls are 32 at 1", (1, 4, 32), False),
        ("agreement is 1 at 2", (0.8, 0.79, 1.0), True),
        ("agreement is 1 at 2", (0.8, 0.79, 0.99), False),  # a share is exactly that
        ("calls below rival's at 1", (1, 4, 32), True),
        ("calls below rival's", (1, 4, 32), False),
        ("agreement above rival's at 2", (0.8, 0.79, 1.0), True),
        ("agreement not below rival's", (0.8, 0.79, 1.0), False),
        ("agreement not below rival's at 2", (0.8, 0.79, 0.89), True),
        ("log p rises by 1", (0, 0.5, 1), True),
        ("log p rises by 1", (0, 0.5, 0.9), False),
        ("log p rises by 0.5", (0, 3, 2.5, 1), False),
        ("log p falls by 0.5", (1, 0.2, 0.3), True),
        ("bits stay within 0.1", (1, 1.05, 1), True),
        ("bits stay within 0.1", (1, 1.2, 1), False),
        ("bits rise by 0", (1, 1, 1), False),
        ("over independent exceeds 0", (0.1, 0.2, 0.1), True),
        ("over independent exceeds 0", (0.1, 0.0), False),
    ],
)
def test_shapes_are_told_apart(shape: str, values: tuple[float, ...], true: bool) -> None:
    made = Shape(shape)
    assert made.fits(*points(**{made.measure: values}), RIVAL) == true


def test_a_shape_of_what_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="kv was not measured"):
        Shape("kv rises").fits(*points(calls=(1, 2)))
    with pytest.raises(ValueError, match="7 is not in the sweep"):
        Shape("calls are 1 at 7").fits(*points(calls=(1, 2)))
    with pytest.raises(ValueError, match="needs a rival"):
        Shape("calls below rival's").fits(*points(calls=(1, 2)))
    with pytest.raises(ValueError, match="'calls wobble' is no shape"):
        Shape("calls wobble")


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
    assert written == page(name, document), f"python -m lab tradeoffs {name} --page-only"
    for stem, _ in charts(name, list(sweeps.current(sweeps.kind_of(name), document["rows"]))):
        assert (DOCS / "images" / f"{stem}.svg").is_file() and f"images/{stem}.svg" in written


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
    expected = ("calls rise", "computed below rival's")
    sweep = Sweep.of("fast_dllm.tau 0.5", expected=expected, paper="", fixed={"block": "8"}, rival="llada")
    assert (sweep.label, sweep.labels, sweep.heading) == ("fast_dllm.tau", ["0.5"], "Diffusion")
    assert sweep.words(sweep.shapes) == "calls rise; computed below llada's"
