"""The target: a Llama of about five million parameters, trained on library sources with some task lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch.nn import functional as F

from lab.shipped import data, loop, models

TASK_LINES = 60_000
# (tokens per row, rows of code, rows of task lines); the long rows come last, to teach far positions.
SHORT, LONG = (256, 20, 3), (1024, 5, 1)
LONG_FROM = 0.88


def windows(tokens: torch.Tensor, rows: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """`rows` random windows of `length` tokens, int64 `[rows, length]`."""
    starts = torch.randint(0, len(tokens) - length, (rows,), generator=generator)
    return tokens[starts[:, None] + torch.arange(length)].long()  # of no rows too


def mixture(code: torch.Tensor, lines: torch.Tensor, progress: float, generator: torch.Generator) -> torch.Tensor:
    """One batch of windows of code and of task lines, int64 `[rows, length]`."""
    length, code_rows, line_rows = LONG if progress >= LONG_FROM else SHORT
    return torch.cat([windows(code, code_rows, length, generator), windows(lines, line_rows, length, generator)])


def train(out: Path, tokenizer_folder: Path, budget: loop.Budget) -> loop.TrainingOutcome:
    """Train the target and write it to `out`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = data.load_tokenizer(tokenizer_folder)
    code = torch.from_numpy(data.code_tokens(tokenizer, held=False))
    lines = torch.from_numpy(data.line_tokens(tokenizer, TASK_LINES, seed=1))
    model = models.build(budget.seed, LlamaForCausalLM, LlamaConfig(**models.architecture()))

    def loss_of(step: int, progress: float) -> Iterator[torch.Tensor]:
        batch = mixture(code, lines, progress, loop.rng(budget.seed, step))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(batch, use_cache=False).logits[:, :-1]
        yield F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())

    def export(weights: dict[str, torch.Tensor], outcome: loop.TrainingOutcome) -> None:
        models.save_model(model, out, weights, outcome, tokenizer)

    settings = {"code_tokens": len(code), "task_line_tokens": len(lines), "short": SHORT, "long": LONG}
    return loop.fit(model, loss_of, export, name="target", budget=budget, settings=settings)
