"""What `compile --emit triton` prints: the launches of a step as they happen, each kernel once, and rules a person can read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from step_runs import Runs

from decgraph.backends.triton.rules.tidy import tidied
from decgraph.backends.triton.source import HEARD
from decgraph.backends.triton.step.listing import listing_of
from decgraph.cli.main import main
from decgraph.runtime.request import Request


@pytest.mark.parametrize("name", ["speculative", "eagle2", "fast_dllm"])
def test_emit_triton(name: str, golden: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", name, "--emit", "triton"]) == 0
    golden(f"{name}.txt", capsys.readouterr().out)


@pytest.mark.parametrize("name", ["autoregressive", "speculative"])
def test_a_step_launches_what_is_listed(name: str) -> None:
    """The kernels of a decoding step that runs, in the interpreter, are those of the listing, in its order."""
    runs = Runs(name)
    request = Request(prompt=(1, 2), limit=3)
    program = runs.program([request])
    heard: list[str] = []

    def hear(kernel: str, text: str) -> None:
        heard.append(kernel)

    HEARD.append(hear)
    try:
        outcomes = program.run([request])
    finally:
        HEARD.remove(hear)
    runs.compare([request], outcomes)
    listing = listing_of(runs.module, name, runs.models, runs.params)
    wanted = [kernel for _, kernel, _ in listing.launches if kernel in heard]
    told = {kernel for _, kernel, _ in listing.launches}
    step = heard[heard.index(wanted[0]) :]
    assert set(heard) <= told and any(step[n : n + len(wanted)] == wanted for n in range(len(step))), (wanted, heard)


PHI = """    one = tl.full((), 1, tl.int64)
    x = tl.load(a)
    best = one
    other = one
    i = 0
    while i < n:
        y = tl.load(a + i)  # rules.dec:4
        y_twin = y
        if y > best:
            best_2 = y  # rules.dec:5
            other_2 = best
        else:
            best_2 = best
            other_2 = other
        best = best_2
        other = other_2
        i += 1
    tl.store(out, best)
"""


def test_copies_and_what_nobody_reads_are_folded() -> None:
    assert (
        tidied(PHI, frozenset({"a", "n", "out", "tl"}))
        == """    one = tl.full((), 1, tl.int64)
    best = one
    i = 0
    while i < n:
        y = tl.load(a + i)  # rules.dec:4
        if y > best:
            best = y  # rules.dec:5
        i += 1
    tl.store(out, best)
"""
    )


SWAP = """    x = tl.load(a)
    y = tl.load(a + 1)
    i = 0
    while i < n:
        x_2 = y
        y = x
        x = x_2
        i += 1
    tl.store(out, x)
"""


def test_values_that_are_needed_at_the_same_time_keep_their_own_names() -> None:
    """x and y go around the loop crosswise: a name for both would lose one."""
    lines = [line.strip() for line in tidied(SWAP, frozenset({"a", "n", "out", "tl"})).splitlines()]
    space = {"x": 1, "y": 2, "i": 0, "n": 1}
    exec("\n".join(lines[lines.index("while i < n:") + 1 : -1]), space)
    assert (space["x"], space["y"]) == (2, 1)
