"""Lossy samplers over the likeliest candidates, against their definition searched without their shortcuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from lib.stdlib.letters import Letters
from lib.stdlib.table_models import V, module, session, tables

from decgraph.backends.registry import machine
from decgraph.runtime import noise
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

SEEDS = range(3)


def row(model: Model, path: Sequence[int]) -> np.ndarray:
    weights = np.array([float(w) for w in model.eval([tuple(path)])[0].weights])
    return weights / weights.sum()


def nearest(p: np.ndarray, k: int, alpha: float) -> np.ndarray:
    """Of the distributions on the k likeliest tokens the one of the smallest divergence from p."""
    kept = np.zeros(len(p), bool)
    kept[np.argsort(-p, kind="stable")[:k]] = True
    low, high = 0.0, 1.0
    for _ in range(60):
        nu = (low + high) / 2
        q = np.where(kept, (p ** (alpha - 1) + nu) ** (1 / (alpha - 1)), 0)
        low, high = (low, nu) if q.sum() > 1 else (nu, high)
    return q / q.sum()


def divergence(q: np.ndarray, p: np.ndarray, alpha: float) -> float:
    def phi(x: np.ndarray) -> np.ndarray:
        return x**alpha / (alpha * (alpha - 1))

    return float(np.sum(phi(q) - phi(p) - p ** (alpha - 1) / (alpha - 1) * (q - p)))


@pytest.mark.parametrize(("alpha", "price"), [(1.5, 0.02), (2.0, 0.01), (3.0, 0.003), (1.2, 0.1)])
def test_bregman_topk_is_the_cheapest_sparse_decoding(alpha: float, price: float) -> None:
    sizes = set()
    for seed in SEEDS:
        models = tables(seed)
        tokens = session("bregman_topk", models, {"alpha": alpha, "price": price})(seed=seed).tokens
        for i, token in enumerate(tokens):
            p = row(models["target"], (0, 1, *tokens[:i]))
            found = [nearest(p, k, alpha) for k in range(1, V + 1)]
            costs = [divergence(q, p, alpha) + price * (k + 1) for k, q in enumerate(found)]
            times = noise.exponentials(noise.output_key(seed, 0, 2 + i), V)
            assert token == noise.race(found[int(np.argmin(costs))], times)
            sizes.add(int(np.argmin(costs)))
    assert len(sizes) > 1


def test_bregman_topk_without_a_price_and_with_a_high_one() -> None:
    for seed in SEEDS:
        models = tables(seed)
        target = session("autoregressive", models)
        for price, temperature in ((0.0, 1), (1.0, 0)):
            assert (
                session("bregman_topk", models, {"price": price})(seed=seed).tokens
                == target(seed=seed, temperature=temperature).tokens
            )


def foreseen(seed: int, alike: Any, temperature: int = 1, **params: Any) -> Result:
    bound = Session(
        module("phi_decoding"),
        {"target": tables(seed)["target"]},
        {"n": 3, "reach": 3, "ahead": 3, **params},
        machine=machine("reference"),
        tokenizer=Letters(["a", "b", "c", "\n"]),
        externs={"alike": alike},
    )
    result = bound.run(Request(prompt=(0, 1), max_tokens=12, seed=seed, temperature=temperature))
    assert result.error is None, result.error
    return result


def test_phi_decoding_of_a_greedy_request_is_the_target_and_it_ends_where_foresights_agree() -> None:
    for seed in SEEDS:
        greedy = session("autoregressive", tables(seed))(seed=seed, temperature=0).tokens
        assert foreseen(seed, lambda a, b: a == b, temperature=0).tokens == greedy
        apart, together = foreseen(seed, lambda a, b: a == b, sure=1.0), foreseen(seed, lambda a, b: True, sure=1.0)
        assert together.stats.target_calls < apart.stats.target_calls


def test_phi_decoding_goes_on_where_the_mark_is_empty() -> None:
    """A step is complete before it begins there, so that there is none to choose."""
    greedy = session("autoregressive", tables(1))(seed=1, temperature=0).tokens
    assert foreseen(1, lambda a, b: a == b, temperature=0, mark="").tokens == greedy
