"""Lossy samplers: at a setting where they equal something, and with a mechanism that changes the text elsewhere. Programs that
tests/fidelity replays against their authors' code are left to it."""

from __future__ import annotations

from typing import Any

import pytest
from lib.stdlib.letters import Letters
from lib.stdlib.table_models import module, tables

from decgraph.backends.registry import machine
from decgraph.check.validation import outside
from decgraph.runtime.models.reading import Confidence
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

SEEDS = range(6)


def tokens(name: str, seed: int, params: dict[str, Any] | None = None, swap: bool = False, **request: Any) -> tuple[int, ...]:
    """The tokens that a program commits with table models; `swap` exchanges target and drafter. A head says what the target's
    distribution does."""
    have = tables(seed)
    if swap:
        have["target"], have["drafter"] = have["drafter"], have["target"]
    needs = {p.name: str(p.value.type.of[0]) for p in module(name).entry.params if p.value.type.elem == "model"}
    bound = Session(
        module(name),
        {n: Confidence(have["target"], "prob") if kind == "head" else have.get(n, have["target"]) for n, kind in needs.items()},
        params or {},
        machine=machine("reference"),
        tokenizer=Letters(["a", "b", ".", "\n"]),
        externs=outside(module(name))["externs"],
    )
    result = bound.run(Request(**{"prompt": (0, 1), "max_tokens": 12, "seed": seed, **request}))
    assert result.error is None, result.error
    return tuple(result.tokens)


GREEDY: dict[str, Any] = {"temperature": 0}
EQUAL = [
    ("repetition_aware", {"mass": 1, "most": 1}, {}),
    ("foreal", {"gate": 1, "lead": 12}, GREEDY),
    ("judge_decoding", {"tau": 1}, {}),
    ("superposed", {"k": 1, "alpha": 0}, {"eos": (2, 3), "min_length": 5, "max_tokens": 5, **GREEDY}),
]
"""A program, parameters, and a request: it commits what the target alone does."""


@pytest.mark.parametrize("name, params, request_", EQUAL)
def test_equal_to_the_target_alone_and_not_elsewhere(name: str, params: dict[str, Any], request_: dict[str, Any]) -> None:
    for seed in SEEDS:
        assert tokens(name, seed, params, **request_) == tokens("autoregressive", seed, **request_)
    greedy = GREEDY if "temperature" in request_ else {}
    assert any(tokens(name, s, **greedy) != tokens("autoregressive", s, **greedy) for s in SEEDS)


def test_without_its_leader_foreal_is_the_drafter() -> None:
    for seed in SEEDS:
        assert tokens("foreal", seed, {"gate": 0}, **GREEDY) == tokens("autoregressive", seed, swap=True, **GREEDY)
