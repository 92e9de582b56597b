"""Weights in 8 or 4 bits: matrices rounded to GGUF's blocks of 32 numbers, Q8_0 or Q4_1, which runtime/native multiplies
with."""

from __future__ import annotations

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.native.decoder import native
from decgraph.runtime.native.formats import QuantizedBlocks
from decgraph.runtime.native.library import library
from decgraph.runtime.native.products import NativeProduct

FORMATS = {"int8": "Q8_0", "int4": "Q4_1"}
"""By the word for a precision, how blocks are laid out."""


def in_blocks(decoder: TransformerDecoder, precision: str) -> TransformerDecoder:
    """The decoder with matrices in blocks; those whose rows are no whole number of blocks, mixtures of experts, embeddings and
    norms stay as they are. precision: "int8" or "int4". Raises DecError where runtime/native's library is not there."""
    if decoder.device.type != "cpu":
        raise DecError(
            f"weights in {precision} are multiplied on a CPU, and {decoder.device} is none",
            hint="device cpu; or dtype bfloat16; or a folder in FP8",
        )
    if library() is None:
        raise DecError(
            f"weights in {precision} are multiplied on a CPU by a library of decgraph's own, and there is none here",
            hint="a C++ compiler (g++) on an x86-64 processor with AVX2; or dtype float32",
        )
    form = FORMATS[precision]
    products: dict[str, Product] = {}
    for name, product in decoder.products.items():
        if name == "embed" or product.shape[1] % 32:
            products[name] = product
        else:
            products[name] = NativeProduct(*(rounded(w, form) for w in product.dequantised()), biases=product.biases)
    return native(decoder.copied(products=products))


def rounded(matrix: Tensor, form: str) -> QuantizedBlocks:
    """A matrix float32[out, in] in blocks of a format, each number to the nearest that its block has."""
    x = matrix.detach().float().reshape(matrix.shape[0], -1, 32)
    if form == "Q8_0":
        step = (x.abs().amax(-1, keepdim=True) / 127).half()
        levels = _levels(x, step, -127, 127).to(torch.int8).view(torch.uint8)
        parts = [step.view(torch.uint8), levels]
    else:
        low = x.amin(-1, keepdim=True).half()
        step = ((x.amax(-1, keepdim=True) - low.float()) / 15).half()
        levels = _levels(x - low.float(), step, 0, 15).to(torch.uint8)
        parts = [step.view(torch.uint8), low.view(torch.uint8), levels[..., :16] | levels[..., 16:] << 4]
    data = torch.cat(parts, -1).reshape(len(x), -1).contiguous()
    return QuantizedBlocks(data, form, (int(matrix.shape[0]), int(matrix.shape[1])))


def _levels(x: Tensor, step: Tensor, low: int, high: int) -> Tensor:
    """Numbers in steps, a step of 0 as 0."""
    width = step.float()
    return torch.where(width > 0, x / width, torch.zeros(())).round().clamp(low, high)
