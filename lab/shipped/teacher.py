"""The target as a teacher: its hidden states on texts, and its distribution from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from lab.shipped.store import Rows, digest

# The likeliest tokens that carry the soft labels where the whole vocabulary would be too wide.
TOP = 12
# Tokens of one forward call, and of one file.
CHUNK = 16_384


def load(folder: Path) -> Any:
    """The target in a folder, in float32, frozen."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
    return model.eval().requires_grad_(False)


def weights_digest(folder: Path) -> str:
    """One sha256 of all weight files of a folder."""
    files = sorted(file for file in folder.iterdir() if file.suffix in (".safetensors", ".bin"))
    return hashlib.sha256("".join(digest(file) for file in files).encode()).hexdigest()


def view(model: Any, ids: torch.Tensor, layers: tuple[int, ...]) -> Iterator[Rows]:
    """Rows `ids` `[rows, length]` with their states, some rows at a time, in order.

    `layers` are indices into transformers' `hidden_states`: i is the input of layer i, the number of layers is the last
    state after the final norm.
    """
    for part in ids.split(max(1, CHUNK // ids.shape[1])):
        with torch.inference_mode():
            hidden = model(input_ids=part, output_hidden_states=True, use_cache=False, logits_to_keep=1).hidden_states
            yield Rows(part, torch.cat([hidden[layer] for layer in layers], -1).bfloat16())


def soft_labels(logp: torch.Tensor, hard: float) -> torch.Tensor:
    """Weights over the likeliest tokens: the target's, renormalised, and a share `hard` on its first choice.

    `logp` [..., TOP] are log-probabilities, likeliest first; so are the weights.
    """
    weights = (1 - hard) * logp.exp() / logp.exp().sum(-1, keepdim=True)
    weights[..., 0] += hard
    return weights


def imitation(logits: torch.Tensor, top: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Cross entropy, place by place, of logits [..., vocabulary] against `weights` on tokens `top`, both [..., TOP]."""
    picked = logits.float().gather(-1, top)
    return logits.float().logsumexp(-1) - (weights * picked).sum(-1)
