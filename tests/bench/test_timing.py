"""The measuring itself: turns, ratios, spreads, tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from decgraph.bench import table
from decgraph.bench.timing import Spread, alternated


def test_a_spread_is_a_median_with_quartiles() -> None:
    assert Spread.of([4.0, 1.0, 2.0, 3.0, 5.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0)
    assert Spread(1 / 3, 0.0, 1000.0).to_json() == {"median": 0.3333, "low": 0.0, "high": 1000.0}


@pytest.mark.slow
def test_contenders_take_turns_within_every_request() -> None:
    ran: list[tuple[str, int]] = []
    runs = {name: (lambda n, name=name: ran.append((name, n))) for name in "abc"}
    times = alternated(runs, 4, 5, warm=1)
    groups = [ran[i : i + 3] for i in range(0, len(ran), 3)]
    assert len(groups) == 4 * 6
    for place, group in enumerate(groups):
        assert {name for name, _ in group} == set("abc")
        assert {n for _, n in group} == {place % 4}
    assert len({tuple(name for name, _ in group) for group in groups}) > 1  # not always the same one first
    assert all(len(values) == 20 for clock in (times.wall, times.cpu) for values in clock.values())


class Clocks:
    """Clocks that stand still but for what a contender says it took."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.wall = self.cpu = 0.0
        patch.setattr(time, "perf_counter", lambda: self.wall)
        patch.setattr(time, "process_time", lambda: self.cpu)

    def takes(self, wall: Sequence[float], cpu: float) -> Callable[[int], None]:
        """A contender that takes these times on the wall clock, one after the other, and this much of the processor."""
        left = iter(wall)

        def work(_: int) -> None:
            self.wall += next(left)
            self.cpu += cpu

        return work


def test_the_ratio_is_of_pairs_and_warm_rounds_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    runs = {"slow": clocks.takes([100, 1, 9, 8], 4), "fast": clocks.takes([1, 2, 3, 2], 2)}
    times = alternated(runs, 1, 3, warm=1)
    assert times.wall == {"slow": [1, 9, 8], "fast": [2, 3, 2]}
    assert times.ratio("slow", "fast") == Spread(3, 1.75, 3.5)  # of 0.5, 3 and 4; not 8 / 2
    assert times.ratio("slow", "fast", cpu=True).median == 2
    assert times.seconds("slow").median == 8


ROW: dict[str, Any] = {
    "kind": "transformers", "algorithm": "speculative", "baseline": "assisted", "models": "shipped", "mode": "greedy",
    "tokens_per_second": {"ours": 120.4, "baseline": 60.2}, "ratio": {"median": 2.0, "low": 1.9, "high": 2.1},
    "cpu_ratio": {"median": 1.98, "low": 1.9, "high": 2.0}, "tokens_per_call": 2.5, "ms_per_call": 4.0,
    "outside_models": {"median": 0.12}, "tokens_equal": {"same": 3, "near_ties": 1, "different": 0}, "load": 1.0,
}  # fmt: skip


def test_tables_are_made_from_the_results(tmp_path: Path) -> None:
    (tmp_path / "decoding.json").write_text(json.dumps({"rows": [ROW]}))
    page = "before\n<!-- table shipped -->\nold\n<!-- end -->\nafter\n<!-- table compiling -->\n<!-- end -->\n"
    made = table.written(page, tmp_path)
    assert made.startswith("before\n<!-- table shipped -->\n| algorithm |")
    cells = (
        "speculative",
        "assisted",
        "greedy",
        "120",
        "60",
        "2.00 (1.90 to 2.10)",
        "1.98",
        "2.50",
        "-",
        "4.00",
        "12%",
        "3 of 4, 1 near-ties",
    )
    assert f"| {' | '.join(cells)} |\n" in made
    assert "old" not in made and "after\n<!-- table compiling -->\n(not measured)\n" in made
    assert table.written(made, tmp_path) == made
    with pytest.raises(KeyError):
        table.written("<!-- table nothing -->\n<!-- end -->", tmp_path)


def test_the_page_says_what_the_results_say() -> None:
    page = table.PAGE.read_text(encoding="utf-8")
    assert table.written(page) == page, "run: python -m decgraph.bench.table"
