"""Runs whose draws and coins come from a list of uniforms, one after the other, in the order in which a program asks.

A transcription that reads the same list in its authors' order draws the same, so sampled runs can be compared to the end. A
token is the first one whose cumulated probability passes the uniform, and a coin says yes where its odds are the uniform or
more; a coin whose odds are 1 or more or 0 reads none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np

from decgraph.backends.torch import noise as torch_noise
from decgraph.ir.data.dist import Draw


class Uniforms:
    """A list of uniforms without an end, read from its beginning."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def token(self, weights: Any) -> int:
        """A token drawn from weights, a vector or a list, which need not sum to one."""
        w = np.asarray([float(x) for x in weights], dtype=np.float64)
        return int(np.searchsorted(np.cumsum(w) / w.sum(), self.rng.random(), side="right"))

    def coin(self, odds: Any) -> bool:
        """Whether a coin of these odds says yes."""
        return bool(odds >= 1 or (odds > 0 and self.rng.random() <= float(odds)))


def handed(kind: Any, uniforms: Uniforms) -> Any:
    """A machine's class that reads its draws and coins from a list."""
    if hasattr(kind, "evaluate_together"):

        class OnTorch(kind):  # type: ignore[misc, valid-type]
            def flip(self, p: float, *place: Any) -> bool:
                return uniforms.coin(p)

        return OnTorch

    class OnReference(kind):  # type: ignore[misc]
        def draw(self, op: Any, row: Any, face: str, *place: Any) -> Draw:
            return Draw(uniforms.token(row.face(face)), row, face)

        def flip(self, op: Any, p: Any, *place: Any) -> bool:
            return uniforms.coin(p)

    return OnReference


@contextmanager
def draws(uniforms: Uniforms | None) -> Iterator[None]:
    """Torch's draws are races, which are patched while this holds; None: they are left alone."""

    def races(q: Any, keys: Any, *more: Any) -> Any:
        assert uniforms is not None
        return np.array([uniforms.token(row) for row in q])

    with nullcontext() if uniforms is None else patch.object(torch_noise, "races", races):
        yield
