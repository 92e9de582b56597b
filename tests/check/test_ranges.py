"""Outcomes that no run can show, and outcomes that look as if none could and some does."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import decgraph
from decgraph.backends.exact.coverage import outcomes
from decgraph.backends.exact.numbers import EXACT
from decgraph.dsl.lower import load_text
from decgraph.ir.data.numbers import MAP_FUNCTIONS
from decgraph.ir.intervals import BOTH, INF, ODD, UNKNOWN, Interval, folded, mapped, scanned, widened
from decgraph.ir.opdef import OpError
from decgraph.ir.ranges import impossible

HEAD = "algorithm a(target: causal, gamma: int in 1..4 = 2, share: prob = 0.5, slack: int = 0, on: bool = yes):\n"


def never(states: str, body: str) -> set[str]:
    """What is impossible in a loop with this body: "what: outcome" for conditions and functions of the lines marked with #."""
    lines = [
        *(f"    {s}" for s in states.splitlines()),
        "    while not done:",
        *(f"        {b}" for b in body.splitlines()),
        "        x ~ target(ctx)",
        "        commit x",
    ]
    f = load_text(HEAD + "\n".join(lines) + "\n").entry
    cannot = impossible(f, outcomes)
    marked = {n: line.split("#")[1].strip() for n, line in enumerate([HEAD, *lines], 1) if "#" in line}
    watched = [op for op in f.body.walk() if op.loc.line in marked and op.opcode in ("if", "map", "for")]
    return {
        f"{marked[op.loc.line]} {op.attrs.get('fn', op.opcode)} {kind}" for op in watched for i, kind in cannot if i == id(op)
    }


