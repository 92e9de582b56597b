"""A decoder whose layers are one native call each, where its family has the plain shape and few tokens are given at a time: rms
norms before both branches, queries and keys with norms a head or without, a head rotated from its first number on, an
additive mask, a gated MLP with silu or gelu. All else runs by the code of `TransformerDecoder`, with
native products where these are."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_float, c_int64, c_void_p

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.decoder import DecoderPart, Masks, Rotation, TransformerDecoder
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.decoder.shape import Layer, Shape
from decgraph.runtime.native.library import library
from decgraph.runtime.native.products import Activations, BlockProduct, NativeProduct, Parts

FEW = 128
"""Tokens of one call by native layers: of more than these, torch's attention is the faster one after a long context."""
ACTIVATIONS = {"silu": 0, "swish": 0, "gelu_new": 1, "gelu_fast": 1, "gelu_pytorch_tanh": 1, "gelu": 2}
NORMS, PRODUCTS = ("attn_in", "mlp_in", "q", "k"), ("qkv", "o", "up", "down")


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("width", "heads", "kv_heads", "head", "rotated", "neighbours", "activation")),
        *((name, c_float) for name in ("eps", "scale")),
        *((name, c_void_p) for name in NORMS),
        *((name, Parts) for name in PRODUCTS),
    ]


class _Call(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("batch", "count", "used", "threads")),
        *((name, c_void_p) for name in ("x", "cosines", "sines", "rows", "keys", "values")),
        *((name, c_int64 * 3) for name in ("key_strides", "value_strides")),
        ("mask", c_void_p),
        ("mask_strides", c_int64 * 2),
    ]


class NativeDecoder(TransformerDecoder):
    """See the module. native: whether its layers are of the plain shape, and the library is there."""

    def __init__(
        self,
        shape: Shape,
        weights: dict[str, Tensor],
        products: dict[str, Product],
        ropes: dict[str, tuple[Tensor, float]],
        part: DecoderPart | None = None,
    ) -> None:
        super().__init__(shape, weights, products, ropes, part)
        self.native = library() is not None and _plain(self)
        self._reads = any(use.reads is not None for use in self.uses)
        self._made = [self._structure(n, layer) for n, layer in enumerate(self.shape.layers)] if self.native else []

    def copied(
        self,
        *,
        shape: Shape | None = None,
        weights: dict[str, Tensor] | None = None,
        products: dict[str, Product] | None = None,
    ) -> TransformerDecoder:
        """See `TransformerDecoder`: weights [...] by name."""
        return native(super().copied(shape=shape, weights=weights, products=products))

    def compiled(self, notice: Callable[[str], None], backend: str = "inductor") -> TransformerDecoder:
        """See `TransformerDecoder`: torch's products are compiled."""
        products = {name: p.by_torch() for name, p in self.products.items()}
        return TransformerDecoder(self.shape, self.weights, products, self.ropes, self.part).compiled(notice, backend)

    def _structure(self, n: int, layer: Layer) -> _Layer:
        s, rotated = self.shape, 2 * len(self.ropes[layer.rope][0]) if layer.rope else 0
        sizes = (s.width, s.heads, s.kv_heads, s.head, rotated, bool(s.pairs), ACTIVATIONS[s.activation])
        scales = (s.eps, layer.scale or self._scale)
        norms = (self.weights.get(f"{n}.{name}") for name in NORMS)
        products = (self.products[f"{n}.{name}"].parts for name in PRODUCTS)  # type: ignore[attr-defined]
        return _Layer(*sizes, *scales, *(None if norm is None else norm.data_ptr() for norm in norms), *products)

    def _prepared(self, mask: Tensor, count: int) -> Tensor:
        return mask if mask.is_floating_point() else torch.where(mask, *self._shown)  # native layers share a row themselves

    def _layers(
        self,
        x: Tensor,
        size: tuple[int, int],
        rotations: Mapping[str, Rotation],
        where: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Masks,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, ...]]:
        found = library() if self.native and x.shape[0] <= FEW and not self._reads else None
        for cache in (*keys, *values):  # no comprehension here or below: each would be a call a layer and token
            if cache.stride(-1) != 1 or cache.dtype != torch.float32:
                found = None
        if found is None:
            each = {kind: None if mask is None else self._repeated(mask, size[1]) for kind, mask in masks.items()}
            return super()._layers(x, size, rotations, where, keys, values, each)
        x = x.clone(memory_format=torch.contiguous_format)  # what each layer adds to
        rows, caches = where.reshape(-1).contiguous(), iter(zip(keys, values, strict=True))
        turned: dict[str, tuple[Tensor, Tensor]] = {}
        for name, turn in rotations.items():
            turned[name] = turn[0].contiguous(), turn[1].contiguous()
        added = dict(masks)
        for kind, mask in masks.items():
            if mask is not None and (mask.stride(-1) != 1 or mask.dtype != torch.float32):
                added[kind] = mask.float().contiguous()
        call, taps = _Call(*size, 0, torch.get_num_threads()), self.part.taps
        call.rows, at = rows.data_ptr(), ctypes.addressof(call)
        tapped: dict[int, Tensor] = {}
        for use in self.uses:
            n, layer = use.layer, self.shape.layers[use.layer]
            if n in taps:
                tapped[n] = x.view(*size, -1).clone()
            k, v = next(caches) if use.attention else (None, None)
            mask = added[n] if n in added else added.get(layer.kind)
            if k is None or v is None or not use.mlp:
                repeated = None if mask is None else self._repeated(mask, size[1])
                cache = None if k is None or v is None else (where, k, v, repeated)
                x = self._layer(n, layer, x, x, size, rotations.get(layer.rope or ""), cache, mlp=use.mlp).contiguous()
                continue
            call.used, call.key_strides[:], call.value_strides[:] = k.shape[2], k.stride()[:3], v.stride()[:3]
            call.x, call.keys, call.values = x.data_ptr(), k.data_ptr(), v.data_ptr()
            call.cosines = call.sines = call.mask = None
            if layer.rope in turned:
                cosines, sines = turned[layer.rope]
                call.cosines, call.sines = cosines.data_ptr(), sines.data_ptr()
            if mask is not None:
                call.mask = mask.data_ptr()
                call.mask_strides[:] = (mask.stride(0) if mask.shape[0] > 1 else 0, mask.stride(2))
            found.native_layer(ctypes.addressof(self._made[n]), at)
        end = self.uses[-1].layer + 1 if self.uses else 0
        if end in taps:
            tapped[end] = x.view(*size, -1)
        last = (self._norm("norm", x) if self.part.norm else x).view(*size, -1)
        return (last, tuple(tapped[tap] for tap in taps)) if taps else last


