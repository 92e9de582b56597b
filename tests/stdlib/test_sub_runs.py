"""A request goes on inside a sub-run: what was generated before it counts as generated there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decgraph.backends.registry import machine
from decgraph.check import check_algorithm
from decgraph.check.worlds import models_for
from decgraph.dsl.lower import load_text
from decgraph.passes.manager import optimise
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

TEXT = """algorithm inner(target: causal):
    while not done:
        x ~ target(ctx)
        commit x

algorithm parts(target: causal):
    refines autoregressive(target) in distribution

    while not done:
        commit run inner(target) from ctx until done at most 2
"""


def runs(backend: str, **request: Any) -> list[tuple[int, ...]]:
    module = load_text(TEXT)
    if backend != "reference":
        module = optimise(module)[0]
    session = Session(module, models_for(module.entry, 4, 3), {}, machine=machine(backend))
    results = [session.run(Request(prompt=(0, 1), max_tokens=8, seed=s, **request)) for s in range(4)]
    assert not any(r.error for r in results)
    return [tuple(r.tokens) for r in results]


def test_every_request_is_the_specifications(tmp_path: Path) -> None:
    path = tmp_path / "parts.dec"
    path.write_text(TEXT, encoding="utf-8")
    assert check_algorithm(path, models=2).verdict == "holds"


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_constraints_and_penalties_go_on_in_a_sub_run(backend: str) -> None:
    """An automaton and a minimum length count what was generated before the sub-run as well."""
    allow = Automaton(((-1, 1, -1, -1), (-1, -1, 2, -1), (-1, -1, -1, 0)), frozenset({0}))
    for tokens in runs(backend, allow=allow):
        assert tokens == (1, 2, 3, 1, 2, 3, 1, 2)
    ends = runs(backend, eos={2}, min_length=5)
    assert all(2 not in tokens[:5] for tokens in ends) and any(len(tokens) < 8 for tokens in ends)
