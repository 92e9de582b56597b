"""DSpark's Markov head in a folder of a drafting head: a causal model that reads the last token alone.

Its scores are a product of two small matrices: the row of the last token in `markov_w1` [V, rank], times `markov_w2` [drafts,
rank]. A head on a part of the vocabulary gives no mass to the other tokens.

Cheng et al., DSpark, 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FolderPath

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.folders import settings
from decgraph.runtime.models.interface import Memory, Model, Path, Scores, SoftCell, Vocab, check_path
from decgraph.runtime.text import vocabulary

_FIRST, _SECOND = "markov_head.markov_w1.weight", "markov_head.markov_w2.weight"


class Markov(Model):
    """See the top of the file. first: [V, rank]. second: [rows, rank]. tokens: int64[rows], the ids of its rows, or None for
    all in order."""

    def __init__(self, first: Tensor, second: Tensor, tokens: Tensor | None, *, name: str, vocab: Vocab, family: str) -> None:
        self.kind, self.name, self.vocab, self.family, self.layers = "causal", name, vocab, family, 0
        self._first, self._second, self._tokens = first, second, tokens

    @torch.no_grad()
    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        """The scores after each path's last token. Raises DecError for a memory, which it has none of, and for a mixture."""
        if memory is not None:
            raise DecError(f"{self.name!r} reads the last token alone, and no memory")
        ends = [check_path(self, path)[-1] for path in paths]
        if any(isinstance(end, SoftCell) for end in ends):
            raise self._cannot("read mixtures of embeddings")
        last = torch.tensor(ends, dtype=torch.int64, device=self._first.device)
        rows = (self._first[last] @ self._second.T).double()
        if self._tokens is not None:
            rows = rows.new_full((len(rows), self.vocab.size), float("-inf")).index_copy_(1, self._tokens, rows)
        return [Scores(logits=row) for row in rows[:, : self.vocab.size].cpu().numpy()]


def load_markov(path: FolderPath, named: Vocab | None, device: str) -> Markov:
    """The Markov head in a folder, on a device. named: the vocabulary of a model beside it. Raises DecError for one that reads
    hidden states too, and for tensors that are not there or do not fit each other."""
    from decgraph.runtime.models.heads.eagle import draft_tokens
    from decgraph.runtime.models.heads.files import tensors
    from decgraph.runtime.models.heads.layout import HeadFolder

    at = path.expanduser().resolve()
    source = HeadFolder(at, settings(at / "config.json"), tensors(at))
    form = source.said("markov_head_type") or "vanilla"
    if form != "vanilla":
        raise DecError(
            f"{at} has a Markov head of the type {form}, which reads hidden states",
            hint="`dspark_confident` takes one of the type gated, `dspark_rnn` one of any type",
        )
    spare = [name for name in source.tensors if name.startswith("markov_head.") and name not in (_FIRST, _SECOND)]
    if spare:
        raise DecError(f"{at} has a tensor {spare[0]}, which no part of a vanilla Markov head is made of")
    (size, rank), (rows, other) = source.shape(_FIRST), source.shape(_SECOND)
    if rank != other or rows > size:
        raise DecError(f"{at}: {_FIRST} has the shape {size}x{rank}, and {_SECOND} {rows}x{other}")
    tokens = draft_tokens(source, rows, size)
    first, second = (source.tensors[name].to(device).float() for name in (_FIRST, _SECOND))
    vocab = vocabulary(at, size, named)
    tokens = None if tokens is None else tokens.to(device)
    return Markov(first, second, tokens, name=at.name, vocab=vocab, family=f"{at}#markov")
