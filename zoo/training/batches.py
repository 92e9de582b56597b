"""Batches of texts: rows of like length, drawn by (seed, step) alone, so that a resumed run sees the same ones."""

from __future__ import annotations

import torch

from decgraph.zoo import loop
from decgraph.zoo.training.store import StoredRow
from decgraph.zoo.training.students import PaddedRows

# What a place before the answer counts: a head meets such text only as context, but it teaches too.
BEFORE = 0.3
# Places at the very beginning have too little context to be worth imitating.
FROM = 4


class Batches:
    """Batches of about `tokens` places, padding included."""

    def __init__(self, texts: list[StoredRow], *, tokens: int, seed: int) -> None:
        self.texts = sorted(texts, key=lambda text: len(text.ids))
        self.tokens, self.seed = tokens, seed

    def __call__(self, step: int) -> PaddedRows:
        """The batch of one step: a random row, and its neighbours by length."""
        first = int(torch.randint(0, len(self.texts), (), generator=loop.rng(self.seed, step)))
        size = max(1, self.tokens // len(self.texts[first].ids))
        first = max(0, min(first, len(self.texts) - size))
        return padded(self.texts[first : first + size])


def padded(texts: list[StoredRow]) -> PaddedRows:
    """Rows as one batch; the token after a row's last place is unknown, so that place does not count."""
    length = max(len(text.ids) for text in texts)
    ids = torch.zeros(len(texts), length, dtype=torch.long)
    states = torch.zeros(len(texts), length, texts[0].states.shape[-1], dtype=torch.bfloat16)
    counts = torch.zeros(len(texts), length)
    for row, text in enumerate(texts):
        size = len(text.ids)
        ids[row, :size], states[row, :size] = text.ids, text.states
        counts[row, FROM : size - 1] = BEFORE
        counts[row, max(FROM, text.answer - 1) : size - 1] = 1.0
    return PaddedRows(ids, states, counts)
