"""The families that the decoder knows: from a config to a shape and the names of its tensors. An entry says what differs from
Llama. To add a family: a function of dense.py or mixtures.py under `@family(model_type)`, and a row of
tests/lib/models/architecture_table.py, by which it is compared with its module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from decgraph.runtime.models.decoder import dense as dense  # their entries are in `FAMILIES`
from decgraph.runtime.models.decoder import mixtures as mixtures
from decgraph.runtime.models.decoder.llama import FAMILIES as FAMILIES
from decgraph.runtime.models.decoder.llama import Entry
from decgraph.runtime.models.decoder.settings import Settings, declared
from decgraph.runtime.models.decoder.shape import UnknownToDecoder, reading_settings

STATES = "recurrent layers keep states"
WITHOUT = {
    "gemma4_text": "embeddings for each layer, and heads of several sizes",
    "doge": "a mask that depends on the states",
    "mimo_v2_flash": "layers with several numbers of heads of keys",
    "xglm": "positions that are computed and stand in no file",
    "dbrx": "a matrix of experts that are joined",
    "jetmoe": "a mixture of attentions",
    "longcat_flash": "two attentions a layer, and experts that do nothing",
    "bloom": "ALiBi",
    "mpt": "ALiBi",
    "llama4_text": "attention in chunks",
    "deepseek_v32": "attention to chosen tokens",
    **dict.fromkeys(
        ("mamba", "mamba2", "falcon_mamba", "jamba", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "kimi_linear",
         "bailing_hybrid", "nemotron_h", "lfm2", "lfm2_moe", "lfm3", "granitemoehybrid", "falcon_h1", "bamba", "zamba2",
         "olmo_hybrid"),
        STATES,
    ),
}  # fmt: skip
"""Families that have no entry, and why: they run as transformers' own modules."""
UNDECLARED = {
    "head_norms": ("q", "k"),
    "router_bias": ("router_bias",),
    "shared": ("shared_gate", "shared_gate_proj", "shared_up_proj", "shared_up", "shared_down"),
}
"""By parts of `settings.OPTIONAL` the names of tensors that a model without them has none for."""


def shape_of(config: Mapping[str, object]) -> Entry:
    """The shape of a config (as a dictionary) and the names of its tensors. Raises UnknownToDecoder for a family without an
    entry, and for a setting that the entry does not know."""
    kind = str(config.get("model_type"))
    if kind not in FAMILIES:
        raise UnknownToDecoder(WITHOUT.get(kind) or f"there is no entry for {kind}")
    if config.get("is_causal") is False:  # what is off says nothing, but for this
        raise UnknownToDecoder("setting is_causal = False")
    settings = Settings(config)
    with reading_settings():
        shape, names = FAMILIES[kind](settings)
        has = declared(settings)
    kinds, count = config.get("layer_types"), config.get("num_hidden_layers", len(shape.layers))
    if len(shape.layers) != count or isinstance(kinds, list) and len(kinds) != count:
        raise UnknownToDecoder(f"{count!r} layers, of which {len(shape.layers)} have a kind")
    for name in settings.unread():
        raise UnknownToDecoder(f"setting {name} = {config[name]!r}")
    left = {key for part, keys in UNDECLARED.items() if part not in has for key in keys}
    return replace(shape, biased=has), {key: name for key, name in names.items() if key not in left}
