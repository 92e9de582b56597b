"""Folders in FP8 run in FP8. Others whose weights are quantised run as transformers has them, and are refused on a device where
that makes numbers of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import transformers
from lib.models import model_folders
from safetensors.torch import load_file, save_file
from torch import Tensor

import decgraph
from decgraph.backends.triton.models.decoder import SlotDecoder
from decgraph.errors import DecError
from decgraph.models import request_for
from decgraph.runtime.models import hf
from decgraph.runtime.models.decoder.scaled import FP8, ScaledProduct, ScaledRows, ScaledSource
from decgraph.runtime.models.folders import read
from decgraph.runtime.placement import Placement

TOP = 448.0
FBGEMM: dict[str, Any] = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}
EIGHT = {"type": "float", "num_bits": 8, "symmetric": True}
COMPRESSED: dict[str, Any] = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {**EIGHT, "strategy": "channel", "dynamic": False},
                                  "input_activations": {**EIGHT, "strategy": "token", "dynamic": True}}},
}  # fmt: skip


def changed(at: Path, quantised: dict[str, Any], weights: dict[str, Tensor]) -> None:
    config = json.loads((at / "config.json").read_text(encoding="utf-8"))
    config |= {"dtype": "bfloat16", "quantization_config": quantised}
    (at / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(weights, at / "model.safetensors", metadata={"format": "pt"})


def folder(at: Path, quantised: dict[str, Any]) -> tuple[Path, Any]:
    """A folder in FP8, and transformers' module of the same numbers, whose products get states of FP8."""
    made = model_folders.folder(at, tie_word_embeddings=False, head_dim=16)
    weights: dict[str, Tensor] = {}
    for name, w in load_file(made / "model.safetensors").items():
        if w.dim() < 2 or "layers" not in name:
            weights[name] = w.bfloat16()
            continue
        scale = w.abs().amax(1, keepdim=True).clamp(min=1e-12) / TOP
        weights |= {name: (w / scale).to(FP8), name + "_scale": scale}
    changed(made, quantised, weights)
    module = model_folders.model(tie_word_embeddings=False, head_dim=16)
    for name, p in module.named_parameters():
        p.data = weights[name].float() * weights.get(name + "_scale", torch.ones(1))
    bound = quantised.get("activation_scale_ub") or torch.inf

    def rounded(_: Any, args: tuple[Tensor]) -> Tensor:
        scale = args[0].abs().amax(-1, keepdim=True).clamp(max=bound) / TOP
        return (args[0] / scale).to(FP8).float() * scale

    for name, part in module.named_modules():
        if isinstance(part, torch.nn.Linear) and name != "lm_head":
            part.register_forward_pre_hook(rounded)
    return made, module


@pytest.mark.parametrize("quantised", [FBGEMM, COMPRESSED], ids=["fbgemm", "compressed-tensors"])
def test_a_folder_in_fp8_stays_in_fp8(quantised: dict[str, Any], tmp_path: Path) -> None:
    path, module = folder(tmp_path, quantised)
    model: Any = hf.load_causal(path, placed=Placement("cpu"))
    decoder = model.net.decoder
    for each in (decoder, SlotDecoder(decoder)):
        assert all(isinstance(p, ScaledProduct) for name, p in each.products.items() if name != "out")
    ids = torch.arange(5, 25)
    with torch.no_grad():
        wanted = module(ids[None]).logits[0]
    made = model.net.scores(ids, causal=True)
    gap = (made - wanted).square().mean().sqrt() / wanted.square().mean().sqrt()
    assert gap < 0.15, "outputs are rounded to bfloat16, and then many a state to another number of FP8"


