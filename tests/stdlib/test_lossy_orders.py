"""Orders that are not left to right: where they equal another decoder, and which cells each call decides, against the papers'
rules written here once more (and, for ARPG, the official run's recording)."""

from __future__ import annotations

from collections.abc import Mapping
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


@pytest.mark.parametrize("width", [4, 1])
def test_a_window_of_a_whole_row_is_the_raster(width: int) -> None:
    params = {"length": LENGTH, "width": width, "window": width}
    for seed in range(4):
        assert decided("zipar", params, seed, **GREEDY) == decided(*RASTER, seed, **GREEDY), seed


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


def test_a_memory_that_no_call_computed_before_is_a_call_on_both_backends() -> None:
    """Each group of ARPG costs two: one that asks at its cells, one that keeps them as they were decided."""
    have = {"model": FreeModel(6, V, 2, visibility="full")}
    for backend in ("reference", "torch"):
        bound = Session(module("arpg"), have, {"length": 9, "steps": 3}, machine=machine(backend))
        assert bound.run(Request(prompt=(0, 1), max_tokens=9)).stats.target_calls == 6, backend
