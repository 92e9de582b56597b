"""Distributions by enumeration: known answers by hand, and what makes an enumeration one."""

from __future__ import annotations

from fractions import Fraction as F

import pytest

from decgraph.backends.exact.choices import Choices, TooMany, combine, runs
from decgraph.backends.exact.world import World
from decgraph.check.distributions import (
    AdversaryWins,
    CheckedProgram,
    RunTally,
    continued_distribution,
    distribution_of,
    execute,
    total_variation,
    whole_distribution,
)
from decgraph.check.distributions import Specification as Spec
from decgraph.dsl.lower import load_text
from decgraph.dsl.lower.library import stdlib_file
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

P, Q = (F(1, 2), F(1, 3), F(1, 6)), (F(1, 6), F(1, 3), F(1, 2))


def program(name: str, **params: int) -> CheckedProgram:
    found = stdlib_file(name)
    assert found is not None
    module = load_text(found[1].text, found[1].path)
    models = {
        "target": TableModel(3, table={(): P}, name="target", window=0),
        "drafter": TableModel(3, table={(): Q}, name="drafter", window=0),
    }
    names = {p.name for p in module.entry.params}
    return CheckedProgram(module, name, {k: v for k, v in models.items() if k in names}, params)


def test_a_draft_is_accepted_with_one_minus_the_total_variation() -> None:
    """Leviathan et al., 2023, theorem 3.5: the probability of acceptance is the sum of min(p, q)."""
    a = program("speculative", gamma=1)
    world, accepted, total = World(coupled=False), F(0), F(0)

    def run(choices: Choices) -> int:
        world.restart(choices)
        return len(execute(a.machine(Request((0,), max_tokens=9), world, 1)).committed_tokens())

    for choices, tokens in runs(run, 1000):
        total += choices.weight()
        if tokens == 2:
            accepted += choices.weight()
    assert total == 1
    assert accepted == sum(min(x, y) for x, y in zip(P, Q, strict=True)) == F(2, 3)


def test_the_distribution_of_independent_tokens() -> None:
    distribution = whole_distribution(program("autoregressive"), Request((0,), max_tokens=2), 100, RunTally())
    assert distribution == {((i, j), True): P[i] * P[j] for i in range(3) for j in range(3)}


def test_whole_runs_and_steps_agree() -> None:
    """The distribution of a whole run, and of one step that the specification continues."""
    a, b = program("speculative", gamma=2), program("autoregressive")
    request = Request((0,), max_tokens=2)
    whole = whole_distribution(a, request, 5000, RunTally())
    step = continued_distribution(a, Spec(b, request, 1000, RunTally()), request, 1, 2, 5000, RunTally())
    assert whole == step == whole_distribution(b, request, 1000, RunTally())


@pytest.mark.parametrize("name", ["speculative", "sequoia"])
def test_distributions_sum_to_one(name: str) -> None:
    from decgraph.check.algorithm import find
    from decgraph.check.report import cases

    module, _ = find(name)
    for case in cases(module, module.entry.claims[0], vocab=3, models=3, params=None):
        spec = Spec(case.spec(), case.request, 1000, RunTally())
        distribution = continued_distribution(case.program(), spec, case.request, 1, 2, 5000, RunTally())
        assert sum(distribution.values()) == 1


def test_runs_are_all_different_and_weigh_one() -> None:
    def toss(choices: Choices) -> tuple[str, ...]:
        first = choices.choose([F(1, 2), F(1, 4), F(1, 4)], list("abc"), "first")
        return (first,) if first == "a" else (first, choices.choose([F(1, 3), F(2, 3)], list("xy"), "second"))

    seen = [(value, choices.weight()) for choices, value in runs(toss, 10)]
    assert [v for v, _ in seen] == [("a",), ("b", "x"), ("b", "y"), ("c", "x"), ("c", "y")]
    assert sum(w for _, w in seen) == 1


def test_too_many_is_said() -> None:
    with pytest.raises(TooMany, match="more than 3 runs"):
        list(runs(lambda c: c.choose([F(1, 4)] * 4, list(range(4)), "four"), 3))


def test_an_adversary_wins_where_an_answer_matters() -> None:
    def asked(choices: Choices) -> dict[str, F]:
        if choices.choose([F(0), F(0)], [False, True], "which?", "adversary"):
            return {choices.choose([F(1, 2), F(1, 2)], ["a", "b"], "coin"): F(1)}
        return {"a": F(1)}

    with pytest.raises(AdversaryWins) as caught:
        distribution_of(asked, 10, RunTally())
    assert caught.value.laws == [{"a": F(1)}, {"a": F(1, 2), "b": F(1, 2)}]


def test_an_adversary_that_cannot_change_the_distribution() -> None:
    def asked(choices: Choices) -> dict[str, F]:
        weights = [F(1, 2), F(1, 2)]
        names = ["a", "b"] if choices.choose([F(0), F(0)], [False, True], "which?", "adversary") else ["b", "a"]
        return {choices.choose(weights, names, "coin"): F(1)}

    assert distribution_of(asked, 10, RunTally()) == {"a": F(1, 2), "b": F(1, 2)}
    assert combine([([], {"c": F(1)})]) == {"c": F(1)}


def test_total_variation() -> None:
    assert total_variation({"a": F(1)}, {"b": F(1)}) == 1
    assert total_variation({"a": F(1, 2), "b": F(1, 2)}, {"a": F(1)}) == F(1, 2)
