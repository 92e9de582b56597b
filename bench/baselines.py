"""transformers' own generation on the same weights, at its best reasonable setting.

KV cache on, sdpa attention, `torch.inference_mode`, one GenerationConfig made beforehand, attention mask given, no scores
or states kept; logits of the last position alone where the library's loop can do that. What a model's own generation
settings say (penalties, top-k) is left out, since it would be the baseline's alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from decgraph.bench.weights import BenchWeights, Prompts
from decgraph.errors import DecError

NAMES = ("generate", "assisted", "assisted_default", "prompt_lookup", "early_exit")
# The counterpart of each algorithm in transformers; all others: "generate" alone.
USUAL = {
    "speculative": "assisted",
    "recursive_sd": "assisted",
    "rsd_s": "assisted",
    "sequoia": "assisted",
    "pearl": "assisted",
    "prompt_lookup": "prompt_lookup",
    "kangaroo": "early_exit",
    "eesd": "early_exit",
}
DEFAULT_DRAFTS = {  # what transformers 5 drafts with where nothing is set
    "num_assistant_tokens": 20,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.4,
}
PAD = 1  # any id: padded cells are masked


@dataclass(frozen=True)
class Baseline:
    """One way of transformers to continue a prompt. `settings` is what the result file says of it; `draft`: the module that
    drafts, and what its generation settings must say of drafts."""

    name: str
    weights: BenchWeights
    settings: dict[str, Any]
    arguments: dict[str, Any]
    draft: tuple[Any, dict[str, Any]] | None = None

    def __call__(self, prompts: Prompts, limit: int, *, sampled: bool = False, seed: int = 0) -> list[list[int]]:
        """The new tokens of every prompt; several prompts are padded on the left and run as one batch."""
        longest = max(len(prompt) for prompt in prompts)
        at = self.weights.target.device
        ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=at)
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=at)
        config = self.arguments["sampled" if sampled else "greedy"]
        config.max_new_tokens = limit
        if self.draft is not None:  # other baselines set the same module's settings
            module, wanted = self.draft
            for name, value in wanted.items():
                setattr(module.generation_config, name, value)
        if sampled:
            torch.manual_seed(seed)
        with torch.inference_mode():
            made = self.weights.target.generate(ids, attention_mask=mask, generation_config=config, **self.arguments["models"])
        return [ended(row[longest:], self.weights.eos) for row in made.tolist()]

    def calls(self, prompt: Sequence[int], limit: int) -> int:
        """How many forwards of the whole target one greedy run takes."""
        with counting(self.weights.target) as seen:
            self([prompt], limit)
        return seen.calls


@dataclass
class Forwards:
    """How many forwards a module made."""

    calls: int = 0


@contextmanager
def counting(target: Any) -> Iterator[Forwards]:
    """Counts the forwards of a whole target; drafts by its first layers do not count."""
    seen, layers = Forwards(), target.config.num_hidden_layers

    def note(module: Any, *_: Any) -> None:
        seen.calls += module.config.num_hidden_layers == layers

    hook = target.base_model.register_forward_pre_hook(note)
    try:
        yield seen
    finally:
        hook.remove()


def ended(tokens: list[int], eos: frozenset[int]) -> list[int]:
    """The tokens up to the first that ends a text; a batch pads the rows that are done."""
    at = next((n for n, token in enumerate(tokens) if token in eos), len(tokens))
    return tokens[: at + 1]


def baseline(name: str, weights: BenchWeights, params: Mapping[str, Any], *, temperature: float = 1.0) -> Baseline:
    """One of `NAMES`, with the draft length (`gamma`, `depth` or `k`), reach and exit of an algorithm's parameters;
    "assisted_default" has the library's own length and schedule instead. temperature: of sampled runs. Raises DecError for
    "assisted" without a drafter.
    """
    from transformers import GenerationConfig
    from transformers.utils import logging

    logging.set_verbosity_error()  # one notice per call about the end-of-text token being off
    eos = sorted(weights.eos) or None
    length = int(params.get("gamma", params.get("depth", 4)))
    settings: dict[str, Any] = {}
    models: dict[str, Any] = {}
    draft: tuple[Any, dict[str, Any]] | None = None
    own: dict[str, Any] = {}
    fixed = {"num_assistant_tokens": length, "num_assistant_tokens_schedule": "constant", "assistant_confidence_threshold": 0.0}
    if name in ("assisted", "assisted_default"):
        if weights.drafter is None:
            raise DecError("assisted generation needs a drafter", hint="--drafter FOLDER")
        wanted = fixed if name == "assisted" else DEFAULT_DRAFTS
        models["assistant_model"] = weights.drafter
        weights.drafter.generation_config = GenerationConfig()
        draft = weights.drafter, {**wanted, "eos_token_id": eos}
        settings = dict(wanted)
    elif name == "prompt_lookup":
        own = {"prompt_lookup_num_tokens": int(params.get("k", 10)), "max_matching_ngram_size": int(params.get("reach", 3))}
        settings = dict(own)
    elif name == "early_exit":
        # The drafter is the target itself, so its generation settings say how long drafts are.
        draft = weights.target, {**fixed, "assistant_confidence_threshold": float(params.get("eta", 0.0))}
        own = {"assistant_early_exit": int(params.get("exit", 2))}
        settings = {**own, **draft[1]}
    weights.target.generation_config = GenerationConfig()
    plain = {"eos_token_id": eos, "pad_token_id": PAD, "use_cache": True, **own}
    greedy = GenerationConfig(do_sample=False, **plain)
    sampled = GenerationConfig(do_sample=True, temperature=float(temperature), top_k=0, top_p=1.0, **plain)
    return Baseline(
        name,
        weights,
        {**settings, "use_cache": True, "attention": "sdpa", "inference_mode": True},
        {"greedy": greedy, "sampled": sampled, "models": models},
        draft,
    )
