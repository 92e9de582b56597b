"""Folds over a batch: what sequences that run side by side make of one another's numbers, and what a check says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shelf import module, tables

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


def batch(program: Module, params: dict[str, Any], limits: list[int], models: tuple[str, ...], width: int = 8) -> list[Result]:
    have = tables(5)
    bound = Session(program, {n: have[n] for n in models}, params, machine=machine("torch"))
    requests = [Request(prompt=(0, 1, 2)[: 1 + n % 3], limit=limit, seed=n, request_id=n) for n, limit in enumerate(limits)]
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


def test_draft_lengths_follow_the_best_of_the_batch() -> None:
    """BASS, algorithm 1: all sequences of a step draft equally many, by the most that any of them accepted."""
    params = {"gamma": GAMMA, "up": UP, "mod": MOD, "most": MOST}
    rows = [steps(r) for r in batch(module("bass"), params, [60, 45, 60, 30], ("target", "drafter"))]
    length, fell, lengths = GAMMA, 0, set()
    for step in range(max(map(len, rows))):
        live = [row[step] for row in rows if step < len(row)]
        whole = [row[step][0] for row in rows if step < len(row) - 2]  # near its limit a sequence drafts less
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


@pytest.mark.parametrize(("fn", "fold"), [("max", max), ("min", min), ("sum", sum)])
def test_sequences_that_ended_take_no_part_and_others_join(fn: str, fold: Any) -> None:
    """Three at a time of five: what each commits is the fold of the lengths of those that are in flight."""
    limits, width = [2, 5, 3, 4, 2], 3
    got = batch(load_text(PLACE.format(fn=fn), "told.dec"), {}, limits, ("target",), width)
    want: list[list[int]] = [[] for _ in limits]
    flight, waiting = list(range(width)), list(range(width, len(limits)))
    while flight:
        best = fold(1 + n % 3 + len(want[n]) for n in flight)
        for n in flight:
            want[n].append(best % 4)
        over = [n for n in flight if len(want[n]) == limits[n]]
        flight = [n for n in flight if n not in over]
        while over and waiting:
            flight.append(waiting.pop(0))
            over.pop()
    assert [list(r.tokens) for r in got] == want


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
    assert decgraph.load(str(file)).check(models=12, mutants=False, seconds=20).verdict == "refuted"
    file.write_text(WRONG.format(claim="refines autoregressive(target)", own=own, fn=fn).replace("all_ != own", "no"))
    assert decgraph.load(str(file)).check(models=1, mutants=False, seconds=0.5).verdict != "refuted"


def test_a_batch_is_folded_by_a_number_of_each_sequence() -> None:
    with pytest.raises(DecError, match="condition"):
        load_text(PLACE.format(fn="any"), "told.dec")