@pytest.mark.parametrize("bound", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_is_that_of_the_rounded_numbers(bound: float, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    sizes, x, added = (32, 16, 16), torch.randn(5, 48).to(dtype), torch.randn(5, 64).to(dtype)
    x[2] = 0
    rows = [ScaledRows(torch.randn(n, 48).to(FP8), "F8_E4M3", (n, 48), torch.rand(n) + 0.5, bound) for n in sizes]
    biases = tuple(torch.randn(n).to(dtype) for n in sizes)
    scale = x.float().abs().amax(-1, keepdim=True).clamp(max=bound or torch.inf) / TOP
    states = (x.float() / scale.clamp(min=1e-12)).clamp(-TOP, TOP).to(FP8).float() * scale
    real = [r.data.float() * r.scale[:, None] for r in rows]
    wanted = torch.cat([states @ w.T + b.float() for w, b in zip(real, biases, strict=True)], -1)
    product = ScaledProduct(*rows, biases=biases)
    torch.testing.assert_close(product(x).float(), wanted, rtol=2e-2, atol=5e-2)
    torch.testing.assert_close(product(x, added).float(), wanted + added.float(), rtol=2e-2, atol=5e-2)
    assert product(x).dtype == dtype and product.shape == (64, 48)
    torch.testing.assert_close(torch.cat(product.dequantised()), torch.cat(real))


def test_matrices_of_one_input_are_one_on_a_device(tmp_path: Path) -> None:
    path, _ = folder(tmp_path, FBGEMM)
    source = ScaledSource(path, {"quantization_config": FBGEMM}, torch.bfloat16, "cpu")
    source.begin("embed_tokens.weight")
    parts: list[Any] = [source.take(f"layers.0.mlp.{name}_proj.weight") for name in ("gate", "up")]
    assert source.joined(parts) == parts, "mapped on a CPU"
    source._device = "meta"
    (whole,) = source.joined(parts)
    assert isinstance(whole, ScaledRows) and torch.equal(whole.reals(), torch.cat([p.reals() for p in parts]))


@pytest.mark.parametrize("name", ["autoregressive", "speculative", "cfg"])
def test_doors_run_a_folder_in_fp8(name: str, tmp_path: Path) -> None:
    path, _ = folder(tmp_path, FBGEMM)
    algorithm = decgraph.load(name)
    models = {p.name: path for p in algorithm.function.params if p.value.type.elem == "model"}
    params: dict[str, Any] = {"negative": [10, 11]} if name == "cfg" else {}
    runs = [algorithm.session(models, backend=backend, **params) for backend in ("torch", "triton")]
    request = request_for(runs[0], prompt=[5, 9, 11], max_tokens=12)
    one, other = (run.run(request, keep_events=False) for run in runs)
    assert one.tokens == other.tokens and len(one.tokens) == 12


STATIC = {**COMPRESSED, "config_groups": {"group_0": {**COMPRESSED["config_groups"]["group_0"],
          "input_activations": {**EIGHT, "strategy": "tensor", "dynamic": False}}}}  # fmt: skip


@pytest.mark.parametrize("quantised", [STATIC, {"quant_method": "gptq", "bits": 4, "group_size": 128}], ids=["static", "gptq"])
def test_another_kind_is_no_folder_of_the_decoder(quantised: dict[str, Any], tmp_path: Path) -> None:
    path, _ = folder(tmp_path, quantised)
    net = hf.decoder_net(read(path, "causal"), Placement("cpu"))
    assert isinstance(net, Exception) and str(quantised["quant_method"]) in str(net)


def test_a_device_that_does_not_multiply_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Tensor:
        raise RuntimeError("torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9")

    path, _ = folder(tmp_path, FBGEMM)
    monkeypatch.setattr(torch, "_scaled_mm", fails)
    net = hf.decoder_net(read(path, "causal"), Placement("cpu"))
    assert isinstance(net, Exception) and "does not multiply on cpu: torch._scaled_mm is only supported" in str(net)


def test_what_transformers_made_numbers_of_is_refused_on_a_device(tmp_path: Path) -> None:
    """It has no kernels for blocks of FP8 without a GPU, and makes bfloat16 of them."""
    made = model_folders.folder(tmp_path, tie_word_embeddings=False, hidden_size=128, intermediate_size=256)
    weights: dict[str, Tensor] = {}
    for name, w in load_file(made / "model.safetensors").items():
        quantised = w.dim() == 2 and "layers" in name
        weights[name] = w.to(FP8) if quantised else w.bfloat16()
        if quantised:
            weights[name + "_scale_inv"] = torch.ones(-(-len(w) // 128), -(-w.shape[1] // 128))
    changed(made, {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}, weights)
    found = read(made, "causal")
    module = hf.pretrained(transformers.AutoModelForCausalLM, found, None, Placement("cpu"))
    hf.check_quantised(found, module, Placement("cuda", "bfloat16"))
    with pytest.raises(DecError, match=r"quantised weights \(fp8, .* made numbers for cuda") as refused:
        hf.check_quantised(found, module, Placement("cuda"))
    assert "dtype bfloat16" in str(refused.value)
