"""A target's engine that also keeps the states entering some of its layers, for heads whose features are made of them.

The states are kept side by side with the last ones in one row, so that caching, moving and evicting stay as they are: such an
engine's rows are wider, and its read-out takes their beginning. EAGLE-3 (Li et al., 2025) and DFlash read targets like this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.decoder import Decoder
from decgraph.runtime.models.engine.causal import CausalEngine

if TYPE_CHECKING:
    from decgraph.runtime.models.hf_causal import AnyNet


def tap(engine: CausalEngine, net: AnyNet, layers: Sequence[int], whole: Callable[[], CausalEngine]) -> None:
    """From now on the engine's rows hold the states entering these layers too. Drops its cache where that is news.

    whole: a fresh engine of all layers, for one that was split among models which share lower layers. The number of layers
    stands for the last states, which are there anyway.
    """
    wanted = tuple(sorted({*engine.taps, *layers} - {len(net.layers)}))
    if wanted == engine.taps:
        return
    like = whole() if engine.below is not None else engine
    plain = like.step.inner if isinstance(like.step, _Tapped) else like.step
    head = engine.head if not engine.taps else engine.head.__wrapped__  # type: ignore[attr-defined]  # see `_beginning`
    width = engine.width
    if engine.plain is not None:  # what reads embeddings records them, too
        module = engine.plain.inner if isinstance(engine.plain, _Tapped) else engine.plain
        engine.plain = _Tapped(module, net, wanted)
    engine.onto(None, _Tapped(plain, net, wanted), replace(like.layout, width=width * (1 + len(wanted))))
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


class _Tapped:
    """A step that gives, side by side with the last states, those entering some layers."""

    def __init__(self, inner: Any, net: AnyNet, layers: tuple[int, ...]) -> None:  # Any: a `Step`
        self.inner, self.net, self.layers = inner, net, layers
        self.base = getattr(inner, "base", None)
        self._decoder = inner.tapped(*layers) if isinstance(inner, Decoder) else None

    def above(self) -> _Tapped:
        """The same step, called with the states that enter the first layer."""
        return _Tapped(self.inner.above(), self.net, self.layers)

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Mapping[str, Tensor],
    ) -> Tensor:
        if self._decoder is not None:
            last, tapped = self._decoder(ids, positions, write, keys, values, masks)
            return torch.cat([last, *tapped], dim=-1)
        seen: dict[int, Tensor] = {}

        def record(layer: int) -> Any:  # Any: what register_forward_pre_hook takes
            def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                seen[layer] = args[0] if args else kwargs["hidden_states"]

            return hook

        layers: Any = self.net.layers  # of a module: its own
        handles = [layers[n].register_forward_pre_hook(record(n), with_kwargs=True) for n in self.layers]
        try:
            last = self.inner(ids, positions, write, keys, values, masks)
        finally:
            for handle in handles:
                handle.remove()
        return torch.cat([last, *(seen[n] for n in self.layers)], dim=-1)
