"""What `generate` returns beside the sequences where it is asked to: logits, and scores after the logits processors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from decgraph.runtime.processors import PaddedPrompt

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


def logits_of(model: PreTrainedModel, rows: Sequence[PaddedPrompt], new: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
    """The model's own logits before every new token: float32[B, V] for each of the most new tokens that a row has.

    Each row is one more forward over its prompt and its tokens: decoding with drafts computes logits where drafts are, in no
    order that could be handed out. Rows that end earlier have zeros after their end.
    """
    import torch

    output = model.get_output_embeddings()
    assert output is not None, "generate needs scores of tokens"
    width, device = int(output.weight.shape[0]), model.device
    longest = max(map(len, new), default=0)
    made = torch.zeros(longest, len(rows), width, dtype=torch.float32, device=device)
    with torch.no_grad():
        for row, tokens in zip(rows, new, strict=True):
            if tokens:
                path = torch.tensor([[*row.prompt, *tokens[:-1]]], device=device)
                logits = model(input_ids=path, use_cache=False, logits_to_keep=len(tokens)).logits[0]
                made[: len(tokens), row.index] = logits[-len(tokens) :].float()
    return tuple(made)


def cache_of(model: PreTrainedModel, sequences: Tensor, mask: Tensor | None) -> object:
    """transformers' cache of all tokens but the last of each sequence int64[B, T + n], from which a caller goes on as after its
    own `generate`: one more forward. mask: of the prompts, [B, T]. None for a model that returns none."""
    import torch

    read = sequences[:, :-1]
    seen = torch.ones_like(read)
    if mask is not None:
        seen[:, : mask.shape[1]] = mask[:, : read.shape[1]]
    given = {"attention_mask": seen, "position_ids": (seen.cumsum(-1) - 1).clamp_min(0), "logits_to_keep": 1}
    known = inspect.signature(type(model).forward).parameters
    with torch.no_grad():
        out = model(input_ids=read, use_cache=True, **{name: value for name, value in given.items() if name in known})
    return getattr(out, "past_key_values", None)


def scores_of(
    logits: Sequence[Tensor], sequences: Tensor, processors: Sequence[Callable[[Tensor, Tensor], Tensor]]
) -> tuple[Tensor, ...]:
    """The logits after the processors, as `generate` applies them: each [B, V], given the sequences int64[B, T + n] with their
    prompts."""
    first = sequences.shape[1] - len(logits)
    made = []
    for n, row in enumerate(logits):
        scores = row.clone()
        for processor in processors:
            scores = processor(sequences[:, : first + n], scores)
        made.append(scores)
    return tuple(made)
