"""Values of parameters of every kind, as they are written on a command line; what is not one is an error that says how."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.parameters import written
from decgraph.runtime.session import check_params

GRAMMAR = '{"next": [[1, 0], [-1, 1]], "accepting": [1]}'


def value(kind: str, given: Any) -> Any:
    module = load_text(
        f"algorithm a(target: causal, v: {kind}):\n    while not done:\n        x ~ target(ctx)\n        commit x\n"
    )
    return check_params(module.entry, {"v": given})["v"]


@pytest.mark.parametrize("given", ["[1,2,0,1]", "1,2,0,1", " [1, 2, 0, 1] ", [1, 2, 0, 1], np.array([1, 2, 0, 1])])
@pytest.mark.parametrize("kind", ["token[4]", "int[4]"])
def test_a_vector(kind: str, given: Any) -> None:
    found = value(kind, given)
    assert isinstance(found, np.ndarray) and found.tolist() == [1, 2, 0, 1]


@pytest.mark.parametrize(
    ("kind", "given", "want"),
    [
        ("set", "1,3", {1, 3}),
        ("set", "{1, 3}", {1, 3}),
        ("set", "[3,1]", {1, 3}),
        ("set", "", set()),
        ("set", [1, 3], {1, 3}),
        ("int", "4", 4),
        ("float", "0.1", Fraction(1, 10)),
        ("float", "1e3", 1000),
        ("prob", "1/3", Fraction(1, 3)),
        ("bool", "yes", True),
        ("text", "1,2", "1,2"),
        ("token", "3", 3),
        ("automaton", GRAMMAR, Automaton(((1, 0), (-1, 1)), frozenset({1}))),
    ],
)
def test_one_value(kind: str, given: Any, want: Any) -> None:
    assert value(kind, given) == want


def test_a_table() -> None:
    assert value("int[2, 2]", "[[1, 2], [3, 4]]").tolist() == [[1, 2], [3, 4]]
    assert list(value("float[2]", "0.5, 1/3")) == [Fraction(1, 2), Fraction(1, 3)]


def test_a_list_of_what_does_not_stack() -> None:
    """Texts of several lengths, and sets; an entry that is too long is refused, and said."""
    found = value("list[token[<= 3]]", "[[1, 2], [3], []]")
    assert [x.tolist() for x in found] == [[1, 2], [3], []]
    assert value("list[set]", "[[1, 3], []]") == [{1, 3}, set()]
    for given in ("[[1, 2, 3, 4]]", "[1, 2]", "x"):
        with pytest.raises(DecError, match="`v` must be a list, each entry a list of at most 3 token ids"):
            value("list[token[<= 3]]", given)


def test_a_topology() -> None:
    assert len(value("topology", "[[0],[1],[0,0]]")) == len(value("topology", [[0], [1], [0, 0]]))


def test_an_automaton_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "grammar.json"
    path.write_text(GRAMMAR, encoding="utf-8")
    assert value("automaton", str(path)) == value("automaton", path) == value("automaton", GRAMMAR)


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        ("token[4]", "1 2 0 1", "list of 4 token ids"),
        ("token[4]", "[1, 2]", "list of 4 token ids"),
        ("token[4]", "3", "list of 4"),
        ("token[4]", "[1, 2", "list of 4"),
        ("token[4]", "[1, 2, 0, -1]", "list of 4"),
        ("token[4]", 7, "list of 4"),
        ("int[2]", "[[1], [2]]", "list of 2"),
        ("int[2]", "[1.5, 2]", "list of 2"),
        ("set", "a,b", "1,3,5"),
        ("set", 4, "1,3,5"),
        ("automaton", "{}", '"next"'),
        ("automaton", "nowhere.json", '"next"'),
        ("automaton", '{"next": 3, "accepting": []}', '"next"'),
        ("automaton", "{", '"next"'),
        ("automaton", [[1, 0], [-1, 1]], '"next"'),
        ("automaton", 5, '"next"'),
        ("int", "four", "whole number"),
        ("int", "9" * 5000, "whole number"),
        ("int", 10**30, "too large"),
        ("float", "1e999999999", "a number"),
        ("float", "9" * 5000, "a number"),
        ("prob", "1e-999999999", "a number"),
        ("topology", "4xx2", "topology"),
        ("topology", "[" * 5000, "topology"),
        ("bool", "maybe", "yes or no"),
        ("float", [1, 2], "a number"),
        ("int[2]", [[[]]], "list of 2"),
    ],
)
def test_what_is_not_one(kind: str, given: Any, says: str) -> None:
    with pytest.raises(DecError) as caught:
        value(kind, given)
    assert says in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        ("bool", "yes", "true"),
        ("prob", "0.001", "0.001"),
        ("prob", "1/3", "1/3"),
        ("float", "2.50", "2.5"),
        ("float", "1e-9", "1/1000000000"),
        ("set", "3,1", "[1, 3]"),
        ("token[3]", "2,0,1", "[2, 0, 1]"),
        ("bool[2]", "yes,no", "[true, false]"),
        ("prob[2]", "0.5, 1/3", "[0.5, 1/3]"),
        ("topology", "4x2x1", "4x2x1"),
        ("topology", [[0], [1], [0, 0]], "[[0], [1], [0, 0]]"),
        ("automaton", GRAMMAR, '{"next": [[1, 0], [-1, 1]], "accepting": [1], "start": 0}'),
    ],
)
def test_values_are_written_as_they_are_read(kind: str, given: Any, text: str) -> None:
    """Nobody writes `frozenset({1, 3})` or `[ True False]`; what is written gives the value again."""
    found = value(kind, given)
    assert written(found) == text
    if kind != "prob[2]":  # a list of numbers with fractions in it cannot be written on a command line
        assert written(value(kind, text)) == text
