"""Heads that read a Hugging Face target's states up to one position and the tokens after it: Hydra, ReDrafter, DFlash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.features import check_known
from decgraph.runtime.models.heads.rooted import Before
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import _Head, attach
from decgraph.runtime.models.interface import Memory, Path, Scores, check_family, check_path


class HFRooted(_Head):
    """A head whose module is as in heads/rooted.py. It is called as EAGLE's are: `given` is the target's memory at the root's
    parent, the root is the first token that it does not cover, and what comes after is drafted."""

    def __init__(self, module: Any, target: HFCausal, name: str) -> None:
        super().__init__(module, target, name)
        self.kind = "features"
        attach(module, target, name)

    def eval(self, paths: Sequence[Path], given: Memory | None = None) -> list[Scores]:
        """Scores of the token after each path. `given` is the target's memory at the root's parent; left out, it is the
        target's memory of everything but the path's last token. Raises DecError for more drafted tokens than the head has
        heads for."""
        if given is None:
            return [self.eval([p], self.target.memory(p[:-1]))[0] for p in paths]
        check_family(self, given)
        return [self._one(check_path(self, path), given) for path in paths]

    @torch.no_grad()
    def _one(self, path: Path, given: Memory) -> Scores:
        known = min(given.length, len(path) - 1)
        check_known(self, given, known)
        self.module.check_depth(len(path) - known - 1, self.name)
        tokens = torch.tensor([path[known:]], device=self.target.net.device)
        return self.target.scores(self.module.read(self._before(given, known), tokens, known)[0])

    def _before(self, given: Memory, known: int) -> Before:
        """What the head reads of the positions before the root; evicted ones are left out."""
        at, rows = [], []
        for position in range(known):
            state = state_of(given, position, self.module.reads, self.target.layers)
            if state is not None:
                at.append(position)
                rows.append(state)
        if not rows:
            made: Before = self.module.nothing()
            return made
        made = self.module.prepare(torch.stack(rows), torch.tensor(at, device=rows[0].device))
        return made


def state_of(given: Memory, position: int, reads: tuple[int, ...] | None, layers: int) -> Tensor | None:
    """The target's states [k width] at a position side by side, in the order of `reads` (None: the last state after the final
    norm); None if the position was evicted. Raises DecError for a memory that has only some of them."""
    last: Tensor | None = given.features.get(position)
    if last is None or reads is None:
        return last
    read = [last if n == layers else given[n].states.get(position) for n in reads]
    if any(state is None for state in read):
        raise DecError(f"the memory has no states entering the layers {', '.join(map(str, reads))} at position {position}")
    return torch.cat(read)
