"""Models with recurrent layers, and models of images that are given text: the tokens of `generate`, or the true reason."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.engines.random_loop import run
from lib.lazily import transformers as t
from lib.models.hf_models import llama
from lib.models.hf_modules import logits

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.engine.hybrid import HybridEngine
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.engine.recurrent import RecurrentEngine
from decgraph.runtime.models.hf_live import from_module
from decgraph.runtime.prompts import request_for

IDS = torch.tensor([[1, 5, 9, 11, 5, 9, 7]])
TEXT = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 96,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
STATE = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
EYE = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
TURNS = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
QWEN_EYE = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 8,
    "fullatt_block_indexes": [0],
}
PLACES = {"image_token_id": 60, "video_token_id": 59, "vision_start_token_id": 58, "vision_end_token_id": 57}

RECURRENT: dict[str, Callable[[], Any]] = {
    "mamba": lambda: t.MambaForCausalLM(t.MambaConfig(**STATE)),
    "mamba2": lambda: t.Mamba2ForCausalLM(t.Mamba2Config(**STATE, num_heads=4, head_dim=16, n_groups=1, expand=2)),
    "falcon_mamba": lambda: t.FalconMambaForCausalLM(t.FalconMambaConfig(**STATE)),
    "rwkv": lambda: t.RwkvForCausalLM(
        t.RwkvConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2, context_length=96, attention_hidden_size=32)
    ),
    "jamba": lambda: t.JambaForCausalLM(
        t.JambaConfig(**TEXT, **EXPERTS, mamba_d_state=8, use_mamba_kernels=False, attn_layer_period=2, attn_layer_offset=1)
    ),
    "qwen3_next": lambda: t.Qwen3NextForCausalLM(
        t.Qwen3NextConfig(
            **TEXT, **EXPERTS, **LINEAR, head_dim=16, moe_intermediate_size=16, shared_expert_intermediate_size=16
        )
    ),
    "lfm2": lambda: t.Lfm2ForCausalLM(t.Lfm2Config(**TEXT, layer_types=["conv", "full_attention"])),
}
WHOLE: dict[str, Callable[[], Any]] = {
    # Bamba's state after a prompt is not that of the whole text in transformers 5.23; RecurrentGemma returns none
    "bamba": lambda: t.BambaForCausalLM(
        t.BambaConfig(**TEXT, mamba_n_heads=4, mamba_d_state=8, mamba_d_head=16, attn_layer_indices=[1])
    ),
    "recurrent_gemma": lambda: t.RecurrentGemmaForCausalLM(
        t.RecurrentGemmaConfig(**{**TEXT, "num_hidden_layers": 3}, lru_width=32)
    ),
}
IMAGES: dict[str, Callable[[], Any]] = {
    "gemma3": lambda: t.Gemma3ForConditionalGeneration(
        t.Gemma3Config(
            text_config={**TEXT, "head_dim": 8, "sliding_window": 8},
            vision_config=EYE,
            mm_tokens_per_image=4,
            image_token_index=60,
            boi_token_index=58,
            eoi_token_index=59,
        )
    ),
    "llava": lambda: t.LlavaForConditionalGeneration(
        t.LlavaConfig(text_config=t.LlamaConfig(**TEXT), vision_config=t.CLIPVisionConfig(**EYE), image_token_index=60)
    ),
    "qwen2_5_vl": lambda: t.Qwen2_5_VLForConditionalGeneration(
        t.Qwen2_5_VLConfig(text_config={**TEXT, "rope_parameters": TURNS}, vision_config=QWEN_EYE, **PLACES)
    ),
    "idefics3": lambda: t.Idefics3ForConditionalGeneration(
        t.Idefics3Config(text_config=t.LlamaConfig(**TEXT), vision_config=EYE, image_token_id=60)
    ),
}
EVERY = {**RECURRENT, **WHOLE, **IMAGES}


def module(name: str) -> Any:
    torch.manual_seed(0)
    made = EVERY[name]().eval()
    with torch.no_grad():
        for p in made.parameters():
            if p.ndim > 1:
                p.normal_(0, 0.25)
    return made


@pytest.mark.quick("mamba-prompt_lookup", "jamba-prompt_lookup", "llava-prompt_lookup", "qwen2_5_vl-prompt_lookup")
@pytest.mark.parametrize("algorithm", ["autoregressive", "prompt_lookup"])
@pytest.mark.parametrize("name", EVERY)
def test_tokens_are_those_of_generate(name: str, algorithm: str) -> None:
    model = module(name)
    settings = {"max_new_tokens": 12, "do_sample": False}
    wanted = model.generate(IDS, **settings).tolist()
    for backend in ("torch", "reference"):
        assert model.generate(IDS, custom_generate=decgraph.hf(algorithm, backend=backend), **settings).tolist() == wanted
    result = decgraph.load(algorithm).run(IDS[0].tolist(), {"target": model}, max_tokens=12)
    assert result.error is None and list(result.tokens) == wanted[0][IDS.shape[1] :]


@pytest.mark.quick("mamba", "gemma3")
@pytest.mark.parametrize("name", ["mamba", "qwen3_next", "lfm2", "gemma3"])
def test_folders_decode_like_their_modules(name: str, tmp_path: Path) -> None:
    model = module(name)
    model.save_pretrained(tmp_path / name)
    wanted = model.generate(IDS, max_new_tokens=8, do_sample=False)[0, IDS.shape[1] :].tolist()
    result = decgraph.load("autoregressive").run(IDS[0].tolist(), {"target": tmp_path / name}, max_tokens=8)
    assert result.error is None and list(result.tokens) == wanted


def computed(algorithm: str, model: Any, prompt: list[int], max_tokens: int) -> Any:
    session = decgraph.load(algorithm).session({"target": model})
    return session.run(request_for(session, prompt, max_tokens=max_tokens))


@pytest.mark.quick("mamba", "rwkv")
@pytest.mark.parametrize("name", ["mamba", "lfm2", "rwkv"])
def test_a_recurrent_state_is_computed_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    model = from_module(module(name), name=name)
    with caplog.at_level(logging.WARNING, "decgraph.engine"):
        engine = engine_of(model)
    assert isinstance(engine, RecurrentEngine if name == "rwkv" else HybridEngine)
    assert ("cannot be rolled back" in caplog.text) is (name == "rwkv")
    result = computed("autoregressive", model, IDS[0].tolist(), 10)
    assert result.error is None and engine.counted.computed == IDS.shape[1] + 9  # the last token is not read
    # Drafts that are rejected leave the text's state as it was
    drafted = decgraph.load("prompt_lookup").run(IDS[0].tolist(), {"target": model}, max_tokens=10)
    assert drafted.tokens == result.tokens and (drafted.stats.drafted > 0 or name == "rwkv")


@pytest.mark.quick("mamba")
@pytest.mark.parametrize("name", ["mamba", "mamba2", "jamba", "qwen3_next", "lfm2"])
def test_random_asks_give_the_modules_own_logits(name: str) -> None:
    """Trees grow below any of their nodes, also below those whose state no call has left."""
    of = module(name)
    engine: Any = engine_of(from_module(of, name=name))
    assert isinstance(engine, HybridEngine)

    def output(calls: list[ForwardCall]) -> None:
        for call, made in zip(calls, engine.compute(calls), strict=True):
            want = logits(of, call.paths())
            assert isinstance(made, torch.Tensor) and torch.allclose(made, want, atol=2e-3, rtol=1e-3), (
                (made - want).abs().max()
            )

    run(7, 61, 50, 16, output, engine.close)


def test_a_conversation_goes_on_from_a_state_that_was_kept() -> None:
    """The next prompt begins with the last one and its answer, or with the last one alone: only what is new is computed."""
    engine: Any = engine_of(from_module(module("jamba"), name="jamba"))
    fresh: Any = engine_of(from_module(module("jamba"), name="fresh"))
    prompt = IDS[0].tolist()
    answer = [4, 30, 8, 5]
    engine.compute([ForwardCall("a", prompt)])
    engine.compute([ForwardCall("a", prompt, (), answer, [-1, 0, 1, 2], [0, 1, 2, 3], [-1, 0, 1, 2, 3])])
    text = [*prompt, *answer]
    engine.compute([ForwardCall("a", [*text, 6], [-1] * len(prompt) + [0, 1, 2, 3, -1])])
    for other in ([*text, 4, 9], [*prompt, 8, 3]):
        engine.rewind("a", other)
        before = engine.counted.computed
        (row,) = engine.compute([ForwardCall("a", other)])
        assert engine.counted.computed - before <= 7
        (wanted,) = fresh.compute([ForwardCall(str(other), other)])
        assert torch.allclose(row, wanted, atol=1e-4)


def test_what_computes_whole_texts_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "decgraph.engine"):
        assert not isinstance(engine_of(from_module(module("recurrent_gemma"), name="griffin")), RecurrentEngine)
    assert "computes whole texts in every call: DecError: error: RecurrentGemmaForCausalLM returns no state" in caplog.text


def test_images_are_refused_by_name() -> None:
    with pytest.raises(DecError, match="images, sounds and videos .* are not supported"):
        module("llava").generate(
            IDS, pixel_values=torch.zeros(1, 3, 16, 16), custom_generate=decgraph.hf("autoregressive"), max_new_tokens=4
        )


def test_embeddings_without_tokens_are_refused_with_the_reason() -> None:
    model, custom = llama(1), decgraph.hf("autoregressive")
    embeddings = model.get_input_embeddings()(IDS).detach()
    settings = {"max_new_tokens": 4, "do_sample": False, "custom_generate": custom}
    with pytest.raises(DecError, match="drafts are made and verified by tokens"):
        model.generate(inputs_embeds=embeddings, **settings)
    with pytest.raises(DecError, match="not the embeddings of input_ids"):
        model.generate(IDS, inputs_embeds=embeddings * 1.5, **settings)
    wanted = model.generate(IDS, max_new_tokens=4, do_sample=False)
    assert torch.equal(model.generate(IDS, inputs_embeds=embeddings, **settings), wanted)
