"""The laws of noise: what comes out over many seeds, by chi-square against probabilities computed by hand, on both backends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from meanings import running
from meanings.registry import Sample, V
from meanings.values import dist

RUNS = 1500
P = [0.5, 0.2, 0.3]
NOISE = '%g = noise(kind = "race", site = "f.0")\n'


def outcomes(cls: Any, text: str, operands: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The first result under many seeds."""
    sample = Sample(text, operands, ())
    module = running.module_of(sample)
    out = []
    for seed in range(RUNS):
        monkeypatch.setattr(running, "REQUEST", replace(running.REQUEST, seed=seed))
        out.append(running.outcome(cls, module, sample, tensors=None if cls is running.Reference else False)[0])
    return out


def fits(seen: Counter[Any], law: Mapping[Any, float]) -> None:
    """No more than what a chi-square of these degrees of freedom has once in ten thousand times."""
    assert set(seen) <= set(law), seen
    chi = sum((seen[x] - RUNS * p) ** 2 / (RUNS * p) for x, p in law.items())
    assert chi < {1: 15.2, 2: 18.5, 5: 25.8}[len(law) - 1], (chi, seen)


@pytest.fixture(params=["reference", "torch"])
def machine(request: pytest.FixtureRequest) -> Any:
    return {"reference": running.Reference, "torch": running.Torch}[request.param]


def without_replacement(order: tuple[int, ...]) -> float:
    """The probability of drawing in this order."""
    out, left = 1.0, 1.0
    for v in order:
        out, left = out * P[v] / left, left - P[v]
    return out


def test_a_draw(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Counter(outcomes(machine, NOISE + "%z = draw(%q, %g)", {"q": dist(P)}, monkeypatch))
    fits(seen, dict(enumerate(P)))


def test_draws_without_replacement(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = NOISE + "%k = const(value = 2, type = !int)\n%z = draw.many(%q, %k, %g, replace = false, bound = 2)"
    seen = Counter(map(tuple, outcomes(machine, text, {"q": dist(P)}, monkeypatch)))
    fits(seen, {pair: without_replacement(pair) for pair in permutations(range(V), 2)})


def test_the_order_of_race_keys(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = NOISE + '%d = draw.race(%q, %g)\n%r = draw.get(%d, field = "race")\n%s = sort(%d, %r, descending = true)\n'
    seen = Counter(map(tuple, outcomes(machine, text + '%z = draw.get(%s, field = "token")', {"q": dist(P)}, monkeypatch)))
    fits(seen, {order: without_replacement(order) for order in permutations(range(V))})


def test_a_coin(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Counter(outcomes(machine, NOISE + "%z = bernoulli(%p, %g)", {"p": ("real", 0.3)}, monkeypatch))
    fits(seen, {True: 0.3, False: 0.7})


def test_a_beta_variable(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beta(2, 1) has the distribution function x * x."""
    operands = {"a": ("int", 2), "b": ("int", 1)}
    values = outcomes(machine, NOISE + "%z = beta(%a, %b, %g)", operands, monkeypatch)
    assert all(0 <= x <= 1 for x in values)
    ends = [0.5, 0.75, 1.0]
    seen = Counter(next(e for e in ends if x <= e) for x in values)
    fits(seen, {0.5: 0.25, 0.75: 0.3125, 1.0: 0.4375})
