"""The step of an engine: the forward that it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.decoder import Masks, Out

if TYPE_CHECKING:
    from decgraph.runtime.models.decoder.states import Work


class ForwardStep(Protocol):
    """A forward that an engine runs: a decoder, one that also gives states of inner layers, or a head's layers."""

    def __call__(
        self,
        inputs: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Masks,
        /,
    ) -> Out:
        """See `TransformerDecoder`."""
        ...


@runtime_checkable
class NetStep(ForwardStep, Protocol):
    """A model's layers as a step: a decoder, or a module of transformers."""

    def looked_up(self, ids: Tensor) -> Tensor:
        """The embeddings [n, width] of tokens int64[n]."""
        ...

    def placed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Embeddings [n, width] of positions int64[B, T] as they enter the first layer."""
        ...

    def above(self) -> NetStep:
        """See `TransformerDecoder`."""
        ...

    def tapped(self, *layers: int) -> NetStep:
        """See `TransformerDecoder`."""
        ...


class Tapped:
    """A step that gives, side by side with the last states, those entering some layers."""

    def __init__(self, inner: NetStep, layers: tuple[int, ...]) -> None:
        self.inner, self.layers = inner, layers
        self._tapped: Callable[..., Out] = inner.tapped(*layers)  # of a hybrid decoder with works, see `HybridDecoder`

    def above(self) -> Tapped:
        """The same step, called with the states that enter the first layer."""
        return Tapped(self.inner.above(), self.layers)

    def __call__(
        self,
        inputs: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Masks,
        *works: Sequence[Work],
    ) -> Tensor:
        """See `TransformerDecoder`: [B, T, width of all]."""
        last, tapped = self._tapped(inputs, positions, write, keys, values, masks, *works)
        return torch.cat([last, *tapped], dim=-1)
