"""A model's decoder with its read-out. The reference runs it over new positions on top of cached rows (a tape); engines run it
over caches; derived models (exits, skipped layers, quantised matrices) are nets with another decoder."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import Tensor, nn

from decgraph.runtime.models.decoder.decoder import Cache, Rotation, TransformerDecoder
from decgraph.runtime.models.decoder.shape import Layer
from decgraph.runtime.models.parts import LayerUse
from decgraph.runtime.models.tape import Tape
from decgraph.runtime.native.products import output_of

if TYPE_CHECKING:
    from decgraph.runtime.models.decoder.module import ModuleDecoder


class _Matrix(Protocol):
    """A read-out that has a matrix [vocabulary, width]."""

    weight: Tensor


class Net:
    """A model's decoder and its config (config.json's, as a dictionary). base: the module of transformers that it was made of,
    where there is one. read: a function from last states to logits, where the decoder has no output matrix."""

    def __init__(
        self,
        decoder: TransformerDecoder | ModuleDecoder,
        config: Mapping[str, object],
        *,
        base: nn.Module | None = None,
        read: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.decoder, self.config, self.base, self._read = decoder, config, base, read
        self.layers = list(range(decoder.layers))  # the same list for models of the same weights
        self._eager: _Eager | ModuleDecoder = _Eager(decoder) if isinstance(decoder, TransformerDecoder) else decoder

    @property
    def output(self) -> Tensor:
        """The output matrix [vocabulary, width]."""
        if isinstance(self.decoder, TransformerDecoder) and self._read is None:
            (whole,) = self.decoder.products["out"].dequantised()
            return whole
        assert self._read is not None, "what reads out is the module's, where the decoder does not"
        return cast("_Matrix", self._read).weight

    def parameters(self) -> Iterator[Tensor]:
        """The weights [...]."""
        if not isinstance(self.decoder, TransformerDecoder):
            yield from self.decoder.base.parameters()
            return
        yield from self.decoder.weights.values()
        for product in self.decoder.products.values():
            yield from product.weights

    @torch.no_grad()
    def run(self, cells: Tensor, tape: Tape) -> Tensor:
        """The last hidden states [fresh, width], after the final norm, of fresh positions: token ids int64[fresh] or embeddings
        [fresh, width]. Fills in the tape."""
        last: Tensor = self._eager.run(cells, tape)
        return last

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        """Logits float64[n, vocabulary] of last hidden states [n, width]."""
        return self.head(states).double()

    def scores(self, ids: Tensor, *, causal: bool) -> Tensor:
        """Logits float64[n, vocabulary] of one text int64[n], without a cache. causal: no position attends to a later one."""
        at, count = ids.device, len(ids)
        seen = torch.ones(count, count, dtype=torch.bool, device=at)
        return self.logits(self.run(ids, Tape(torch.arange(count, device=at), seen.tril() if causal else seen)))

    @property
    def head(self) -> Callable[[Tensor], Tensor]:
        """Last states [n, width] to logits [n, vocabulary], for engines."""
        if self._read is not None:
            return output_of(self._read) if isinstance(self._read, nn.Module) else self._read
        return self.decoder.logits  # type: ignore[union-attr]

    @property
    def read(self) -> Callable[[Tensor], Tensor]:
        """Last states [..., width] to logits [..., vocabulary], in the weights' dtype: a linear module where it is no more."""
        if self._read is not None:
            return self._read
        assert isinstance(self.decoder, TransformerDecoder), "a module's decoder has a read-out beside it"
        shape, product = self.decoder.shape, self.decoder.products["out"]
        if shape.logit_scale != 1.0 or shape.logit_cap is not None or len(product.weights) != 1:  # none: in blocks
            return self.decoder.logits
        made = nn.Linear(1, 1, device="meta")
        made.weight = nn.Parameter(product.matrix, requires_grad=False)
        bias = None if product.biases[0] is None else nn.Parameter(product.biases[0], requires_grad=False)
        made.register_parameter("bias", bias)
        made.out_features, made.in_features = product.matrix.shape
        return made

    @torch.no_grad()
    def normed(self, states: Tensor) -> Tensor:
        """The final norm of states [n, width] that have not been through it. Raises DecError for a model without one."""
        return self.decoder.final(states)

    def using(self, uses: Sequence[LayerUse | int]) -> Net:
        """The same weights with only these layers, or parts of layers."""
        return self._with(self.decoder.using([use if isinstance(use, LayerUse) else LayerUse(use) for use in uses]))

    def without_norm(self) -> Net:
        """The same layers, without the final norm."""
        return self._with(self.decoder.without_norm())

    def quantized(self, bits: int) -> Net:
        """The same layers with their matrices rounded to so many bits, row by row."""
        return self._copied(self.decoder.quantized(bits))

    def in_blocks(self, precision: str) -> Net:
        """The same layers with their matrices in blocks of 8 or 4 bits (runtime/native/blocks.py): "int8" or "int4"."""
        from decgraph.runtime.native.blocks import in_blocks

        assert isinstance(self.decoder, TransformerDecoder)
        return self._copied(in_blocks(self.decoder, precision))

    def expert(self, rank: int, name: str) -> Net:
        """The same layers with mixtures whose tokens all go to the expert of this rank alone. Raises DecError for a model
        without mixtures, and for a rank that they do not have."""
        return self._copied(self.decoder.expert(rank, name))

    def _with(self, decoder: TransformerDecoder | ModuleDecoder) -> Net:
        made = copy.copy(self)
        made.decoder, made._eager = decoder, _Eager(decoder) if isinstance(decoder, TransformerDecoder) else decoder
        return made

    def _copied(self, decoder: TransformerDecoder | ModuleDecoder) -> Net:
        made = self._with(decoder)
        made.layers = list(self.layers)
        return made


class _Eager(TransformerDecoder):
    """A decoder that attends to the rows of a tape: one sequence, weights in float32."""

    def __init__(self, whole: TransformerDecoder) -> None:
        super().__init__(whole.shape, whole.weights, whole.products, whole.ropes, whole.part)

    def run(self, cells: Tensor, tape: Tape) -> Tensor:
        at = tape.positions[None]
        given = cells.is_floating_point()
        x = self.placed(cells, at) if given else self.embedded(cells[None], at)
        blank = torch.empty(0)
        count = len(self.kinds)
        masks: dict[str | int, Tensor | None] = dict.fromkeys(self.kinds)
        self._tape = tape
        last = self._layers(x, (1, len(cells)), self.rotations(at), blank, [blank] * count, [blank] * count, masks)
        return last[0]

    def _layer(
        self,
        n: int,
        layer: Layer,
        x: Tensor,
        read: Tensor,
        size: tuple[int, int],
        rotation: Rotation | None,
        cache: Cache | None,
        *,
        mlp: bool = True,
    ) -> Tensor:
        self._tape.states[n] = x
        return super()._layer(n, layer, x, read, size, rotation, cache, mlp=mlp)

    def _attended(
        self, n: int, layer: Layer, x: Tensor, size: tuple[int, int], rotation: Rotation | None, cache: Cache
    ) -> Tensor:
        query, key, value = (part[0] for part in self._heads(f"{n}.", x, size, rotation))  # [fresh, heads, D]
        scale, cap, sinks = layer.scale or self._scale, self.shape.cap, self.weights.get(f"{n}.sinks")
        made = self._tape.attend(n, query, key, value, scale=scale, window=layer.window, cap=cap, sinks=sinks)
        return made.reshape(len(x), -1)
