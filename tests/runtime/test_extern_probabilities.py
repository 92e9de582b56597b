"""A function of the caller that is declared to return a probability, and does not."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.table_models import tables

from decgraph.backends.registry import machine
from decgraph.dsl.lower import load_text
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

TEXT = """extern weight(int) -> prob on host

algorithm weighed(target: causal):
    keeps support of target

    while not done:
        x ~ target(ctx)
        y ~ target(ctx)
        commit x if weight(1) > 0.5 else y
"""


def weighed(value: Any, backend: str) -> Result:
    models = {"target": tables(1)["target"]}
    session = Session(load_text(TEXT), models, {}, machine=machine(backend), externs={"weight": lambda n: value})
    return session.run(Request(prompt=(0, 1), max_tokens=3, seed=1))


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("value", [1.5, -0.1, float("nan")])
def test_it_is_refused(value: float, backend: str) -> None:
    found = weighed(value, backend)
    assert found.error is not None and "`weight` gave the probability" in str(found.error)


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("value", [0, 1, 0.25])
def test_what_is_one_is_taken(value: float, backend: str) -> None:
    found = weighed(value, backend)
    assert found.error is None and len(found.tokens) == 3
