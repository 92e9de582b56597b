"""Where drafting ends (ir/places.py) changes no distribution: exact distributions with the cut, without it, and computed by
hand."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction as F
from functools import cache
from typing import Any

import pytest
from lib.stdlib.table_models import module

from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.check.distributions import CheckedProgram, Distribution, RunTally, whole_distribution
from decgraph.runtime.models.table import TableFeatures, TableModel
from decgraph.runtime.request import Request

V, PROMPT = 2, (0, 1, 0, 1)
PARAMS: dict[str, dict[str, Any]] = {
    "speculative": {"gamma": 2},
    "recursive_sd": {"shape": "2x1"},
    "sequoia": {"shape": "[[0], [1], [0, 0]]"},
    "rsd_s": {"width": 2, "depth": 2},
    "prompt_lookup": {"k": 2},
    "lookahead": {"w": 2, "n": 3, "g": 2},
    "medusa_match": {"shape": "2x1"},
    "eagle2": {"depth": 2, "k": 2, "budget": 3},
}
DEEPEST = 2


class Cut(ExactMachine):
    """The machine of the checker with the cut of those that run programs. cuts: how many nodes had nothing grown below them."""

    cuts = 0

    def bounds(self, until: Sequence[str]) -> tuple[int | None, frozenset[int]]:
        return ReferenceMachine.bounds(self, until)

    def fits(self, tree: Any, parent: int) -> bool:
        inside = super().fits(tree, parent)
        Cut.cuts += not inside
        return inside


@cache
def models(seed: int) -> dict[str, Any]:
    target = TableModel(V, seed, name="target", window=2, heads=2)
    return {"target": target, "drafter": TableModel(V, seed + 9, name="drafter", window=2), "head": TableFeatures(target, seed)}


def program(name: str, seed: int, engine: type[ExactMachine]) -> CheckedProgram:
    made = module(name)
    wanted = [p.name for p in made.entry.params if p.value.type.elem == "model"]
    params = {p.name: p.default for p in made.entry.params if p.name not in wanted} | PARAMS[name]
    return CheckedProgram(made, name, {n: models(seed)[n] for n in wanted}, params, engine)


def by_hand(seed: int, request: Request, done: tuple[int, ...] = ()) -> Distribution:
    """One token at a time from the target's table, to the limit or a token that ends the text."""
    if len(done) == request.max_tokens or (done and done[-1] in request.eos):
        return {(done, True): F(1)}
    weights = [F(w) for w in models(seed)["target"].eval([(*request.prompt, *done)])[0].weights]
    if request.temperature == 0:
        weights = [F(v == weights.index(max(weights))) for v in range(V)]
    out: Distribution = {}
    for token, weight in enumerate(weights):
        if weight:
            for key, rest in by_hand(seed, request, (*done, token)).items():
                out[key] = weight / sum(weights) * rest
    return out


@pytest.mark.parametrize("temperature", [1, 0])
@pytest.mark.parametrize("eos", [(), (1,), (0, 1)])
@pytest.mark.parametrize("name", PARAMS)
def test_laws_with_and_without_the_cut(name: str, eos: tuple[int, ...], temperature: int) -> None:
    Cut.cuts = 0
    for limit in range(1, DEEPEST + 2):
        request = Request(PROMPT, max_tokens=limit, eos=frozenset(eos), temperature=temperature)
        wanted = by_hand(1, request)
        assert sum(wanted.values()) == 1
        for engine in (ExactMachine, Cut):
            assert whole_distribution(program(name, 1, engine), request, 200_000, RunTally()) == wanted, (engine, limit)
    assert Cut.cuts or eos, "nothing was cut"  # texts that end with their first token are drafted by no greedy step
