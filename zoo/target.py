"""The target: a Llama of about five million parameters, trained on library sources with some task lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from decgraph.zoo import data, loop

CONTEXT = 1024
TASK_LINES = 60_000
# (tokens per row, rows of code, rows of task lines); the long rows come last, to teach far positions.
SHORT, LONG = (256, 20, 3), (1024, 5, 1)
LONG_FROM = 0.88


def config(*, width: int, layers: int, heads: int, inner: int) -> Any:
    """A Llama configuration over the zoo's vocabulary: tied embeddings, rotary positions, 1024 of context."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=data.VOCAB_SIZE,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=data.SPECIAL_TOKENS.index("<|bos|>"),
        eos_token_id=data.SPECIAL_TOKENS.index("<|eos|>"),
        pad_token_id=data.SPECIAL_TOKENS.index("<|pad|>"),
    )


def build(seed: int, *, width: int = 256, layers: int = 6, heads: int = 4, inner: int = 704) -> Any:
    """A fresh model; the projections back into the residual stream start at zero."""
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    model: Any = LlamaForCausalLM(config(width=width, layers=layers, heads=heads, inner=inner))
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    return model


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
    tokenizer = data.load_tokenizer(tokenizer_folder)
    code = torch.from_numpy(data.code_tokens(tokenizer, held=False))
    lines = torch.from_numpy(data.line_tokens(tokenizer, TASK_LINES, seed=1))
    model = build(budget.seed)

    def loss_of(step: int, progress: float) -> Iterator[torch.Tensor]:
        batch = mixture(code, lines, progress, loop.rng(budget.seed, step))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(batch, use_cache=False).logits[:, :-1]
        yield F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())

    def export(weights: dict[str, torch.Tensor], outcome: loop.TrainingOutcome) -> None:
        loop.save_model(model, out, weights, outcome, tokenizer)

    settings = {"code_tokens": len(code), "task_line_tokens": len(lines), "short": SHORT, "long": LONG}
    return loop.fit(model, loss_of, export, name="target", budget=budget, settings=settings)
