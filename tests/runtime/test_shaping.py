"""Shaping: its laws, in both domains, and that the domains agree."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decgraph.errors import DecError
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.reals.polynomials import whole_root
from decgraph.runtime.request import Factor, Request
from decgraph.runtime.shaping import forbidden, raw_probs, shaped_probs

PROMPT = (0, 1)


@st.composite
def rows(draw: st.DrawFn, power: int = 1) -> Scores:
    weights = draw(st.lists(st.integers(0, 6), min_size=3, max_size=7).filter(any))
    total = sum(w**power for w in weights)
    return Scores(weights=tuple(Fraction(w**power, total) for w in weights))


# Denominators that no sum of the weights above has, so that no cut falls exactly on its threshold.
shares = st.integers(1, 1008).map(lambda n: Fraction(n, 1009))
shapes = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([Fraction(1), Fraction(0), Fraction(1, 2), Fraction(2)]),
        "top_k": st.integers(1, 8),
        "top_p": shares,
        "min_p": shares,
        "repetition_penalty": st.just(2),
        # Squares, so that temperature 2 stays rational.
        "presence_penalty": st.just(Factor(Fraction(9))),
        "frequency_penalty": st.just(Factor(Fraction(4))),
        "bias": st.just({0: Factor(Fraction(25)), 2: Factor(Fraction(1, 49))}),
    },
).filter(lambda f: f.get("temperature") != 2 or "repetition_penalty" not in f)
paths = st.lists(st.integers(0, 2), max_size=4).map(lambda tail: PROMPT + tuple(tail))


def request(**fields: Any) -> Request:
    return Request(prompt=PROMPT, **fields)


def floats(probs: Any) -> np.ndarray:
    return np.array([float(p) for p in probs])


@given(rows(power=4), shapes, paths)
def test_the_two_domains_agree(row: Scores, fields: dict[str, Any], path: tuple[int, ...]) -> None:
    got = shaped_probs(row.to_float(), path, request(**fields))
    want = shaped_probs(row, path, request(**fields))
    assert isinstance(got, np.ndarray) and got.dtype == np.float64
    assert isinstance(want, tuple) and sum(want) == 1
    if fields.get("temperature") == 0 and list(want).count(Fraction(1)) == 1:
        weights = [w for w in want if w]
        assert len(weights) == 1  # a tie in fractions may round either way in floats, so only its shape is compared
        assert np.count_nonzero(got) == 1
    else:
        assert np.allclose(got, floats(want), atol=1e-9)


@given(rows(), shapes.map(lambda f: {k: v for k, v in f.items() if k in ("top_k", "top_p", "min_p")}), paths)
def test_cuts_keep_the_order_and_the_most_likely_token(row: Scores, fields: dict[str, Any], path: tuple[int, ...]) -> None:
    raw, cut = raw_probs(row, path, request(**fields)), shaped_probs(row, path, request(**fields))
    kept = [v for v in range(len(raw)) if cut[v]]
    assert kept and max(range(len(raw)), key=lambda v: (raw[v], -v)) in kept
    for v in kept:
        assert cut[v] / raw[v] == cut[kept[0]] / raw[kept[0]]  # only scaled
    for u in range(len(raw)):
        if u not in kept and raw[u]:
            assert all(raw[v] > raw[u] or (raw[v] == raw[u] and v < u) for v in kept) or fields.get("min_p")
    if "top_k" in fields:
        assert len(kept) <= fields["top_k"]


@given(rows(), shares)
def test_top_p_is_the_smallest_prefix_with_enough_mass(row: Scores, p: Fraction) -> None:
    assert row.weights is not None
    cut = shaped_probs(row, PROMPT, request(top_p=p))
    kept = [v for v in range(row.size) if cut[v]]
    mass = sum(row.weights[v] for v in kept)
    assert mass >= p > mass - min(row.weights[v] for v in kept)


@given(rows(), shares)
def test_min_p_is_a_share_of_the_largest(row: Scores, p: Fraction) -> None:
    assert row.weights is not None
    cut = shaped_probs(row, PROMPT, request(min_p=p))
    assert [bool(c) for c in cut] == [w >= p * max(row.weights) and w > 0 for w in row.weights]


def test_ties_go_to_the_lower_token() -> None:
    flat = Scores(weights=(Fraction(1, 4),) * 4)
    for row in (flat, Scores(logits=np.zeros(4))):
        assert floats(shaped_probs(row, PROMPT, request(temperature=0))).tolist() == [1, 0, 0, 0]
        assert floats(shaped_probs(row, PROMPT, request(top_k=2))).tolist() == [0.5, 0.5, 0, 0]
        assert floats(shaped_probs(row, PROMPT, request(top_p=Fraction(3, 4)))).tolist() == [1 / 3] * 3 + [0]
        assert floats(shaped_probs(row, PROMPT, request(top_p=1, min_p=1))).tolist() == [0.25] * 4


def test_temperatures_that_stay_rational() -> None:
    row = Scores(weights=(Fraction(16, 26), Fraction(1, 26), Fraction(9, 26)))
    assert shaped_probs(row, PROMPT, request(temperature=2)) == (
        Fraction(4, 8),
        Fraction(1, 8),
        Fraction(3, 8),
    )
    assert shaped_probs(row, PROMPT, request(temperature=0.5)) == (
        Fraction(256, 338),
        Fraction(1, 338),
        Fraction(81, 338),
    )


@pytest.mark.parametrize("temperature", [3, 0.7, 1 / 3, Fraction(1, 100), 1.2345678])
def test_other_temperatures_are_exact_reals(temperature: Any) -> None:
    weights = (Fraction(16, 26), Fraction(1, 26), Fraction(9, 26))
    got = shaped_probs(Scores(weights=weights), PROMPT, request(temperature=temperature))
    scores = Scores(logits=np.log(np.array([float(w) for w in weights])))
    assert np.allclose([float(x) for x in got], shaped_probs(scores, PROMPT, request(temperature=temperature)), atol=1e-12)
    assert sum(got) == 1 and got == shaped_probs(Scores(weights=weights), PROMPT, request(temperature=temperature))
    assert got != shaped_probs(Scores(weights=weights), PROMPT, request(temperature=1))


def test_a_tiny_temperature_is_almost_greedy_and_does_not_overflow() -> None:
    row = Scores(logits=np.array([1000.0, -1000.0, 999.0]))
    assert shaped_probs(row, PROMPT, request(temperature=1e-6)).tolist() == [1, 0, 0]
    assert np.allclose(shaped_probs(row, PROMPT, request(temperature=1e300)), 1 / 3)


def test_penalties_count_what_they_say() -> None:
    row = Scores(logits=np.array([2.0, -2.0, 1.0, 1.0]))
    path = (0, 1, 3, 3)  # prompt 0 1, generated 3 3

    def logits(**fields: Any) -> np.ndarray:
        p = np.log(shaped_probs(row, path, request(**fields)))
        return p - p[2] + 1  # token 2 is never counted: its logit stays 1

    assert np.allclose(logits(repetition_penalty=2), [1, -4, 1, 0.5])
    assert np.allclose(logits(presence_penalty=0.25), [2, -2, 1, 0.75])
    assert np.allclose(logits(frequency_penalty=0.25), [2, -2, 1, 0.5])
    assert np.allclose(logits(frequency_penalty=Factor(Fraction(2))), [2, -2, 1, 1 - 2 * np.log(2)])
    assert np.allclose(logits(bias={1: 3.0}), [2, 1, 1, 1])
    assert np.allclose(raw_probs(row, path, request(bias={1: 3.0}, repetition_penalty=2)), raw_probs(row, path, request()))
    exact_row = Scores(weights=(Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)))
    float_row = Scores(logits=np.log([0.5, 0.25, 0.25]))
    for fields in (
        {"presence_penalty": 1},
        {"frequency_penalty": 0.5},
        {"bias": {2: 1.0}, "temperature": 0.7, "top_k": 2},
        {"presence_penalty": 1, "repetition_penalty": 1.5, "top_p": 0.9},
        {"bias": {1: -2}, "min_p": 0.1},
    ):
        got = shaped_probs(exact_row, (0, 1, 2), request(**fields))
        assert np.allclose([float(x) for x in got], shaped_probs(float_row, (0, 1, 2), request(**fields))) and sum(got) == 1
    assert shaped_probs(exact_row, (0, 1, 2), request(bias={2: Factor(Fraction(3))}))[2] == Fraction(1, 2)


def test_constraints_are_on_both_faces() -> None:
    for row in (
        Scores(weights=(Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))),
        Scores(logits=np.log([2.0, 1, 1])),
    ):
        for face in (raw_probs, shaped_probs):
            assert np.allclose(floats(face(row, PROMPT, request(bans={0}))), [0, 0.5, 0.5])
            assert np.allclose(floats(face(row, PROMPT, request(allow=lambda g: {1, 99}))), [0, 1, 0])
            assert np.allclose(floats(face(row, PROMPT, request(), allow=[0, 2])), [2 / 3, 0, 1 / 3])
            assert np.allclose(floats(face(row, PROMPT, request(), allow=np.array([True, False, True]))), [2 / 3, 0, 1 / 3])
            ends = request(eos={0}, min_length=2)
            assert np.allclose(floats(face(row, (*PROMPT, 1), ends)), [0, 0.5, 0.5])
            assert np.allclose(floats(face(row, (*PROMPT, 1, 1), ends)), [0.5, 0.25, 0.25])
            with pytest.raises(DecError, match="leave no token"):
                face(row, PROMPT, request(bans={0, 1, 2}))
    assert forbidden(4, PROMPT, request(bans={3}, eos={0}, min_length=1)) == {0, 3}
    assert forbidden(4, PROMPT, request()) == frozenset()


def test_the_automaton_sees_generated_tokens_only() -> None:
    # 0 then 1 then accept; nothing else. Token 2 leads to a state that cannot accept.
    dfa = Automaton(next=((1, -1, 3), (-1, 2, -1), (-1, -1, -1), (3, 3, 3)), accepting=frozenset({2}))
    row = Scores(weights=(Fraction(1, 3),) * 3)
    assert raw_probs(row, PROMPT, request(allow=dfa)) == (1, 0, 0)
    assert raw_probs(row, (*PROMPT, 0), request(allow=dfa)) == (0, 1, 0)
    with pytest.raises(DecError, match="leave no token"):
        raw_probs(row, (*PROMPT, 0, 1), request(allow=dfa))
    assert dfa.live == {0, 1, 2} and dfa.run([0, 1]) == 2 and dfa.run([1, 0]) == -1 and dfa.states == 4
    with pytest.raises(DecError, match="state outside"):
        Automaton(next=((1,),), accepting=frozenset())
    with pytest.raises(DecError, match="one row per state"):
        Automaton(next=((0, 0), (0,)), accepting=frozenset())


def test_zero_weights_stay_zero() -> None:
    row = Scores(logits=np.array([0.0, -np.inf, 0.0]))
    for fields in ({}, {"temperature": 5.0}, {"top_p": 1.0}, {"repetition_penalty": 0.5}, {"min_p": 0.0}):
        assert shaped_probs(row, PROMPT, request(**fields))[1] == 0
    with pytest.raises(DecError, match="NaN"):
        raw_probs(Scores(logits=np.array([0.0, np.nan])), PROMPT, request())


@given(st.integers(0, 10**9), st.integers(1, 7))
def test_whole_roots(n: int, k: int) -> None:
    assert whole_root(n**k, k) == n
    if n > 1 and k > 1:
        assert whole_root(n**k + 1, k) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt": ()}, "prompt is empty"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"seed": -1}, "seed"),
        ({"temperature": -1}, "temperature is -1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_p": 0}, "top_p is 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"min_p": 2}, "min_p is 2"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0"),
        ({"presence_penalty": float("inf")}, "presence_penalty is inf"),
        ({"bias": {3: float("nan")}}, "bias of token 3"),
        ({"stop": ("",)}, "stop is ''"),
        ({"bans": {-1}}, "bans is -1"),
        ({"eos": {0.5}}, "eos is 0.5"),
        ({"prompt": ("a",)}, "prompt must hold token ids"),
        ({"min_length": -2}, "min_length is -2"),
        ({"prompt": None}, "prompt must hold token ids, not None"),
        ({"prompt": (float("inf"),)}, "prompt must hold token ids, not inf"),
        ({"max_tokens": None}, "max_tokens is None"),
        ({"max_tokens": "5"}, "max_tokens is '5'"),
        ({"max_tokens": 2.5}, "max_tokens is 2.5"),
        ({"min_length": 0.5}, "min_length is 0.5"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"top_k": 2.5}, "top_k is 2.5"),
        ({"logprobs": "1"}, "logprobs is '1'"),
        ({"temperature": None}, "temperature is None"),
        ({"temperature": "0.7"}, "temperature is '0.7'"),
        ({"eos": None}, "eos must hold token ids, not None"),
        ({"stop": None}, "stop is None"),
        ({"bias": [1]}, r"bias is \[1\]"),
        ({"until": len}, "until is <built-in function len>"),
        ({"processors": None}, "processors is None"),
        ({"allow": [1, 2]}, r"allow is \[1, 2\]"),
    ],
)
def test_a_request_out_of_range_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(DecError, match=words):
        Request(**{"prompt": (1,), **fields})
    with pytest.raises(DecError, match="positive"):
        Factor(Fraction(0))


def test_numbers_of_a_request_may_be_numpys() -> None:
    request = Request((1,), max_tokens=np.int64(3), top_k=50.0, temperature=np.float32(0.5), eos=np.int64(2))  # type: ignore[arg-type]
    assert (request.max_tokens, request.top_k, request.temperature, request.eos) == (3, 50, 0.5, {2})
    assert [type(x) for x in (request.max_tokens, request.top_k, request.temperature)] == [int, int, float]


def test_requests_are_values() -> None:
    a = Request(prompt=[1, 2], eos=[3], stop="x", bias={5: 1.0, 4: 2.0})  # type: ignore[arg-type]
    b = Request(prompt=(1, 2), eos=frozenset({3}), stop=("x",), bias={4: 2.0, 5: 1.0})
    assert a == b and hash(a) == hash(b) and a.bias_pairs == ((4, 2.0), (5, 1.0)) and not a.greedy
    with pytest.raises(DecError, match="bias is 5"):
        a.check_vocab(5)
    a.check_vocab(6)
