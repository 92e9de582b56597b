"""Nine architectures with random weights: chains, trees and lookup give the tokens of `generate(do_sample=False)`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lib.lazily import transformers as T
from lib.models.hf_models import noisy

import decgraph
from decgraph import zoo

V = 2048
SIZES = {"vocab_size": V, "max_position_embeddings": 128, "pad_token_id": 1, "bos_token_id": 3, "eos_token_id": 0}
LLAMA = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.4}
GROUPED = {**LLAMA, "num_key_value_heads": 2}
OPT = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
WINDOW = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}

CONFIGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", GROUPED),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**GROUPED, "head_dim": 8}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**GROUPED, "sliding_window": 5}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.4}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", LLAMA),
    "opt": ("OPTConfig", "OPTForCausalLM", {**OPT, "init_std": 0.4}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", GROUPED),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {**GROUPED, **WINDOW, "head_dim": 8, "query_pre_attn_scalar": 8}),
}
WITH_LAYERS = ("llama", "qwen2", "qwen3", "mistral")  # what an EAGLE head can read

IDS = torch.tensor([[1, 1, 1, 40, 5, 9, 50], [40, 5, 9, 11, 5, 9, 51], [1, 1, 70, 44, 13, 20, 52]])
GREEDY = {"attention_mask": (IDS != 1).long(), "do_sample": False, "max_new_tokens": 24}


def made(name: str) -> Any:
    config, model, sizes = CONFIGS[name]
    torch.manual_seed(11)
    return getattr(T, model)(getattr(T, config)(**{**SIZES, **sizes})).eval()


def eagle_head() -> Any:
    from decgraph.zoo.modeling import EagleConfig, EagleHead

    torch.manual_seed(12)
    return EagleHead(EagleConfig(**{**SIZES, **GROUPED, "num_hidden_layers": 1}))


@pytest.mark.quick("llama", "gpt2", "gemma3")
@pytest.mark.parametrize("name", CONFIGS)
def test_tokens_are_those_of_generate(name: str) -> None:
    """Plainly, and with a penalty, bans, a least length, several ends and stop strings in the mix."""
    model, drafter = made(name), noisy(made(name), 0.02)
    tokenizer = T.AutoTokenizer.from_pretrained(zoo.path("target"))
    free = model.generate(IDS, **GREEDY, eos_token_id=None)
    ends = sorted({int(free[0, 15]), int(free[1, 18]), int(free[2, 24])})
    strings = [tokenizer.decode(free[2, 20:22]), tokenizer.decode(free[1, 27:29])]
    mix = {"repetition_penalty": 1.3, "suppress_tokens": [7, 30], "min_new_tokens": 9, "eos_token_id": ends}
    plain = model.generate(IDS, **GREEDY, eos_token_id=None).tolist()
    mixed = model.generate(IDS, **GREEDY, **mix, stop_strings=strings, tokenizer=tokenizer).tolist()

    assert all(mixed[row] != plain[row][: len(mixed[row])] for row in range(3)), "the mix makes a difference to every row"

    given: dict[str, dict[str, Any]] = {
        "speculative": {"drafter": drafter, "gamma": 3},
        "sequoia": {"drafter": drafter, "shape": "[[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]]"},
        "prompt_lookup": {"k": 4},
    }
    if name in WITH_LAYERS:
        given["eagle2"] = {"head": eagle_head(), "depth": 3, "k": 3, "budget": 8}
    for algorithm, parts in given.items():
        door = decgraph.hf(algorithm, **parts)
        assert model.generate(IDS, custom_generate=door, **GREEDY, eos_token_id=None).tolist() == plain, algorithm
        if algorithm == "speculative":
            assert sum(r.stats.target_calls for r in door.last) < sum(r.stats.tokens for r in door.last)
        door = decgraph.hf(algorithm, stop_strings=strings, tokenizer=tokenizer, **parts)
        assert model.generate(IDS, custom_generate=door, **GREEDY, **mix).tolist() == mixed, algorithm
