"""A decoder whose layers are one native call each, where its family has the plain shape and few tokens are given at a time.

Rms norms before both branches, queries and keys with or without norms a head, rotation of halves of a head from its first number
on, attention with an additive mask, a gated MLP with silu or gelu. What is not such, more tokens, and other devices run by
`Decoder`'s own code, with native products where these are."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.decoder import Decoder, Part, Turn
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.parts import Use
from decgraph.runtime.native import library, threads
from decgraph.runtime.native.products import NativeProduct, Parts

FEW = 16
"""Tokens of one call by native layers."""
ACTIVATIONS = {"silu": 0, "swish": 0, "gelu_new": 1, "gelu_fast": 1, "gelu_pytorch_tanh": 1, "gelu": 2}
PRODUCTS = ("qkv", "o", "up", "down")
PLAIN = {"attn_in", "mlp_in", "q", "k", *PRODUCTS}


class Layer(ctypes.Structure):
    """See native.cpp."""

    _fields_ = [
        *((n, ctypes.c_int64) for n in ("width", "heads", "kv_heads", "head", "rotated", "activation")),
        *((n, ctypes.c_float) for n in ("eps", "scale")),
        *((n, ctypes.c_void_p) for n in ("attn_in", "mlp_in", "q", "k")),
        *((n, Parts) for n in PRODUCTS),
    ]


class Call(ctypes.Structure):
    """See native.cpp."""

    _fields_ = [
        *((n, ctypes.c_int64) for n in ("batch", "count", "used", "threads")),
        *((n, ctypes.c_void_p) for n in ("x", "cosines", "sines", "rows", "keys", "values")),
        ("key_strides", ctypes.c_int64 * 3),
        ("value_strides", ctypes.c_int64 * 3),
        ("mask", ctypes.c_void_p),
        ("mask_strides", ctypes.c_int64 * 2),
    ]


class NativeDecoder(Decoder):
    """See the module. Raises DecError where the library is not there. `native` is false where no layer is of the plain shape."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.native = plain(self)
        self._whole = all(use == Use(use.layer) for use in self.uses)  # no half of a layer is left out
        self._made = [self._structure(n) for n in range(self.layers)] if self.native else []
        found = library()
        assert found is not None
        self._call = found.native_layer

    def _like(self, part: Part) -> Decoder:
        return NativeDecoder(self.shape, self.weights, self.products, self.ropes, part)

    def copied(self, **changed: Any) -> Decoder:
        """See `Decoder`."""
        return native(super().copied(**changed))

    def _structure(self, n: int) -> Layer:
        shape, layer = self.shape, self.shape.layers[n]
        rotated = 2 * len(self.ropes[layer.rope][0]) if layer.rope else 0
        norms = [self.weights.get(f"{n}.{name}") for name in ("attn_in", "mlp_in", "q", "k")]
        return Layer(
            shape.width,
            shape.heads,
            shape.kv_heads,
            shape.head,
            rotated,
            ACTIVATIONS[shape.activation],
            shape.eps,
            layer.scale or self._scale,
            *(None if w is None else w.data_ptr() for w in norms),
            *(self.products[f"{n}.{name}"].parts for name in PRODUCTS),  # type: ignore[attr-defined]
        )

    def _few(self, size: tuple[int, int]) -> bool:
        return self.native and self._whole and size[0] * size[1] <= FEW

    def _prepared(self, mask: Tensor, count: int) -> Tensor:
        if not self.native or count > FEW:
            return super()._prepared(mask, count)
        if not mask.is_floating_point():
            mask = torch.zeros(mask.shape).masked_fill_(~mask, torch.finfo(torch.float32).min)
        return mask  # as it is: `_layers` knows how many sequences there are

    def _layers(
        self,
        x: Tensor,
        size: tuple[int, int],
        turns: Mapping[str, Turn],
        where: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Mapping[str, Tensor | None],
    ) -> Any:
        if not self._few(size):
            if self.native and size[1] <= FEW:
                masks = {
                    kind: None if m is None else super(NativeDecoder, self)._prepared(m, size[1]) for kind, m in masks.items()
                }
            return super()._layers(x, size, turns, where, keys, values, masks)
        part = self.part
        tapped: dict[int, Tensor] = {}
        # Layers add to the states in place: not to a caller's.
        x = x.clone(memory_format=torch.contiguous_format) if part.embedded else x.contiguous()
        rows = where.reshape(-1).contiguous()
        call = Call(size[0], size[1], 0, threads(), x.data_ptr())
        call.rows = rows.data_ptr()
        there = {kind: None if m is None else rowwise(m, size) for kind, m in masks.items()}
        turned = {name: tuple(t.contiguous() for t in turn[:2]) for name, turn in turns.items()}
        at = ctypes.addressof(call)
        for place, use in enumerate(self.uses):
            n = use.layer
            layer, mask = self.shape.layers[n], there[self.kinds[place]]
            if n in part.taps:
                tapped[n] = x.clone().view(*size, -1)
            k, v = keys[place], values[place]
            call.keys, call.values, call.used = k.data_ptr(), v.data_ptr(), k.shape[2]
            call.key_strides[:], call.value_strides[:] = k.stride()[:3], v.stride()[:3]
            call.mask = None if mask is None else mask.data_ptr()
            if mask is not None:
                call.mask_strides[:] = (mask.stride(0) if mask.shape[0] > 1 else 0, mask.stride(2))
            if layer.rope:
                cosines, sines = turned[layer.rope]
                call.cosines, call.sines = cosines.data_ptr(), sines.data_ptr()
            self._call(ctypes.addressof(self._made[n]), at)
        end = self.uses[-1].layer + 1 if self.uses else 0
        if end in part.taps:
            tapped[end] = x.clone().view(*size, -1)
        last = (self._norm("norm", x) if part.norm else x).view(*size, -1)
        return (last, tuple(tapped[tap] for tap in part.taps)) if part.taps else last


