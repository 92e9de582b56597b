"""The models of benchmarks: transformers modules in float32 on the CPU, which both sides run on.

The shipped ones, and Llamas of several sizes that were never trained. A random drafter is never right, so the large
models are made of their drafters: the drafter is the target's first layers, and what the other layers add to the state is
scaled down until the two agree on most tokens. They cost what any weights cost, and a row says how many drafts are accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from decgraph import zoo
from decgraph.bench import prompts
from decgraph.runtime.text import Tokenizer

Prompts = Sequence[Sequence[int]]

# name: (width, layers, layers of the drafter, heads, vocabulary)
SIZES = {
    "random-5M": (256, 6, 1, 4, 2048),
    "random-25M": (512, 8, 1, 8, 4096),
    "random-100M": (896, 10, 1, 14, 8192),
    "random-smollm2": (576, 30, 4, 9, 49152),  # the shape of SmolLM2-135M
}
GROUPED = {"random-smollm2": 3}  # heads of keys and values, where they are fewer


@dataclass
class Weights:
    """The modules that both sides use. `parts`: what the shipped target has beside it, as folders' names by the kind of
    model that an algorithm asks for."""

    name: str
    target: Any  # Any: a transformers module, which has no useful type
    drafter: Any
    size: int
    tokenizer: Tokenizer | None = None
    parts: dict[str, str] | None = None

    def prompts(self, count: int) -> list[tuple[int, ...]]:
        """Prompts in this model's tokens."""
        if self.tokenizer is not None:
            return prompts.of_text(self.tokenizer, count)
        return prompts.of_ids(self.size, count)

    def facts(self) -> dict[str, object]:
        """Sizes, for the result file."""
        config = self.target.config
        return {
            "target": count(self.target),
            "drafter": count(self.drafter),
            "width": config.hidden_size,
            "layers": config.num_hidden_layers,
            "vocabulary": config.vocab_size,
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "attention": config._attn_implementation,
        }


def count(module: nn.Module) -> int:
    """How many parameters a module has; tied ones count once."""
    return sum(p.numel() for p in module.parameters())


def shipped() -> Weights:
    """The shipped target and drafter."""
    target, drafter = _read("target"), _read("drafter")
    tokenizer = Tokenizer(zoo.path("target"))
    return Weights(
        "shipped",
        target,
        drafter,
        target.config.vocab_size,
        tokenizer,
        {"features": "eagle", "layers": "exit", "heads": "medusa"},
    )


def _read(name: str) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder = zoo.path(name)
    made = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    return made.requires_grad_(False)


def random_llama(name: str, seed: int = 0) -> Weights:
    """A Llama of one of `SIZES` with random weights, and a drafter that is its first layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    width, layers, below, heads, size = SIZES[name]
    torch.manual_seed(seed)
    settings = {
        "vocab_size": size,
        "hidden_size": width,
        "intermediate_size": 8 * width // 3 // 32 * 32,
        "num_attention_heads": heads,
        "num_key_value_heads": GROUPED.get(name, heads),
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "initializer_range": 0.05,
        "attn_implementation": "sdpa",
        "bos_token_id": 3,
        "eos_token_id": None,
        "pad_token_id": 1,
    }
    target: Any = LlamaForCausalLM(LlamaConfig(num_hidden_layers=layers, **settings)).eval().requires_grad_(False)
    drafter = LlamaForCausalLM(LlamaConfig(num_hidden_layers=below, **settings)).eval().requires_grad_(False)
    paired(target, drafter, below)
    return Weights(name, target, drafter, size)


@torch.no_grad()
def paired(target: Any, drafter: Any, below: int) -> float:
    """Make the drafter of the target's first layers, and damp what the others add. Returns at how many of some random positions
    the two agree."""
    given = dict(target.named_parameters())
    for name, p in drafter.named_parameters():
        p.copy_(given[name])
    return damped(target, drafter, below)


@torch.no_grad()
def damped(target: Any, drafter: Any, below: int, goal: float = 0.75) -> float:
    """Halve what the target's layers from `below` on add to the state until the drafter's likeliest token is the target's
    at `goal` of some random positions. Returns at how many it is."""
    size = target.config.vocab_size
    made = torch.Generator().manual_seed(5)
    ids = torch.randint(4, size, (2, 64), generator=made).to(target.device)

    def best(module: Any) -> Tensor:
        out: Tensor = module(input_ids=ids, use_cache=False).logits.argmax(-1)
        return out

    drafts, agreement = best(drafter), 0.0
    for _ in range(14):
        agreement = float((best(target) == drafts).float().mean())
        if agreement >= goal:
            break
        for layer in target.model.layers[below:]:
            layer.self_attn.o_proj.weight.mul_(0.5)
            layer.mlp.down_proj.weight.mul_(0.5)
    return agreement
