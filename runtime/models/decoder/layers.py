"""The layers of drafting heads as one step, which engines, devices and heads themselves run, and the rotary frequencies that a
module has."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor, nn

from decgraph.ir.memo import memo_of
from decgraph.runtime.models.decoder.decoder import DecoderPart, TransformerDecoder
from decgraph.runtime.models.decoder.families import FAMILIES, shape_of
from decgraph.runtime.models.decoder.llama import LLAMA
from decgraph.runtime.models.decoder.shape import FULL, Shape, UnknownToDecoder
from decgraph.runtime.models.decoder.weights import ModuleSource, canonical
from decgraph.runtime.models.heads.base import DraftLayers, LayerConfig
from decgraph.runtime.models.heads.parts import PairLayer
from decgraph.runtime.native.decoder import native

if TYPE_CHECKING:
    from decgraph.runtime.models.decoder.module_layers import ModuleLayers

Rows: TypeAlias = "list[tuple[Tensor, Tensor]]"
"""By layer the keys and values [1, H, n, D] of a head's positions."""
_log = logging.getLogger("decgraph.engine")


def step_of_layers(module: DraftLayers) -> TransformerDecoder | ModuleLayers:
    """A head's layers on the states [B, T, width] that enter the first one, as a step of engines: the decoder, or else the
    module's own layers. One for each module."""

    def build() -> TransformerDecoder | ModuleLayers:
        found = decoder_of_layers(module)
        if found is not None:
            return found
        from decgraph.runtime.models.decoder.module_layers import ModuleLayers

        return ModuleLayers(module)

    return memo_of(module).once("layers", build)


@torch.no_grad()
def over(
    module: DraftLayers, states: Tensor, positions: Tensor, *, seen: Tensor | None = None, past: Rows | None = None,
    windows: Sequence[int | None] = (), causal: Sequence[bool] = (),
) -> tuple[Tensor, Rows]:  # fmt: skip
    """A head's layers over new states [n, entering] at positions int64[n], on top of the keys and values of m positions before
    them (`past`): own outputs [n, hidden], and all keys and values. seen: bool[n, m + n]; None: each sees those before it and
    itself. windows: how far a layer sees to both sides, by its number, of positions without a gap; causal: whether it sees
    nothing behind a position."""
    step, count = step_of_layers(module), len(states)
    length = 0 if past is None else past[0][0].shape[2]
    at, states = torch.arange(length + count, device=states.device), states.to(step.dtype)
    if seen is None:
        seen = at <= at[length:, None]
    blank = [[states.new_zeros(1, heads, count, size) for size in sizes] for heads, *sizes in step.caches]
    if past is None:
        rows = [(keys, values) for keys, values in blank]
    else:
        rows = [
            (torch.cat((k, keys), 2), torch.cat((v, values), 2)) for (k, v), (keys, values) in zip(past, blank, strict=True)
        ]
    masks: dict[str | int, Tensor | None] = {FULL: seen[None, None]}
    away = at[length:, None] - at
    masks |= {n: (away.abs() <= w)[None, None] for n, w in enumerate(windows) if w is not None}
    for n in (n for n, one in enumerate(causal) if one):
        shown = masks.get(n, masks[FULL])
        assert shown is not None, "heads attend by masks"
        masks[n] = shown & (away >= 0)
    out = step(states[None], positions[None], at[None, length:], [k for k, _ in rows], [v for _, v in rows], masks)
    assert isinstance(out, Tensor), "no states between the layers are asked for"
    return out[0], rows


def decoder_of_layers(module: DraftLayers) -> TransformerDecoder | None:
    """The decoder of a head's layers on the states [B, T, width] that enter the first one; None where they have something that
    the decoder does not know. Rotary frequencies are those that the module has, of whatever kind."""
    base = nn.Module()
    base.layers, base.rotary = nn.ModuleList(module.layers), module.rotary
    try:
        config: dict[str, object] = {**module.config.to_dict()}
        made_of = type(module.layers[0]).__module__
        if config["model_type"] in FAMILIES and made_of.startswith("transformers."):
            shape, names = shape_of(config)
        elif made_of.startswith("transformers.") and ".llama." not in made_of:
            raise UnknownToDecoder(f"there is no entry for {config['model_type']}")
        else:  # of a class of its own, whose layers read Llama's settings
            config = {key: config[key] for key in LayerConfig.SETTINGS if key in config and not key.startswith("rope")}
            shape, names = shape_of(config | {"model_type": "llama"})[0], LLAMA
        names = {key: name for key, name in names.items() if key not in ("embed", "norm")}
        first = module.layers[0]
        count = len(module.layers)
        names |= {f"{n}.attn_in": "" for n, one in enumerate(module.layers) if one.input_layernorm is None}  # EAGLE-1's first
        if hasattr(first, "attention_conv"):  # DFlash 2's
            parts = {"attn": "attention_conv", "mlp": "mlp_conv"}
            names |= {f"{key}_taps": f"layers.{{i}}.{part}.base_kernel" for key, part in parts.items()}
            names |= {f"{key}_conv": f"layers.{{i}}.{part}.kernel_projection" for key, part in parts.items()}
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