@pytest.mark.parametrize(
    ("states", "body", "expected"),
    [
        ("state n: int per sequence = 0", "if n >= 0:  # A\n    n += 1", {"A ge false", "A if false"}),
        ("state n: int per session = 3", "if n < 3:  # A\n    n = n\nn = n + gamma", {"A lt true", "A if true"}),
        ("state n: int per sequence = 0", "if n >= 0:  # A\n    n = n\nn = n + 1 - gamma", set()),
        ("state n: int per session = 0", "if n >= 0:  # A\n    n = n\nif on:\n    n = n - 1", set()),
        ("state n: int per sequence = 0", "if n >= 0:  # A\n    n = n\nn = n + slack", set()),
        ("state n: int per sequence = 1", "if n <= 4:  # A\n    n = n\nn = min(n + 1, gamma)", {"A le false", "A if false"}),
        ("state n: int per sequence = 1", "if n <= 3:  # A\n    n = n\nn = min(n + 1, gamma)", set()),
        ("state n: int per sequence = 0", "if n < 100:  # A\n    n = n\nn = n + 1", set()),
        ("state n: int per sequence = 1", "if n > 0:  # A\n    n = n\nn = n * 2", {"A gt false", "A if false"}),
        ("state flag: bool per sequence = no", "if flag:  # A\n    flag = no", {"A if true"}),
        ("state flag: bool per sequence = no", "if flag:  # A\n    flag = flag\nflag = not flag", set()),
        ("state flag: bool per session = no", "if flag:  # A\n    flag = flag\nif on:\n    flag = yes", set()),
        ("state flag: bool per sequence = no", "if flag:  # A\n    flag = flag\nif gamma > 4:\n    flag = yes", {"A if true"}),
        ("", "if gamma >= 1 and on:  # A\n    y = 1", {"A ge false"}),
        ("", "if gamma >= 5 and on:  # A\n    y = 1", {"A ge true", "A and true", "A if true"}),
        ("", "if gamma >= 2 or share < 0:  # A\n    y = 1", {"A lt true"}),
        (
            "",
            "if gamma >= 1:\n    if on:  # A\n        y = 1\nelse:\n    if on:  # B\n        y = 1",
            {"B if true", "B if false"},
        ),
        (
            "state k: int per sequence = 0",
            "if on:\n    if gamma > 2:\n        k = 7\n    else:\n        k = 8\nif k == 9:  # A\n    k = k",
            {"A eq true", "A if true"},
        ),
        ("state k: int per sequence = 0", "if on:\n    if gamma > 2:\n        k = 9\nif k == 9:  # A\n    k = k", set()),
        (
            "state k: float per sequence = 0",
            "k = min(gamma, 4)  # A\nk = max(gamma, share)  # B",
            {"A minimum right", "B maximum right"},
        ),
        ("state k: float per sequence = 0", "k = min(gamma, 3)  # A\nk = max(share, 0.5)  # B", set()),
        (
            "state k: int per sequence = 0",
            "for i in 0..gamma + 1:  # A\n    if i < 5:  # B\n        k = i",
            {"A for never", "A for once", "B lt false", "B if false"},
        ),
        ("state k: int per sequence = 0", "for i in 0..gamma - 1:  # A\n    if i < 2:  # B\n        k = i", set()),
        (
            "state k: int per sequence = 0",
            "n = 0\nfor i in 0..slack:\n    n += 1\nif n >= 0:  # A\n    k = n\nif n < 7:  # B\n    k = n",
            {"A ge false", "A if false"},
        ),
        (
            "state k: int per sequence = 0",
            "q = target(ctx)\nif max(q) <= 1:  # A\n    k = 1\nif sum(q) <= 1:  # B\n    k = 1",
            {"A le false", "A if false"},
        ),
        # a value beside itself, and a counter beside its end
        ("state k: int per sequence = 0", "if slack == slack:  # A\n    k = 1", {"A eq false", "A if false"}),
        (
            "state k: int per sequence = 0",
            "for i in 0..slack:\n    if i + 1 > slack:  # A\n        k = 1",
            {"A gt true", "A if true"},
        ),
        ("state k: int per sequence = 0", "for i in 0..slack:\n    if i + 2 > slack:  # A\n        k = 1", set()),
        ("", "for i in 0..slack:\n    y = i > slack - 1  # A", {"A gt true"}),
        ("state k: int per sequence = 0", "for i in 0..slack:\n    k = min(i + 1, slack)  # A", {"A minimum right"}),
        ("state k: int per sequence = 0", "for i in 0..slack:\n    k = min(i + 2, slack)  # A", set()),
        ("state k: int per sequence = 0", "for i in 0..slack:\n    k = max(slack - 1, i)  # A", {"A maximum right"}),
        ("state k: int per sequence = 0", "for i in 0..slack:\n    k = max(slack - i, 1)  # A", {"A maximum right"}),
        ("state k: int per sequence = 0", "for i in 0..slack:\n    k = max(slack - i, 2)  # A", set()),
        # a loop of one iteration begins with nothing but what it is entered with
        (
            "state k: int per sequence = 0",
            "n = 0\nfor i in 0..gamma - gamma + 1:  # A\n    n = n + 1\nk = n",
            set(),
        ),
        (
            "state k: int per sequence = 0",
            "n = 0\nfor i in 0..min(gamma, 1):\n    if n == 0:  # A\n        k = 1\n    n = n + 1",
            {"A eq false", "A if false"},
        ),
        (
            "state k: int per sequence = 0",
            "n = 0\nfor i in 0..min(gamma, 2):\n    if n == 0:  # A\n        k = 1\n    n = n + 1",
            set(),
        ),
        (
            "state k: int per sequence = 0",
            "n = 0\nfor j in 0..2:\n    for i in 0..min(gamma, 1):\n        if n == 0:  # A\n            k = 1\n        n += 1",
            set(),
        ),
        # trees of which nothing is grown
        (
            "state k: int per sequence = 0",
            "draft t:\n    repeat gamma - 1:\n        y ~ target(t.leaves)\n        grow y\nif t.size > 0:  # A\n    k = 1",
            set(),
        ),
        (
            "state k: int per sequence = 0",
            "draft t:\n    repeat min(gamma, 0):\n        y ~ target(t.leaves)\n        grow y\nif t.size > 0:  # A\n    k = 1",
            {"A gt true", "A if true"},
        ),
    ],
)
def test_what_cannot_happen(states: str, body: str, expected: set[str]) -> None:
    assert never(states, body) == expected


def test_the_end_of_the_outer_loop_is_never_demanded() -> None:
    body = "    while not done:\n        x ~ target(ctx)\n        commit x\n        if done:\n            break\n"
    f = load_text(HEAD + body).entry
    cannot = impossible(f, outcomes)
    first, second = [op for op in f.body.walk() if op.opcode == "done"]
    assert {(id(first), "true"), (id(first), "false")} <= cannot
    assert not {(id(second), "true"), (id(second), "false")} & cannot


ENDS = [-INF, -2, -1, 0, 1, 2, INF]
SAMPLES = [-5, -2, -1, 0, 1, 2, 5, -INF, INF]


