"""What is said of numbers made of others is so, whatever numbers the symbols stand for."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Hashable
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from decgraph.ir.known_numbers import INDEX, KnownNumbers, anywhere, element, varies
from decgraph.ir.linear import Inequality, Linear

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": lambda a, b: Fraction(a) / Fraction(b),
    "mod": operator.mod,
    "neg": operator.neg,
    "abs": abs,
    "relu": lambda a: max(a, 0),
    "minimum": min,
    "maximum": max,
    "truncated": int,
}
RANGES: dict[str, tuple[int | Fraction, ...]] = {
    "a": (-2, -1, 0, 1, 2),
    "b": (1, 2, 3),
    "c": (0, Fraction(1, 3), Fraction(1, 2), 1),
}
At = dict[Hashable, Any]


def value(x: Linear, at: At) -> Any:
    return x.constant + sum(f * symbol(s, at) for s, f in x.terms)


def symbol(s: Hashable, at: At) -> Any:
    """What a symbol stands for, by its name."""
    if s in at:
        return at[s]
    assert isinstance(s, tuple)
    if s[0] == "*":
        factors = [symbol(t, at) for t, f in s[1].terms for _ in range(int(f))]
        return factors[0] * factors[1]
    return FUNCTIONS["div" if s[0] == "/" else str(s[0])](*(value(x, at) for x in s[1:]))


def made(r: random.Random, known: KnownNumbers, depth: int, named: bool) -> tuple[Linear, Callable[[At], Any]] | None:
    """A random number, and how it is computed; with `named` each is a symbol of its own."""
    if not depth or r.random() < 0.2:
        name = r.choice([*RANGES, "1/2"])
        return (
            (Linear.of(name), lambda at: at[name]) if name in RANGES else (Linear.of(Fraction(1, 2)), lambda at: Fraction(1, 2))
        )
    fn = r.choice([*FUNCTIONS])
    parts = [made(r, known, depth - 1, named) for _ in range(1 if fn in ("neg", "abs", "relu", "truncated") else 2)]
    if any(part is None for part in parts):
        return None
    xs = [part[0] for part in parts if part is not None]
    at = ("value", len(known.facts)) if named else None
    found = known.truncated(xs[0], at) if fn == "truncated" else known.applied(fn, xs, at)

    def compute(values: At) -> Any:
        out = FUNCTIONS[fn](*(part[1](values) for part in parts if part is not None))
        if at is not None:
            values[("truncated", at, xs[0]) if fn == "truncated" else at] = out
        return out

    return None if found is None else (found, compute)


@pytest.mark.parametrize("named", [False, True])
def test_numbers_made_of_others_are_what_they_are_said_to_be(named: bool) -> None:
    r, tried, bounds = random.Random(5), 0, 0
    for _ in range(300):
        known = KnownNumbers()
        for name, numbers in RANGES.items():
            known.symbol(name, min(numbers), max(numbers), real=name == "c")
        if (pair := made(r, known, 3, named)) is None:
            continue
        found, compute = pair
        for numbers in product(*RANGES.values()):
            at: At = {**dict(zip(RANGES, numbers, strict=True)), INDEX: 0}
            try:
                expected = compute(at)
            except ZeroDivisionError:
                continue
            assert value(found, at) == expected, found
            facts = [*known.assumed, *(atom for atoms in known.facts.values() for atom in atoms)]
            for atom in facts:
                assert isinstance(atom, Inequality)
                least = value(atom.sum, at)
                assert least > 0 or least == 0 and not atom.strict, (found, atom, at)
                bounds += 1
            assert known.whole(found) <= (Fraction(expected).denominator == 1)
            tried += 1
    assert tried > 5000 and bounds > 2 * tried


def test_a_number_is_the_same_wherever_it_is_met() -> None:
    one, other = KnownNumbers(), KnownNumbers()
    for known in (one, other):
        known.symbol("n", 1)
        known.symbol("k", 1)
    n, k = Linear.of("n"), Linear.of("k")
    product_of = one.applied("mul", [n, k])
    assert product_of == other.applied("mul", [k, n]) and product_of is not None and anywhere(product_of)
    assert one.applied("div", [product_of, k]) == n
    assert not anywhere(one.fresh(0) + n) and one.fresh(0) != one.fresh(0)


def test_elements_of_vectors() -> None:
    known, k = KnownNumbers(), Linear.of(INDEX)
    assert element(k.times(2) + 1, Linear.of(3)) == Linear.of(7)
    assert varies(k) and varies(known.fresh(varies=True)) and not varies(known.fresh())
    root = known.applied("maximum", [k, Linear.of(1)])
    assert root is not None and varies(root) and not anywhere(root)
