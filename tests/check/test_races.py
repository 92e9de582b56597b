"""What is known of keyed noise from the draws that read it, against the race itself."""

from __future__ import annotations

import random
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decgraph.backends.exact.races import Race, joint


def laws(size: int = 3):
    weights = st.lists(st.integers(0, 6), min_size=size, max_size=size).filter(any)
    return weights.map(lambda w: tuple(F(x, sum(w)) for x in w))


@given(laws(), laws())
def test_joint_is_a_law_with_the_right_margins(p, q) -> None:
    table = [[joint(p, a, q, b) for b in range(3)] for a in range(3)]
    assert [sum(row) for row in table] == list(p)
    assert [sum(row[b] for row in table) for b in range(3)] == list(q)


@given(laws(), laws())
def test_possible_is_where_the_joint_law_has_mass(p, q) -> None:
    for a in range(3):
        if p[a]:
            race = Race(3)
            race.read(p, a)
            assert race.possible(q) == [b for b in range(3) if joint(p, a, q, b) > 0]


@given(laws(4), laws(4))
def test_equal_laws_give_equal_tokens(p, q) -> None:
    race = Race(4)
    first = race.possible(p)[0]
    race.read(p, first)
    assert race.known(p) == first
    if p != q:
        assert race.known(q) is None
    assert [joint(p, first, p, b) for b in range(4)] == [p[first] if b == first else 0 for b in range(4)]


def test_a_third_law_is_not_worked_out() -> None:
    race = Race(2)
    for q in ((F(1, 2), F(1, 2)), (F(1, 3), F(2, 3))):
        race.read(q, race.possible(q)[0])
    assert race.weights((F(1, 4), F(3, 4))) is None


@pytest.mark.parametrize("seed", range(3))
def test_three_reads_against_brute_force(seed: int) -> None:
    """Every triple of tokens that a million races show is possible, and every possible one is shown."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(1, 5, 3) for _ in range(3)]
    noise = rng.exponential(size=(400_000, 3))
    seen = set(zip(*[(noise / row).argmin(axis=1).tolist() for row in rows], strict=True))
    laws = [tuple(F(int(x), int(row.sum())) for x in row) for row in rows]
    possible = set()

    def go(prefix: tuple[int, ...]) -> None:
        if len(prefix) == 3:
            possible.add(prefix)
            return
        race = Race(3)
        for law, y in zip(laws, prefix, strict=False):
            if race.known(law) is None:
                race.read(law, y)
        known = race.known(laws[len(prefix)])
        for y in [known] if known is not None else race.possible(laws[len(prefix)]):
            go((*prefix, y))

    go(())
    assert seen == possible


@pytest.mark.parametrize("seed", range(3))
def test_joint_against_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed + 10)
    p, q = (rng.integers(1, 6, 4) for _ in range(2))
    noise = rng.exponential(size=(200_000, 4))
    a, b = (noise / p).argmin(axis=1), (noise / q).argmin(axis=1)
    for i in range(4):
        for j in range(4):
            exact = joint(tuple(F(int(x), int(p.sum())) for x in p), i, tuple(F(int(x), int(q.sum())) for x in q), j)
            assert abs(float(exact) - float(((a == i) & (b == j)).mean())) < 0.005


def test_what_a_second_draw_can_be_is_what_the_bounds_of_both_allow() -> None:
    """With one read the two tokens decide, without the closure of all bounds that three reads need."""
    r = random.Random(3)
    for _ in range(400):
        p, q = (tuple(F(r.choice((0, 1, 1, 2, 3))) for _ in range(4)) for _ in range(2))
        for a in (v for v in range(4) if p[v]):
            race = Race(4)
            race.read(p, a)
            allowed = [y for y in range(4) if q[y] and race._closed(race._with(q, y)) is not None]
            assert race.possible(q) == allowed
            assert all(joint(p, a, q, y) > 0 for y in allowed)
            assert all(joint(p, a, q, y) == 0 for y in range(4) if y not in allowed)
