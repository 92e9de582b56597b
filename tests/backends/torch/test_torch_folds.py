"""What sequences that run side by side make of one another's numbers, what they choose of one another's candidates, and what a
check says of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lib.stdlib.table_models import module, tables

import decgraph
from decgraph.backends.registry import machine
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.runtime.request import Request
from decgraph.runtime.result import Result
from decgraph.runtime.session import Session
from decgraph.runtime.trace import Accepted, Committed, Drafted

GAMMA, UP, MOD, MOST = 3, 2, 4, 7


BACKENDS = ("torch", "reference")


def batch(
    program: Module, params: dict[str, Any], limits: list[int], models: tuple[str, ...], width: int, backend: str
) -> list[Result]:
    have = tables(5)
    bound = Session(program, {n: have[n] for n in models}, params, machine=machine(backend))
    requests = [
        Request(prompt=(0, 1, 2)[: 1 + n % 3], max_tokens=limit, seed=n, request_id=n) for n, limit in enumerate(limits)
    ]
    got = bound.generate(requests, batch=width, keep_events=True)
    assert all(r.error is None for r in got), [r.error for r in got]
    return got


def steps(result: Result) -> list[tuple[int, int]]:
    """How many tokens each decoding step drafted and accepted."""
    out, drafted, accepted = [], 0, 0
    for event in result.events:
        drafted += isinstance(event, Drafted)
        accepted += isinstance(event, Accepted)
        if isinstance(event, Committed):
            out.append((drafted, accepted))
            drafted = accepted = 0
    return out


@pytest.mark.parametrize("backend", BACKENDS)
def test_draft_lengths_follow_the_best_of_the_batch(backend: str) -> None:
    """BASS, algorithm 1: all sequences of a step draft equally many, by the most that any of them accepted."""
    params = {"gamma": GAMMA, "up": UP, "mod": MOD, "most": MOST}
    limits = [60, 45, 60, 30]
    rows = [steps(r) for r in batch(module("bass"), params, limits, ("target", "drafter"), 8, backend)]
    length, fell, lengths = GAMMA, 0, set()
    for step in range(max(map(len, rows))):
        live = [row[step] for row in rows if step < len(row)]
        room = [limit - sum(accepted + 1 for _, accepted in row[:step]) for limit, row in zip(limits, rows, strict=True)]
        whole = [row[step][0] for row, left in zip(rows, room, strict=True) if step < len(row) and left > length]
        assert all(drafted == length for drafted in whole), step
        best = max(accepted for _, accepted in live)
        lengths.add(length)
        if best == length:
            length, fell = min(length + UP, MOST), 0
        else:
            length, fell = max(1, best, length - -(-length // MOD) - fell), 1
    assert len(lengths) > 2


PLACE = """
algorithm told(target: causal):
    while not done:
        x ~ target(ctx)
        across batch:
            best = {fn}(ctx.length)
        commit point(best % vocab.size)
"""


LIMITS, WIDTH = [2, 5, 3, 4, 2], 3
"""Three at a time of five."""


def expected(commits: Callable[[dict[int, int]], dict[int, int]]) -> list[list[int]]:
    """What each sequence commits, where `commits` says it of those in flight from the lengths of their contexts."""
    want: list[list[int]] = [[] for _ in LIMITS]
    flight, waiting = list(range(WIDTH)), list(range(WIDTH, len(LIMITS)))
    while flight:
        for n, token in commits({n: 1 + n % 3 + len(want[n]) for n in flight}).items():
            want[n].append(token)
        over = [n for n in flight if len(want[n]) == LIMITS[n]]
        flight = [n for n in flight if n not in over]
        while over and waiting:
            flight.append(waiting.pop(0))
            over.pop()
    return want


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("fn", "fold"), [("max", max), ("min", min), ("sum", sum)])
def test_sequences_that_ended_take_no_part_and_others_join(fn: str, fold: Any, backend: str) -> None:
    """What each commits is the fold of the lengths of those that are in flight."""
    got = batch(load_text(PLACE.format(fn=fn), "told.dec"), {}, LIMITS, ("target",), WIDTH, backend)
    assert [list(r.tokens) for r in got] == expected(lambda lengths: dict.fromkeys(lengths, fold(lengths.values()) % 4))


CHOSEN = """
algorithm chosen(target: causal, k: int in 1..8 = 4):
    while not done:
        x ~ target(ctx)
        own = range_(0, 2 + ctx.length % 2)
        across batch:
            kept = top(own, k, by = (own * 3 + ctx.length * 5) % 7)
        commit point(len(kept))
"""


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_best_candidates_of_all_sequences_are_chosen(backend: str, k: int) -> None:
    """What each commits is how many of its candidates are among the k best of those in flight; the first of equals win."""

    def commits(lengths: dict[int, int]) -> dict[int, int]:
        everyone = [(-((c * 3 + length * 5) % 7), n) for n, length in lengths.items() for c in range(2 + length % 2)]
        best = sorted(everyone, key=lambda c: c[0])[:k]
        return {n: sum(owner == n for _, owner in best) for n in lengths}

    got = batch(load_text(CHOSEN, "chosen.dec"), {"k": k}, LIMITS, ("target",), WIDTH, backend)
    assert [list(r.tokens) for r in got] == expected(commits)


WRONG = """
algorithm biased(target: causal):
    {claim}
    while not done:
        x ~ target(ctx)
        own = {own}
        across batch:
            all_ = {fn}(own)
        commit point(0) if all_ != own else x
"""


@pytest.mark.parametrize(
    ("own", "fn"),
    [
        ("int(x.token)", "max"),
        ("int(x.token)", "min"),
        ("int(x.token)", "sum"),
        ("x.token == 1", "any"),
        ("x.token == 1", "all"),
    ],
)
def test_what_holds_of_a_sequence_alone_is_refuted_in_a_batch(own: str, fn: str, tmp_path: Path) -> None:
    """Alone a fold is the sequence's own number, so that this program is the target."""
    file = tmp_path / "biased.dec"
    file.write_text(WRONG.format(claim="refines autoregressive(target)", own=own, fn=fn))
    assert decgraph.load(str(file)).check(models=12, seconds=200).verdict == "refuted"
    file.write_text(WRONG.format(claim="refines autoregressive(target)", own=own, fn=fn).replace("all_ != own", "no"))
    assert decgraph.load(str(file)).check(models=1, seconds=0.5).verdict != "refuted"


def test_a_batch_is_folded_by_a_number_of_each_sequence() -> None:
    with pytest.raises(DecError, match="condition"):
        load_text(PLACE.format(fn="any"), "told.dec")
