"""Tiny random-weight transformers modules of every architecture that the engines are tested on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lib.lazily import transformers as hf

_SIZES = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
_GATED = {**_SIZES, "intermediate_size": 48, "max_position_embeddings": 96}
_GROUPED = {**_GATED, "num_key_value_heads": 2}

CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: hf.LlamaConfig(**_GROUPED),
    "qwen2": lambda: hf.Qwen2Config(**_GROUPED),
    "qwen2-windows": lambda: hf.Qwen2Config(**_GROUPED, use_sliding_window=True, sliding_window=7, max_window_layers=1),
    "qwen3": lambda: hf.Qwen3Config(**_GROUPED, head_dim=16),
    "mistral": lambda: hf.MistralConfig(**_GROUPED, sliding_window=6),
    "gpt2": lambda: hf.GPT2Config(vocab_size=61, n_embd=32, n_layer=3, n_head=4, n_positions=96),
    "gpt_neox": lambda: hf.GPTNeoXConfig(**_GATED),
    "opt": lambda: hf.OPTConfig(**_SIZES, ffn_dim=48, max_position_embeddings=96, word_embed_proj_dim=24),
    "phi3": lambda: hf.Phi3Config(**_GROUPED, pad_token_id=0),
    "gemma2": lambda: hf.Gemma2Config(**_GROUPED, head_dim=8, sliding_window=6, attn_logit_softcapping=5.0),
    "gemma3": lambda: hf.Gemma3TextConfig(
        **_GROUPED, head_dim=8, sliding_window=5, layer_types=["sliding_attention", "sliding_attention", "full_attention"]
    ),
    "gpt_oss": lambda: hf.GptOssConfig(**_GROUPED, head_dim=8, sliding_window=5, num_local_experts=2, num_experts_per_tok=1),
    "cohere": lambda: hf.CohereConfig(**_GROUPED, logit_scale=0.3),
    "granite": lambda: hf.GraniteConfig(**_GROUPED, logits_scaling=3.0, attention_multiplier=0.2),
}


def module(kind: str, seed: int = 0, **changes: Any) -> Any:
    """A module with weights large enough that attention matters, in evaluation mode."""
    torch.manual_seed(seed)
    config = CONFIGS[kind]()
    for name, value in changes.items():
        setattr(config, name, value)
    # Eager for soft caps: some versions' default attention leaves them out.
    capped = getattr(config, "attn_logit_softcapping", None)
    made = hf.AutoModelForCausalLM.from_config(config, **({"attn_implementation": "eager"} if capped else {})).eval()
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.25)
            elif "sinks" in name:
                weight.normal_(0, 1)
    return made


def logits(of: Any, paths: list[tuple[int, ...]]) -> torch.Tensor:
    """The logits after each path, by full forwards without a cache: what the engines are compared with. A path that
    another one begins with is read off that one's forward."""
    rows: dict[tuple[int, ...], torch.Tensor] = {}
    for path in sorted(set(paths), key=len, reverse=True):
        if path not in rows:
            with torch.no_grad():
                made = of(input_ids=torch.tensor([path]), use_cache=False).logits[0]
            rows.update({path[: end + 1]: row for end, row in enumerate(made)})
    return torch.stack([rows[path] for path in paths])


LAYER = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
}
"""Sizes of one layer like those of `module("llama")`: what heads and adapters are made of."""


def large(of: Any) -> Any:
    """A module with weights so large that what is computed from them shows."""
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in of.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.25)
    return of.eval().requires_grad_(False)
