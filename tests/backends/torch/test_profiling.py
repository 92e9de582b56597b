"""The clock of profiled runs: it changes no token, loses no time, and puts time where it went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import decgraph  # noqa: E402
from decgraph.backends.torch import profiling, transfer  # noqa: E402
from decgraph.backends.torch.profiling import Clock, Place, profiled  # noqa: E402
from decgraph.check.worlds import models_for  # noqa: E402
from decgraph.runtime.request import Request  # noqa: E402
from decgraph.runtime.session import Result, Session  # noqa: E402

PROGRAMS = ("speculative", "eagle2", "lookahead", "fast_dllm", "suffix_decoding", "beam", "cs_drafting")


def session_of(algorithm: decgraph.Algorithm, **more: Any) -> Session:
    models: dict[str, Any] = models_for(algorithm.function, 8, 3)
    return algorithm.session(models, backend="torch", **more)


def timed(session: Session, request: Request, clock: Clock) -> Result:
    plain = session.machine
    session.shared = {}
    session.machine = profiled(clock)
    try:
        return session.run(request, keep_events=False)
    finally:
        session.machine = plain


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_profiled_run_commits_the_same_tokens_and_loses_no_time(name: str) -> None:
    algorithm = decgraph.load(name)
    session = session_of(algorithm)
    request = Request(prompt=(1, 2, 1, 2, 3, 1), max_tokens=12, temperature=1.0, seed=3)
    plain = session.run(request, keep_events=False)
    clock = Clock(traced=True)
    before = time.perf_counter_ns()
    result = timed(session, request, clock)
    whole = time.perf_counter_ns() - before
    assert (result.tokens, result.stats, result.error) == (plain.tokens, plain.stats, None)
    total = sum(clock.wall.values())
    assert 0 < total <= whole
    assert sum(length for _, _, length in clock.spans) == total
    ends = 0
    for _, start, length in clock.spans:
        assert start == ends, "spans follow one another without a gap"
        ends = start + length
    assert all(place.line > 0 for place in clock.wall if place.kind == profiling.FORWARD)
    assert min(clock.times.values()) >= 0


def test_forwards_are_counted_at_the_lines_of_their_calls() -> None:
    session = session_of(decgraph.load("speculative"), gamma=3)
    clock = Clock()
    result = timed(session, Request(prompt=(1, 2), max_tokens=10, temperature=1.0), clock)
    forwards = {p: n for p, n in clock.times.items() if p.kind == profiling.FORWARD}
    target = Place("stdlib/speculative.dec", 12, profiling.FORWARD, "target")
    assert forwards[target] == result.stats.target_calls
    (drafts,) = (n for p, n in forwards.items() if p.model == "drafter")
    assert 0 < drafts <= result.stats.draft_calls
    assert {p.line for p in forwards if p.model == "drafter"} == {10}
    assert any(p.path == "stdlib/rules.dec" and p.kind == profiling.VERIFYING for p in clock.wall)


SLOW = """extern slow(int) -> bool on host

algorithm asks(target: causal):
    while not done:
        x ~ target(ctx)
        if slow(ctx.length):
            commit x
        else:
            commit argmax(target(ctx).raw)
"""
SPIN = 5_000_000


def spin(*_: object) -> bool:
    """Takes five milliseconds of processor time."""
    until = time.process_time_ns() + SPIN
    while time.process_time_ns() < until:
        pass
    return True


def test_time_of_a_host_function_is_at_its_line() -> None:
    spent = {}
    for slow in (spin, lambda _: True):
        session = session_of(decgraph.parse(SLOW, path="asks.dec"), externs={"slow": slow})
        timed(session, Request(prompt=(1, 2), max_tokens=1), Clock())  # what is made once is made
        clock = Clock()
        result = timed(session, Request(prompt=(1, 2), max_tokens=6), clock)
        assert len(result.tokens) == 6
        (host,) = (p for p in clock.wall if p.kind == profiling.HOST and p.line == 6)
        spent[slow is spin] = clock.cpu[host]
    assert spent[True] >= 6 * SPIN > spent[False]


def test_a_copy_from_a_device_is_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "HOST", "another")
    session = session_of(decgraph.load("speculative"))
    clock = Clock()
    timed(session, Request(prompt=(1, 2), max_tokens=6, temperature=1.0), clock)
    waiting = [p for p in clock.wall if p.kind == profiling.WAITING]
    assert waiting and all(clock.times[p] > 0 for p in waiting)


class Ticks:
    """A clock that tells the next of some times."""

    def __init__(self, *times: int) -> None:
        self.times: Iterator[int] = iter(times)

    def perf_counter_ns(self) -> int:
        return next(self.times)

    def process_time_ns(self) -> int:
        return 0


def test_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = Place("f", 1, "draws"), Place("f", 2, "host")
    monkeypatch.setattr(profiling, "time", Ticks(100, 110, 115, 130, 131, 140))
    clock = Clock(traced=True)
    clock.at(a)  # 100
    with clock.inside(b):  # 110
        pass  # 115
    clock.at(a)  # 130
    clock.at(None)  # 131
    assert clock.wall == {a: 10 + 15 + 1, b: 5}
    assert clock.times == {a: 2, b: 1}
    assert clock.spans == [(a, 0, 10), (b, 10, 5), (a, 15, 16)]
