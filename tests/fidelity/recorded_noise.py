"""Recorded noise in the place of ours: what a draw's key is at, and the uniforms that were recorded there.

A key says which draw it is of: its site, the turns of the loops around it, its lane among the draws there. While `given` holds,
machines of `watching` make keys that carry their uniforms, and the functions that turn keys into noise hand those out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from decgraph.backends.torch import noise as of_torch
from decgraph.runtime import noise

Uniforms = Callable[["Recorded", int], Any]
"""From a key and how many numbers are read there to float64[n]."""


@dataclass(frozen=True)
class Recorded(noise.Key):
    """A key with where it stands in the recording: the number of the last model call, its canvas, and what it computed."""

    call: int = 0
    cells: tuple[int, ...] = ()
    computed: tuple[int, ...] = ()
    source: Uniforms | None = None

    def uniforms(self, n: int) -> Any:
        assert self.source is not None
        found = np.asarray(self.source(self, n), dtype=np.float64)
        assert found.shape == (n,)
        return found


def at(key: noise.Key, call: int, cells: tuple[int, ...], computed: tuple[int, ...], source: Uniforms) -> Recorded:
    """A machine's key as one that reads the recording."""
    return Recorded(key.seed, key.request, key.site, key.counters, key.lane, call, cells, computed, source)


def waits(key: Any, n: int) -> Any:
    return -np.log(key.uniforms(n))


def many(keys: Sequence[Any], n: int) -> Any:
    return np.stack([waits(k, n) for k in keys])


def coin(key: Any) -> float:
    return float(key.uniforms(1)[0])


@contextmanager
def given() -> Iterator[None]:
    """Keys that carry recorded noise are read as such; there must be no others."""
    with (
        mock.patch.object(noise, "exponentials", waits),
        mock.patch.object(noise, "unit", coin),
        mock.patch.object(of_torch, "exponentials", many),
        mock.patch.object(of_torch, "unit", coin),
    ):
        yield
