"""Orders that are not left to right: where they equal another decoder, and which cells each call decides, against the papers'
rules written here once more (and, for ARPG, the official run's recording)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import cos, pi, sqrt
from pathlib import Path
from typing import Any

import pytest
from lib.stdlib.table_models import V, module, run, tables

from decgraph.backends.registry import machine
from decgraph.runtime.models.free import FreeModel
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
from decgraph.runtime.trace import ModelCall, Unmasked

GREEDY: Mapping[str, Any] = {"temperature": 0}
ARPG = Path(__file__).parents[1] / "fidelity" / "golden" / "dllm2" / "arpg.json"


def models(seed: int) -> dict[str, Model]:
    """Table models, the small one of CoDe among them."""
    return tables(seed) | {"refiner": TableModel(V, seed + 50, kind="masked", name="refiner")}


def decided(name: str, params: Mapping[str, Any], seed: int = 0, **request: Any) -> tuple[list[list[int]], tuple[int, ...]]:
    """The cells that each call decides, calls that decide none left out, and the tokens."""
    result = run(name, models(seed), params, **{"seed": seed, "max_tokens": 64, **request})
    calls: list[list[int]] = []
    for event in result.events:
        if isinstance(event, ModelCall):
            calls.append([])
        if isinstance(event, Unmasked):
            calls[-1].append(event.position)
    return [sorted(c) for c in calls if c], result.tokens


LENGTH = 12
RASTER = ("static_masked", {"length": LENGTH, "block": 1})
AT_ONCE = ("llada", {"length": LENGTH, "block": LENGTH, "steps": 1})
EQUAL: list[tuple[str, Mapping[str, Any], tuple[str, Mapping[str, Any]]]] = [
    ("zipar", {"length": LENGTH, "width": 4, "window": 4}, RASTER),
    ("zipar", {"length": LENGTH, "width": 1, "window": 1}, RASTER),
    ("arpg", {"length": LENGTH, "steps": 1}, AT_ONCE),
    ("lpd", {"length": LENGTH, "width": 4, "steps": 1}, AT_ONCE),
]


@pytest.mark.parametrize(("name", "params", "other"), EQUAL)
def test_at_this_setting_it_is_the_other(name: str, params: Mapping[str, Any], other: tuple[str, Mapping[str, Any]]) -> None:
    for seed in range(4):
        assert decided(name, params, seed, **GREEDY) == decided(*other, seed, **GREEDY), seed


def test_without_delay_frames_are_decided_whole_and_one_codebook_is_one_token_a_call() -> None:
    for seed in range(4):
        for books, delay in ((3, 0), (1, 2)):
            calls, tokens = decided("codebook_delay", {"frames": 4, "books": books, "delay": delay}, seed, **GREEDY)
            _, window = decided("sdlm", {"d": books, "tau": 0}, seed, max_tokens=4 * books, **GREEDY)
            assert (len(calls), tokens) == (4, window), seed


@pytest.mark.parametrize(("frames", "books", "delay"), [(4, 3, 1), (5, 2, 2), (3, 3, 3), (2, 4, 1)])
def test_the_delay_pattern(frames: int, books: int, delay: int) -> None:
    """Codebook q of frame t is in column t + q * delay of the delayed layout; columns without a token need no call."""
    columns: dict[int, list[int]] = {}
    for t in range(frames):
        for q in range(books):
            columns.setdefault(t + q * delay, []).append(t * books + q)
    calls, _ = decided("codebook_delay", {"frames": frames, "books": books, "delay": delay})
    assert calls == [sorted(columns[n]) for n in sorted(columns)]


@pytest.mark.parametrize(("rows", "width", "window"), [(3, 4, 2), (4, 5, 1), (2, 3, 3), (5, 4, 3)])
def test_rows_start_when_the_row_above_is_a_window_ahead(rows: int, width: int, window: int) -> None:
    """Rows as the public code moves them: the first alone, then every row in flight by one cell a call."""
    want = [[n] for n in range(width)]
    filled, flight = [width] + [0] * (rows - 1), [1]
    while any(n < width for n in filled):
        call, ready = [], list(flight)
        for r in ready:
            call.append(r * width + filled[r])
            filled[r] += 1
            if filled[r] == window and r + 1 < rows:
                flight.append(r + 1)
            if filled[r] == width:
                flight.remove(r)
        want.append(sorted(call))
    assert decided("zipar", {"length": rows * width, "width": width, "window": window})[0] == want


def test_groups_are_those_of_the_official_run() -> None:
    for case in json.loads(ARPG.read_text())["cases"]:
        calls, tokens = decided("arpg", {"length": 16, "steps": case["parameters"]["num_iter"]}, 1)
        assert [len(c) for c in calls] == [len(c["queries"]) for c in case["calls"]], case["id"]
        assert len(tokens) == 16


def test_the_order_is_drawn_for_each_request() -> None:
    orders = {str(decided("arpg", {"length": 8, "steps": 8}, seed)[0]) for seed in range(4)}
    assert len(orders) == 4


@pytest.mark.parametrize(("rows", "width", "steps", "near", "apart"), [(4, 4, 6, 1.0, 1), (5, 6, 5, 2.0, 1), (4, 6, 8, 0.5, 2)])
def test_groups_are_near_what_is_decided_and_far_from_one_another(
    rows: int, width: int, steps: int, near: float, apart: int
) -> None:
    for seed in range(3):
        params = {"length": rows * width, "width": width, "steps": steps, "near": near, "apart": apart}
        calls, _ = decided("lpd", params, seed)
        upto = [0]
        for s in range(steps):
            share = cos(pi / 2 * s / steps) - cos(pi / 2 * (s + 1) / steps)
            size = max(1, int(rows * width * share + 0.5)) if s else 1
            upto.append(rows * width if s == steps - 1 else upto[-1] + size)
        assert [sum(map(len, calls[: s + 1])) for s in range(steps)] == upto[1:]
        place = [(n // width, n % width) for n in range(rows * width)]
        done: list[int] = []
        for group in calls:
            free = [n for n in range(rows * width) if n not in done]
            gaps = {n: [(abs(place[n][0] - place[o][0]), abs(place[n][1] - place[o][1])) for o in done] for n in free}
            close = {n: sum(1 / sqrt(r * r + c * c) for r, c in gaps[n] if max(r, c) == 1) for n in free}
            good = [n for n in free if close[n] >= near - 1e-9]
            if good:
                assert max(close[n] for n in group) == pytest.approx(max(close.values()))
            apart_from = {
                n: all(max(abs(place[n][0] - place[o][0]), abs(place[n][1] - place[o][1])) > apart for o in group if o != n)
                for n in free
            }
            if not all(n in good and apart_from[n] for n in group):  # some were taken for their distance: no other was left
                assert not any(apart_from[n] for n in good if n not in group)
            done += group


def test_all_scales_drafted_is_the_large_model_and_none_the_small_one() -> None:
    for seed in range(4):
        have = models(seed)
        large = run("code_var", have, {"scales": 3, "drafted": 3}, max_tokens=14, seed=seed)
        swapped = run(
            "code_var",
            have | {"model": have["refiner"], "refiner": have["model"]},
            {"scales": 3, "drafted": 0},
            max_tokens=14,
            seed=seed,
        )
        assert large.tokens == swapped.tokens
        both = run("code_var", have, {"scales": 3, "drafted": 2}, max_tokens=14, seed=seed)
        assert [e.model for e in both.events if isinstance(e, ModelCall)] == ["model", "model", "refiner"]
        assert both.tokens[:5] == large.tokens[:5] and len(both.tokens) == 14
    assert [len(c) for c in decided("code_var", {"scales": 4, "drafted": 2})[0]] == [1, 4, 9, 16]


def test_a_memory_that_no_call_computed_before_is_a_call_on_both_backends() -> None:
    """Each group of ARPG costs two: one that asks at its cells, one that keeps them as they were decided."""
    have = {"model": FreeModel(6, V, 2, visibility="full")}
    for backend in ("reference", "torch"):
        bound = Session(module("arpg"), have, {"length": 9, "steps": 3}, machine=machine(backend))
        assert bound.run(Request(prompt=(0, 1), max_tokens=9)).stats.target_calls == 6, backend
