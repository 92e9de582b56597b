"""Intervals: what they cover, what they follow from, and that both levels are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from decgraph.bench.bootstrap import ratio


def test_the_figure_is_a_geometric_mean_of_medians() -> None:
    found = ratio([[1.0, 2.0, 9.0], [8.0, 8.0, 8.0]])
    assert found.value == pytest.approx(4.0) and found.low <= found.value <= found.high


def test_the_interval_does_not_depend_on_which_side_is_the_numerator() -> None:
    pairs = np.exp(np.random.default_rng(3).normal(0.2, 0.3, (6, 5)))
    one, other = ratio(pairs.tolist()), ratio((1 / pairs).tolist())
    assert (1 / other.value, 1 / other.high, 1 / other.low) == pytest.approx((one.value, one.low, one.high))


@pytest.mark.parametrize("scale", [0.02, 0.2])
def test_it_covers_the_truth_about_as_often_as_it_says(scale: float) -> None:
    """Prompts whose true ratios are drawn around 1.5, with noise from round to round. A percentile interval of 12 prompts is a
    little short (about 92% where prompts differ); where noise is most of it, drawing prompts and rounds makes it too wide."""
    draws, covered = np.random.default_rng(5), 0
    for n in range(120):
        true = np.log(1.5) + draws.normal(0, scale, 12)
        pairs = np.exp(true[:, None] + draws.normal(0, 0.05, (12, 5)))
        found = ratio(pairs.tolist(), seed=n, resamples=400)
        covered += found.low <= 1.5 <= found.high
    assert 0.84 <= covered / 120 <= (0.99 if scale > 0.1 else 1)


def test_prompts_and_rounds_both_widen_it() -> None:
    draws = np.random.default_rng(0)
    between = np.exp(draws.normal(0, 0.4, (8, 1))) * np.ones((8, 6))
    within = np.exp(draws.normal(0, 0.4, (8, 6)))
    same = np.full((8, 6), 1.3)
    widths = [found.high - found.low for found in (ratio(t.tolist()) for t in (same, between, within))]
    assert widths[0] == pytest.approx(0) and widths[1] > 0.2 and widths[2] > 0.1


@pytest.mark.parametrize("n", [1, 2, 4, 5, 6])
def test_results_of_few_prompts_have_no_interval(n: int) -> None:
    found = ratio([[1.0, 1.5, 2.0, 1.2, 1.8]] * n).to_json()
    assert (found["value"], found["n"]) == (1.5, n)
    assert (found["low"] is None, found["high"] is None) == (n < 5, n < 5)


def test_prompts_may_have_different_numbers_of_rounds() -> None:
    """After Ctrl-C some have one round more; none of the values that stand in for missing ones may come out."""
    found = ratio([[2.0, 2.0, 2.0], [2.0]])
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_it_repeats_with_its_seed() -> None:
    pairs = np.exp(np.random.default_rng(1).normal(0, 0.3, (9, 5))).tolist()
    assert ratio(pairs, seed=4) == ratio(pairs, seed=4) != ratio(pairs, seed=5)
