"""The target as a teacher: its hidden states on texts, and its distribution from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from decgraph.errors import DecError
from decgraph.runtime.placement import Placement
from decgraph.zoo import folder_of
from decgraph.zoo.training.store import StoredRow, digest

# The likeliest tokens that carry the soft labels where the whole vocabulary would be too wide.
TOP = 12
# Tokens of one forward call over texts.
CHUNK = 4096


def load(name: str | Path, placed: Placement | None = None) -> tuple[Any, Any, Path]:
    """(model, tokenizer, folder) of a causal model. Raises DecError for a folder that holds none, and for a device that is not
    there."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from decgraph.runtime.models.folders import read
    from decgraph.runtime.models.hf import pretrained

    folder = folder_of(name)
    model = (
        pretrained(AutoModelForCausalLM, read(folder, "causal"), None, (placed or Placement()).found())
        .eval()
        .requires_grad_(False)
    )
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise DecError(f"transformers cannot read the tokenizer in {folder}: {error}") from error
    _check_output(model)
    return model, tokenizer, folder


def _check_output(model: Any) -> None:
    """Refuse a model whose logits are not its output matrix times its last hidden state: labels are made that way."""
    with torch.inference_mode():
        out = model(input_ids=torch.arange(4, device=model.device)[None] + 4, output_hidden_states=True, use_cache=False)
        logits = model.get_output_embeddings()(out.hidden_states[-1])
    rounding = max(1e-3, 8 * torch.finfo(logits.dtype).eps)
    if not torch.allclose(logits, out.logits, atol=rounding, rtol=rounding):
        raise DecError(
            f"{type(model).__name__} does more to its logits than multiply by its output matrix (a soft cap or a scale)",
            hint="such a target cannot be trained for yet",
        )


def weights_digest(folder: Path) -> str:
    """One sha256 of all weight files of a folder."""
    import hashlib

    files = sorted(file for file in folder.iterdir() if file.suffix in (".safetensors", ".bin"))
    return hashlib.sha256("".join(digest(file) for file in files).encode()).hexdigest()


def answers(model: Any, prompts: list[tuple[int, ...]], count: int, *, pad: int | None) -> list[tuple[list[int], int]]:
    """Prompts with the model's greedy answers of at most `count` tokens, as (token ids, where the answer begins), in order.

    Prompts of about one length are written together, padded on the left with `pad`, which is masked.
    """
    ends = model.generation_config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
    pad = pad if pad is not None else min(ends, default=0)
    rows: dict[int, tuple[list[int], int]] = {}
    left = sorted(range(len(prompts)), key=lambda n: len(prompts[n]))
    while left:
        longest = len(prompts[left[-1]])
        group = left[-max(1, CHUNK // (longest + count)) :]
        del left[-len(group) :]
        ids = torch.tensor([[pad] * (longest - len(prompts[n])) + list(prompts[n]) for n in group])
        mask = torch.tensor([[0] * (longest - len(prompts[n])) + [1] * len(prompts[n]) for n in group])
        with torch.inference_mode():
            there = {"inputs": ids.to(model.device), "attention_mask": mask.to(model.device)}
            whole = model.generate(**there, max_new_tokens=count, do_sample=False, pad_token_id=pad)
        for n, row in zip(group, whole[:, longest:].tolist(), strict=True):
            end = next((at + 1 for at, token in enumerate(row) if token in ends), len(row))  # what follows is padding
            rows[n] = ([*prompts[n], *row[:end]], len(prompts[n]))
    return [rows[n] for n in range(len(prompts))]


def view(model: Any, rows: list[tuple[list[int], int]], layers: tuple[int, ...]) -> Iterator[StoredRow]:
    """Texts with their states from rows of (token ids, answer), in the rows' order.

    `layers` are indices into transformers' `hidden_states`: i is the input of layer i, the number of layers is the last
    state after the final norm.
    """
    place = 0
    while place < len(rows):
        longest, count = 0, 0
        for ids, _ in rows[place:]:
            longest = max(longest, len(ids))
            if count and longest * (count + 1) > CHUNK:
                break
            count += 1
        part = rows[place : place + count]
        padded = torch.zeros(count, max(len(ids) for ids, _ in part), dtype=torch.long)
        mask = torch.zeros_like(padded)
        for index, (ids, _) in enumerate(part):
            padded[index, : len(ids)], mask[index, : len(ids)] = torch.tensor(ids), 1
        padded, mask = padded.to(model.device), mask.to(model.device)
        with torch.inference_mode():
            hidden = model(input_ids=padded, attention_mask=mask, output_hidden_states=True, use_cache=False, logits_to_keep=1)
            states = torch.cat([hidden.hidden_states[layer] for layer in layers], -1).bfloat16().cpu()
        for index, (ids, answer) in enumerate(part):
            yield StoredRow(torch.tensor(ids), answer, states[index, : len(ids)].clone())
        place += count


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
