"""Searches at the settings where they are something simpler: equal tokens on table models."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.letters import Letters
from lib.stdlib.table_models import module, tables

from decgraph.backends.registry import machine
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

LETTERS = Letters("abcd")


FUNCTIONS: dict[str, Any] = {
    "utility": lambda a, b: len(set(a) & set(b)) / (1 + len(a)),
    "reward": lambda a: a.count("b") - a.count("c") / 2,
    "difficulty": lambda a: 0.5,
    "valid": lambda a: True,
}


def result(name: str, seed: int, temperature: float = 0, externs: dict[str, Any] | None = None, **params: Any) -> Result:
    bound = Session(
        module(name),
        {"target": tables(seed)["target"]},
        params,
        machine=machine("reference"),
        tokenizer=LETTERS,
        externs={**FUNCTIONS, **(externs or {})},
    )
    done = bound.run(Request((0, 1), max_tokens=7, eos=frozenset({3}), temperature=temperature, seed=seed))
    assert done.error is None, done.error
    return done


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("first_finish", {"n": 3}),
        ("mbr", {"n": 3}),
        ("adaptive_compute", {}),
        ("beam", {"k": 1}),
        ("diverse_beam", {"k": 1, "groups": 1}),
        ("poisson_beam", {"k": 1, "mass": 0.0}),
        ("lattice", {"budget": 1}),
        ("awrs", {}),
    ],
)
def test_greedy_where_nothing_is_searched(name: str, params: dict[str, Any], seed: int) -> None:
    assert result(name, seed, **params).tokens == result("autoregressive", seed).tokens


@pytest.mark.parametrize("seed", range(6))
def test_groups_without_a_penalty_are_equal_beams(seed: int) -> None:
    """Two groups of two find what one does, each."""
    one = result("diverse_beam", seed, k=2, groups=1, penalty=0.0)
    two = result("diverse_beam", seed, k=2, groups=2, penalty=0.0)
    assert two.tokens == one.tokens
    assert sorted(map(tuple, two.results)) == sorted([*map(tuple, one.results)] * 2)


def test_a_penalty_makes_groups_differ() -> None:
    differ = [len({tuple(r) for r in result("diverse_beam", s, k=1, groups=2, penalty=8.0).results}) for s in range(6)]
    assert max(differ) == 2


@pytest.mark.parametrize("seed", range(4))
def test_rewards_are_sought(seed: int) -> None:
    """More rolls never find a worse text than one: the best of all is kept."""
    text = LETTERS.decode
    few, many = (FUNCTIONS["reward"](text(result("mcts", seed, temperature=1, rolls=n).tokens)) for n in (1, 24))
    assert many >= few


@pytest.mark.parametrize("seed", range(4))
def test_what_a_constraint_refuses_is_not_written(seed: int) -> None:
    done = result("awrs", seed, temperature=1, externs={"valid": lambda text: "c" not in text})
    assert "c" not in LETTERS.decode(done.tokens)


@pytest.mark.parametrize("seed", range(6))
def test_recombination_saves_calls(seed: int) -> None:
    """Where texts may merge after one token there are fewer calls than where they cannot."""
    merged, apart = (result("lattice", seed, grams=n, budget=8) for n in (1, 16))
    assert merged.stats.target_calls <= apart.stats.target_calls
    assert merged.tokens
