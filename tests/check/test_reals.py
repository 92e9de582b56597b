"""Exact logs and roots against decimals of sixty digits."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import examples

from decgraph.backends.exact import reals
from decgraph.backends.exact.numbers import EXACT
from decgraph.backends.exact.reals import Log, Real, power

positive = st.fractions(F(1, 40), 40, max_denominator=40)
den = st.integers(1, 5)


def number(x) -> F:
    """A number to sixty digits: of logs from their ratio, of other reals the middle of an interval of eighty."""
    with localcontext() as c:
        c.prec = 70
        if isinstance(x, Log):
            return F((Decimal(x.ratio.numerator) / Decimal(x.ratio.denominator)).ln() / x.den)
        if isinstance(x, Real):
            lo, hi = x.around(80)
            return (F(lo) + F(hi)) / 2
        return F(x)


def near(a, b) -> bool:
    return abs(a - b) < F(1, 10**45)


@given(positive, den, positive, den)
def test_logs(r, d, s, e) -> None:
    a, b = Log(r, d), Log(s, e)
    assert near(number(a + b), number(a) + number(b))
    assert near(number(a - b), number(a) - number(b))
    assert near(number(-a), -number(a))
    assert (a < b) == (number(a) < number(b) and r**e != s**d)
    assert (a == b) == (r**e == s**d)
    assert (a <= b) == (a < b or a == b)


@given(positive, den, st.fractions(-5, 5, max_denominator=6))
def test_logs_and_rationals(r, d, f) -> None:
    a = Log(r, d)
    assert near(number(a * f), number(a) * number(f))
    assert near(number(a + f), number(a) + number(f))
    assert (a < f) == (number(a) < number(f))


@given(positive, den, positive, den)
def test_roots(r, d, s, e) -> None:
    a, b = power(r, F(1, d)), power(s, F(1, e))
    assert near(number(a * b), number(a) * number(b)) and near(number(a + b), number(a) + number(b))
    assert near(number(a - b), number(a) - number(b)) and near(number(a / b), number(a) / number(b))
    assert (a < b) == (r**e < s**d)
    assert (a == b) == (r**e == s**d)
    assert a**d == r and (a + b) * (a - b) == a * a - b * b and 1 / (1 + a) * (1 + a) == 1
    assert reals.exp(Log(r, d)) == a
    assert reals.log(a) == Log(r, d)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=5))
def test_entropy_is_exact(weights) -> None:
    p = [F(w, sum(weights)) for w in weights]
    out = np.empty(len(p), dtype=object)
    out[:] = p
    h = EXACT.entropy(out)
    assert near(number(h), -sum((number(x) * number(Log(x)) for x in p), F(0)))
    # p[x] > exp(-H) for some x, unless p is uniform: then equal
    threshold = reals.exp(-h)
    assert (max(p) > threshold) == (len(set(p)) > 1)
    assert max(p) >= threshold


def test_log_of_nothing_is_minus_infinity() -> None:
    nothing = Log(F(0))
    assert nothing < Log(F(1, 1000)) and nothing < F(-1000) and nothing + Log(F(3)) == nothing == -float("inf")
    assert float(nothing) == -float("inf")
    assert reals.exp(Log(F(0))) == 0


@pytest.mark.parametrize("x", [F(4), F(9, 4)])
def test_square_roots_compare_with_rationals(x) -> None:
    assert reals.power(x, F(1, 2)) == {F(4): 2, F(9, 4): F(3, 2)}[x]
    assert reals.power(x, F(1, 2)) > x / 5


numbers = st.recursive(
    st.one_of(
        positive,
        st.builds(power, positive, st.fractions(F(-3), 3, max_denominator=7)),
        st.builds(reals.exp, st.fractions(-2, 2, max_denominator=5)),
        positive.map(lambda x: reals.log(x + 1).value),
    ),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda a, b: a / b if b != 0 else a, inner, inner),
        st.builds(lambda a, b: abs(a - b), inner, inner),
        st.builds(lambda a, e: power(a, e) if a > 0 else a, inner, st.fractions(F(-2), 2, max_denominator=3)),
        st.lists(inner, min_size=2, max_size=3).map(lambda w: reals.shares(w)[0] if any(x > 0 for x in w) else F(1)),
    ),
    max_leaves=5,
)


@settings(max_examples=examples(50))
@given(numbers, numbers)
def test_intervals_hold_the_number(a, b) -> None:
    """An interval of few digits holds that of many, and so does what floats say, nearly."""
    for x in (a, b, a - b, a * b):
        if isinstance(x, Real):
            (lo, hi), (low, high) = x.around(25), x.around(120)
            assert lo <= low <= high <= hi
            assert x.sign() == (-1 if high < 0 else 1 if low > 0 else 0)
    assert np.isclose(float(a + b), float(a) + float(b)) and np.isclose(float(a * b), float(a) * float(b))
    assert (a < b) + (a == b) + (a > b) == 1


weights = st.lists(positive, min_size=2, max_size=4)


@given(weights, weights, st.fractions(F(1, 4), 3, max_denominator=7))
def test_laws_of_speculative_sampling_cancel(p, q, e) -> None:
    """min(p, q) + P(rejected) residual = p, for shares of irrational weights."""
    n = min(len(p), len(q))
    p, q = (reals.shares([power(x, e) for x in w[:n]]) for w in (p, q))
    rest = [max(x - y, F(0)) for x, y in zip(p, q, strict=True)]
    rejected = sum((y * (1 - min(F(1), x / y)) for x, y in zip(p, q, strict=True)), F(0))
    if rejected != 0:
        law = [min(x, y) + rejected * r / sum(rest, F(0)) for x, y, r in zip(p, q, rest, strict=True)]
        assert law == p


def test_equal_numbers_of_different_form() -> None:
    root = power(F(2), F(1, 2))
    p = reals.shares([root, F(1), power(F(8), F(1, 2))])
    assert p[0] * 3 == (1 - p[1]) and p[1] == 1 / (1 + 3 * root) and 1 / (root + 1) == root - 1
    assert reals.exp(reals.log(root + 1) * F(2)) == 3 + 2 * root
    with pytest.raises(reals.NotSeparated, match="cannot be told apart"):
        _ = power(3 + 2 * root, F(1, 2)) > root + 1
    assert power(3 + 2 * root, F(1, 2)) < root + 1 + F(1, 10**80)
