"""A decoder as a function of (fresh positions, cached rows), as `hf_net.Net` is one of a module: the reference's forward, and
what derived models (exits, skipped layers, quantised matrices) are made of."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.decoder import Decoder, Turn
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.decoder.shape import Layer
from decgraph.runtime.models.parts import Use
from decgraph.runtime.models.rounding import rounded
from decgraph.runtime.models.tape import Tape


class DecoderNet:
    """A model's decoder, with its settings (config.json's, as a dictionary). See `Net`, whose place it takes for the families
    that the decoder knows."""

    def __init__(self, decoder: Decoder, config: Mapping[str, Any]) -> None:
        self.decoder, self.config = decoder, config
        self.layers = list(range(decoder.layers))  # the same list for models of the same weights
        self._eager = _Eager(decoder)

    @property
    def uses(self) -> tuple[Use, ...]:
        """The layers, or halves of layers, that run."""
        return self.decoder.uses

    @property
    def width(self) -> int:
        """The size of a hidden state."""
        return self.decoder.width

    @property
    def device(self) -> torch.device:
        """Where the weights lie, and so what is computed."""
        return self.decoder.device

    @property
    def embedding(self) -> Tensor:
        """The input embeddings [vocabulary, width]. Of a table in blocks these are made anew by each call."""
        if "embed" in self.decoder.products:
            return self.decoder.products["embed"].dequantised()[0]
        return self.decoder.weights["embed"]

    @property
    def output(self) -> Tensor:
        """The output matrix [vocabulary, width]."""
        (whole,) = self.decoder.products["out"].dequantised()
        return whole

    def parameters(self) -> Iterator[Tensor]:
        """The weights [...]."""
        yield from self.decoder.weights.values()
        for product in self.decoder.products.values():
            yield from product.weights

    @property
    def lookup(self) -> Lookup:
        """Embeddings of tokens."""
        return Lookup(self.decoder)

    @torch.no_grad()
    def run(self, cells: Tensor, tape: Tape) -> Tensor:
        """The last hidden states [fresh, width], after the final norm, of fresh positions: token ids int64[fresh] or embeddings
        [fresh, width]. Fills in the tape."""
        return self._eager.run(cells, tape)

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        """Logits float64[n, vocabulary] of last hidden states [n, width]."""
        return self.decoder.logits(states).double()

    @property
    def head(self) -> Callable[[Tensor], Tensor]:
        """Last states [n, width] to logits [n, vocabulary], for engines."""
        return self.decoder.logits

    @property
    def read(self) -> Callable[[Tensor], Tensor]:
        """Last states [..., width] to logits [..., vocabulary], in the weights' dtype: a linear module where it is no more."""
        shape, product = self.decoder.shape, self.decoder.products["out"]
        if shape.logit_scale != 1.0 or shape.logit_cap is not None or len(product.weights) != 1:  # none: in blocks
            return self.decoder.logits
        made = nn.Linear(1, 1, device="meta")
        made.weight = nn.Parameter(product.matrix, requires_grad=False)
        made.bias = None if product.biases[0] is None else nn.Parameter(product.biases[0], requires_grad=False)
        made.out_features, made.in_features = product.matrix.shape
        return made

    @torch.no_grad()
    def normed(self, states: Tensor) -> Tensor:
        """The final norm of states [n, width] that have not been through it."""
        return self.decoder.final(states)

    def using(self, uses: Sequence[Use | int]) -> DecoderNet:
        """The same weights with only these layers, or parts of layers."""
        return self._with(self.decoder.using([use if isinstance(use, Use) else Use(use) for use in uses]))

    def without_norm(self) -> DecoderNet:
        """The same layers, whose last states have not been through the final norm."""
        return self._with(self.decoder.without_norm())

    def quantized(self, bits: int) -> DecoderNet:
        """The same layers with their matrices rounded to so many bits, row by row."""
        products = dict(self.decoder.products)
        weights = dict(self.decoder.weights)
        for name, product in products.items():
            if name not in ("out", "embed"):
                products[name] = Product(*(rounded(w, bits) for w in product.dequantised()), biases=product.biases)
        return self._copied(self.decoder.copied(weights=weights, products=products))

    def in_blocks(self, precision: str) -> DecoderNet:
        """The same layers with their matrices in blocks of 8 or 4 bits (runtime/native/blocks.py): "int8" or "int4"."""
        from decgraph.runtime.native.blocks import in_blocks

        return self._copied(in_blocks(self.decoder, precision))

    def expert(self, rank: int, name: str) -> DecoderNet:
        """The same layers with mixtures whose tokens all go to the expert of this rank alone. Raises DecError for a model
        without mixtures, and for a rank that they do not have."""
        count = min((layer.experts.count for layer in self.decoder.shape.layers if layer.experts is not None), default=0)
        if not count:
            raise DecError(
                f"{name!r} has no expert({rank}): none of its layers is a mixture of experts that decgraph knows",
                hint="Mixtral, Qwen-MoE, OLMoE and their like have a router for each layer",
            )
        if not 1 <= rank <= count:
            raise DecError(f"{name!r} has no expert({rank}): a router has {count} experts", hint=f"a rank in 1..{count}")
        layers = tuple(
            layer
            if layer.experts is None
            else replace(layer, experts=replace(layer.experts, rank=rank, top=max(rank, layer.experts.top)))
            for layer in self.decoder.shape.layers
        )
        return self._copied(self.decoder.copied(shape=replace(self.decoder.shape, layers=layers)))

    def _with(self, decoder: Decoder) -> DecoderNet:
        made = copy.copy(self)
        made.decoder, made._eager = decoder, _Eager(decoder)
        return made

    def _copied(self, decoder: Decoder) -> DecoderNet:
        made = self._with(decoder)
        made.layers = list(self.layers)
        return made


