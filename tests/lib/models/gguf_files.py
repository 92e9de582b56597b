"""GGUF files of small models, written with the gguf package by the conventions of llama.cpp's converter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

import decgraph
from lab.engines import _write_vocabulary

NEIGHBOURS = ("llama", "smollm3", "granite")
GREATER = ("gemma", "gemma2", "gemma3", "nemotron")
"""Architectures whose files have queries and keys with neighbouring pairs, and norms with their one added."""
SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 2050, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
SCALES = {"Q6_K": (208,)}
PAIRS = ("Q4_1", "Q5_1", "Q4_K", "Q5_K")


def module_of(model_type: str, **more: Any) -> Any:
    """A module of transformers of random weights, norms and biases too."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(len(model_type))
    config = AutoConfig.for_model(model_type, **{**SIZES, **more})
    module = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for name, weight in module.named_parameters():
        torch.nn.init.normal_(weight, mean=0.0 if weight.dim() > 1 or "bias" in name else 1.0, std=0.15)
    return module


def blocks(form: str, rows: int, columns: int, random: np.random.Generator) -> np.ndarray:
    """A random matrix in a form, its quants of all values: what a quantiser might have made."""
    kind = gguf.GGMLQuantizationType[form]
    if form in ("F32", "F16", "BF16"):
        return gguf.quants.quantize((random.standard_normal((rows, columns)) / columns**0.5).astype(np.float32), kind)
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (rows * columns // numbers, size), dtype=np.uint8)
    for place in SCALES.get(form, (0, 2) if form in PAIRS else (0,)):
        raw[:, place : place + 2] = (random.standard_normal((len(raw), 1)) * 1e-3).astype(np.float16).view(np.uint8)
    return raw.reshape(rows, -1)


def write(
    path: Path,
    architecture: str,
    module: Any,
    form: str = "F32",
    *,
    random: bool = False,
    parts: int = 0,
    vocabulary: Callable[[Any], None] | None = None,
    **settings: Any,
) -> Path:
    """A module as a file. form: of its matrices, where their rows are whole blocks. random: matrices are random blocks.
    parts: of how many files it says to be one. vocabulary: what writes it; else it is the shipped models'. settings: further
    ones, by their names after the architecture's."""
    config = module.config
    out = gguf.GGUFWriter(path, architecture)
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    if parts:
        out.add_uint16("split.count", parts)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(heads)
    out.add_head_count_kv(groups)
    out.add_key_length(size)
    out.add_value_length(size)
    if hasattr(config, "rms_norm_eps"):
        out.add_layer_norm_rms_eps(config.rms_norm_eps)
    for key, value in settings.items():
        add: Any = out.add_string if isinstance(value, str) else out.add_bool if isinstance(value, bool) else (
            out.add_uint32 if isinstance(value, int) else out.add_float32)  # fmt: skip
        add(f"{architecture}.{key}", value)
    if vocabulary is None:
        _write_vocabulary(out, decgraph.zoo.path("target"), config.to_dict())
    else:
        vocabulary(out)
    kind, generator = gguf.GGMLQuantizationType[form], np.random.default_rng(0)
    names = gguf.get_tensor_name_map(next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == architecture),
                                     config.num_hidden_layers)  # fmt: skip
    for name, tensor in module.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = tensor.float().numpy()
        known = names.get_name(name, (".weight", ".bias"))
        assert known is not None, name
        rotated = heads if ".q_proj." in name else groups if ".k_proj." in name else 0
        if rotated and architecture in NEIGHBOURS:
            array = array.reshape(rotated, 2, size // 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        if architecture in GREATER and name.endswith("norm.weight"):
            array = array + 1
        whole = array.ndim > 1 and array.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0
        own = kind if whole else gguf.GGMLQuantizationType.F32
        data = blocks(form, array.shape[0], array.shape[1], generator) if random and whole else gguf.quants.quantize(array, own)
        out.add_tensor(known, np.ascontiguousarray(data), raw_dtype=own)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def dequantised(path: Path, config: Any) -> Any:
    """The file as transformers reads it: made float32 by the gguf package, with this config."""
    from transformers import AutoModelForCausalLM

    found = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, config=config, dtype=torch.float32)
    return found.eval()
