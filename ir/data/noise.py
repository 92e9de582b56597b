"""The key of noise: which of a request's streams of random numbers an op reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NoiseKey:
    """Which noise: a site with its loop counters, or the `output` stream at an index (None: the row's own position)."""

    site: str
    counters: tuple[int, ...]
    kind: str = "race"
    index: int | np.ndarray | Sequence[int] | None = None
