"""Trade-offs of the lossy masked programs: the table is complete, the page is that of the figures, cheap shapes hold live."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.trace import ModelCall, Unmasked
from lab import tradeoff_sweeps as tradeoffs
from lab import tradeoffs_masked
from lab.tradeoff_shapes import Point, above, at, below, falls, held, level, near, rises
from lab.tradeoff_sweeps import Sweep
from lab.tradeoffs_masked_table import LEFT_OUT
from lab.tradeoffs_page import charts, page

DOCUMENT = json.loads((tradeoffs.RESULTS / "tradeoffs-masked.json").read_text("utf-8"))


def points(**numbers: tuple[float, ...]) -> list[Point]:
    count = len(next(iter(numbers.values())))
    return [Point(str(n), {name: values[n] for name, values in numbers.items()}) for n in range(count)]


def test_shapes_are_told_apart() -> None:
    sweep = points(calls=(1, 4, 32), agreement=(0.8, 0.79, 1.0))
    rival = Point("", {"calls": 8, "agreement": 0.9})
    assert held(rises("calls"), sweep) and not held(falls("calls"), sweep) and not held(level("calls"), sweep)
    assert held(rises("agreement"), sweep), "a step back of 0.01 is within the tolerance"
    assert not held(rises("agreement"), points(agreement=(0.8, 0.7, 1.0))), "one of 0.1 is not"
    assert not held(rises("agreement"), points(agreement=(0.9, 0.9, 0.91))), "equal ends are no trend"
    assert held(level("agreement", 0.3), sweep) and not held(level("agreement"), sweep)
    assert held(at("2", "calls", 32, 0.0), sweep) and not held(at("1", "calls", 32), sweep)
    assert held(below("calls", "1"), sweep, rival) and not held(below("calls"), sweep, rival)
    assert held(above("agreement", "2"), sweep, rival) and not held(near("agreement"), sweep, rival)
    assert held(near("agreement", "2"), sweep, rival)


def test_a_shape_of_what_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="kv was not measured"):
        held(rises("kv"), points(calls=(1, 2)))
    with pytest.raises(ValueError, match="7 is not in the sweep"):
        held(at("7", "calls", 1), points(calls=(1, 2)))
    with pytest.raises(ValueError, match="needs a rival"):
        held(below("calls"), points(calls=(1, 2)))


def test_every_lossy_masked_program_has_a_sweep_over_a_parameter_of_its_own() -> None:
    table = tradeoffs_masked.SWEEPS
    swept, left = {sweep.algorithm for sweep in table}, set(LEFT_OUT)
    assert swept | left == set(tradeoffs.lossy("masked")) and not swept & left
    assert max(Counter((s.algorithm, s.knob) for s in table).values()) == 1
    for sweep in table:
        params = decgraph.load(sweep.algorithm).params
        assert set(sweep.fixed) | {sweep.knob} <= set(params), sweep.label
        assert len(set(sweep.values)) == len(sweep.values) >= 3 and sweep.shapes and sweep.paper


def test_lossless_programs_are_not_swept() -> None:
    assert not tradeoffs.is_lossy("freedave") and tradeoffs.is_lossy("fast_dllm") and tradeoffs.is_lossy("klass")


def test_the_page_says_what_the_results_say() -> None:
    written = (tradeoffs.DOCS / tradeoffs.PAGES["masked"]).read_text("utf-8")
    assert written == page(DOCUMENT, tradeoffs.kind_of("masked")), "python -m lab.tradeoffs --page-only"
    for stem, _ in charts(DOCUMENT, tradeoffs.kind_of("masked")):
        assert (tradeoffs.DOCS / "images" / f"{stem}.png").is_file() and f"images/{stem}.png" in written


def test_the_results_are_those_of_the_table_and_failures_are_explained() -> None:
    rows = {(row["algorithm"], row["knob"]): row for row in DOCUMENT["rows"]}
    lacking = tradeoffs.missing(tradeoffs.kind_of("masked"), DOCUMENT)  # the page lists them
    there = [sweep for sweep in tradeoffs_masked.SWEEPS if sweep not in lacking]
    assert list(rows) == [(s.algorithm, s.knob) for s in there]
    for sweep in there:
        row = rows[sweep.algorithm, sweep.knob]
        assert tradeoffs.is_of(row, sweep), sweep.label
        assert row == tradeoffs.judged_again(sweep, row), sweep.label
        assert row["shown"] or row["why"], f"{sweep.label} does not show its shape, and the table does not say why"


def test_unknown_programs_and_kinds_are_refused() -> None:
    with pytest.raises(DecError, match="no sweep of 'speculative'"):
        tradeoffs.chosen(tradeoffs.kind_of("masked"), ["speculative"])
    with pytest.raises(DecError, match="no kind 'neither'"):
        tradeoffs.kind_of("neither")


def test_the_order_of_decisions_is_counted_by_pairs_of_calls() -> None:
    call = ModelCall("m", 4, 4)
    a, b, c = (Unmasked(position, 5, 1.0) for position in (0, 1, 2))
    assert tradeoffs_masked.left_first([call, a, call, b, call, c]) == 1
    assert tradeoffs_masked.left_first([call, c, call, b, call, a]) == 0
    assert tradeoffs_masked.left_first([call, a, b, c]) == 0.5, "one call decides no order"


LIVE = {
    "llada.steps": ("1", "32"), "fast_dllm_uncached.tau": ("0.3", "1.0"), "eb_sampler.gamma": ("0", "8"),
    "learn2pd.tau": ("0.3", "0.99"), "code_var.drafted": ("0", "2", "4"), "adablock.trust": ("0.0", "1.0"),
}  # fmt: skip


@pytest.mark.budget(5)
@pytest.mark.slow
@pytest.mark.parametrize("label", LIVE)
def test_a_shape_holds_live(label: str) -> None:
    sweep = next(s for s in tradeoffs_masked.SWEEPS if s.label == label)
    assert set(LIVE[label]) <= set(sweep.values)
    (row,) = tradeoffs.run([replace(sweep, values=LIVE[label])], tradeoffs_masked.Masked(asked=2, each=1))
    assert row["shown"], row


def test_keys_and_values_are_counted_layer_by_layer() -> None:
    measure = tradeoffs_masked.Masked(asked=0, each=1)
    half, every = (measure.texts(f"sparse_dllm:length=16,block=8,steps=16,keep={keep}").counts for keep in ("0.5", "1.0"))
    whole = measure.texts("llada:length=16,block=8,steps=16").counts
    assert half["calls"] == every["calls"] == whole["calls"] and half["computed"] == every["computed"] < whole["computed"]
    assert half["kv"] < every["kv"] == whole["kv"] == whole["computed"], "all that is kept is read, all is computed without one"


def test_rows_stand_in_the_tables_order_and_stale_ones_are_dropped() -> None:
    kind, rows = tradeoffs.kind_of("masked"), DOCUMENT["rows"][:2]
    made = tradeoffs.assembled("masked", kind, DOCUMENT["facts"], [rows[1], rows[0]])
    assert made["rows"] == rows
    stale = {**rows[0], "points": rows[0]["points"][1:]}
    made = tradeoffs.assembled("masked", kind, DOCUMENT["facts"], [stale, rows[1]])
    assert made["rows"] == rows[1:] and made["facts"] == DOCUMENT["facts"]
    assert rows[0]["algorithm"] in {sweep.algorithm for sweep in tradeoffs.missing(kind, made)}


def test_a_sweep_says_what_it_is() -> None:
    sweep = Sweep("fast_dllm", "tau", ("0.5",), (rises("calls"), below("computed")), "", {"block": "8"}, rival="llada")
    assert sweep.label == "fast_dllm.tau" and sweep.expected == "calls rise; computed below llada's"
    assert tradeoffs.spec_of(sweep, "0.5") == "fast_dllm:block=8,tau=0.5"
