"""The numbers of the exact machine against those of the reference: the same infinities and NaNs, and the same values."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.call_counts import counted
from quick import examples

from decgraph.backends.exact.numbers import EXACT
from decgraph.backends.exact.reals import Log, NotSeparated, exp, power, rounded_down
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import World
from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.ir.data.numbers import FLOAT, MAP_FUNCTIONS
from decgraph.ir.opdef import OpError
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

inf, nan = math.inf, math.nan
NUMBERS: list[Any] = [
    0,
    1,
    2,
    -1,
    -3,
    F(0),
    F(1),
    F(1, 2),
    F(-1, 2),
    F(-7, 3),
    F(9, 4),
    inf,
    -inf,
    nan,
    Log(F(0)),
    Log(F(1)),
    Log(F(2)),
    Log(F(1, 3), 2),
    power(F(2), F(1, 2)),
    -power(F(2), F(1, 2)),
    power(F(3), F(7, 10)) - 2,
    Log(F(1, 3)).value,
    1 - power(F(1, 2), F(1, 3)),
]
# The machine of backends/exact/run.py names the line of what it gives up, which is not the numbers' to do.
LOGIC = ("and", "or", "not", "select")


def array(*values: Any) -> Any:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


@pytest.mark.parametrize("name", [n for n in MAP_FUNCTIONS if n not in LOGIC])
def test_elementwise_functions_agree_with_the_reference(name: str) -> None:
    arity = MAP_FUNCTIONS[name][0]
    grid = NUMBERS if arity < 3 else NUMBERS[::3]
    for xs in itertools.product(grid, repeat=arity):
        floats = [float(x) for x in xs]
        if name == "mod" and (floats[1] == 0 or math.isinf(floats[0])) or name == "floor" and not math.isfinite(floats[0]):
            continue  # the reference has whatever NumPy has; see test_what_has_no_value
        got = EXACT.fn(name)(*xs)[()]
        with np.errstate(all="ignore"):
            want = float(np.asarray(FLOAT.fn(name)(*[np.float64(x) for x in floats])))
        if not np.isclose(float(got), want, rtol=1e-9, atol=1e-12, equal_nan=True):
            assert _on_an_edge(name, floats), (name, xs, got, want)


def _on_an_edge(name: str, floats: list[float]) -> bool:
    """Where floats round to another side of a jump: floor and mod of almost whole numbers, equality of almost equal ones."""
    if name in ("mod", "floor"):
        q = floats[0] / (floats[1] if name == "mod" else 1)
        return abs(q - round(q)) < 1e-9
    if name == "pow" and floats == [-inf, 0.5]:
        return True  # NumPy takes the square root here, where C's pow says inf
    return name in ("eq", "ne", "le", "lt", "ge", "gt") and abs(floats[0] - floats[1]) < 1e-12


def test_folds_agree_with_the_reference() -> None:
    for size in (1, 2, 3):
        for xs in itertools.islice(itertools.product(NUMBERS, repeat=size), 0, None, 7):
            a, b = array(*xs), np.array([float(x) for x in xs])
            for name in ("sum", "max", "min", "mean", "prod"):
                with np.errstate(all="ignore"):
                    want = float(FLOAT.reduce(name, b, 0))
                assert np.isclose(float(EXACT.reduce(name, a, 0)), want, equal_nan=True, atol=1e-12), (name, xs)
            for name in ("cumsum", "cumprod", "cummax"):
                with np.errstate(all="ignore"):
                    wants = FLOAT.scan(name, b, 0)
                assert np.allclose([float(x) for x in EXACT.scan(name, a, 0)], wants, equal_nan=True, atol=1e-12), (name, xs)
            with np.errstate(all="ignore"):
                want = float(FLOAT.reduce("logsumexp", b, 0))
            assert np.isclose(float(EXACT.reduce("logsumexp", a, 0)), want, equal_nan=True, atol=1e-12), xs


def test_softmax_and_information_agree_with_the_reference() -> None:
    scores = [x for x in NUMBERS if float(x) < 4]
    for xs in itertools.islice(itertools.product(scores, repeat=3), 0, None, 11):
        want = FLOAT.softmax(np.array([float(x) for x in xs]))
        got = EXACT.softmax(array(*xs))
        assert np.allclose([float(x) for x in got], want, equal_nan=True), xs
        if not np.isnan(want).any():
            assert sum(got) == 1 and np.isclose(float(EXACT.entropy(got)), FLOAT.entropy(want))
            other = EXACT.softmax(array(F(1, 2), Log(F(3)), 0))
            assert np.isclose(float(EXACT.kl(got, other)), FLOAT.kl(want, np.array([float(x) for x in other])))


def test_order_agrees_with_the_reference() -> None:
    for xs in itertools.islice(itertools.product(NUMBERS, repeat=4), 0, None, 37):
        floats = [float(x) for x in xs]
        apart = [abs(a - b) for a, b in itertools.combinations(floats, 2) if a != b and not math.isnan(a - b)]
        if min(apart, default=1) > 1e-9:
            for down in (True, False):
                assert EXACT.order([list(xs)], down) == list(FLOAT.order([floats], down)), xs


@pytest.mark.parametrize("a", [inf, -inf, nan])
def test_what_has_no_value(a: float) -> None:
    for name, xs in (("floor", (a,)), ("mod", (F(1), 0)), ("mod", (3, 0))):
        with pytest.raises(OpError, match=r"whole part|division by 0"):
            EXACT.fn(name)(*xs)


PROGRAM = """
algorithm numbers(target: causal, a: float in -100..100 = 0.5, n: int in 0..100 = 3):
    while not done:
        p = target(ctx)
        q = p.raw
        v = {expression}
        if {test}:
            commit argmax(p)
        else:
            x ~ {law}
            commit x