def rowwise(mask: Tensor, size: tuple[int, int]) -> Tensor:
    """A mask [B, 1, T, S] of float32 whose rows lie in one piece."""
    return mask if mask.stride(-1) == 1 and mask.dtype == torch.float32 else mask.float().contiguous()


def plain(decoder: Decoder) -> bool:
    """Whether each of a decoder's layers is of the native shape, its products and all."""
    s = decoder.shape
    odd = (s.unit_norms, s.joined_norms, s.late_norms, s.parallel, s.cap, s.clip, s.rotary_at, s.pairs, s.qkv, s.stretch)
    if any(odd) or s.backward or s.latent or s.bare or not s.gated or s.norm != "rms" or s.residual != 1.0:
        return False
    if (
        s.activation not in ACTIVATIONS
        or s.width % 8
        or s.head % 16
        or s.value not in (0, s.head)
        or decoder.dtype != torch.float32
    ):
        return False
    for n, layer in enumerate(s.layers):
        there = {name for name in (*decoder.weights, *decoder.products) if name.startswith(f"{n}.")}
        if not there <= {f"{n}.{name}" for name in PLAIN} or layer.experts is not None or layer.difference is not None:
            return False
        if not all(isinstance(decoder.products.get(f"{n}.{name}"), NativeProduct) for name in PRODUCTS):
            return False
        norms = [decoder.weights.get(f"{n}.{name}") for name in ("attn_in", "mlp_in", "q", "k")]
        if any(w is not None and (w.dim() != 1 or not w.is_contiguous() or w.dtype != torch.float32) for w in norms):
            return False
        if norms[0] is None or norms[1] is None or (norms[2] is None) != (norms[3] is None):
            return False
    return True


def native(decoder: Decoder) -> Decoder:
    """The decoder with native products and layers, as far as they go: on the CPU, in float32; itself where there are none.
    Matrices are read as they lie."""
    if library() is None or decoder.device.type != "cpu" or decoder.dtype != torch.float32:
        return decoder
    products = {name: native_product(product) for name, product in decoder.products.items()}
    return NativeDecoder(decoder.shape, decoder.weights, products, decoder.ropes, decoder.part)


def native_product(product: Product) -> Product:
    """A product by the library, where its matrices allow it; else the product, without a copy."""
    if isinstance(product, NativeProduct):
        return product
    tensors = (*product.weights, *(b for b in product.biases if b is not None))
    if len(product.weights) > 3 or not all(t.is_contiguous() and t.dtype == torch.float32 for t in tensors):
        return Product(*product.weights, biases=product.biases)
    return NativeProduct(*product.weights, biases=product.biases)
