"""What may be searched: ranges, what is safe, and what people may get wrong."""

from __future__ import annotations

from fractions import Fraction

import pytest

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.tune import space


def axes(name: str, *wishes: str, fixed: dict[str, object] | None = None, temperature: float = 0.0) -> list[space.Axis]:
    return space.axes(decgraph.load(name).function, fixed or {}, wishes, temperature)


@pytest.mark.parametrize(("name", "temperature", "promise"), [
    ("speculative", 0, "tokens"), ("speculative", 1, "distribution"), ("eagle2", 1, "tokens"), ("medusa", 0, "tokens"),
    ("medusa", 1, ""), ("fast_dllm", 0, ""), ("freedave", 0, "tokens"),
])  # fmt: skip
def test_what_claims_promise(name: str, temperature: float, promise: str) -> None:
    assert space.guarantee(decgraph.load(name).function, temperature)[0] == promise


@pytest.mark.parametrize(("name", "temperature", "names"), [
    ("speculative", 1, ["gamma"]), ("eagle2", 0, ["depth", "k", "budget"]), ("kangaroo", 0, ["exit", "gamma", "eta"]),
    ("freedave", 0, ["d"]), ("medusa", 0, ["shape"]), ("medusa", 1, []), ("fast_dllm", 0, []), ("autoregressive", 0, []),
])  # fmt: skip
def test_what_is_tuned_unasked(name: str, temperature: float, names: list[str]) -> None:
    """freedave's length and block are its specification's: other values decode other texts."""
    assert space.safe(decgraph.load(name).function, temperature) == names


def test_whole_numbers_come_in_growing_steps_with_the_default_among_them() -> None:
    assert space.whole(1, 4) == (1, 2, 3, 4) and space.whole(3, 3) == (3,)
    many = space.whole(1, 256)
    assert many[0] == 1 and many[-1] == 256 and len(many) < 40 and list(many) == sorted(set(many))
    budget = next(a for a in axes("eagle2") if a.name == "budget")
    assert budget.default == 59 and 59 in budget.values and budget.values == tuple(sorted(budget.values))


def test_ranges_and_lists() -> None:
    (gamma,) = axes("speculative", "gamma=2..6")
    assert gamma.values == (2, 3, 4, 5, 6) and not gamma.changes and not gamma.listed
    (gamma,) = axes("speculative", "gamma=2,7")
    assert gamma.values == (2, 4, 7) and gamma.listed
    (tau,) = axes("fast_dllm", "tau=0.7..0.95")
    assert (tau.values[0], tau.values[-1], tau.default) == (Fraction("0.7"), Fraction("0.95"), Fraction("0.9")) and tau.changes
    (shape,) = axes("sequoia", "shape=4x2,8x1")
    assert [space.spelt(v) for v in shape.values] == ["drafter_64", "4x2", "8x1"]
    (shape,) = axes("sequoia", "shape=[[0],[1],[0,0]]")
    assert [v.size for v in shape.values] == [64, 3]
    (random,) = axes("llada", "random")
    assert random.values == (False, True)


def test_near_values_come_first_the_nearest() -> None:
    (gamma,) = axes("speculative")
    assert gamma.around(4) == [3, 5, 2, 6][: len(gamma.around(4))]
    assert gamma.around(1) == [2, 3]
    (listed,) = axes("speculative", "gamma=2,7")
    assert listed.around(2) == [4, 7]


def test_a_wide_look_spans_the_range() -> None:
    (gamma,) = axes("speculative")
    wide = gamma.around(4, wide=True)
    assert {2, 6, gamma.values[0], gamma.values[-1]} <= set(wide) and len(wide) < len(gamma.values) and 4 not in wide


def test_shapes_are_searched_in_the_order_of_their_sizes() -> None:
    (shape,) = axes("sequoia")
    sizes = [value.size for value in shape.values]
    assert sizes == sorted(sizes) and len(set(shape.values)) == len(sizes) and shape.default in shape.values
    near = shape.around(shape.default)
    assert near and all(abs(shape.values.index(value) - shape.values.index(shape.default)) <= 3 for value in near)


@pytest.mark.parametrize(("name", "wishes", "message"), [
    ("speculative", ["gama=2"], "did you mean gamma"),
    ("speculative", ["gamma=2..99"], "must be in 1..32"),
    ("speculative", ["gamma=0..4"], "must be in 1..32"),
    ("speculative", ["gamma=6..2"], "is empty"),
    ("speculative", ["gamma=2..3..4"], "is no range"),
    ("speculative", ["gamma=..4"], "is no range"),
    ("speculative", ["gamma=a..b"], "must be a whole number"),
    ("speculative", ["gamma="], "has no range"),
    ("speculative", ["gamma", "gamma=2..3"], "given twice"),
    ("sequoia", ["shape=big"], "not a topology"),
    ("fast_dllm", [], "every parameter of fast_dllm changes what is committed"),
    ("autoregressive", [], "no parameters to tune"),
    ("medusa", ["delta=0.5..3"], "must be in"),
])  # fmt: skip
def test_what_is_refused(name: str, wishes: list[str], message: str) -> None:
    with pytest.raises(DecError, match=message.replace("..", r"\.\.")):
        axes(name, *wishes)


def test_what_stays_is_not_searched() -> None:
    assert [a.name for a in axes("eagle2", fixed={"k": 4})] == ["depth", "budget"]
    with pytest.raises(DecError, match="given twice"):
        axes("eagle2", "k=2..4", fixed={"k": 4})


def test_a_parameter_without_a_range() -> None:
    text = (
        "algorithm wide(target: causal, n: int = 3):\n    refines autoregressive(target) in tokens\n    while not done:\n"
        "        x ~ target(ctx) as output\n        commit x\n"
    )
    function = decgraph.parse(text).function
    with pytest.raises(DecError, match="declares no range"):
        space.axes(function, {}, ["n"], 0)
    (axis,) = space.axes(function, {}, ["n=2..5"], 0)
    assert axis.values == (2, 3, 4, 5)


def test_settings_in_words() -> None:
    chosen = space.setting(decgraph.load("kangaroo").function, {"eta": Fraction("0.6"), "gamma": 3})
    assert chosen == (("gamma", 3), ("eta", Fraction("0.6"))) and space.shown(chosen) == "gamma=3 eta=0.6"
    assert space.spelt(Fraction(1, 3)) == "1/3" and space.spelt(True) == "yes" and space.spelt(frozenset({3, 1})) == "1,3"
