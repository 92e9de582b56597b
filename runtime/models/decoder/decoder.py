"""One decoder for many families of transformers: their weights in one form (`weights.py`), and no family in the forward.

    decoder(ids int64[B, T], positions int64[B, T], write int64[B, T], keys, values, masks) -> [B, T, width]

is a step of the engines (engine/step.py): keys and values are lists by layer of [B, H, S, D], written in place at the rows
`write`; masks are [B, 1, T, S] by kind of layer, bool or numbers to add to scores, None where nothing is hidden. Causal,
bidirectional and block-causal models differ in masks alone. What is done to states is written once, in `_layer`; whoever
attends in another way (a device's kernel) derives a decoder with an `attend` of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.decoder.shape import Layer, Shape, UnknownToDecoder
from decgraph.runtime.models.parts import LayerUse
from decgraph.runtime.models.rounding import rounded

Masks = Mapping[str | int, Tensor | None]
"""By kind of layer, or by a layer's number where it differs from others of its kind."""
Cache = tuple[Tensor, Tensor, Tensor, Tensor | None]
Out: TypeAlias = "Tensor | tuple[Tensor, tuple[Tensor, ...]]"
"""Last states [B, T, width]; with taps, a pair of them and the states that enter the tapped layers."""
Rotation = tuple[Tensor, ...]
"""Cosines and sines, and what queries grow by where they do."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "gelu": F.gelu,
    "relu": F.relu,
    "xielu": F.silu,  # has weights: `_xielu`
    "relu2": lambda x: F.relu(x).square(),
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_fast": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


LATENT_EPS = 1e-6
"""Of the norms inside latent attention, whatever the others have."""


@dataclass(frozen=True)
class DecoderPart:
    """Which part of a decoder runs. uses: layers, in order, or halves of them (parts.py); None: all. embedded: it begins with
    states in place of tokens. norm: the final norm follows. taps: the layers whose entering states are wanted beside the
    result."""

    uses: tuple[LayerUse, ...] | None = None
    embedded: bool = False
    norm: bool = True
    taps: tuple[int, ...] = ()


class LayeredForward:
    """A forward of which there are parts: some of its layers, without its final norm, with the states between its layers."""

    part: DecoderPart
    uses: tuple[LayerUse, ...]
    layers: int

    def _like(self, part: DecoderPart) -> Self:
        """Another part of the same model."""
        raise NotImplementedError

    def using(self, uses: Sequence[LayerUse]) -> Self:
        """These layers, or halves of layers, alone."""
        return self._like(replace(self.part, uses=tuple(uses)))

    def without_norm(self) -> Self:
        """The same layers, without the final norm."""
        return self._like(replace(self.part, norm=False))

    def above(self) -> Self:
        """The same layers, called with the states [B, T, width] that enter the first one in place of token ids."""
        return self._like(replace(self.part, embedded=True))

    def tapped(self, *layers: int) -> Self:
        """Gives also the states that enter these layers (`self.layers`: that leave the last). Raises DecError for layers that
        it does not run."""
        if any(tap != self._end and all(use.layer != tap for use in self.uses) for tap in layers):
            raise DecError(f"layers {[use.layer for use in self.uses]} do not pass all of the states {list(layers)}")
        return self._like(replace(self.part, taps=layers))

    def since(self, layer: int) -> Self:
        """The layers from this one on; called with the states [B, T, width] that enter it in place of token ids. `since(0)`
        takes embeddings. Caches are those of its layers. Raises DecError for a layer past its end."""
        if not 0 <= layer <= self.layers:
            raise DecError(f"a model of {self.layers} layers has no layer {layer}")
        if layer > self._end:
            raise DecError(f"these layers end before layer {self._end}, so none begins with layer {layer}")
        return self._like(replace(self.part, uses=tuple(use for use in self.uses if use.layer >= layer), embedded=True))

    @property
    def _end(self) -> int:
        return self.uses[-1].layer + 1 if self.uses else 0


class TransformerDecoder(LayeredForward):
    """A model's forward over caches that the caller owns; see the module.

    weights: by canonical names, "0.qkv", "0.qkv.b", ...; see `weights.canonical`. products: the matrices among them. ropes: by
    name the frequencies [r / 2] of rotary positions, and the factor of their cosines and sines. Results are inference tensors.
    """

    additive = True
    recurrent = False

    def __init__(
        self,
        shape: Shape,
        weights: dict[str, Tensor],
        products: dict[str, Product],
        ropes: dict[str, tuple[Tensor, float]],
        part: DecoderPart | None = None,
    ) -> None:
        self.shape, self.weights, self.products, self.ropes = shape, weights, products, ropes
        self.part, self.layers = part or DecoderPart(), len(shape.layers)
        self.uses = tuple(map(LayerUse, range(self.layers))) if self.part.uses is None else self.part.uses
        attending = [shape.layers[use.layer] for use in self.uses if use.attention]
        self.kinds = tuple(layer.kind for layer in attending)
        self.windows = tuple(layer.window for layer in attending)
        self.width = shape.width
        some = weights.get("embed", next(iter(weights.values())))
        self.dtype, self.device = some.dtype, some.device
        self.wide = torch.float64 if self.dtype == torch.float64 else torch.float32
        self.gathers = self.device.type != "cpu"  # whether a mixture gathers its experts, and reads nothing on the host
        if any(layer.experts is not None for layer in shape.layers):
            from decgraph.runtime.models.decoder.experts import mixture

            self._mixture = mixture
        if shape.activation not in ACTIVATIONS:
            raise UnknownToDecoder(f"the activation {shape.activation}")
        self._activation = ACTIVATIONS[shape.activation]
        self._scale = shape.scale or shape.head**-0.5
        self._groups = 1 if shape.latent else shape.heads // shape.kv_heads
        self._two = any(layer.difference is not None for layer in shape.layers)
        self._embed_scale = shape.embed_scale
        if shape.embed_rounded:
            self._embed_scale = float(torch.tensor(shape.embed_scale).to(self.dtype))
        self._run: Callable[
            [Tensor, tuple[int, int], Mapping[str, Rotation], Tensor, Sequence[Tensor], Sequence[Tensor], Masks], Out
        ] = self._layers
        self._shown = tuple(torch.tensor(n, dtype=self.dtype, device=self.device) for n in (0.0, torch.finfo(self.dtype).min))
        self._tables: dict[str, Rotation] = {}
        self._reach = 0

    @property
    def embedding(self) -> Tensor:
        """The input embeddings [vocabulary, width]. Of a table in blocks these are made anew by each call."""
        if "embed" in self.products:
            return self.products["embed"].dequantised()[0]
        return self.weights["embed"]

    @property
    def caches(self) -> tuple[tuple[int, int, int], ...]:
        """By layer that attends: how many heads of keys and values are cached, and the sizes of both."""
        s = self.shape
        return ((s.heads if s.latent else s.kv_heads, s.head, s.value or s.head),) * len(self.kinds)

    # Parts of a model.

    def copied(
        self,
        *,
        shape: Shape | None = None,
        weights: dict[str, Tensor] | None = None,
        products: dict[str, Product] | None = None,
    ) -> TransformerDecoder:
        """The same part with another `shape`, other `weights` or `products`."""
        own = self.products if products is None else products
        return TransformerDecoder(shape or self.shape, self.weights if weights is None else weights, own, self.ropes, self.part)

    def quantized(self, bits: int) -> TransformerDecoder:
        """The same layers with their matrices rounded to so many bits, row by row."""
        products = {
            name: p
            if name in ("out", "embed")
            else Product(*(cast("Tensor", rounded(w, bits)) for w in p.dequantised()), biases=p.biases)
            for name, p in self.products.items()
        }
        return self.copied(products=products)

    def expert(self, rank: int, name: str) -> TransformerDecoder:
        """The same layers with mixtures whose tokens all go to the expert of this rank alone. Raises DecError for a model
        without mixtures, and for a rank that they do not have."""
        count = min((layer.experts.count for layer in self.shape.layers if layer.experts is not None), default=0)
        if not count:
            raise DecError(
                f"{name!r} has no expert({rank}): none of its layers is a mixture of experts that decgraph knows",
                hint="Mixtral, Qwen-MoE, OLMoE and their like have a router for each layer",
            )
        if not 1 <= rank <= count:
            raise DecError(f"{name!r} has no expert({rank}): a router has {count} experts", hint=f"a rank in 1..{count}")
        layers = tuple(
            layer if (e := layer.experts) is None else replace(layer, experts=replace(e, rank=rank, top=max(rank, e.top)))
            for layer in self.shape.layers
        )
        return self.copied(shape=replace(self.shape, layers=layers))

    def _like(self, part: DecoderPart) -> Self:
        return type(self)(self.shape, self.weights, self.products, self.ropes, part)

    def compiled(self, notice: Callable[[str], None], backend: str = "inductor") -> TransformerDecoder:
        """The same decoder, its layers compiled with torch.compile when they first run; sizes stay dynamic. Where that fails
        (no compiler on this machine, say) `notice` gets the reason and they run as they are."""
        made = self._like(self.part)
        fast = torch.compile(made._layers, dynamic=True, backend=backend)

        def run(
            x: Tensor,
            size: tuple[int, int],
            rotations: Mapping[str, Rotation],
            where: Tensor,
            keys: Sequence[Tensor],
            values: Sequence[Tensor],
            masks: Masks,
        ) -> Out:
            try:
                out: Out = fast(x, size, rotations, where, keys, values, masks)
                return out
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # whatever the compiler, or finding one, raises
                cause = getattr(error, "inner_exception", error)
                lines = str(cause).strip().splitlines() or [type(cause).__name__]
                notice(f"the decoder runs uncompiled, compiling it failed: {lines[0]}")
                made._run = made._layers
                return made._layers(x, size, rotations, where, keys, values, masks)

        made._run = run
        return made

    # The forward.

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Masks,
    ) -> Out:
        """The last hidden states [B, T, width]; with taps, a pair of them and the tuple of states [B, T, width]."""
        part = self.part
        batch, count = positions.shape
        with torch.inference_mode():
            x = ids.reshape(batch * count, -1) if part.embedded else self.embedded(ids, positions)
            given = dict(masks)
            for kind, mask in masks.items():
                if mask is not None:
                    given[kind] = self._prepared(mask, count)
            # One index for all layers: rows of a single sequence; else broadcast over heads and sizes.
            where = write[0] if batch == 1 else write[:, None, :, None]
            return self._run(x, (batch, count), self.rotations(positions), where, keys, values, given)

    def _layers(
        self,
        x: Tensor,
        size: tuple[int, int],
        rotations: Mapping[str, Rotation],
        where: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Masks,
    ) -> Out:
        part, place = self.part, 0
        tapped: dict[int, Tensor] = {}
        groups: dict[int, Tensor] = {}  # states that enter groups of layers whose attentions read them
        for use in self.uses:
            n, layer, cache = use.layer, self.shape.layers[use.layer], None
            if n in part.taps:
                tapped[n] = x.view(*size, -1)
            if use.attention:
                mask = masks[n] if n in masks else masks[layer.kind]
                cache, place = (where, keys[place], values[place], mask), place + 1
            if use.reads == n:
                groups[n] = x
            read = x if use.reads is None else groups[use.reads]
            x = self._layer(n, layer, x, read, size, rotations.get(layer.rope or ""), cache, mlp=use.mlp)
        if self._end in part.taps:
            tapped[self._end] = x.view(*size, -1)
        last = (self._norm("norm", x) if part.norm else x).view(*size, -1)
        return (last, tuple(tapped[tap] for tap in part.taps)) if part.taps else last

    def _attended(
        self, n: int, layer: Layer, x: Tensor, size: tuple[int, int], rotation: Rotation | None, cache: Cache
    ) -> Tensor:
        """The attention's output [B T, heads D] of states [B T, width]. It writes the new keys and values to the caches."""
        where, keys, values, mask = cache
        q, k, v = self._heads(f"{n}.", x, size, rotation)
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        if where.dim() == 1:
            keys.index_copy_(2, where, k)
            values.index_copy_(2, where, v)
        else:
            keys.scatter_(2, where.expand(k.shape), k)
            values.scatter_(2, where.expand(v.shape), v)
        return self._attention(n, layer, q, keys, values, mask)

    def keys_and_values(self, states: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """By layer the keys and values [B, H, T, D] of states [B, T, width] that its attention reads as they are (DFlash)."""
        rotations, made = self.rotations(positions), []
        for n, layer in enumerate(self.shape.layers):
            size, rotation = (positions.shape[0], positions.shape[1]), rotations.get(layer.rope or "")
            _, k, v = self._heads(f"{n}.", states.flatten(0, 1), size, rotation)
            made.append((k.transpose(1, 2), v.transpose(1, 2)))
        return made

    def embedded(self, ids: Tensor, positions: Tensor) -> Tensor:
        """The states [B T, width] of tokens int64[B, T] that enter the first layer."""
        return self.placed(self.looked_up(ids.reshape(-1)), positions)

    def looked_up(self, ids: Tensor) -> Tensor:
        """The embeddings [n, width] of tokens int64[n], as the matrix has them."""
        if "embed" in self.products:  # in blocks, of which these rows alone are made numbers
            return self.products["embed"].rows(ids)
        return torch.embedding(self.weights["embed"], ids)

    def placed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Embeddings [B T, width] of positions int64[B, T], or mixtures of such, as they enter the first layer."""
        if self._embed_scale != 1.0:
            x = x * self._embed_scale
        if "positions" in self.weights:
            x = x + F.embedding(positions.reshape(-1) + self.shape.position_offset, self.weights["positions"])
        return self._norm("embed_norm", x) if "embed_norm" in self.weights else x

    def rotations(self, positions: Tensor) -> dict[str, Rotation]:
        """By name of the frequencies, the cosines and sines [B, T, 1, r] of positions int64[B, T]."""
        if not self.ropes:
            return {}
        if not self.gathers:  # looked up: a small model's step is some hundred operations
            if (reach := int(positions.max()) + 1) > self._reach:
                self._grow(reach)
            at, size = positions.reshape(-1), positions.shape
            rotations: dict[str, Rotation] = {}
            for name, tables in self._tables.items():
                rotations[name] = ()
                for table in tables:
                    rotations[name] += (table.index_select(0, at).view(*size, *table.shape[1:]),)
            return rotations
        return {name: self._rotation(name, positions) for name in self.ropes}

    def _rotation(self, name: str, positions: Tensor) -> Rotation:
        frequencies, factor = self.ropes[name]
        angles = positions[..., None].to(self.wide) * frequencies.to(self.wide)
        angles = torch.cat([angles, angles], -1).unsqueeze(-2)
        rotation = (
            (angles.cos() * factor).to(self.dtype),
            (angles.sin() * (-factor if self.shape.backward else factor)).to(self.dtype),
        )
        if self.shape.stretch is None:
            return rotation
        rate, length = self.shape.stretch
        return *rotation, (1 + rate * (1 + positions // length).to(self.wide).log())[..., None, None].to(self.dtype)

    def _grow(self, reach: int) -> None:
        self._reach = max(reach, 2 * self._reach, 512)
        at = torch.arange(self._reach)
        self._tables = {name: self._rotation(name, at) for name in self.ropes}

    def _prepared(self, mask: Tensor, count: int) -> Tensor:
        """A mask [B, 1, T, S] as numbers to add to scores, with a row for each query that shares a head of keys."""
        return self._repeated(self._added_to_scores(mask), count)

    def _added_to_scores(self, mask: Tensor) -> Tensor:
        if mask.is_floating_point():
            return mask
        return torch.where(mask, *self._shown)

    def _repeated(self, mask: Tensor, count: int) -> Tensor:
        if count == 1 or self._groups == 1:
            return mask
        return mask.unsqueeze(3).expand(-1, -1, -1, self._groups, -1).reshape(mask.shape[0], 1, count * self._groups, -1)

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
        """States x [B T, width] through a layer whose attention reads `read`. cache: the rows of new tokens, keys, values and
        mask, as `__call__` has them; None: its attention is left out. mlp: whether its MLP runs."""
        shape, at, products = self.shape, f"{n}.", self.products
        if at + "feature_in" in self.weights:  # EAGLE-3: an embedding and a feature side by side
            embedded, feature = read.split(shape.width, -1)
            normed = self._norm(at + "feature_in", feature)
            entering = torch.cat([self._norm(at + "attn_in", embedded), normed], -1)
            x = normed if shape.paired == "normed" else feature
        else:
            entering = self._norm(at + "attn_in", read)
        after = None  # what the branch's output is convolved with, where it is
        if at + "attn_conv" in products:
            entering, after = self._convolved(at + "attn", entering, size)
        h = None
        if shape.parallel:
            h = self._norm(at + "mlp_in", x) if at + "mlp_in" in self.weights else entering
        if cache is not None:
            a = self._norm(at + "attn_sub", self._attended(n, layer, entering, size, rotation, cache))
            if layer.difference is not None:
                a = self._difference(at, layer.difference, a)
            if at + "head_gate" in products:  # a number a head, or one for each of its numbers
                gate = products[at + "head_gate"](entering)
                gate = F.softplus(gate) if shape.gate == "softplus" else torch.sigmoid(gate)
                a = (a.view(*gate.shape, -1) * gate[..., None]).flatten(1)
            if after is None:
                x = self._branch(at + "attn_out", x, products[at + "o"], a)
            else:
                x = x + self._taps(products[at + "o"](a), after, size)
        if shape.bare or not mlp:
            return x
        if h is None:
            h = self._norm(at + "mlp_in", x)
        if layer.experts is not None and at + "router" in self.weights:
            return self._added(x, self._norm(at + "mlp_out", self._mixture(self, at, layer.experts, h)))
        if at + "mlp_conv" in products:
            h, after = self._convolved(at + "mlp", h, size)
            return x + self._taps(products[at + "down"](self.gated(at + "up", h)), after, size)
        return self._branch(at + "mlp_out", x, products[at + "down"], self._norm(at + "mlp_sub", self.gated(at + "up", h)))

    def _convolved(self, at: str, x: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """What enters a branch of DFlash 2: states x [B T, width] convolved with those before them in the call; and the kernel
        [B, T, taps, groups, width / groups] for the branch's output. Both are learned ones plus a number a group and tap that
        depends on x."""
        learned = self.weights[at + "_taps"]  # [2, taps, width]
        dynamic = self.products[at + "_conv"](x).view(*size, 2, learned.shape[1], -1, 1)
        kernels = learned.view(*learned.shape[:2], dynamic.shape[-2], -1) + dynamic
        return self._taps(x, kernels[:, :, 0], size), kernels[:, :, 1]

    def _taps(self, x: Tensor, kernels: Tensor, size: tuple[int, int]) -> Tensor:
        """States [B T, width] convolved by position with kernels [B, T, taps, groups, width / groups], of which tap n is of the
        state n places before; there are none before the call's first."""
        taps, groups = kernels.shape[2:4]
        padded = F.pad(x.view(*size, groups, -1), (0, 0, 0, 0, taps - 1, 0))
        parts = (kernels[:, :, n] * padded[:, taps - 1 - n : taps - 1 - n + size[1]] for n in range(taps))
        return sum(parts, start=x.new_zeros(())).reshape(x.shape)

    def _difference(self, at: str, start: float, a: Tensor) -> Tensor:
        """The outputs [n, heads D] of a differential attention: those of the first half of the heads minus a share of those of
        the second half. a: [n, heads 2 D], since a value is as long as two heads (see `_heads`)."""
        first, second = a.view(len(a), 2, -1, self.shape.value).unbind(1)
        return (
            F.rms_norm(first - self.weights[at + "difference"] * second, (self.shape.value,), None, self.shape.eps)
            * (1 - start)
        ).flatten(1)

    def _branch(self, norm: str, x: Tensor, product: Product, y: Tensor) -> Tensor:
        """The states x with a branch added. Without a norm or a factor between, product and sum are one operation."""
        if norm in self.weights or self.shape.residual != 1.0:
            return self._added(x, self._norm(norm, product(y)))
        return product(y, x)

    def _added(self, x: Tensor, y: Tensor) -> Tensor:
        return x + (y * self.shape.residual if self.shape.residual != 1.0 else y)

    def _heads(self, at: str, x: Tensor, size: tuple[int, int], rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        shape = self.shape
        if shape.latent is not None:
            return self._latent(at, x, size, rotation)
        y = self.products[at + "qkv"](x)
        if shape.joined_norms and at + "q" in self.weights:
            q, k, v = y.split([shape.heads * shape.head, shape.kv_heads * shape.head, shape.kv_heads * shape.head], -1)
            y = torch.cat([self._norm(at + "q", q), self._norm(at + "k", k), v], -1)
        if shape.clip is not None:
            y = y.clamp(-shape.clip, shape.clip)
        if shape.qkv == "quarters":
            q, v, k = y.view(*size, 4, 3, -1).unbind(3)
            both, v = torch.cat([q, k], 2).view(*size, -1, shape.head), v.reshape(*size, -1, shape.head)
        elif shape.qkv:  # head by head, or group by group: queries, then a key, then a value
            y = y.view(*size, shape.kv_heads, -1, shape.head)
            both = torch.cat([y[..., :-2, :].flatten(2, 3), y[..., -2, :]], 2)
            v = y[..., -1, :]
        else:
            both, v = y.view(*size, -1, shape.head).split([shape.heads + shape.kv_heads, shape.kv_heads], 2)
        normed = not shape.joined_norms and at + "q" in self.weights
        if normed and not shape.late_norms:
            both = self._head_norms(at, both)
        if rotation is not None:
            both = rotated(both, rotation[0], rotation[1], shape.rotary_at, shape.pairs)
        if normed and shape.late_norms:
            both = self._head_norms(at, both)
        q, k = both.split([shape.heads, shape.kv_heads], 2)
        if rotation is not None and len(rotation) > 2:
            q = q * rotation[2]
        if self._two:  # attentions whose values are both halves of the heads
            v = torch.cat(v.chunk(2, 2), -1).repeat(1, 1, 2, 1)
        return q, k, v

    def _head_norms(self, at: str, both: Tensor) -> Tensor:
        q, k = both.split([self.shape.heads, self.shape.kv_heads], 2)
        return torch.cat([self._norm(at + "q", q), self._norm(at + "k", k)], 2)

    def _latent(self, at: str, x: Tensor, size: tuple[int, int], rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """DeepSeek's attention, its keys and values expanded to heads before they are cached."""
        shape, products = self.shape, self.products
        assert shape.latent is not None and rotation is not None
        rank, still, moving, value = shape.latent
        if at + "qkv" in products:
            q = products[at + "qkv"](x)
        else:
            q = products[at + "q_up"](self._norm(at + "q_latent", products[at + "q_down"](x), LATENT_EPS))
        c, r = products[at + "kv_down"](x).split([rank, moving], -1)
        c = self._norm(at + "kv_latent", c, LATENT_EPS)
        k, v = products[at + "kv_up"](c).view(*size, shape.heads, still + value).split([still, value], -1)
        k = torch.cat([k, r.view(*size, 1, moving).expand(-1, -1, shape.heads, -1)], -1)
        q = rotated(q.view(*size, shape.heads, shape.head), rotation[0], rotation[1], shape.rotary_at, shape.pairs)
        return q, rotated(k, rotation[0], rotation[1], shape.rotary_at, shape.pairs), v

    def _attention(self, n: int, layer: Layer, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        batch, count, _, size = q.shape
        kv, groups, sinks = keys.shape[1], self._groups, self.weights.get(f"{n}.sinks")
        # Queries that share keys become more rows of the same head: keys and values are read as they lie.
        q = q.view(batch, count, kv, groups, size).permute(0, 2, 1, 3, 4).reshape(batch, kv, count * groups, size)
        scale = layer.scale or self._scale
        if self.shape.cap is None and sinks is None:
            a = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=scale)
        else:
            a = self._plainly(q, keys, values, mask, sinks, scale)
        return a.view(batch, kv, count, groups, -1).transpose(1, 2).reshape(batch * count, -1)

    def _plainly(
        self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, sinks: Tensor | None, scale: float
    ) -> Tensor:
        scores = (q @ keys.transpose(-1, -2)) * scale
        if self.shape.cap is not None:
            scores = torch.tanh(scores / self.shape.cap) * self.shape.cap
        scores = (scores if mask is None else scores + mask).to(self.wide)
        if sinks is None:
            return torch.softmax(scores, -1).to(values.dtype) @ values
        kv, rows = scores.shape[1], scores.shape[2]
        groups = sinks.numel() // kv
        column = sinks.to(self.wide).view(1, kv, 1, groups).expand(scores.shape[0], kv, rows // groups, groups)
        weights = torch.cat([scores, column.reshape(scores.shape[0], kv, rows, 1)], -1).softmax(-1)[..., :-1]
        return weights.to(values.dtype) @ values

    def gated(self, name: str, x: Tensor) -> Tensor:
        """The inner states of an MLP [n, inner] of states [n, width]."""
        y = self.products[name](x)
        if not self.shape.gated:
            return self._xielu(name.split(".")[0] + ".", y) if self.shape.activation == "xielu" else self._activation(y)
        gate, up = y.chunk(2, -1)
        return self._activation(gate) * up

    def _xielu(self, at: str, x: Tensor) -> Tensor:
        up, down, beta, eps = (self.weights[at + name] for name in ("alpha_p", "alpha_n", "beta", "eps"))
        below = (torch.expm1(torch.minimum(x, eps)) - x) * (beta + F.softplus(down))
        return torch.where(x > 0, F.softplus(up) * x * x, below) + beta * x

    def activation(self, x: Tensor) -> Tensor:
        """The MLP's activation, element by element."""
        return self._activation(x)

    def _norm(self, name: str, x: Tensor, eps: float | None = None) -> Tensor:
        """A norm over the last dimension, where the model has it."""
        w = self.weights.get(name)
        if w is None:
            return x
        shape = self.shape
        if shape.norm == "rms":
            return torch.rms_norm(x, (x.shape[-1],), None if shape.unit_norms else w, eps or shape.eps)
        bias = self.weights.get(name + ".b")
        if w.dim() < 2:
            return F.layer_norm(x, (x.shape[-1],), None if shape.unit_norms else w, bias, shape.eps)
        return F.layer_norm(x, (x.shape[-1],), None, None, shape.eps) * w  # a weight a head

    def final(self, x: Tensor) -> Tensor:
        """The final norm of states [n, width]."""
        return self._norm("norm", x)

    def logits(self, states: Tensor) -> Tensor:
        """Logits [..., V] of last states [..., width] after the final norm."""
        y = self.products["out"](states.reshape(-1, states.shape[-1]))
        y = y.view(*states.shape[:-1], y.shape[-1])
        if self.shape.logit_scale != 1.0:
            y = y * self.shape.logit_scale
        cap = self.shape.logit_cap
        return y if cap is None else torch.tanh(y / cap) * cap


def rotated(x: Tensor, cos: Tensor, sin: Tensor, at: int = 0, pairs: str = "") -> Tensor:
    """Heads [B, T, heads, D] rotated by cosines and sines [B, T, 1, r]: r numbers from `at` on, in pairs (i, i + r / 2), or
    (2i, 2i + 1): these stay in their places ("kept") or become halves ("sorted")."""
    r = cos.shape[-1]
    if r < x.shape[-1]:
        before, moving, after = x.split([at, r, x.shape[-1] - at - r], -1)
        return torch.cat([before, rotated(moving, cos, sin, 0, pairs), after], -1)
    a, b = (x[..., ::2], x[..., 1::2]) if pairs else x.chunk(2, -1)
    if pairs == "kept":
        cos, sin = cos[..., : r // 2], sin[..., : r // 2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    if pairs:
        x = torch.cat([a, b], -1)
    return x * cos + torch.cat([-b, a], -1) * sin
