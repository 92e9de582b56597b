"""What tests cost in CPU time, as measured (tests/costs.tsv), and what `make test` leaves to `make slow` for it, and CI to the
night, where no file is named.

`make costs` measures and writes the file anew: seconds of one case, and the test, for those that took more than `SHORT` or in
all more than `BUDGET`. A test that is not in it, because it is new or fast, counts as fast.

- Of a test whose cases take more than `LONG`, `make test` runs none.
- Of a test whose cases take more than `SHORT`, it runs one.
- Of every other test, it runs at most `MOST` cases, from the first to the last.
- Of the slow cases of a test, CI runs as many as take `BUDGET` seconds, from the first to the last: at least one, but none of
  those that take more than `VERY_LONG`. With `@pytest.mark.budget(36)` it runs as many as take 36, with `@pytest.mark.budget()`
  all. `make nightly` runs the others.

Tests that compare with golden files run with all their cases: a file that no case reads is an error.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("costs.tsv")
SHORT, LONG, VERY_LONG = 0.2, 0.6, 2
"""Seconds of CPU time of one case."""
MOST = 8
BUDGET = 0.8  # six before issue 14: what is left out runs at night, until the new tests are cheaper
"""Seconds of CPU time of one test's cases in CI."""
FOLDER = "DECGRAPH_COSTS"
"""The variable that says into which folder costs are written while tests run."""


@cache
def costs() -> dict[str, float]:
    """Seconds of one case, by test."""
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    return {test: float(seconds) for seconds, test in (line.split("\t") for line in lines)}


def costly(items: Sequence[Any]) -> list[Any]:
    """Those of the fast cases that are left to `make slow`."""
    left: list[Any] = []
    for test, cases in by_test(i for i in items if not marked(i, "slow", "nightly")).items():
        if "golden" in cases[0].fixturenames:
            continue
        seconds = costs().get(test, 0)
        most = MOST if seconds <= SHORT else 1 if seconds <= LONG else 0
        left += beside(cases, most)
    return left


def beyond_budget(items: Sequence[Any]) -> list[Any]:
    """Those of the slow cases that are left to `make nightly`."""
    left: list[Any] = []
    for test, cases in by_test(i for i in items if marked(i, "slow") and not marked(i, "nightly")).items():
        mark = cases[0].get_closest_marker("budget")
        seconds, budget = costs().get(test, 0), (*mark.args, math.inf)[0] if mark is not None else BUDGET
        if seconds * len(cases) > budget:
            left += beside(cases, max(mark is None and seconds <= VERY_LONG, int(budget / seconds)))
    return left


def by_test(items: Iterable[Any]) -> dict[str, list[Any]]:
    """The cases of every test, by its name."""
    tests: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.split("[")[0]].append(item)
    return tests


def marked(item: Any, *marks: str) -> bool:
    """Whether an item has one of these marks."""
    return any(item.get_closest_marker(mark) is not None for mark in marks)


def beside(cases: Sequence[Any], most: int) -> list[Any]:
    """The cases that are not among `most` ones, evenly spread."""
    if len(cases) <= most:
        return []
    kept = {i * len(cases) // most for i in range(most)}
    return [case for i, case in enumerate(cases) if i not in kept]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """With FOLDER set, every test's CPU time is written there, that of processes it started included."""
    before, result = _cpu(), (yield)
    if folder := os.environ.get(FOLDER):
        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        with (Path(folder) / name).open("a", encoding="utf-8") as file:
            file.write(f"{_cpu() - before:.3f}\t{item.nodeid}\n")
    return result


def _cpu() -> float:
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def measure(arguments: Sequence[str]) -> None:
    """Run all tests but those marked `nightly` by hand, and write what they cost."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-p", "costs", "-m", "not nightly or slow", *arguments]
        subprocess.run(command, check=False, env={**os.environ, FOLDER: folder}, timeout=None)
        write(Path(folder))
    print(f"costs: {len(costs())} tests of more than {SHORT} s, measured in {time.monotonic() - started:.0f} s: {FILE}")


def write(folder: Path) -> None:
    """Gather what workers wrote into FILE: the mean of a test's cases."""
    took: dict[str, list[float]] = defaultdict(list)
    for file in folder.iterdir():
        for line in file.read_text(encoding="utf-8").splitlines():
            seconds, test = line.split("\t", 1)
            took[test.split("[")[0]].append(float(seconds))
    mean = {test: sum(v) / len(v) for test, v in sorted(took.items()) if sum(v) > min(BUDGET, SHORT * len(v))}
    FILE.write_text("".join(f"{s:.3f}\t{t}\n" for t, s in mean.items()), encoding="utf-8")
    costs.cache_clear()


if __name__ == "__main__":
    measure(sys.argv[1:])
