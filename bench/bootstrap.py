"""Intervals of speed ratios: a bootstrap over prompts and, within each prompt, over rounds.

A prompt's ratio is the median over the rounds of the ratio of the two times that were taken one after the other (paired); the
figure is the geometric mean of the prompts' ratios. The interval is the 95% percentile interval of that figure when the prompts
are drawn again with replacement and, of each prompt drawn, its rounds. Noise from round to round is part of what differs
between prompts already, so drawing both makes the interval wider than it need be where prompts hardly differ, and never
shorter. Of fewer prompts than `FEWEST` it would be little else than their least and largest ratio, whatever other prompts would
give: results have none then.

Efron, Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 (two-level data) and 13 (percentile intervals).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

METHOD = (
    "geometric mean over prompts of each prompt's median over rounds of paired ratios; 95% percentile bootstrap over prompts "
    "and, within them, rounds"
)
FEWEST = 5
"""Prompts that an interval is given of."""
RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class ConfidenceInterval:
    """A figure of n prompts between its lower and upper bound."""

    value: float
    low: float
    high: float
    n: int

    def to_json(self) -> dict[str, float | None]:
        """Rounded to four digits; the bounds are null for too few prompts."""
        rounded = {name: float(f"{value:.4g}") for name, value in vars(self).items()}
        return {**rounded, "n": self.n, **({} if self.n >= FEWEST else {"low": None, "high": None})}


def figure(pairs: Sequence[Sequence[float]]) -> float:
    """The figure without its interval; 1 of no prompts.

    >>> figure([[2.0, 2.0, 2.0], [8.0, 8.0]])
    4.0
    """
    return float(np.exp(np.mean([np.log(np.median(rounds)) for rounds in pairs]))) if pairs else 1.0


def surely_above(pairs: Sequence[Sequence[float]], least: float, chances: int = 1) -> bool:
    """Whether the interval lies above `least`, at a level at which so many chances to look so by accident count as one; of
    fewer prompts than an interval is given of, Student's of their medians does, which is longer."""
    if not pairs or ratio(pairs, level=1 - (1 - LEVEL) / chances).low <= least:
        return False
    n, logs = len(pairs), np.log([np.median(rounds) for rounds in pairs])
    if n == 1 or n >= FEWEST:
        return True
    z, free = NormalDist().inv_cdf(1 - (1 - LEVEL) / chances / 2), n - 1
    z += (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)  # Student's quantile, nearly
    return bool(logs.mean() - z * logs.std(ddof=1) / n**0.5 > np.log(least))


def ratio(
    pairs: Sequence[Sequence[float]], *, seed: int = 0, resamples: int = RESAMPLES, level: float = LEVEL
) -> ConfidenceInterval:
    """The figure and its interval. pairs: by prompt, the ratio of the two times in each round; prompts may have different
    numbers of rounds, each at least one.

    >>> ratio([[2.0, 2.0, 2.0], [8.0, 8.0]]).value
    4.0
    """
    most = max(map(len, pairs))
    counts = np.array([len(rounds) for rounds in pairs])
    table = np.full((len(pairs), most), np.nan)
    for row, rounds in zip(table, pairs, strict=True):
        row[: len(rounds)] = rounds
    draws = np.random.default_rng(seed)
    chosen = draws.integers(len(pairs), size=(resamples, len(pairs)))
    rounds = (draws.random((resamples, len(pairs), most)) * counts[chosen][..., None]).astype(int)
    values = table[chosen[..., None], rounds]
    values[np.arange(most) >= counts[chosen][..., None]] = np.nan  # as many draws as the prompt has rounds
    drawn = np.exp(np.log(np.nanmedian(values, axis=-1)).mean(axis=-1))
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return ConfidenceInterval(figure(pairs), float(low), float(high), len(pairs))