@pytest.mark.parametrize("fn", sorted(set(MAP_FUNCTIONS) - {"and", "or", "not", "select", "pow"}))
def test_intervals_hold_what_exact_numbers_give(fn: str) -> None:
    """Every result on sampled numbers lies in the interval of results, and is finite where that says so."""

    def ranges(v: float) -> list[Interval]:
        kind = int(abs(v) == INF)
        return [Interval(a, b, kind) for a in ENDS for b in ENDS if a <= v <= b]

    arity, result = MAP_FUNCTIONS[fn]
    rows: list[list[float]] = [[]]
    for _ in range(arity):
        rows = [[*r, v] for r in rows for v in (SAMPLES if arity < 3 else SAMPLES[1:6])]
    for row in rows:
        try:
            out = EXACT.fn(fn)(*row)[()]
        except OpError:
            continue
        parts = [ranges(v)[:: 1 if arity < 2 else 3] for v in row]
        picks = (
            [(a, *rest) for a in parts[0] for rest in zip(*(parts[1:] or [[()]]), strict=False)]
            if arity > 1
            else [(a,) for a in parts[0]]
        )
        for given in picks:
            got = mapped(fn, given)
            assert got.kind == ODD if out != out else got.low <= out <= got.high, (fn, row, given, got)
            assert got.kind or -INF < out < INF, (fn, row, given, got)
    assert result != "bool" or mapped(fn, [UNKNOWN] * arity) == BOTH


@pytest.mark.parametrize("values", [(), (0, 2), (-1, 0, 1), (2,), (Fraction(1, 2), Fraction(1, 3)), (-2, -1)])
def test_intervals_hold_folds_and_scans(values: tuple[Fraction, ...]) -> None:
    given = Interval(min(values, default=0), max(values, default=0))
    numbers = np.array(values, dtype=object)
    for fn in ("sum", "max", "min", "mean", "prod"):
        out, got = EXACT.reduce(fn, numbers, 0), folded(fn, given, False, True)
        assert got.low <= out <= got.high, fn
    for fn in ("cumsum", "cumprod", "cummax"):
        got = scanned(fn, given, False)
        assert all(got.low <= x <= got.high for x in EXACT.scan(fn, numbers, -1)), fn


def test_widening_stops_at_constants() -> None:
    assert widened(Interval(0, 1), Interval(0, 2), (0, 4, 9)) == Interval(0, 4)
    assert widened(Interval(0, 5), Interval(-1, 5), (0, 4)) == Interval(-INF, 5)


EITHER = """algorithm either(target: causal, drafter: causal, a: int in 0..4 = 1, b: int in 0..4 = 1, c: int in 0..4 = 1):
    refines autoregressive(target) in distribution when {when}

    while not done:
        x ~ drafter(ctx) if {bad} else target(ctx)
        commit x
"""


@pytest.mark.budget(6)
@pytest.mark.parametrize(
    ("when", "bad", "verdict"),
    [
        ("a == 0 or b == 0", "a * b > 0", ("holds",)),
        ("a == 0 or (b == 0 or c == 0)", "a * b * c > 0", ("holds",)),
        ("a == 0 or b == 1", "a * b > 0", ("refuted",)),
        ("a == 0 or b <= 1", "a * b > 0", ("refuted",)),
        ("a == 0 or b == 0", "a + b > 4 * 2", ("holds",)),
        ("a == 0 or b == 0", "a + b > 3", ("refuted",)),
    ],
)
def test_what_is_impossible_whichever_part_of_a_condition_holds(when: str, bad: str, verdict: tuple[str, ...]) -> None:
    text = EITHER.format(when=when, bad=bad)
    assert decgraph.check(text, derive=False, models=3).verdict in verdict


KEPT = """
rule residual_if(p: dist, children: draws, keep: bool = yes):
    for x in children:
        if bernoulli(p[x] / x.law[x]):
            accept x
        if keep:
            p = normalize(relu(p - x.law))
    y ~ p
    emit y

algorithm kept(target: causal, drafter: causal, gamma: int in 1..4 = 2):
    refines autoregressive(target) in distribution
    state steps: int per sequence = 0

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by residual_if({keep}) against target(t)
        steps += 1
        commit t.accepted
"""


@pytest.mark.quick(first=1)
@pytest.mark.parametrize(("keep", "verdict"), [("steps >= 0", "holds"), ("steps <= 4000", "undecided")])
def test_a_condition_is_no_hindrance_only_if_it_always_holds(tmp_path: Path, keep: str, verdict: str) -> None:
    path = tmp_path / "kept.dec"
    path.write_text(KEPT.format(keep=keep))
    assert decgraph.check(path, derive=False).verdict == verdict


def test_a_loop_over_a_vector_runs_where_the_vector_is_not_empty() -> None:
    """A condition that only an empty vector meets is never met inside a loop over it."""
    text = """rule reject(p: dist, children: draws):
    for x in children:
        if len(children) == 0:
            accept x
        if bernoulli(p[x] / x.law[x]):
            accept x
        p = normalize(relu(p - x.law))
    y ~ p
    emit y

algorithm goes_over(target: causal, drafter: causal):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            x ~ drafter(t.leaves)
            grow x
        verify t by reject against target(t)
        commit t.accepted
"""
    found = decgraph.check(text, derive=False)
    assert (found.verdict, found.not_seen) == ("holds", [])
