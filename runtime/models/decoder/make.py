"""A decoder of a live transformers module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.decoder import Decoder
from decgraph.runtime.models.decoder.families import shape_of
from decgraph.runtime.models.decoder.shape import FULL, Shape, Unknown
from decgraph.runtime.models.decoder.weights import ModuleSource, canonical


def of_module(base: Any, *, owned: bool = False) -> Decoder:
    """The decoder of a transformers base module. owned: nobody else has it, and its matrices may become views of joined ones.
    Raises Unknown where it has something that the decoder does not."""
    shape, names = shape_of(base.config.get_text_config().to_dict())
    weights, products = canonical(shape, names, ModuleSource(base, owned=owned))
    return Decoder(shape, weights, products, frequencies(base, shape))


def frequencies(base: Any, shape: Shape) -> dict[str, tuple[Tensor, float]]:
    """The frequencies that a module's rotary positions have, by kind of layer, and the factor of their cosines and sines: its
    own buffers, whichever way it computed them."""
    wanted = {layer.rope for layer in shape.layers if layer.rope}
    found: dict[str, tuple[Tensor, float]] = {}
    for module in base.modules():
        for name, buffer in module.named_buffers(recurse=False):
            kind = FULL if name == "inv_freq" else name.removesuffix("_inv_freq")
            if kind in wanted and name.endswith("inv_freq") and kind not in found:
                factor = getattr(module, "attention_scaling" if name == "inv_freq" else f"{kind}_attention_scaling", 1.0)
                found[kind] = buffer, float(factor)
    for kind in wanted - set(found):  # gptj's module has its angles as a table
        if shape.rope[kind]["rope_type"] == "default":
            size = shape.rotary or shape.head
            found[kind] = 1.0 / (shape.rope[kind]["rope_theta"] ** (torch.arange(0, size, 2, dtype=torch.float32) / size)), 1.0
    if wanted - set(found):
        raise Unknown(f"its rotary frequencies of {', '.join(sorted(wanted - set(found)))} were not found")
    return found
