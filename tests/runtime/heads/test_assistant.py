"""Gemma 4's assistants: drafted logits against transformers' own forward, decoding against `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lib.lazily import transformers
from lib.models.architecture_table import ROWS, architecture
from safetensors.torch import load_file, save_file

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.models import hf

IDS = (5, 9, 50, 5, 9, 50, 5, 9, 33)
KINDS = ["sliding_attention", "full_attention"]


@pytest.fixture
def official(monkeypatch: pytest.MonkeyPatch) -> Any:
    """transformers' class, which 5.23 does not make without this: it looks for a layer that stores what all layers reuse."""
    modes = transformers.Gemma4TextConfig.kv_sharing_modes.fget
    every = lambda self: self.num_kv_shared_layers == self.num_hidden_layers
    monkeypatch.setattr(
        transformers.Gemma4TextConfig, "kv_sharing_modes", property(lambda self: ["reuse"] * 2 if every(self) else modes(self))
    )

    def make(ordered: bool) -> Any:
        torch.manual_seed(3)
        text = {**ROWS["gemma4_text, shared"].config, "hidden_size": 24, "num_hidden_layers": 2, "layer_types": KINDS,
                "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "num_kv_shared_layers": 2}  # fmt: skip
        config = transformers.Gemma4AssistantConfig(
            text_config=transformers.Gemma4TextConfig(**{**text, "vocab_size": 96 if ordered else 97}),
            backbone_hidden_size=32,
            use_ordered_embeddings=ordered,
            num_centroids=8,
            centroid_intermediate_top_k=3,
        )
        made = transformers.Gemma4AssistantForCausalLM(config).eval().requires_grad_(False)
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
        if ordered:
            made.masked_embedding.token_ordering.copy_(torch.randperm(96))
        return made

    return make


@pytest.mark.parametrize("ordered", [False, True])
def test_drafts_are_those_of_the_official_forward(ordered: bool, official: Any, tmp_path: Path) -> None:
    module, assistant = architecture("gemma4_text, shared"), official(ordered)
    if ordered:
        module.resize_token_embeddings(96)
    module.save_pretrained(tmp_path / "target")
    assistant.save_pretrained(tmp_path / "assistant")
    target: Any = hf.load_causal(tmp_path / "target")
    head = hf.load_features(tmp_path / "assistant", target)
    before = module(torch.tensor([IDS[:-1]]), output_hidden_states=True, return_shared_kv_states=True)
    state, path = before.hidden_states[-1][:, -1:], IDS
    for token in (7, 30, 2):
        newest = module.get_input_embeddings()(torch.tensor([path[-1:]]))
        out = assistant(
            inputs_embeds=torch.cat([newest, state], -1),
            position_ids=torch.tensor([[len(IDS) - 1]]),
            shared_kv_states=before.shared_kv_states,
        )
        (row,) = head.eval([path], target.memory(IDS[:-1]))
        np.testing.assert_allclose(row.logits, out.logits[0, 0].double(), atol=2e-5)
        state, path = out.last_hidden_state, (*path, token)
    file = tmp_path / "assistant" / "model.safetensors"
    save_file({**load_file(file), "spare.weight": torch.ones(2)}, file, {"format": "pt"})
    with pytest.raises(DecError, match=r"spare\.weight"):
        hf.load_features(tmp_path / "assistant", target)


def test_decoding_is_lossless_alone_and_in_a_batch(official: Any, tmp_path: Path) -> None:
    module = architecture("gemma4_text, shared")
    official(False).save_pretrained(tmp_path / "assistant")
    prompts = torch.tensor([IDS[:8], IDS[1:9]])
    settings = {"do_sample": False, "max_new_tokens": 10, "eos_token_id": None, "pad_token_id": 0}
    wanted = module.generate(prompts, **settings).tolist()
    for algorithm in ("glide_cape", "eagle2", "mtp"):
        door = decgraph.hf(algorithm, head=tmp_path / "assistant")
        assert module.generate(prompts, custom_generate=door, **settings).tolist() == wanted
        assert all(result.stats.drafted > 0 for result in door.last)


def test_gemma_4_as_it_is_published(official: Any, tmp_path: Path) -> None:
    """A folder of images and text, whose logits are capped, with its assistant."""
    text = {**ROWS["gemma4_text, shared"].config, "final_logit_softcapping": 5.0}
    eye = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
           "num_key_value_heads": 2, "head_dim": 8, "patch_size": 8}  # fmt: skip
    config = transformers.Gemma4Config(text_config=text, vision_config=eye, audio_config=None, image_token_id=90,
                                       boi_token_id=91, eoi_token_id=92, video_token_id=93)  # fmt: skip
    torch.manual_seed(7)
    module = transformers.Gemma4ForConditionalGeneration(config).eval().requires_grad_(False)
    for weight in module.parameters():
        weight.add_(torch.randn_like(weight) * 0.1)
    module.save_pretrained(tmp_path / "target")
    official(False).save_pretrained(tmp_path / "assistant")
    wanted = module.generate(torch.tensor([IDS]), do_sample=False, max_new_tokens=6, eos_token_id=None, pad_token_id=0)
    models = {"target": tmp_path / "target", "head": tmp_path / "assistant"}
    result = decgraph.load("glide_cape").run(list(IDS), models, temperature=0, max_tokens=6)
    assert result.error is None and list(result.tokens)[:6] == wanted[0, len(IDS) :].tolist()


def test_another_target_is_refused(official: Any, tmp_path: Path) -> None:
    architecture("llama").save_pretrained(tmp_path / "target")
    official(False).save_pretrained(tmp_path / "assistant")
    with pytest.raises(DecError, match="reads the keys and values of a Gemma 4"):
        hf.load_features(tmp_path / "assistant", hf.load_causal(tmp_path / "target"))  # type: ignore[arg-type]
