"""Lossy decoders that guess at tokens behind the text: equal to the target where nothing unverified is kept, and in fewer calls
where it is."""

from __future__ import annotations

from functools import cache

import pytest
from lib.stdlib.letters import Letters
from lib.stdlib.requests import requests

import decgraph
from decgraph.check.worlds import models_for
from decgraph.runtime.session import Result

V = 7
SETTINGS = [
    ("lexical_unit", {"length": 4, "alpha": 1.0}, {"length": 4, "alpha": 0.0}),
    ("fastcot", {"window": 5, "rounds": 1024}, {"window": 5, "rounds": 1}),
]
"""What keeps only the target's tokens, and what keeps guesses."""


@cache
def texts(name: str, seed: int, **params: float) -> tuple[Result, ...]:
    algorithm = decgraph.load(name)
    session = algorithm.session(models_for(algorithm.function, V, seed), tokenizer=Letters(), **params)
    return tuple(session.run(r) for r in requests(seed))


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(("name", "exact", "lossy"), SETTINGS)
def test_the_exact_setting_gives_the_targets_tokens(
    name: str, exact: dict[str, float], lossy: dict[str, float], seed: int
) -> None:
    wanted = [r.tokens for r in texts("autoregressive", seed)]
    assert [r.tokens for r in texts(name, seed, **exact)] == wanted
    assert [r.tokens for r in texts(name, seed, **lossy)] != wanted


@pytest.mark.parametrize(("name", "exact", "lossy"), SETTINGS)
def test_kept_guesses_save_calls_and_the_first_token_is_the_targets(
    name: str, exact: dict[str, float], lossy: dict[str, float]
) -> None:
    pairs = list(zip(texts(name, 0, **exact), texts(name, 0, **lossy), strict=True))
    assert all(a.tokens[0] == b.tokens[0] for a, b in pairs)
    assert sum(b.stats.target_calls for _, b in pairs) < 0.8 * sum(a.stats.target_calls for a, _ in pairs)
