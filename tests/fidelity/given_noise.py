"""Noise handed over: the draws of a run read a stream of uniforms in the order in which they are made, and a transcription
reads the same stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from decgraph.backends.reference.machine import ReferenceMachine as OfReference
from decgraph.backends.torch import noise as of_torch
from decgraph.backends.torch.machine import TorchMachine as OfTorch
from decgraph.runtime import noise
from lab.recordings.tables import Stream


@contextmanager
def given(seed: int | Stream) -> Iterator[None]:
    """Every draw of a run reads this stream, or the one of a seed."""
    stream = seed if isinstance(seed, Stream) else Stream(seed)

    def many(keys: Sequence[Any], n: int) -> Any:
        return np.stack([stream.waits(k, n) for k in keys])

    def of_torch_flip(self: Any, p: Any, *where: Any) -> bool:
        return stream.flip(float(p))

    def of_reference_flip(self: Any, op: Any, p: Any, *where: Any) -> bool:
        return stream.flip(float(p))

    def beta(self: Any, op: Any, a: Any, b: Any, key: Any) -> float:
        return stream.beta(float(a), float(b))

    with (
        mock.patch.object(OfReference, "beta", beta),
        mock.patch.object(OfTorch, "beta", beta),
        mock.patch.object(OfReference, "flip", of_reference_flip),
        mock.patch.object(OfTorch, "flip", of_torch_flip),
        mock.patch.object(noise, "exponentials", stream.waits),
        mock.patch.object(noise, "unit", stream.coin),
        mock.patch.object(of_torch, "exponentials", many),
        mock.patch.object(of_torch, "unit", stream.coin),
    ):
        yield
