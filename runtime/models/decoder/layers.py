"""The decoder of some layers of a module, those of a drafting head, and the rotary frequencies that a module has."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from decgraph.runtime.models.decoder.decoder import DecoderPart, TransformerDecoder
from decgraph.runtime.models.decoder.families import FAMILIES, shape_of
from decgraph.runtime.models.decoder.shape import FULL, Shape, UnknownToDecoder
from decgraph.runtime.models.decoder.weights import ModuleSource, canonical
from decgraph.runtime.models.heads.base import LayerConfig
from decgraph.runtime.models.heads.parts import PairLayer
from decgraph.runtime.native.decoder import native

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_log = logging.getLogger("decgraph.engine")


class DraftLayers(Protocol):
    """A drafting head's module, as those of runtime/models/heads and zoo/modeling.py are."""

    config: LayerConfig | PretrainedConfig
    layers: nn.ModuleList
    rotary: nn.Module


def decoder_of_layers(module: DraftLayers) -> TransformerDecoder | None:
    """The decoder of a head's layers on the states [B, T, width] that enter the first one; None where they have something that
    the decoder does not know."""
    base = nn.Module()
    base.layers, base.rotary = nn.ModuleList(module.layers), module.rotary
    try:
        config: dict[str, object] = {**module.config.to_dict()}
        made_of = type(module.layers[0]).__module__
        if config["model_type"] not in FAMILIES and made_of.startswith("transformers.") and ".llama." not in made_of:
            raise UnknownToDecoder(f"there is no entry for {config['model_type']}")
        if config["model_type"] not in FAMILIES:  # of a class of its own, whose layers read Llama's settings
            config = {key: value for key, value in config.items() if key in LayerConfig.SETTINGS} | {"model_type": "llama"}
        shape, names = shape_of(config)
        names = {key: name for key, name in names.items() if key not in ("embed", "norm")}
        first = module.layers[0]
        count = len(module.layers)
        # A module's tensors are what it computes with: biases need no setting that declares them.
        shape = replace(shape, layers=shape.layers[:count], bare=getattr(first, "mlp", None) is None, biased=None)
        if isinstance(first, PairLayer):
            shape, names["feature_in"] = replace(shape, paired="normed" if first.after else "plain"), "layers.{i}.hidden_norm"
        with torch.no_grad():
            weights, products = canonical(shape, names, ModuleSource(base, owned=True))
        part = DecoderPart(embedded=True, norm=False)
        return native(TransformerDecoder(shape, weights, products, frequencies(base, shape), part))
    except UnknownToDecoder as unknown:
        _log.warning("the layers of %s run as they are: %s", type(module).__name__, unknown)
        return None


def frequencies(base: nn.Module, shape: Shape) -> dict[str, tuple[Tensor, float]]:
    """The frequencies [r / 2] that a module's rotary positions have, by kind of layer, and the factor of their cosines and
    sines: its own buffers, whichever way it computed them. Raises UnknownToDecoder where one is not found."""
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
            size, device = shape.rotary or shape.head, next(base.parameters()).device
            found[kind] = (
                1.0 / (shape.rope[kind]["rope_theta"] ** (torch.arange(0, size, 2, dtype=torch.float32, device=device) / size)),
                1.0,
            )
    if wanted - set(found):
        raise UnknownToDecoder(f"its rotary frequencies of {', '.join(sorted(wanted - set(found)))} were not found")
    return found