@dataclass(frozen=True)
class Lookup:
    """The embeddings [n, width] of tokens int64[n], as a decoder's matrix has them."""

    decoder: Decoder

    def __call__(self, ids: Tensor) -> Tensor:
        return self.decoder.looked_up(ids)

    @property
    def device(self) -> torch.device:
        """Where the matrix lies."""
        return self.decoder.device


class _Eager(Decoder):
    """A decoder that attends to the rows of a tape: one sequence, weights in float32."""

    def __init__(self, whole: Decoder) -> None:
        super().__init__(whole.shape, whole.weights, whole.products, whole.ropes, whole.part)

    def run(self, cells: Tensor, tape: Tape) -> Tensor:
        at = tape.positions[None]
        given = cells.is_floating_point()
        x = self.placed(cells, at) if given else self.embedded(cells[None], at)
        blank = torch.empty(0)
        count = len(self.kinds)
        masks = dict.fromkeys(self.kinds)
        self._tape = tape
        last: Tensor = self._layers(x, (1, len(cells)), self.turns(at), blank, [blank] * count, [blank] * count, masks)
        return last[0]

    def _layer(self, n: int, layer: Layer, x: Tensor, *given: Any, **named: Any) -> Tensor:
        self._tape.states[n] = x
        return super()._layer(n, layer, x, *given, **named)

    def _attended(self, n: int, layer: Layer, x: Tensor, size: tuple[int, int], turn: Turn | None, cache: Any) -> Tensor:
        tape, shape = self._tape, self.shape
        query, key, value = (part[0] for part in self._heads(f"{n}.", x, size, turn))  # [fresh, heads, D]
        tape.queries[n], tape.keys[n], tape.values[n] = query, key, value
        keys, values, positions, visible = key, value, tape.positions, tape.visible
        if n in tape.held:
            held = tape.held[n]
            keys, values = torch.cat([held.keys, keys]), torch.cat([held.values, values])
            positions, visible = torch.cat([held.positions, positions]), torch.cat([held.visible, visible], dim=1)
        if layer.window is not None:
            visible = visible & ((tape.positions[:, None] - positions[None]).abs() < layer.window)
        groups = query.shape[1] // keys.shape[1]
        keys = keys.repeat_interleave(groups, dim=1).permute(1, 2, 0)
        values = values.repeat_interleave(groups, dim=1).transpose(0, 1)
        scores = query.transpose(0, 1) @ keys * (layer.scale or self._scale)
        if shape.cap is not None:
            scores = torch.tanh(scores / shape.cap) * shape.cap
        scores = scores.masked_fill(~visible, float("-inf")).to(self.wide)
        sinks = self.weights.get(f"{n}.sinks")
        if sinks is not None:
            column = sinks.to(self.wide).view(-1, 1, 1).expand(-1, scores.shape[1], 1)
            weights = torch.cat([scores, column], -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        if tape.attended is not None:
            tape.attended.index_add_(0, positions, weights.double().mean(dim=(0, 1)))
        return (weights.to(query.dtype) @ values).transpose(0, 1).reshape(len(x), -1)
