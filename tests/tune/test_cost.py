"""The cost of forwards: curves, their file, and measuring them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from decgraph.errors import DecError
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.table import TableFeatures, TableModel
from decgraph.runtime.tune import cost, facts
from decgraph.runtime.tune.cost import Curve, ladder, rising

CURVE = Curve((10, 110), (1, 2, 8), ((1.0, 2.0, 8.0), (2.0, 3.0, 9.0)))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path))
    return tmp_path / "costs.json"


@pytest.mark.parametrize(("cells", "context", "seconds"), [
    (1, 10, 1.0), (8, 10, 8.0), (5, 10, 5.0), (1, 110, 2.0), (1, 60, 1.5), (5, 60, 5.5),
    (0.5, 10, 1.0), (16, 10, 16.0), (1, 210, 3.0), (1, 0, 1.0),
])  # fmt: skip
def test_between_the_points_and_beyond(cells: float, context: float, seconds: float) -> None:
    assert CURVE(cells, context) == pytest.approx(seconds)


def test_json() -> None:
    assert Curve.of(json.loads(json.dumps(CURVE.to_json()))) == CURVE


@pytest.mark.parametrize("change", [
    {"contexts": []}, {"contexts": [110, 10]}, {"cells": [1, 1, 8]}, {"cells": [1, 2]}, {"microseconds": [[1, 2, 3]]},
    {"microseconds": [[1, 2, 3], [1, 2, -3]]}, {"microseconds": [[1, 2, 3], [1, 2, float("nan")]]}, {"microseconds": "x"},
    {"cells": None},
])  # fmt: skip
def test_what_is_no_curve(change: dict[str, Any]) -> None:
    for value in ({**CURVE.to_json(), **change}, None, [], 3, {}):
        with pytest.raises(ValueError):
            Curve.of(value)


def test_ladders() -> None:
    assert ladder(1) == (1,) and ladder(8) == (1, 2, 4, 8) and ladder(9) == (1, 2, 4, 8, 9)


def test_more_cells_never_cost_less() -> None:
    assert rising([1, 2, 3]) == [1, 2, 3]
    assert rising([3, 1, 2]) == [2, 2, 2]
    assert rising([1, 5, 3, 6]) == [1, 4, 4, 6]


class Ticks:
    """A clock on which a forward takes a second and 10 ms a cell."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.cells = engine, 0

    def __call__(self) -> float:
        return self.engine.counted.calls + 0.01 * self.engine.counted.rows


@pytest.mark.parametrize("kind", ["causal", "features"])
def test_measuring(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TableModel(4, seed=1)
    model = target if kind == "causal" else TableFeatures(target, seed=2)
    curve = cost.measured(model, (3, 6), (1, 2, 4), clock=Ticks(engine_of(model)))
    assert curve.contexts == (3, 6) and curve.cells == (1, 2, 4)
    for row in curve.seconds:
        assert row == pytest.approx([1.01, 1.02, 1.04])


def test_what_is_not_timed_alone() -> None:
    with pytest.raises(DecError, match="masked"):
        cost.measured(TableModel(4, seed=7, kind="masked"), (3,), (1,))


def test_curves_are_kept_by_model_and_device(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = TableModel(4, seed=1), []

    def measured(model: Any, contexts: Any, cells: Any, **_: Any) -> Curve:
        asked.append((tuple(contexts), tuple(cells)))
        return Curve(tuple(contexts), tuple(cells), tuple(tuple(0.5 for _ in cells) for _ in contexts))

    monkeypatch.setattr(cost, "measured", measured)
    here = {"device": "cpu: A", "threads": 1}
    assert cost.known(model, "m1", here, (4, 8), (1, 2, 4)) == (measured(None, (4, 8), (1, 2, 4)), False)
    asked.clear()
    assert cost.known(model, "m1", here, (5, 7), (1, 2))[1] and not asked  # what is kept covers it
    for content, device, contexts, cells, fresh in (
        ("m2", here, (4, 8), (1, 2), False), ("m1", {**here, "threads": 2}, (4, 8), (1, 2), False),
        ("m1", here, (4, 9), (1, 2), False), ("m1", here, (3, 8), (1, 2), False), ("m1", here, (4, 8), (1, 8), False),
        ("m1", here, (4, 8), (1, 2), True), ("", here, (4, 8), (1, 2), False), ("", here, (4, 8), (1, 2), False),
    ):  # fmt: skip
        asked.clear()
        assert not cost.known(model, content, device, contexts, cells, fresh=fresh)[1] and len(asked) == 1
    cache.write_text("{}{")
    assert not cost.known(model, "m1", here, (4, 8), (1, 2))[1]
    assert cost.known(model, "m1", here, (4, 8), (1, 2))[1]


def test_facts_of_a_device() -> None:
    found = facts.of_device("cpu")
    assert found["device"].startswith("cpu: ") and found["cores"] >= 1
    assert set(found) == {"device", "cores", "threads", "torch", "decgraph", "triton"}
    assert cost.device_of([TableModel(4, seed=1)]) == "cpu"