def _plain(decoder: TransformerDecoder) -> bool:
    """Whether each of a decoder's layers is of the native shape, its products and all."""
    s = decoder.shape
    odd = (s.unit_norms, s.joined_norms, s.late_norms, s.parallel, s.cap, s.clip, s.rotary_at, s.qkv, s.stretch)
    others = (s.backward, s.latent, s.paired, s.bare, not s.gated, s.norm != "rms", s.residual != 1, s.pairs == "sorted")
    if any(odd) or any(others) or s.activation not in ACTIVATIONS or s.value not in (0, s.head):
        return False
    for n, layer in enumerate(s.layers):
        norms = [decoder.weights.get(f"{n}.{name}") for name in NORMS]
        there = {name.split(".", 1)[1] for name in (*decoder.weights, *decoder.products) if name.startswith(f"{n}.")}
        ours = all(isinstance(decoder.products.get(f"{n}.{name}"), NativeProduct) for name in PRODUCTS)
        if not ours or layer.experts is not None or layer.difference is not None or not there <= {*NORMS, *PRODUCTS}:
            return False
        if norms[0] is None or norms[1] is None or (norms[2] is None) != (norms[3] is None):
            return False
        sizes = (s.width, s.width, s.head, s.head)
        if any(w is not None and (w.shape != (n,) or not w.is_contiguous() or w.dtype != torch.float32)
               for w, n in zip(norms, sizes, strict=True)):  # fmt: skip
            return False
    return True


def native(decoder: TransformerDecoder, activations: Activations = "int16") -> TransformerDecoder:
    """The decoder with native products and layers, as far as they go: on the CPU, in float32; itself where there are none.
    Matrices are read as they lie. activations: what blocks are multiplied with."""
    if library() is None or decoder.device.type != "cpu" or decoder.dtype != torch.float32:
        return decoder
    products = {name: _native_product(product, activations) for name, product in decoder.products.items()}
    return NativeDecoder(decoder.shape, decoder.weights, products, decoder.ropes, decoder.part)


def _native_product(product: Product, activations: Activations) -> Product:
    tensors = (*product.weights, *(b for b in product.biases if b is not None))
    if isinstance(product, NativeProduct) or not product.by_native:
        return product
    if isinstance(product, BlockProduct):
        return NativeProduct(*product.matrices, biases=product.biases, activations=activations)
    if len(product.weights) > 3 or not all(t.is_contiguous() and t.dtype == torch.float32 for t in tensors):
        return Product(*product.weights, biases=product.biases)
    made = NativeProduct(*product.weights, biases=product.biases)
    made.owners = product.owners
    return made
