"""vLLM's `speculators` folders: EAGLE-3, P-EAGLE, DFlash, DSpark and MTP, with `speculators_model_type` in config.json."""

from __future__ import annotations

from collections.abc import Collection

from decgraph.errors import DecError
from decgraph.runtime.models.heads import corrections
from decgraph.runtime.models.heads.dflash import dflash_like
from decgraph.runtime.models.heads.eagle import eagle3_like
from decgraph.runtime.models.heads.layout import Config, HeadFolder, HeadLayout, ReadHead
from decgraph.runtime.models.heads.mtp import speculators_mtp

_KNOWN = "eagle3, peagle, dflash, dspark and mtp"


def _is_speculators(config: Config, names: Collection[str]) -> bool:
    return "speculators_model_type" in config


def _speculators(source: HeadFolder) -> ReadHead:
    kind, of = source.config["speculators_model_type"], source.config.get("transformer_layer_config")
    if not isinstance(of, dict):
        raise DecError(f"{source.folder / 'config.json'} has no transformer_layer_config, which says the shape of the layers")
    match kind:
        case "eagle3":
            return eagle3_like(source, "layers.0.", of, "speculators EAGLE-3")
        case "peagle":
            return _peagle(source, of)
        case "dflash":
            reads = source.config.get("aux_hidden_state_layer_ids")
            return dflash_like(source, of, reads, source.config.get("mask_token_id"), "speculators DFlash")
        case "dspark":
            reads, mask = source.config.get("aux_hidden_state_layer_ids"), source.config.get("mask_token_id")
            return dflash_like(source, of, reads, mask, "speculators DSpark", anchor=True)
        case "mtp":
            return speculators_mtp(source, of)
    raise DecError(f"{source.folder} is a speculators folder of the kind {kind!r}", hint=f"known are {_KNOWN}")


def _peagle(source: HeadFolder, of: Config) -> ReadHead:
    read = eagle3_like(source, "layers.0.", of, "speculators P-EAGLE")
    if "mask_hidden" not in source.tensors:
        raise DecError(f"{source.folder} has no tensor mask_hidden")
    return ReadHead(
        read.layout,
        read.part,
        read.model_type,
        {**read.config, "mask_token_id": source.number("mask_token_id")},
        read.tensors,
        read.stored,
    )


LAYOUTS = (
    HeadLayout(
        "speculators",
        "`speculators_model_type` eagle3, peagle, dflash, dspark or mtp in config.json",
        _is_speculators,
        _speculators,
        corrections.read,
    ),
)
