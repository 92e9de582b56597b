"""A target's engine that also keeps the states entering some of its layers, for heads whose features are made of them.

The states are kept side by side with the last ones in one row, so that caching, moving and evicting stay as they are: such an
engine's rows are wider, and its read-out takes their beginning. EAGLE-3 (Li et al., 2025) and DFlash read targets like this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.step import NetStep, Tapped

if TYPE_CHECKING:
    from decgraph.runtime.models.decoder.net import Net


def tap(engine: CausalEngine, net: Net, layers: Sequence[int], whole: Callable[[], CausalEngine]) -> None:
    """The engine's rows hold the states entering these layers too from now on. Drops its cache unless they did before.

    whole: a fresh engine of all layers, for one that was split among models which share lower layers. The number of layers
    stands for the last states, which are there anyway.
    """
    wanted = tuple(sorted({*engine.taps, *layers} - {len(net.layers)}))
    if wanted == engine.taps:
        return
    like = whole() if engine.below is not None else engine
    plain = like.step.inner if isinstance(like.step, Tapped) else like.step
    head = engine.head if not engine.taps else engine.head.__wrapped__  # type: ignore[attr-defined]  # see `_beginning`
    width = engine.width
    assert isinstance(plain, NetStep), "a target's step is its decoder"
    engine.onto(None, Tapped(plain, wanted), replace(like.layout, width=width * (1 + len(wanted))))
    engine.taps, engine.width, engine.head = wanted, width, _beginning(head, width)


def columns(engine: CausalEngine, rows: Tensor, reads: Sequence[int] | None, layers: int) -> Tensor:
    """Of an engine's rows [n, ...] the states [n, k width] entering the layers `reads`, in that order; None: the last ones."""
    width = engine.width
    if reads is None:
        return rows[..., :width]
    places = [0 if n == layers else 1 + engine.taps.index(n) for n in reads]
    if places == list(range(places[0], places[0] + len(places))):
        return rows[..., width * places[0] : width * (places[-1] + 1)]
    return torch.cat([rows[..., width * place : width * (place + 1)] for place in places], dim=-1)


def _beginning(head: Callable[[Tensor], Tensor], width: int) -> Callable[[Tensor], Tensor]:
    """A read-out of rows that hold more than last states."""

    def read(rows: Tensor) -> Tensor:
        return head(rows[..., :width])

    read.__wrapped__ = head  # type: ignore[attr-defined]
    return read
