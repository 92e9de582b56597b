"""Torch and the reference on the shipped models, whose float32 forwards the engines batch and reuse: the same tokens, except
where a decision was a declared near-tie."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from lib.ops.near_ties import TIE, closest_of_step
from lib.stdlib.table_models import NAMES

import decgraph
from decgraph.backends.registry import machine
from decgraph.models import request_for
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.noise import exponentials, output_key
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

SMALL: dict[str, dict[str, Any]] = {
    "jacobi": {"length": 8},
    "eagle2": {"depth": 3, "k": 4, "budget": 12},
    "lookahead": {"w": 5, "n": 4, "g": 5},
    "token_recycling": {"shape": "table_16"},
    "medusa": {"shape": "2x2x1"},
    "medusa_match": {"shape": "2x2x1"},
    "beam_patience": {"k": 3, "limit": 24},
    "freedave": {"length": 16, "block": 8},
}
LENGTH = {"length": 24, "block": 8}
PROMPTS = ["def mean(values):\n    ", "import os\n\nclass ", "    for i in range(len(", "raise ValueError("]


@cache
def sessions(name: str) -> tuple[Any, Any]:
    """(reference, torch) on the same shipped models."""
    algorithm = decgraph.load(name)
    wanted = {**LENGTH, **SMALL.get(name, {})} if "masked" in algorithm.models.values() else SMALL.get(name, {})
    params = {k: v for k, v in wanted.items() if k in algorithm.params}
    reference = algorithm.session(backend="reference", **params)
    module = algorithm.optimised(reference.params)
    return reference, Session(module, reference.models, params, machine=machine("torch"), tokenizer=reference.tokenizer)


@pytest.mark.parametrize("temperature", [0, 1])
def test_near_ties_are_found(temperature: int) -> None:
    """The second token is all but a tie where a table says so, the first is not."""

    class Tied(TableModel):
        def eval(self, paths: Any, memory: Any = None) -> list[Scores]:
            return [Scores(weights=tie if len(p) == 3 else sure) for p in paths]

    sure = tuple(Fraction(n, 10) for n in (7, 1, 1, 1))
    request = Request(prompt=(0, 1), max_tokens=2, seed=3, temperature=temperature)
    times = exponentials(output_key(3, 0, 3), 4) if temperature else np.ones(4)
    near = times / times.sum()  # as likely as they are late: everyone arrives at once
    near[0] *= 1 + 1e-5
    tie = tuple(Fraction(float(x)) for x in near / near.sum())
    session = Session(decgraph.load("autoregressive").module, {"target": Tied(4, 1, name="tied")}, machine=machine("reference"))
    assert closest_of_step(session, request, 0).margin > TIE
    assert 0 < closest_of_step(session, request, 1).margin < TIE


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_commits_the_references_tokens_but_for_near_ties(name: str, capsys: Any) -> None:
    reference, torch = sessions(name)
    asked = [
        request_for(
            reference,
            prompt=PROMPTS[i % 4],
            seed=i,
            max_tokens=20,
            temperature=(1, 0, 0.7, 1)[i % 4],
            repetition_penalty=1.2 if i == 4 else 1,
        )
        for i in range(6)
    ]
    alone = [torch.run(r) for r in asked]
    together = torch.generate(asked, batch=4)
    ties = 0
    for request, *got in zip(asked, alone, together):
        want = reference.run(request)
        assert want.error is None and want.tokens
        for have in got:
            assert have.error is None, have.error
            if have.tokens != want.tokens:
                first = next(
                    (i for i, (a, b) in enumerate(zip(have.tokens, want.tokens)) if a != b),
                    min(len(have.tokens), len(want.tokens)),
                )
                close = closest_of_step(reference, request, first)
                assert close.margin < TIE, f"{name}: token {first} differs, and no decision was close: {close}"
                ties += 1
    with capsys.disabled():
        print(f"\n{name}: {2 * len(asked)} runs, {ties} parted at a near-tie")
