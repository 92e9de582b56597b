"""Weights in 8 and 4 bits: as near as their blocks allow, with the tokens of the float32 model that they stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lib.lazily import make, masked_modules, transformers
from lib.models.hf_modules import module
from safetensors.torch import save_file

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.hf import load_causal
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import MASK
from decgraph.runtime.models.masked_load import load_masked
from decgraph.runtime.native.blocks import FORMATS, in_blocks, rounded
from decgraph.runtime.native.formats import QuantizedBlocks
from decgraph.runtime.native.library import library
from decgraph.runtime.native.products import NativeProduct
from decgraph.runtime.placement import Placement

pytestmark = pytest.mark.skipif(library() is None, reason="there is no C++ compiler or no x86-64 processor")


@pytest.mark.parametrize(("precision", "levels"), [("int8", 254), ("int4", 15)])
def test_a_number_goes_to_the_nearest_of_its_block(precision: str, levels: int) -> None:
    torch.manual_seed(1)
    matrix = torch.randn(7, 96)
    matrix[3, 32:64] = 0.0
    (back,) = NativeProduct(rounded(matrix, FORMATS[precision])).dequantised()
    blocks = matrix.view(7, 3, 32)
    span = (blocks.amax(-1) - blocks.amin(-1)) if precision == "int4" else 2 * blocks.abs().amax(-1)
    error = (back - matrix).view(7, 3, 32).abs().amax(-1)
    assert bool((error <= span / levels * 0.51 + 2e-3 * blocks.abs().amax(-1)).all())
    assert bool((back[3, 32:64] == 0).all())


@pytest.mark.parametrize("precision", FORMATS)
def test_tokens_are_those_of_the_model_that_the_blocks_stand_for(precision: str, tmp_path: Path) -> None:
    made = module("llama", hidden_size=64, intermediate_size=96)
    made.save_pretrained(tmp_path / "whole")
    session = decgraph.load("prompt_lookup").session(target=str(tmp_path / "whole"), dtype=precision)
    target: Any = session.models["target"]
    decoder = target.net.decoder
    products = {name: product.dequantised() for name, product in decoder.products.items()}
    shape = decoder.shape
    with torch.no_grad():  # transformers' module of the same rounded matrices
        for n, layer in enumerate(made.model.layers):
            q, k, v = (
                products[f"{n}.qkv"]
                if len(products[f"{n}.qkv"]) == 3
                else products[f"{n}.qkv"][0].split(
                    [shape.heads * shape.head, shape.kv_heads * shape.head, shape.kv_heads * shape.head]
                )
            )
            gate, up = products[f"{n}.up"] if len(products[f"{n}.up"]) == 2 else products[f"{n}.up"][0].chunk(2)
            attention, mlp = layer.self_attn, layer.mlp
            for linear, weight in (
                (attention.q_proj, q), (attention.k_proj, k), (attention.v_proj, v), (attention.o_proj, products[f"{n}.o"][0]),
                (mlp.gate_proj, gate), (mlp.up_proj, up), (mlp.down_proj, products[f"{n}.down"][0]),
            ):  # fmt: skip
                assert linear.weight.shape == weight.shape and not torch.equal(linear.weight, weight)
                linear.weight.copy_(weight)
        made.lm_head.weight = torch.nn.Parameter(products["out"][0])
    for seed in range(3):
        prompt = torch.randint(1, made.config.vocab_size, (1, 9), generator=torch.Generator().manual_seed(seed))
        want = made.generate(prompt, max_new_tokens=24, do_sample=False, eos_token_id=None)[0, 9:].tolist()
        got = session.run(decgraph.Request(tuple(prompt[0].tolist()), max_tokens=24, temperature=0)).tokens
        assert list(got) == want


def test_what_has_no_blocks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module("llama").save_pretrained(tmp_path)
    with pytest.raises(DecError, match="one of auto"):
        decgraph.load("autoregressive").session(target=str(tmp_path), dtype="int2")
    from decgraph.runtime.native import blocks

    monkeypatch.setattr(blocks, "library", lambda: None)
    with pytest.raises(DecError, match="there is none here"):
        decgraph.load("autoregressive").session(target=str(tmp_path), dtype="int8")


def test_blocks_are_for_a_cpu() -> None:
    decoder = make.of_module(module("llama").base_model).copied()
    decoder.device = torch.device("cuda")
    with pytest.raises(DecError, match="multiplied on a CPU, and cuda is none"):
        in_blocks(decoder, "int8")


def test_a_published_masked_class_has_blocks_too(tmp_path: Path) -> None:
    settings = masked_modules.llada_settings()
    (tmp_path / "config.json").write_text(json.dumps(settings))
    save_file({name: w.clone() for name, w in masked_modules.llada_weights().items()}, tmp_path / "model.safetensors")
    whole, blocks = (load_masked(tmp_path, placed=Placement("cpu", dtype)) for dtype in ("float32", "int8"))
    assert isinstance(blocks, HFMasked)
    assert isinstance(blocks.net.decoder, TransformerDecoder)
    matrices = [matrix for name in ("0.qkv", "0.up", "0.down") for matrix in blocks.net.decoder.products[name].matrices]
    assert all(isinstance(matrix, QuantizedBlocks) for matrix in matrices)
    canvas = (1, 2, MASK, MASK)
    for mine, theirs in zip(blocks.eval_canvas(canvas, [2, 3]), whole.eval_canvas(canvas, [2, 3]), strict=True):
        own, other = (np.delete(row.logits, whole.mask or 0) for row in (mine, theirs))
        assert 0 < np.abs(own - other).max() <= 0.1 * np.abs(other).max()


def test_a_model_of_images_and_text_has_none(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    images = transformers.CLIPVisionConfig(**sizes, image_size=8, patch_size=4, projection_dim=8)
    config = transformers.LlavaConfig(text_config=transformers.LlamaConfig(**sizes, vocab_size=64), vision_config=images)
    transformers.LlavaForConditionalGeneration(config).save_pretrained(tmp_path)
    with pytest.raises(DecError, match="no weights in int8"):
        load_causal(tmp_path, placed=Placement("cpu", "int8"))
