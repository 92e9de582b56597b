"""Kangaroo's adapter (Liu et al., 2024) in its authors' layout: attention without an MLP, and a final norm of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import nn

from decgraph.runtime.models.config import whole
from decgraph.runtime.models.heads.base import Head
from decgraph.runtime.models.heads.layout import Config, HeadFolder, HeadLayout, ReadHead, count_of, layer_settings, renamed
from decgraph.runtime.models.heads.parts import HeadLayer, Norm, rotary_of


class Adapter(Head):
    """Layers over the target's hidden states after its first ones. What leaves them is read by the target's output matrix after
    the adapter's own norm.

    Options: `exit_layer` (how many layers; None where the folder does not say), `final_norm` (false: the target's norm reads
    its states) and those of its layers.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        shape, options = self.shape, self.options
        self.exit_layer: int | None = None if options.get("exit_layer") is None else whole(options, "exit_layer")
        self.layers = nn.ModuleList(HeadLayer(shape, options) for _ in range(shape.num_hidden_layers))
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps) if options.get("final_norm", True) else None
        self.rotary = rotary_of(shape)


def _is_adapter(config: Config, names: Collection[str]) -> bool:
    return "norm.weight" in names and all(name == "norm.weight" or name.startswith("layers.") for name in names)


def _adapter(source: HeadFolder) -> ReadHead:
    shape, options = layer_settings(source, "layers.0.")
    if shape["intermediate_size"] is None:
        shape["intermediate_size"] = 1  # there is no MLP
    exits = source.config.get("exit_layer")
    config = {
        **shape,
        **options,
        "input_norm": True,
        "num_hidden_layers": count_of(source.tensors, "layers."),
        "exit_layer": exits if isinstance(exits, int) else None,
    }
    found, stored = renamed(source, {})
    return ReadHead("Kangaroo", "layers", "decgraph_kangaroo", config, found, stored)


def _is_trained(config: Config, names: Collection[str]) -> bool:
    return config.get("model_type") == "decgraph_exit"


def _trained(source: HeadFolder) -> ReadHead:
    shape, options = layer_settings(source, "layer.")
    config = {**shape, **options, "num_hidden_layers": 1, "exit_layer": source.number("exit_layer"), "final_norm": False}
    found, stored = renamed(source, {"layer.": "layers.0."})
    return ReadHead("decgraph", "layers", "decgraph_kangaroo", config, found, stored)


LAYOUTS = (
    HeadLayout("an exit trained by decgraph", "`layer.*` and the model_type decgraph_exit", _is_trained, _trained),
    HeadLayout("Kangaroo", "`layers.0.self_attn.*` with `norm.weight` and nothing else", _is_adapter, _adapter),
)
