"""transformers' own generation on the same modules, at its best reasonable setting.

KV cache on, sdpa attention, `torch.inference_mode`, one GenerationConfig made beforehand, attention mask given, no scores
or states kept; logits of the last position alone where the library's loop can do that. The end-of-text token is off, so
that both sides make the same number of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from decgraph.bench.weights import Prompts, Weights

NAMES = ("generate", "assisted", "prompt_lookup", "early_exit")
# The default baseline of each algorithm; all others: "generate".
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


@dataclass(frozen=True)
class Baseline:
    """One way of transformers to continue a prompt. `settings` is what the result file says of it."""

    name: str
    weights: Weights
    settings: dict[str, Any]
    given: dict[str, Any]

    def __call__(self, prompts: Prompts, limit: int, *, sampled: bool = False, seed: int = 0) -> list[list[int]]:
        """The new tokens of every prompt; several prompts are padded on the left and run as one batch."""
        longest = max(len(prompt) for prompt in prompts)
        at = self.weights.target.device
        ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=at)
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=at)
        config = self.given["sampled" if sampled else "greedy"]
        config.max_new_tokens = limit
        if sampled:
            torch.manual_seed(seed)
        with torch.inference_mode():
            made = self.weights.target.generate(ids, attention_mask=mask, generation_config=config, **self.given["models"])
        return [row[longest:] for row in made.tolist()]

    def calls(self, prompt: Sequence[int], limit: int) -> int:
        """How many forwards of the whole target one greedy run takes; drafts by its first layers do not count."""
        target, seen = self.weights.target, 0
        layers = target.config.num_hidden_layers

        def note(module: Any, *_: Any) -> None:
            nonlocal seen
            seen += module.config.num_hidden_layers == layers

        hook = target.model.register_forward_pre_hook(note)
        try:
            self([prompt], limit)
        finally:
            hook.remove()
        return seen


def baseline(name: str, weights: Weights, params: Mapping[str, Any]) -> Baseline:
    """One of `NAMES`, with the draft length (`gamma`, `depth` or `k`), reach and exit of an algorithm's parameters."""
    from transformers import GenerationConfig
    from transformers.utils import logging

    logging.set_verbosity_error()  # one notice per call about the end-of-text token being off
    length = int(params.get("gamma", params.get("depth", 4)))
    settings: dict[str, Any] = {}
    models: dict[str, Any] = {}
    if name == "assisted":
        draft = weights.drafter.generation_config
        draft.num_assistant_tokens, draft.num_assistant_tokens_schedule = length, "constant"
        draft.assistant_confidence_threshold = 0.0
        draft.eos_token_id = None
        models["assistant_model"] = weights.drafter
        settings = {
            "num_assistant_tokens": length,
            "num_assistant_tokens_schedule": "constant",
            "assistant_confidence_threshold": 0.0,
        }
    elif name == "prompt_lookup":
        settings = {
            "prompt_lookup_num_tokens": int(params.get("k", 10)),
            "max_matching_ngram_size": int(params.get("reach", 3)),
        }
    elif name == "early_exit":
        # The drafter is the target itself, so its generation settings say how long drafts are.
        draft = weights.target.generation_config
        draft.num_assistant_tokens, draft.num_assistant_tokens_schedule = length, "constant"
        draft.assistant_confidence_threshold = float(params.get("eta", 0.0))
        settings = {"assistant_early_exit": int(params.get("exit", 2))}
    own = {
        key: settings[key]
        for key in settings
        if key in ("prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit")
    }
    weights.target.generation_config.eos_token_id = None
    plain = {"eos_token_id": None, "pad_token_id": 1, "use_cache": True, **own}
    greedy = GenerationConfig(do_sample=False, **plain)
    sampled = GenerationConfig(do_sample=True, temperature=1.0, top_k=0, top_p=1.0, **plain)
    return Baseline(
        name,
        weights,
        {**settings, "use_cache": True, "attention": "sdpa", "inference_mode": True},
        {"greedy": greedy, "sampled": sampled, "models": models},
    )
