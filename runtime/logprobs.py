"""Log-probabilities of committed tokens by the main model's own distributions: no temperature, penalty or constraint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

ROWS = 64
"""The most rows of logits in memory at a time: 64 rows of 150,000 tokens take 38 MB in float32."""


@dataclass(frozen=True)
class Logprobs:
    """The log-probabilities that `Request.logprobs` requests. tokens: the natural logarithm of each committed token's
    probability. top: for each committed token the likeliest tokens at its place, the likeliest first. ranks: for each one, one
    more than the number of likelier tokens. `Request.prompt_logprobs` has the same for the prompt's tokens after the first."""

    tokens: tuple[float, ...]
    top: tuple[dict[int, float], ...]
    ranks: tuple[int, ...] = ()


def logprobs_of(parts: Iterable[np.ndarray], tokens: Sequence[int], top: int) -> Logprobs:
    """The log-probabilities of tokens, given logits [n, V] in parts, a row before each token (-inf where a token has no mass).

    Of equally likely tokens the lower comes first, as in shaping.
    """
    chosen: list[float] = []
    best: list[dict[int, float]] = []
    ranks: list[int] = []
    for logits in parts:
        rows = logits.astype(np.float64)
        peaks = rows.max(axis=-1, keepdims=True)
        rows -= peaks + np.log(np.exp(rows - peaks).sum(axis=-1, keepdims=True))
        for row in rows:
            chosen.append(float(row[tokens[len(chosen)]]))
            ranks.append(1 + int((row > chosen[-1]).sum()))
            best.append({int(t): float(row[t]) for t in _likeliest(row, top)} if top else {})
    return Logprobs(tuple(chosen), tuple(best), tuple(ranks))


def _likeliest(row: np.ndarray, count: int) -> np.ndarray:
    """The `count` likeliest tokens int64[count] of a row, in order."""
    count = min(count, len(row))
    least = np.partition(row, len(row) - count)[len(row) - count]
    near = np.flatnonzero(row >= least)
    return near[np.argsort(-row[near], kind="stable")][:count]
