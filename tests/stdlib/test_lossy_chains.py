"""Cascades of grams: the best text of a chain of bounded contexts, against a search of all texts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from lib.stdlib.table_models import V, session, tables

from decgraph.runtime.models.interface import Model

N = 4
PROMPT = (0, 1)


def chained(model: Model, text: tuple[int, ...], order: int) -> float:
    """The log-probability of a text whose tokens see the prompt and `order` tokens before them, and padding."""
    total = 0.0
    for t, x in enumerate(text):
        seen = min(order, t)
        path = (*PROMPT, *(0,) * (t - seen), *text[t - seen : t])
        weights = [float(w) for w in model.eval([path])[0].weights]
        total += float(np.log(weights[x] / sum(weights)))
    return total


def text(seed: int, **params: int) -> tuple[int, ...]:
    return tuple(session("cascaded", tables(seed), {"length": N, **params})(seed=seed, max_tokens=N).tokens)


@pytest.mark.parametrize("seed", range(5))
def test_of_pairs_the_best_text_is_found(seed: int) -> None:
    model = tables(seed)["target"]
    best = max(product(range(V), repeat=N), key=lambda t: chained(model, t, 1))
    assert text(seed, k=V, order=1) == best


@pytest.mark.parametrize("seed", range(5))
def test_a_longer_context_only_improves(seed: int) -> None:
    """The best text of a round is among the grams that the next one keeps."""
    model = tables(seed)["target"]
    for k in (2, 3):
        texts = [text(seed, k=k, order=order) for order in (1, 2, 3)]
        for order in (2, 3):
            assert chained(model, texts[order - 1], order) >= chained(model, texts[order - 2], order) - 1e-9
