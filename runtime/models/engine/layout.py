"""What a step of an engine is, the layout of the caches that it reads and writes, and masks of tokens in a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.decoder import Masks, Out

if TYPE_CHECKING:
    from decgraph.runtime.models.decoder.states import Work


class ForwardStep(Protocol):
    """What an engine runs: a decoder, one that also gives states of inner layers, or a head's layers."""

    def __call__(
        self,
        given: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Masks,
        /,
    ) -> Out:
        """See `Decoder`."""
        ...


@runtime_checkable
class NetStep(ForwardStep, Protocol):
    """A model's layers as a step: a decoder, or a module of transformers."""

    @property
    def lookup(self) -> Callable[[Tensor], Tensor]:
        """From tokens int64[n] to their embeddings [n, width]."""
        ...

    def placed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Embeddings [n, width] of positions int64[B, T] as they enter the first layer."""
        ...

    def above(self) -> NetStep:
        """See `Decoder`."""
        ...

    def tapped(self, *layers: int) -> NetStep:
        """See `Decoder`."""
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
        given: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Masks,
        *works: Sequence[Work],
    ) -> Tensor:
        """See `Decoder`: [B, T, width of all]."""
        last, tapped = self._tapped(given, positions, write, keys, values, masks, *works)
        return torch.cat([last, *tapped], dim=-1)


FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class Layout:
    """The cache layout of a module: per layer the heads and the sizes of keys and values; its layers' types in order,
    the window of sliding ones, the width of its last states, their dtype and device."""

    shapes: tuple[tuple[int, int, int], ...]
    types: tuple[str, ...]
    window: int | None
    width: int
    dtype: torch.dtype
    device: torch.device

    def zeros(self, *shape: int) -> Tensor:
        """Zeros of this dtype on this device."""
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    @property
    def cell_bytes(self) -> int:
        """Bytes of one token in a cache: keys, values and its last state."""
        kept = sum(heads * (keys + values) for heads, keys, values in self.shapes)
        return int((kept + self.width) * self.dtype.itemsize)


# Masks of a few tokens in a row, each of which attends to all rows before its own: views of one table. Comparing, broadcasting
# and converting would make four tensors a call, and a small drafter's whole step makes seventy. A table is `shown` where column
# <= row + reach. Its part [count, length] from column reach - first on is the mask of tokens at positions first, first + 1, ...
# over the cache rows 0 .. length - 1.

MOST = 64  # tokens


class StraightMasks:
    """Masks by layer type; see the module. Numbers to add to scores, 0 or the dtype's lowest, in the layout's dtype."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._reach = 0
        self._tables: dict[str, Tensor] = {}

    def of(self, first: int, count: int, length: int) -> dict[str | int, Tensor]:
        """Masks [1, 1, count, length] for `count` <= MOST tokens from position `first` on, whose rows are their positions,
        over `length` rows; on a GPU copies, since its attention kernels read masks in aligned words of 16 bytes."""
        if max(first, length) > self._reach:
            self._grow(max(first, length))
        start = self._reach - first
        views: dict[str | int, Tensor] = {}
        for kind, table in self._tables.items():  # a comprehension would be a call for each token
            views[kind] = table.narrow(2, 0, count).narrow(3, start, length)
        if self.layout.device.type == "cpu":
            return views
        return {kind: view.clone(memory_format=torch.contiguous_format) for kind, view in views.items()}

    def _grow(self, wanted: int) -> None:
        reach = max(self._reach, 256)
        while reach < wanted:
            reach *= 2
        device, dtype, window = self.layout.device, self.layout.dtype, self.layout.window
        columns = torch.arange(2 * reach, device=device) - reach
        ahead = columns - torch.arange(MOST, device=device)[:, None]
        kinds = {FULL: ahead <= 0}
        if window is not None:
            kinds[SLIDING] = kinds[FULL] & (ahead > -window)
        shown, hidden = (torch.tensor(n, dtype=dtype, device=device) for n in (0.0, torch.finfo(dtype).min))
        self._tables = {kind: torch.where(seen, shown, hidden)[None, None] for kind, seen in kinds.items()}
        self._reach = reach
