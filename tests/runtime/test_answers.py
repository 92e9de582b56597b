"""What a caller hands over is what its type says, on every backend: answers of functions, and tokens among the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lib.stdlib.table_models import tables

from decgraph.backends.registry import machine
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

TEXT = """extern f(int) -> {type} on host

algorithm asked(target: causal):
    keeps support of target

    while not done:
        y = f(1)
        x ~ target(ctx)
        commit x
"""
NAN, INF = float("nan"), float("inf")
WRONG: dict[str, list[Any]] = {
    "int": [2.5, NAN, INF, -INF, "2", None, [1], np.float64(0.5)],
    "prob": [1.5, -0.1, NAN, "0.5", None, True, -1e-300],
    "bool": [2, "yes", None, 0.5, NAN],
    "token": [-1, 4, 50_000, 0.5, NAN, INF, "a"],
    "float": ["1", None, [0.5]],
    "text": [1, None, b"a"],
    "int[2]": [[1], [1, 2, 3], [0.5, 1], [NAN, 1], 1, "ab"],
    "int[<= 2]": [[1, 2, 3], [0.5], np.array([1.5])],
    "token[<= 2]": [[0, 4], [-1], np.array([4]), np.array([0, 1, 2])],
    "prob[2]": [[0.5, 1.5], [0.5], np.array([NAN, 0.5])],
}
RIGHT: dict[str, list[Any]] = {
    "int": [2, -3, 2.0, np.int64(1)],
    "prob": [0, 1, 0.25, np.float32(0.5)],
    "bool": [True, False, np.True_, 1],
    "token": [0, 2, np.int64(1)],
    "float": [1, -0.5, INF, np.float32(1)],
    "text": ["", "ab"],
    "int[2]": [[1, 2], (1, 2), np.array([1, 2]), np.array([1.0, 2.0])],
    "token[<= 2]": [[], [2], np.array([0, 2])],
    "prob[2]": [[0, 1], np.array([0.5, 0.25])],
}


def asked(type: str, value: Any, backend: str) -> Result:
    models = {"target": tables(1)["target"]}
    session = Session(load_text(TEXT.format(type=type)), models, {}, machine=machine(backend), externs={"f": lambda n: value})
    return session.run(Request(prompt=(0, 1), max_tokens=2, seed=1))


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("type", WRONG)
def test_what_is_not_of_its_type_is_refused_with_its_place(type: str, backend: str) -> None:
    for value in WRONG[type]:
        found = asked(type, value, backend)
        assert found.error is not None and not found.tokens, value
        assert "`f` gave" in str(found.error) and ":7" in str(found.error), str(found.error)


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("type", RIGHT)
def test_what_is_of_its_type_is_taken(type: str, backend: str) -> None:
    for value in RIGHT[type]:
        found = asked(type, value, backend)
        assert found.error is None and len(found.tokens) == 2, (value, found.error)


@pytest.mark.parametrize("type", ["token", "token[<= 4]", "token[2]"])
def test_a_token_beyond_the_vocabulary_is_refused(type: str) -> None:
    text = "algorithm named(target: causal, z: %s = %s):\n    while not done:\n        x ~ target(ctx)\n        commit x\n"
    one = type == "token"
    module = load_text(text % (type, "0" if one else "[0, 1]"))
    models = {"target": tables(1)["target"]}
    Session(module, models, {"z": 2 if one else [2, 0]}, machine=machine("reference"))
    with pytest.raises(DecError, match="`z` is the token 4, and the vocabulary has 4"):
        Session(module, models, {"z": 4 if one else [0, 4]}, machine=machine("reference"))


def test_the_default_of_an_algorithm_that_is_run_is_tried_where_it_begins() -> None:
    text = """algorithm inner(target: causal, z: token = 7):
    while not done:
        x ~ target(ctx)
        commit x

algorithm outer(target: causal):
    while not done:
        s = run inner(target) from ctx until done at most 2
        commit s
"""
    session = Session(load_text(text), {"target": tables(1)["target"]}, {}, machine=machine("reference"))
    found = session.run(Request(prompt=(0, 1), max_tokens=2))
    assert found.error is not None and "`z` is the token 7" in str(found.error) and not found.tokens
