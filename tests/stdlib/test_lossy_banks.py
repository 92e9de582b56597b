"""Beams in banks: the words that must occur do, and a beam that is wide enough finds the best text that has them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from lib.stdlib.table_models import V, session, tables

from decgraph.runtime.models.interface import Model

SEEDS = range(4)
GREEDY: dict[str, Any] = {"temperature": 0}


def likelihood(model: Model, tokens: tuple[int, ...]) -> float:
    total = 0.0
    for i, x in enumerate(tokens):
        weights = [float(w) for w in model.eval([(0, 1, *tokens[:i])])[0].weights]
        total += float(np.log(weights[x] / sum(weights)))
    return total


@pytest.mark.parametrize("words", [[2], [1, 3], [3, 0]])
def test_a_wide_beam_finds_the_likeliest_text_with_the_words(words: list[int]) -> None:
    for seed in SEEDS:
        models = tables(seed)
        found = session("constrained_beam", models, {"words": words, "k": 32})(seed=seed, max_tokens=3).tokens
        have = [t for t in product(range(V), repeat=3) if set(words) <= set(t)]
        best = max(have, key=lambda t: likelihood(models["target"], t))
        assert likelihood(models["target"], tuple(found)) == pytest.approx(likelihood(models["target"], best))


def test_a_narrow_beam_has_the_words_and_does_not_end_before_it_has() -> None:
    for seed in SEEDS:
        for k in (1, 2, 4):
            found = session("constrained_beam", tables(seed), {"words": [1, 3], "k": k})(
                seed=seed, max_tokens=6, eos={2}
            ).tokens
            assert {1, 3} <= set(found)


def test_without_words_it_is_beam_search() -> None:
    for seed in SEEDS:
        for k in (1, 3):
            models = tables(seed)
            ours = session("constrained_beam", models, {"words": [], "k": k})(seed=seed, max_tokens=5)
            assert ours.tokens == session("beam", models, {"k": k})(seed=seed, max_tokens=5).tokens
