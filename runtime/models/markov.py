"""DSpark's Markov head in a folder of a drafting head: a causal model that reads the last token alone.

It is read as the correction of the head's scores (heads/corrections.py) whose rows are functions of their tokens.

Cheng et al., DSpark, 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FolderPath
from typing import TYPE_CHECKING

import torch

from decgraph.errors import DecError
from decgraph.runtime.models.interface import Memory, Model, Path, Scores, SoftCell, Vocab, check_path
from decgraph.runtime.text import vocabulary

if TYPE_CHECKING:
    from decgraph.runtime.models.heads.corrections import MarkovCorrection


class Markov(Model):
    """See the top of the file. head: a vanilla one, in float32."""

    def __init__(self, head: MarkovCorrection, *, name: str, vocab: Vocab, family: str) -> None:
        self.kind, self.name, self.vocab, self.family, self.layers = "causal", name, vocab, family, 0
        self._head = head

    @torch.no_grad()
    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        """The scores after each path's last token. Raises DecError for a memory, which it has none of, and for a mixture."""
        if memory is not None:
            raise DecError(f"{self.name!r} reads the last token alone, and no memory")
        ends = [check_path(self, path)[-1] for path in paths]
        if any(isinstance(end, SoftCell) for end in ends):
            raise self._cannot("read mixtures of embeddings")
        last = torch.tensor(ends, dtype=torch.int64, device=self._head.markov_w1.weight.device)
        rows = self._head.read_out(self._head.markov_w1(last)).double()
        return [Scores(logits=row) for row in rows[:, : self.vocab.size].cpu().numpy()]


def load_markov(path: FolderPath, named: Vocab | None, device: str) -> Markov:
    """The Markov head in a folder, on a device. named: the vocabulary of a model beside it. Raises DecError for one that reads
    hidden states too, and for tensors that are not there or do not fit each other."""
    from decgraph.runtime.models.heads import load
    from decgraph.runtime.models.heads.corrections import MarkovCorrection

    at = path.expanduser().resolve()
    found = load.read(at, "features")
    form = found.config.get("markov", "vanilla")
    if form != "vanilla":
        raise DecError(
            f"{at} has a Markov head of the type {form}, which reads hidden states",
            hint="`dspark_confident` takes one of the type gated, `dspark_rnn` one of any type",
        )
    head = load.module(found, at, torch.float32).to(device)
    if not isinstance(head, MarkovCorrection):
        raise DecError(f"{at} has no Markov head", hint="another algorithm, or another folder")
    return Markov(head, name=at.name, vocab=vocabulary(at, head.vocab, named), family=f"{at}#markov")
