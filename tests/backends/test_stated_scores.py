"""Scores that a program states and no token can be taken by: every backend refuses them alike, at every temperature."""

from __future__ import annotations

from fractions import Fraction

import pytest

import decgraph
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import World
from decgraph.check.chances import ByChance
from decgraph.errors import DecError
from decgraph.runtime.models.table import TableModel

TEXT = """
algorithm states(target: causal):
    while not done:
        s = target(ctx).logits
        x ~ warp({}, at = ctx)
        commit x
"""
TABLE = {(0,): (Fraction(0), Fraction(8, 9), Fraction(1, 9))}
CASES = {
    "where(s > inf, s, -inf)": "leave no token",
    "s - mean(s)": "hold a NaN or an infinity",
    "where(s < -100, inf, s)": "hold a NaN or an infinity",
    "s + 1": "",
}


@pytest.mark.parametrize("scores", CASES)
@pytest.mark.parametrize("temperature", [Fraction(0), Fraction(1, 2), Fraction(1)])
@pytest.mark.parametrize("more", [{}, {"bans": (2,)}, {"repetition_penalty": 2}], ids=["plain", "bans", "penalty"])
def test_scores_without_a_token_are_refused_alike(scores: str, temperature: Fraction, more: dict[str, object]) -> None:
    algorithm = decgraph.parse(TEXT.format(scores))
    request = decgraph.Request((0,), max_tokens=1, temperature=temperature, seed=3, **more)  # type: ignore[arg-type]
    model, said = TableModel(3, table=TABLE), {}
    for backend in ("reference", "torch"):
        said[backend] = str(algorithm.session(target=model, backend=backend).run(request).error or "")
    world = World(coupled=True)
    world.restart(ByChance(1))
    module = algorithm.module
    try:
        ExactMachine(module, module.entry.name, {"target": model}, {}, request).on(world).run()
        said["exact"] = ""
    except DecError as error:
        said["exact"] = str(error)
    assert all(CASES[scores] in text and bool(text) == bool(CASES[scores]) for text in said.values()), said