"""


def outcome(text: str, machine: str = "exact") -> Any:
    """What a program commits in one world, or the DecError or NotSeparated that ends it."""
    module = load_text(text)
    model = TableModel(3, seed=4, name="target", zeros=True)
    request = Request(prompt=(0, 1), max_tokens=2, seed=0)
    params = {"a": F(1, 2), "n": 3}
    try:
        if machine == "exact":
            return ExactMachine(module, "numbers", {"target": model}, params, request).on(World(coupled=False)).run()
        with np.errstate(all="ignore"):
            return ReferenceMachine(module, "numbers", {"target": model}, {"a": 0.5, "n": 3}, request).run()
    except (DecError, NotSeparated) as error:
        return error


def expressions() -> st.SearchStrategy[str]:
    """Numbers of the language: scalars and vectors over the vocabulary."""
    leaves = st.sampled_from(
        [
            "0",
            "1",
            "-1",
            "2",
            "0.5",
            "0.7",
            "1000000007",
            "a",
            "n",
            "inf",
            "-inf",
            "q",
            "max(q)",
            "min(q)",
            "log(0)",
            "entropy(p)",
            "sum(q)",
            "kl(p, uniform())",
            "0 / 0",
            "len(q)",
            "p[0]",
        ]
    )

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        one = st.sampled_from(
            [
                "exp({})",
                "log({})",
                "sqrt({})",
                "relu({})",
                "abs({})",
                "(-{})",
                "floor({})",
                "max(0 * q + {})",
                "sum({} * q)",
                "clamp({}, 0, 1)",
                "softmax(0 * q + {})",
                "softmax({} * log(q))",
                "int({})",
                "normalize(q * {})",
                "normalize(q ^ {})",
                "mean(q + {})",
                "cumsum(q + {})",
                "entropy(softmax({} * q))",
                "softmax(log(q) / {})",
            ]
        )
        two = st.sampled_from(
            [
                "({} + {})",
                "({} - {})",
                "({} * {})",
                "({} / {})",
                "({} % {})",
                "({} ^ {})",
                "min({}, {})",
                "max({}, {})",
                "where({} > 0, {}, q)",
            ]
        )
        return st.one_of(st.builds(str.format, one, inner), st.builds(str.format, two, inner, inner))

    return st.recursive(leaves, larger, max_leaves=6)


MOST_CALLS = 3_000_000
"""Of functions, until a number that grows is given up: an endless one would make more."""
PYTHON = (ZeroDivisionError, AttributeError, OverflowError, TypeError, ValueError, IndexError)
TESTS = ["max(0 * q + v) > 0.3", "all(v == v)", "min(0 * q + v) <= a", "argmax(0 * q + v) == 1", "bernoulli(max(0 * q + v))"]
LAWS = ["p", "softmax(0 * q + v)", "normalize(relu(0 * q + v))", "warp(0 * q + v)", "softmax(log(q) * v)"]


@settings(max_examples=examples(400))
@given(expressions(), st.sampled_from(TESTS), st.sampled_from(LAWS))
def test_no_python_exception_leaves_the_exact_machine(expression: str, test: str, law: str) -> None:
    text = PROGRAM.format(expression=expression, test=test, law=law)
    try:
        load_text(text)
    except DecError:
        return  # refused before it runs
    with counted() as calls:
        got = outcome(text)
    assert calls.total() < MOST_CALLS, expression
    if isinstance(got, NotSeparated):
        assert "line" in got.place or ":" in got.place, (expression, str(got))
    elif isinstance(got, DecError):
        assert str(got).startswith("error: ")
        assert not any(f"{e.__name__}:" in str(got) for e in PYTHON), str(got)


@pytest.mark.parametrize("expression", ["9 ^ 9 ^ 9 ^ 9", "exp(exp(exp(1000)))", "exp(10 ^ 30)"])
def test_numbers_that_grow_are_given_up_at_their_line(expression: str) -> None:
    with counted() as calls:
        got = outcome(PROGRAM.format(expression=expression, test="v > 0.25", law="p"))
    assert isinstance(got, tuple) or isinstance(got, NotSeparated) and ":6:" in got.place + got.place.replace(":7:", ":6:")
    assert calls.total() < MOST_CALLS


def test_repeated_squaring_is_given_up() -> None:
    text = """
