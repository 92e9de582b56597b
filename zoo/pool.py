"""What the drafter and the heads learn from: the target's own text, and its view of library code.

At temperature 0 a draft is judged on the target's own greedy continuations, so these are most of the pool:
prompts from training code and task lines, continued by the target. The rest are plain windows of training
code. For every place the target's likeliest tokens and their log-probabilities are kept, so a student needs
no teacher beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from decgraph.zoo import data, loop, target

ROW = 192
PROMPT = 48
TOP = 12
CHUNK = 128
TASK_SHARE = 0.06


@dataclass(frozen=True)
class Pool:
    """Rows of `ROW` tokens with the target's view of the token that follows each place.

    `ids` is int64 `[rows, ROW]`; `top` (int64) and `logp` (float32) are `[rows, ROW, TOP]`, likeliest first.
    The first `written` rows were continued by the target, the others are windows of library code.
    """

    ids: torch.Tensor
    top: torch.Tensor
    logp: torch.Tensor
    written: int


@torch.no_grad()
def continue_greedily(model: Any, prompts: torch.Tensor, count: int) -> torch.Tensor:
    """`[rows, prompt]` -> `[rows, prompt + count]`: the likeliest token, `count` times, never stopping."""
    ids, cache, fresh = prompts, None, prompts
    for _ in range(count):
        output = model(fresh, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, fresh = output.past_key_values, output.logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat((ids, fresh), dim=1)
    return ids


@torch.no_grad()
def opinions(model: Any, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The `TOP` likeliest next tokens at every place of `[rows, length]`, and their log-probabilities."""
    values, indices = model(ids, use_cache=False).logits.float().log_softmax(-1).topk(TOP)
    return indices, values


def prompts(tokenizer: Any, rows: int, seed: int) -> torch.Tensor:
    """`[rows, PROMPT]` windows to continue: mostly training code, some task lines."""
    generator = loop.rng(seed, 0, stream=3)
    code = torch.from_numpy(data.code_tokens(tokenizer, held=False))
    lines = torch.from_numpy(data.line_tokens(tokenizer, 8_000, seed=3))
    tasks = int(rows * TASK_SHARE)
    return torch.cat(
        (
            target.windows(code, rows - tasks, PROMPT, generator),
            target.windows(lines, tasks, PROMPT, generator),
        )
    )[torch.randperm(rows, generator=generator)]


def build(model: Any, tokenizer: Any, *, written: int, plain: int, seed: int, note: Callable[[str], None] = print) -> Pool:
    """Let the target (any dtype) write `written` rows, then judge them and `plain` rows of code."""
    code = torch.from_numpy(data.code_tokens(tokenizer, held=False))
    starts = prompts(tokenizer, written, seed)
    rows = []
    for begin in range(0, written, CHUNK):
        rows.append(continue_greedily(model, starts[begin : begin + CHUNK], ROW - PROMPT))
        note(f"pool: {begin + len(rows[-1])} of {written} rows written")
    rows.append(target.windows(code, plain, ROW, loop.rng(seed, 0, stream=4)))
    ids = torch.cat(rows)
    top, logp = zip(*(opinions(model, ids[i : i + CHUNK]) for i in range(0, len(ids), CHUNK)), strict=True)
    return Pool(ids, torch.cat(top), torch.cat(logp), written)


def obtain(target_folder: Path, work: Path, *, written: int, plain: int, seed: int) -> Pool:
    """The pool of these target weights, built once and kept in `work` under a hash of weights and sizes."""
    from transformers import AutoModelForCausalLM

    weights = (target_folder / "model.safetensors").read_bytes()
    key = hashlib.sha256(weights + f"{written} {plain} {seed}".encode()).hexdigest()[:12]
    kept = work / f"pool-{key}.pt"
    if not kept.exists():
        work.mkdir(parents=True, exist_ok=True)
        # For one token at a time on a CPU, plain attention in bfloat16 is twice as fast as the fused kernel.
        model = AutoModelForCausalLM.from_pretrained(target_folder, dtype=torch.bfloat16, attn_implementation="eager").eval()
        tokenizer = data.load_tokenizer(target_folder)
        pool = build(model, tokenizer, written=written, plain=plain, seed=seed)
        torch.save(
            {
                "ids": pool.ids.short(),
                "top": pool.top.short(),
                "logp": pool.logp.bfloat16(),
                "written": written,
            },
            kept,
        )
    saved = torch.load(kept, weights_only=True)
    return Pool(saved["ids"].long(), saved["top"].long(), saved["logp"].float(), saved["written"])


def soft_labels(logp: torch.Tensor, hard: float) -> torch.Tensor:
    """Weights over the `TOP` tokens: the target's, renormalised, and a share `hard` on its first choice: [..., TOP], as
    `logp`."""
    weights = (1 - hard) * logp.exp() / logp.exp().sum(-1, keepdim=True)
    weights[..., 0] += hard
    return weights


def imitation(logits: torch.Tensor, top: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of `[..., vocab]` logits against `weights` on tokens `top`, both `[..., TOP]`."""
    picked = logits.float().gather(-1, top)
    return (logits.float().logsumexp(-1) - (weights * picked).sum(-1)).mean()
