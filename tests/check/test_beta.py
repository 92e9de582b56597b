"""Beta variables that a program computes with: comparisons cut the interval in which one lies, with exact probabilities."""

from __future__ import annotations

from fractions import Fraction

import pytest

import decgraph
from decgraph.backends.exact.beta import Affine, BetaVariable, cumulative
from decgraph.backends.exact.choices import Choices, runs
from decgraph.backends.exact.world import Unlikely, World

INVERSE = """
algorithm inverse(target: causal):
    refines autoregressive(target) in distribution
    while not done:
        p = target(ctx)
        u ~ beta({a}, {b})
        high = cumsum(p[range_(0, vocab.size)])
        commit argmax(range_(0, vocab.size), by = high > {u})
"""


@pytest.mark.parametrize(
    ("a", "b", "u", "verdict"),
    [
        (1, 1, "u", "holds"),
        (1, 1, "1 - u", "holds"),
        (1, 1, "(u + 0.3) % 1", "holds"),
        (2, 1, "u", "refuted"),
        (1, 1, "u / 2", "refuted"),
    ],
)
def test_a_draw_by_the_inverse_of_the_distribution_function(a: int, b: int, u: str, verdict: str) -> None:
    report = decgraph.parse(INVERSE.format(a=a, b=b, u=u)).check(models=2, derive=False, seconds=60)
    assert report.verdict == verdict, report.reasons
    assert not report.faults


def distribution(f: object) -> dict[object, Fraction]:
    out: dict[object, Fraction] = {}

    def one(choices: Choices) -> object:
        world = World(coupled=False)
        world.restart(choices)
        return f(lambda a, b: Affine(BetaVariable(Fraction(a), Fraction(b), world, "u")))  # type: ignore[operator]

    for choices, value in runs(one, 100):
        out[value] = out.get(value, Fraction(0)) + choices.weight()
    return out


def test_the_distribution_function_is_a_polynomial() -> None:
    for x in (Fraction(1, 3), Fraction(3, 4)):
        assert cumulative(Fraction(1), Fraction(1), x) == x
        assert cumulative(Fraction(3), Fraction(1), x) == x**3
        assert cumulative(Fraction(2), Fraction(2), x) == 3 * x**2 - 2 * x**3
    with pytest.raises(Unlikely):
        cumulative(Fraction(1, 2), Fraction(1), Fraction(1, 3))


def test_numbers_know_what_was_compared() -> None:
    third, half = Fraction(1, 3), Fraction(1, 2)

    def twice(beta: object) -> object:
        u = beta(1, 1)  # type: ignore[operator]
        return (bool(u > third), bool(2 * u + 1 < 2), bool(u > third))

    assert distribution(twice) == {(True, True, True): Fraction(1, 6), (True, False, True): half, (False, True, False): third}
    assert distribution(lambda beta: (beta(1, 1) * 3).whole()) == {
        0: third,
        1: third,
        2: third,
    }
    assert distribution(lambda beta: (beta(1, 1) - half) % 1 > Fraction(3, 4)) == {True: Fraction(1, 4), False: Fraction(3, 4)}


def test_coins_and_comparisons_of_one_variable() -> None:
    """P(coin, u > 1/2) of a uniform u: the integral of u over 1/2..1 is 3/8."""

    def both(beta: object) -> object:
        u = beta(1, 1)  # type: ignore[operator]
        return u.coin("coin"), bool(u > Fraction(1, 2))

    def other(beta: object) -> object:
        u = beta(1, 1)  # type: ignore[operator]
        more = bool(u > Fraction(1, 2))
        return u.coin("coin"), more

    found = distribution(both)
    assert found == distribution(other)
    assert found[True, True] == Fraction(3, 8) and found[False, True] == Fraction(1, 8)
    assert distribution(lambda beta: (1 - beta(2, 1)).coin("coin")) == {True: Fraction(1, 3), False: Fraction(2, 3)}


@pytest.mark.parametrize("f", [lambda u: u * u, lambda u: 1 / u, lambda u: u**2, float, lambda u: (u / 2).coin("coin")])
def test_what_has_no_interval_is_not_decided(f: object) -> None:
    with pytest.raises(Unlikely):
        distribution(lambda beta: f(beta(1, 1)))  # type: ignore[operator]
