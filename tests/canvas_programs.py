"""The canvas algorithms of stdlib/ as the device runs them: modules after the passes, small masked models, machines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import transformers

import decgraph
from decgraph.backends.torch.machine import TorchMachine
from decgraph.runtime.models.decoder.make import net_of_module
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import Vocab
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params

V, MASK_ID = 23, 22
SIZES = {
    "vocab_size": V + 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": MASK_ID}
NAMES = [
    "fast_dllm_uncached",
    "fast_dllm",
    "fast_dllm_prefix",
    "fast_dllm_factor",
    "llada",
    "dream",
    "dream_confidence",
    "dream_margin",
    "dream_origin",
    "static_masked",
    "prophet",
]


@cache
def hf_model(kind: str = "eurobert", unmodified: bool = False) -> HFMasked:
    """A masked model of two layers with random weights; "blocks" sees up to the end of its block of four."""
    torch.manual_seed(5)
    if kind == "modernbert":
        net: Any = transformers.ModernBertForMaskedLM(
            transformers.ModernBertConfig(
                **SIZES,
                initializer_cutoff_factor=2.0,
                local_attention=6,
                global_attn_every_n_layers=2,
                **IDS,
                cls_token_id=1,
                sep_token_id=2,
            )
        )
    elif kind == "llama":
        net = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2))
    else:
        net = transformers.EuroBertForMaskedLM(transformers.EuroBertConfig(**SIZES, num_key_value_heads=2, **IDS))
    return HFMasked(
        net_of_module(net, entry=not unmodified),
        name=kind,
        vocab=Vocab("test", V),
        context=64,
        family=kind,
        mask=MASK_ID,
        visibility=("block", 4) if kind == "blocks" else "full",
    )


load = cache(decgraph.load)


def parameters(name: str, **params: Any) -> dict[str, Any]:
    """Those of the parameters that an algorithm has, checked, and its defaults for the others."""
    entry = load(name).module.entry
    known = {p.name for p in entry.params}
    return check_params(entry, {k: v for k, v in params.items() if k in known})


def machines(
    name: str, model: Any, params: dict[str, Any], requests: Sequence[Request], *, known: bool = True
) -> list[TorchMachine]:
    """A machine of the torch backend for each request; `known`: whether the passes know the parameters."""
    module = load(name).optimised(params if known else None)
    return [TorchMachine(module, name, {"model": model}, params, r) for r in requests]
