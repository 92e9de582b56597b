"""The measuring itself: turns, ratios, spreads, tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from decgraph.bench.timing import Spread, alternated
from decgraph.errors import DecError


def test_a_spread_is_a_median_with_quartiles() -> None:
    assert Spread.of([4.0, 1.0, 2.0, 3.0, 5.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0)
    assert Spread(1 / 3, 0.0, 1000.0).to_json() == {"median": 0.3333, "low": 0.0, "high": 1000.0}


@pytest.mark.slow
def test_contenders_take_turns_within_every_request() -> None:
    ran: list[tuple[str, int]] = []
    runs = {name: (lambda n, name=name: ran.append((name, n))) for name in "abc"}
    times = alternated(runs, 4, 5)
    groups = [ran[i : i + 3] for i in range(0, len(ran), 3)]
    assert len(groups) == 4 * 5
    for place, group in enumerate(groups):
        assert {name for name, _ in group} == set("abc")
        assert {n for _, n in group} == {place % 4}
    assert len({tuple(name for name, _ in group) for group in groups}) > 1  # not always the same one first
    assert all(len(values) == 20 for clock in (times.of("wall"), times.of("cpu")) for values in clock.values())


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


def test_each_clock_counts_what_a_contender_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    times = alternated({"slow": clocks.takes([1, 9, 8], 4), "fast": clocks.takes([2, 3, 2], 2)}, 1, 3)
    assert times.of("wall") == {"slow": [1, 9, 8], "fast": [2, 3, 2]} and times.of("cpu") == {"slow": [4] * 3, "fast": [2] * 3}


def test_a_contender_that_fails_is_dropped_and_the_others_go_on() -> None:
    ran: list[str] = []

    def fails(n: int) -> int:
        ran.append(f"fails {n}")
        if n == 1:
            raise DecError("no more")
        return 3

    def works(n: int) -> int:
        ran.append(f"works {n}")
        return 5 + n

    times = alternated({"fails": fails, "works": works}, 3, 2)
    assert "no more" in str(times.failed["fails"]) and "fails" not in times.of("wall")
    assert times.of("tokens") == {"works": [5, 6, 7, 5, 6, 7]} and len(times.of("cpu")["works"]) == 6
    assert times.groups == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert sum(line.startswith("fails") for line in ran) == 2


def test_what_was_measured_before_ctrl_c_is_kept() -> None:
    count = [0]

    def interrupted(n: int) -> int:
        count[0] += 1
        if count[0] == 5:
            raise KeyboardInterrupt
        return n

    times = alternated({"a": interrupted, "b": lambda n: n}, 2, 9)
    assert times.interrupted and len(times.groups) == 4  # the fifth group is not whole
    assert {len(each) for clock in (times.of("wall"), times.of("cpu"), times.of("tokens")) for each in clock.values()} == {4}


def test_the_order_repeats_with_its_seed() -> None:
    def order(seed: int) -> list[str]:
        ran: list[str] = []
        alternated({name: (lambda n, name=name: ran.append(name)) for name in "abcd"}, 3, 2, seed=seed)  # type: ignore[misc]
        return ran

    assert order(1) == order(1) != order(2)
