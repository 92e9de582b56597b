"""Exact logs and roots against decimals of sixty digits."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    assert (max(p) >= threshold)


def test_log_of_nothing_is_minus_infinity() -> None:
    nothing = Log(F(0))
    assert nothing < Log(F(1, 1000)) and nothing < F(-1000) and nothing + Log(F(3)) == nothing == -float("inf")
    assert float(nothing) == -float("inf")
    assert reals.exp(Log(F(0))) == 0


@pytest.mark.parametrize("x", [F(4), F(9, 4)])
def test_square_roots_compare_with_rationals(x) -> None:
    assert reals.power(x, F(1, 2)) == {F(4): 2, F(9, 4): F(3, 2)}[x]
    assert reals.power(x, F(1, 2)) > x / 5
