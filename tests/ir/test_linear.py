"""Linear facts: what is called a contradiction is none that numbers could meet, and a negated condition is its opposite."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from typing import Any

from decgraph.ir.linear import Condition, Inequality, Linear, compared, condition_of, contradiction, negated

NAMES = ("a", "b", "c")
FIRST, LAST = -2, 4


def value(linear: Linear, at: dict[str, Any]) -> Any:
    return sum((f * at[str(s)] for s, f in linear.terms), start=linear.constant)


def true(condition: Condition, at: dict[str, Any]) -> bool:
    if isinstance(condition, Inequality):
        x = value(condition.sum, at)
        return bool(x > 0 or x == 0 and not condition.strict)
    if isinstance(condition, tuple):
        return (all if condition[0] == "and" else any)(true(c, at) for c in condition[1:])
    return bool(condition)


def random_condition(r: random.Random, depth: int = 2) -> Condition:
    if depth and r.random() < 0.5:
        return (r.choice(("and", "or")), *(random_condition(r, depth - 1) for _ in range(2)))
    x, y = (Linear.of(r.randrange(-3, 4)) for _ in range(2))
    for name in NAMES:
        x += Linear.of(name).times(r.choice((0, 0, 1, -1, 2, Fraction(1, 2))))
    return compared(r.choice(("lt", "le", "gt", "ge", "eq", "ne")), x, y)


def ends(s: object) -> tuple[Inequality, Inequality]:
    return Inequality(Linear.of(str(s)) - FIRST), Inequality(Linear.of(LAST) - Linear.of(str(s)))


def test_contradictions_are_those_of_whole_numbers() -> None:
    r, found, missed = random.Random(0), 0, 0
    for _ in range(250):
        conditions = [random_condition(r) for _ in range(r.randrange(1, 4))]
        none = not any(
            all(true(c, dict(zip(NAMES, at))) for c in conditions) for at in product(range(FIRST, LAST + 1), repeat=len(NAMES))
        )
        said = contradiction(conditions, lambda s: True, ends)
        assert none or not said, conditions
        found, missed = found + said, missed + (none and not said)
    assert found > 40 and missed < found / 10


def test_contradictions_of_real_numbers_hold_of_fractions() -> None:
    r, found = random.Random(1), 0
    grid = [Fraction(n, 2) for n in range(2 * FIRST, 2 * LAST + 1)]
    for _ in range(40):
        conditions = [random_condition(r) for _ in range(3)]
        if contradiction(conditions, lambda s: s == "a", ends):
            found += 1
            whole = [x for x in grid if x.denominator == 1]
            for at in product(whole, grid, grid):
                assert not all(true(c, dict(zip(NAMES, at))) for c in conditions), (conditions, at)
    assert found > 3


def test_a_negated_condition_is_its_opposite() -> None:
    r = random.Random(2)
    for _ in range(500):
        condition = random_condition(r)
        at = {name: r.randrange(FIRST, LAST + 1) for name in NAMES}
        assert true(negated(condition), at) is not true(condition, at)


def test_of_what_is_not_known_nothing_follows() -> None:
    a = Linear.of("a")
    assert not contradiction([None], lambda s: True, ends)
    assert not contradiction([("and", None, Inequality(a))], lambda s: True, ends)
    assert not contradiction([negated(None), Inequality(a)], lambda s: True, ends)
    assert contradiction([("and", None, False)], lambda s: True, ends)
    assert contradiction([("or", False, Inequality(a - 5))], lambda s: True, ends)


def test_conditions_of_claims() -> None:
    def number(kind: str, name: str) -> Linear | None:
        return Linear.of(name) if name in NAMES else None

    more = (">=", ("param", "a"), ("+", ("request", "b"), ("const", 2)))
    assert condition_of(more, number) == Inequality(Linear.of("a") - Linear.of("b") - 2)
    seven = condition_of(more, lambda _, name: Linear.of(7 if name == "a" else name))
    assert seven == Inequality(Linear.of(5) - Linear.of("b"))
    assert condition_of(("not", more), number) == negated(condition_of(more, number))
    unknown = ("and", ("==", ("param", "text"), ("const", "x")), more)
    assert condition_of(unknown, number) == ("and", None, condition_of(more, number))
    assert condition_of(("<", ("*", ("param", "a"), ("param", "b")), ("const", 1)), number) is None
    assert condition_of(("==", ("param", "a"), ("const", True)), number) is None
