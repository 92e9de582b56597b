"""The masked diffusion model: bidirectional, of the target's size, trained as in LLaDA (Nie et al., 2025).

A row is a prompt and a canvas. Of the canvas a random share is replaced by `<|mask|>`, the prompt never, and
the loss is the cross entropy at the masked cells. Most rows are synthetic tasks (the answer, then `<|eos|>`
to the end of the canvas), some are library code (a prefix, then the text that follows).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from lab.shipped import data, loop, models

ROWS, CODE_ROWS, GROUPS = 70, 4, 3
# Sums are the hardest to learn and the cheapest to show, so they come more often.
MIX = ("add", "json", "sub", "add", "json", "copy", "add", "json", "get", "sub", "json", "sort", "reverse")
# An answer is shown on any of these canvases that leaves room for one <|eos|>; most are cheap that way.
CANVASES = (8, 16, data.CANVAS)
# Cells after the first <|eos|> are trivial and many; they count little.
FILLER_WEIGHT = 0.1
# Code cannot be foretold; at full weight its noise would drown what the tasks teach.
CODE_WEIGHT = 0.3

# A prompt, a canvas, and how much the row counts.
Row = tuple[list[int], list[int], float]


def rows_of(tokenizer: Any, code: list[int], step: int, seed: int) -> list[Row]:
    """The rows of one step, drawn from (seed, step): tasks of `MIX` in rotation, then code at random places."""
    generator = random.Random(f"decgraph-zoo masked {seed} {step}")
    rows = []
    start = generator.randrange(10**9)
    for prompt, canvas in data.canvas_examples(tokenizer, ROWS - CODE_ROWS, start, kinds=MIX):
        answer = data.CANVAS - canvas.count(tokenizer.eos_token_id)
        size = generator.choice([size for size in CANVASES if size > answer])
        rows.append((prompt, canvas[:size], 1.0))
    for _ in range(CODE_ROWS):
        size, prefix = generator.choice(CANVASES[1:]), generator.randint(4, 28)
        start = generator.randrange(len(code) - size - prefix)
        end = start + prefix + size
        rows.append((code[start : start + prefix], code[start + prefix : end], CODE_WEIGHT))
    return rows


def noise(
    rows: list[Row], mask: int, pad: int, eos: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pad rows on the right and mask a random share of each canvas.

    Returns (ids, attention mask, labels, weights), all `[rows, longest]`; labels are -100 where nothing is
    asked.
    """
    longest = max(len(p) + len(c) for p, c, _ in rows)
    ids = torch.full((len(rows), longest), pad)
    canvas = torch.zeros(len(rows), longest, dtype=torch.bool)
    attention = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, (prompt, answer, _) in enumerate(rows):
        end = len(prompt) + len(answer)
        ids[i, :end] = torch.tensor(prompt + answer)
        canvas[i, len(prompt) : end] = True
        attention[i, :end] = 1
    share = (torch.arange(len(rows)) + torch.rand(len(rows), generator=generator)) / len(rows)
    share = share[torch.randperm(len(rows), generator=generator)].clamp(min=0.04)
    hidden = canvas & (torch.rand(ids.shape, generator=generator) < share[:, None])
    labels = torch.where(hidden, ids, -100)
    filler = canvas & (ids == eos) & (ids.roll(1, 1) == eos)
    weights = torch.where(filler, FILLER_WEIGHT, 1.0) * torch.tensor([[row[2]] for row in rows])
    return torch.where(hidden, mask, ids), attention, labels, weights


def train(out: Path, tokenizer_folder: Path, budget: loop.Budget) -> loop.TrainingOutcome:
    """Train the masked model and write it to `out`."""
    from transformers import EuroBertConfig, EuroBertForMaskedLM

    tokenizer: Any = data.load_tokenizer(tokenizer_folder)
    eos, pad, mask = tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id
    code = data.code_tokens(tokenizer, held=False).tolist()
    model = models.build(budget.seed, EuroBertForMaskedLM, EuroBertConfig(**models.architecture(), mask_token_id=mask))

    def loss_of(step: int, progress: float) -> Iterator[torch.Tensor]:
        rows = sorted(rows_of(tokenizer, code, step, budget.seed), key=lambda row: len(row[0] + row[1]))
        generator = loop.rng(budget.seed, step)
        size = -(-len(rows) // GROUPS)
        groups = [noise(rows[i : i + size], mask, pad, eos, generator) for i in range(0, len(rows), size)]
        total = sum(float(weights[labels != -100].sum()) for _, _, labels, weights in groups)
        for ids, attention, labels, weights in groups:
            with torch.autocast("cpu", torch.bfloat16):
                states = model.model(ids, attention_mask=attention).last_hidden_state
                asked = labels != -100
                logits = model.lm_head(states[asked])
            losses = F.cross_entropy(logits.float(), labels[asked], reduction="none")
            yield (losses * weights[asked]).sum() / total

    def export(weights: dict[str, torch.Tensor], outcome: loop.TrainingOutcome) -> None:
        models.save_model(model, out, weights, outcome, tokenizer)

    settings = {"rows": ROWS, "code_rows": CODE_ROWS, "kinds_in_turn": " ".join(MIX)}
    return loop.fit(model, loss_of, export, name="masked", budget=budget, settings=settings)
