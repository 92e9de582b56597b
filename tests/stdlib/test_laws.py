"""What refines autoregressive in distribution has its law: short texts, counted over fixed seeds."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from lib.stdlib.table_models import V, claim_of, refining, run, tables

IN_LAW = refining("distribution")
RUNS, LENGTH = 400, 3


def law(weights: tuple[int, ...], models: dict, length: int) -> dict[tuple[int, ...], float]:
    """The probability of every text of `length` tokens after a prompt, from the target's table."""
    if length == 0:
        return {(): 1.0}
    row = models["target"].eval([weights])[0].weights
    return {(v, *rest): float(row[v]) * p for v in range(V) for rest, p in law((*weights, v), models, length - 1).items()}


def p_value(counts: Counter, expected: dict[tuple[int, ...], float], n: int) -> float:
    """Of Pearson's chi-square, cells that expect fewer than five in one; by Wilson and Hilferty's cube root."""
    cells: list[tuple[float, float]] = []
    rare = [0.0, 0.0]
    for text, p in expected.items():
        if n * p >= 5:
            cells.append((counts[text], n * p))
        else:
            rare = [rare[0] + counts[text], rare[1] + n * p]
    if rare[1]:
        cells.append((rare[0], rare[1]))
    chi = sum((seen - want) ** 2 / want for seen, want in cells)
    k = len(cells) - 1
    z = ((chi / k) ** (1 / 3) - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k))
    return 0.5 * math.erfc(z / math.sqrt(2))


@pytest.mark.quick("eesd")
@pytest.mark.parametrize("name", IN_LAW)
def test_law_of_the_first_tokens(name: str) -> None:
    models, prompt = tables(11), (2, 0)
    texts = Counter(run(name, models, prompt=prompt, seed=seed, max_tokens=LENGTH).tokens for seed in range(RUNS))
    expected = law(prompt, models, LENGTH)
    assert set(texts) <= {text for text, p in expected.items() if p > 0}
    assert p_value(texts, expected, RUNS) > 1e-4


def test_the_counting_sees_a_wrong_law() -> None:
    """Drafts accepted without a test follow the drafter's law, and the count says so."""
    models = tables(11)
    wrong = {**models, "target": models["drafter"]}
    texts = Counter(run("autoregressive", wrong, prompt=(2, 0), seed=seed, max_tokens=LENGTH).tokens for seed in range(RUNS))
    assert p_value(texts, law((2, 0), models, LENGTH), RUNS) < 1e-9


def test_which_refine_in_distribution() -> None:
    assert all(claim_of(name, "distribution") for name in IN_LAW)
    assert {"speculative", "recursive_sd", "rsd_s", "sequoia", "pearl", "speculative_jacobi", "eesd"} <= set(IN_LAW)
