"""Models with random weights for the tests of decgraph.hf: small enough to decode many texts with."""

from __future__ import annotations

from typing import Any

import torch

from lib.lazily import transformers

V = 61
PROMPT = torch.tensor([[1, 5, 9, 11, 5, 9]])
RAGGED = torch.tensor([[0, 0, 0, 1, 5, 9], [1, 5, 9, 11, 5, 9], [0, 0, 1, 44, 3, 20]])
MASK = (RAGGED != 0).long()


def llama(seed: int, layers: int = 2, **more: Any) -> Any:
    """A Llama of 32 dimensions over V tokens."""
    torch.manual_seed(seed)
    sizes = {
        "vocab_size": V,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.4,
    }
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**sizes, **tokens, **more})).eval()


def gpt2(seed: int) -> Any:
    """A GPT-2 of 32 dimensions over V tokens."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": V, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "initializer_range": 0.4}
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **tokens)).eval()


def noisy(model: Any, amount: float) -> Any:
    """The same model with noise on its weights: some of its guesses are right."""
    torch.manual_seed(7)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * amount)
    return model