algorithm numbers(target: causal, a: float in -100..100 = 0.5, n: int in 0..100 = 3):
    while not done:
        v = a + 3
        repeat 100:
            v = v * v
        x ~ target(ctx)
        commit x
"""
    got = outcome(text)
    assert isinstance(got, NotSeparated) and "200000 bits" in str(got) and ":6:" in got.place


@pytest.mark.parametrize(
    "step",
    [
        "sqrt(v + 1)",
        "v + log(0.5)",
        "exp(-v)",
        "log(2 + v)",
        "v ^ 0.7 + 1",
        "v * exp(v)",
        "v / (v + 0.1)",
        "max(softmax(log(q) * v))",
        "v * sqrt(2) + 1",
    ],
)
def test_long_loops_end(step: str) -> None:
    text = f"""
algorithm numbers(target: causal, a: float in -100..100 = 0.5, n: int in 0..100 = 3):
    while not done:
        q = target(ctx)
        v = a + 0
        repeat 600:
            v = {step}
        if v > 2:
            commit argmax(q)
        else:
            commit argmin(q)
"""
    with counted() as calls:
        got = outcome(text)
    assert isinstance(got, tuple) or isinstance(got, NotSeparated) and got.place
    assert calls.total() < MOST_CALLS


@pytest.mark.parametrize("exponent", [10**4, 10**6, 10**7, 10**9])
def test_numbers_beyond_what_decimals_hold_are_given_up(exponent: int) -> None:
    with pytest.raises((NotSeparated, OpError)):
        rounded_down(exp(F(exponent)))


def test_a_power_of_e_is_rounded_down() -> None:
    assert rounded_down(exp(F(50))) == 5184705528587072464087
    assert rounded_down(exp(F(-50))) == 0


def test_order_is_that_of_comparisons_one_by_one() -> None:
    """Rationals and logarithms of rationals are sorted by keys; the result is the same as that of comparing any two."""
    r = random.Random(1)

    def number(kind: str) -> Any:
        x = F(r.randint(0, 5), r.randint(1, 3))
        odd = (F(r.randint(-2, 2)), Log(x, 2), float("-inf"), float("nan"), r.randint(-2, 2), True)
        return {"rational": x, "log": Log(x), "int": r.randint(-2, 2)}.get(kind, r.choice(odd))

    for _ in range(300):
        n, descending = r.randint(1, 8), r.random() < 0.5
        kinds = r.choices(("rational", "log", "int", "odd"), k=r.randint(1, 3))
        keys = [[number(kind) for _ in range(n)] for kind in kinds]
        order = EXACT.order(keys, descending)
        slow = [EXACT.order([*keys, [Log(F(1), 2)] * n], descending)]  # a column that has no plain keys
        assert [order] == slow and sorted(order) == list(range(n))
