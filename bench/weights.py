"""The models of benchmarks: transformers modules that both sides run on, each side its own copy of the same weights.

The shipped ones, and Llamas of several sizes that were never trained. A random drafter is never right, so the large
models are made of their drafters: the drafter is the target's first layers, and what the other layers add to the state is
scaled down until the two agree on most tokens. They cost what any weights cost, and a row says how many drafts are accepted.
loading.py reads a user's own models.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from decgraph import zoo
from decgraph.runtime.models import folders
from decgraph.runtime.models.hf import pretrained
from decgraph.runtime.placement import Placement
from decgraph.runtime.text import Tokenizer

Prompts = Sequence[Sequence[int]]
HOST = Placement("cpu", "float32")


@dataclass(frozen=True)
class LlamaSize:
    """The size of a Llama that was never trained. below: layers of its drafter. groups: key and value heads (default: as many
    as heads). inner: width of the feed-forward layer (default: 8/3 of the width). size: of the vocabulary."""

    width: int
    layers: int
    below: int
    heads: int
    size: int
    groups: int | None = None
    inner: int | None = None


SIZES = {
    "random-5M": LlamaSize(256, 6, 1, 4, 2048),
    "random-25M": LlamaSize(512, 8, 1, 8, 4096),
    "random-100M": LlamaSize(896, 10, 1, 14, 8192),
    "random-135M": LlamaSize(576, 30, 4, 9, 49152, groups=3, inner=1536),  # the shape of SmolLM2-135M
}
CONTEXT = 8192  # cells that a random model has positions for


@dataclass
class BenchWeights:
    """A target, the drafter beside it where there is one, and what else an algorithm may ask for.

    parts: heads, adapters and further models, folders or modules, by the name of an algorithm's parameter or by the kind of
    model that it asks for. eos: the tokens that end a text; None: every request runs to its limit. folders: where the models
    lie, by "target", "drafter" and the names of the parts."""

    name: str
    target: Any  # Any: a transformers module, which has no useful type
    drafter: Any
    size: int
    tokenizer: Tokenizer | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)
    eos: frozenset[int] = frozenset()
    folders: Mapping[str, str] = field(default_factory=dict)

    def copied(self) -> BenchWeights:
        """The same weights in memory of their own: an engine may lay those of a module out anew, which other code then reads
        faster or slower than as they were loaded."""
        return replace(self, target=copy.deepcopy(self.target), drafter=copy.deepcopy(self.drafter))

    def facts(self) -> dict[str, object]:
        """Sizes, for the result file."""
        config = self.target.config.get_text_config()
        return {
            "name": self.name,
            "target": count(self.target),
            **({"drafter": count(self.drafter)} if self.drafter is not None else {}),
            "width": config.hidden_size,
            "layers": config.num_hidden_layers,
            "vocabulary": config.vocab_size,
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "device": str(self.target.device),
            "attention": config._attn_implementation,
            "eos": sorted(self.eos),
            "folders": dict(self.folders),
        }


def count(module: nn.Module) -> int:
    """How many parameters a module has; tied ones count once."""
    return sum(p.numel() for p in module.parameters())


def shipped(placed: Placement = HOST) -> BenchWeights:
    """The shipped target and drafter."""
    target, drafter = (read(zoo.path(name), placed) for name in ("target", "drafter"))
    tokenizer = Tokenizer(zoo.path("target"))
    parts = {"features": "eagle", "layers": "exit", "heads": "medusa"}
    folders = {name: str(zoo.path(name)) for name in ("target", "drafter", *parts.values())}
    return BenchWeights("shipped", target, drafter, target.config.vocab_size, tokenizer, parts, folders=folders)


def read(folder: Path, placed: Placement) -> Any:  # Any: a transformers module
    """A causal model of transformers, in evaluation mode. Raises DecError for a folder that cannot be read as one."""
    from transformers import AutoModelForCausalLM

    module = pretrained(AutoModelForCausalLM, folders.read(folder, "causal"), "sdpa", placed.resolved())
    return module.eval().requires_grad_(False)


def random_llama(name: str, seed: int = 0) -> BenchWeights:
    """A Llama of one of `SIZES` with random weights, and a drafter that is its first layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = SIZES[name]
    torch.manual_seed(seed)
    settings = {
        "vocab_size": shape.size,
        "hidden_size": shape.width,
        "intermediate_size": shape.inner or 8 * shape.width // 3 // 32 * 32,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.groups or shape.heads,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "initializer_range": 0.05,
        "attn_implementation": "sdpa",
        "bos_token_id": 3,
        "eos_token_id": None,
        "pad_token_id": 1,
    }
    target: Any = LlamaForCausalLM(LlamaConfig(num_hidden_layers=shape.layers, **settings)).eval().requires_grad_(False)
    drafter = LlamaForCausalLM(LlamaConfig(num_hidden_layers=shape.below, **settings)).eval().requires_grad_(False)
    paired(target, drafter, shape.below)
    return BenchWeights(name, target, drafter, shape.size)


@torch.no_grad()
def paired(target: Any, drafter: Any, below: int, goal: float = 0.75) -> float:
    """Make the drafter of the target's first layers, and halve what the others add to the state until the drafter's likeliest
    token is the target's at `goal` of some random positions. Returns at how many it is."""
    given = dict(target.named_parameters())
    for name, p in drafter.named_parameters():
        p.copy_(given[name])
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
