"""Adapters of PEFT in folders of their own: models beside the one that they add to, called where a program says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import peft, transformers
from lib.models.hf_models import llama
from safetensors.torch import load_file, save_file

import decgraph
from decgraph.runtime.models import hf

PATH = (1, 5, 9, 11, 5, 9, 3)
RANK = 2


def adapter(at: Path, base: Path, **more: Any) -> Path:
    """LoRA on the queries of layer 1 and the MLPs' outputs, as peft writes it."""
    torch.manual_seed(3)
    whole, parts = load_file(base / "model.safetensors"), {}
    for name in ("model.layers.1.self_attn.q_proj", "model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj"):
        out, into = whole[f"{name}.weight"].shape
        parts[f"base_model.model.{name}.lora_A.weight"] = torch.randn(RANK, into)
        parts[f"base_model.model.{name}.lora_B.weight"] = torch.randn(out, RANK) * 0.3
    at.mkdir()
    save_file(parts, at / "adapter_model.safetensors")
    said = {"peft_type": "LORA", "r": RANK, "lora_alpha": 6, "base_model_name_or_path": str(base), "bias": "none", **more}
    (at / "adapter_config.json").write_text(json.dumps(said))
    return at


def loaded(at: Path) -> Any:
    return hf.load_causal(at)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    llama(0).save_pretrained(tmp_path / "base")
    return tmp_path / "base"


@pytest.mark.parametrize("rslora", [False, True])
def test_scores_are_those_of_peft(base: Path, tmp_path: Path, rslora: bool) -> None:
    """Of a folder that peft wrote."""
    targets = ["q_proj", "o_proj", "down_proj"]
    config = peft.LoraConfig(r=4, lora_alpha=12, target_modules=targets, init_lora_weights=False, use_rslora=rslora)
    module = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(base), config).eval()
    module.save_pretrained(tmp_path / "lora")
    with torch.no_grad():
        wanted = module(torch.tensor([PATH])).logits[0, -1].double()
    ours, plain = (torch.from_numpy(hf.load_causal(at).eval([PATH])[0].logits) for at in (tmp_path / "lora", base))
    torch.testing.assert_close(ours, wanted, atol=1e-4, rtol=1e-4)
    assert float((ours - plain).abs().max()) > 0.05


def test_what_it_does_not_add_to_is_the_models_own(base: Path, tmp_path: Path) -> None:
    one, two = (loaded(at) for at in (base, adapter(tmp_path / "lora", base)))
    assert torch.equal(one.net.decoder.embedding, two.net.decoder.embedding)
    own, added = (model.net.decoder.products for model in (one, two))
    assert torch.equal(own["0.up"].weights[0], added["0.up"].weights[0])
    assert not torch.equal(own["1.down"].weights[0], added["1.down"].weights[0])


def test_a_program_chooses_at_every_call(base: Path, tmp_path: Path) -> None:
    program = decgraph.parse(
        "algorithm by_turns(target: causal, writer: causal):\n"
        "    while not done:\n"
        "        x ~ writer(ctx) if ctx.length % 2 == 0 else target(ctx)\n"
        "        commit x\n"
    )
    at = adapter(tmp_path / "lora", base)
    done = program.run([1, 5, 9], models={"target": base, "writer": at}, max_tokens=8, temperature=0)
    text, models = [1, 5, 9], {0: loaded(at), 1: loaded(base)}
    for _ in range(8):
        text.append(int(models[len(text) % 2].eval([tuple(text)])[0].logits.argmax()))
    assert done.error is None and list(done.tokens) == text[3:]
    drafted = decgraph.load("speculative").run([1, 5, 9], models={"target": base, "drafter": at}, max_tokens=8, temperature=0)
    assert (
        drafted.tokens
        == decgraph.load("autoregressive").run([1, 5, 9], models={"target": base}, max_tokens=8, temperature=0).tokens
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"bias": "all"}, "biases"),
        ({"peft_type": "LOHA"}, "LOHA"),
        ({"base_model_name_or_path": "some/base"}, "holds an adapter of PEFT and no model"),
    ],
)
def test_what_is_refused_says_why(base: Path, tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(decgraph.DecError, match=said):
        hf.load_causal(adapter(tmp_path / "lora", base, **more))


def test_an_adapter_of_another_model_is_refused(base: Path, tmp_path: Path) -> None:
    at = adapter(tmp_path / "lora", base)
    parts = load_file(at / "adapter_model.safetensors")
    save_file({k.replace("layers.1", "layers.9"): v for k, v in parts.items()}, at / "adapter_model.safetensors")
    with pytest.raises(decgraph.DecError, match="no addition to a matrix"):
        hf.load_causal(at)
    save_file({k: v[:, :-1].contiguous() if "lora_A" in k else v for k, v in parts.items()}, at / "adapter_model.safetensors")
    with pytest.raises(decgraph.DecError, match="belongs to another model"):
        hf.load_causal(at)
