"""The optimiser: Muon for matrices, Adam for embeddings and norms, one moving average of the weights.

Muon (Keller Jordan, 2024) steps along the orthogonalised momentum of each matrix. On a few million parameters and a CPU it
reaches a given loss in clearly fewer tokens than AdamW.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Optimizer:
    """Muon on the matrices of hidden layers, Adam on everything else, and an average of all weights.

    `lr` is a factor on both base rates, set by the schedule each step. The average (`average`) is what is
    exported before a run ends: with a constant rate it is nearly as good as a decayed model.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        matrix_lr: float = 0.02,
        other_lr: float = 4e-3,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.98),
        weight_decay: float = 0.02,
        average_decay: float = 0.99,
    ) -> None:
        self.steps, self.average_decay = 0, average_decay
        self.named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        matrices = {n: p for n, p in self.named.items() if p.ndim == 2 and "embed" not in n and "lm_head" not in n}
        others = [p for n, p in self.named.items() if n not in matrices]
        self.parts: list[tuple[float, torch.optim.Optimizer]] = []
        if matrices:
            muon = torch.optim.Muon(matrices.values(), momentum=momentum, weight_decay=weight_decay, adjust_lr_fn="original")
            self.parts.append((matrix_lr, muon))
        if others:
            self.parts.append((other_lr, torch.optim.Adam(others, betas=betas)))
        self.average = {n: p.detach().clone() for n, p in self.named.items()}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One update from the gradients in `.grad`, which are cleared; `lr` is the schedule's factor."""
        self.steps += 1
        nn.utils.clip_grad_norm_(self.named.values(), 1.0)
        for base, part in self.parts:
            for group in part.param_groups:
                group["lr"] = lr * base
            part.step()
            part.zero_grad()
        # A young average forgets faster, so that it never remembers the initialisation.
        decay = min(self.average_decay, self.steps / (self.steps + 10))
        for name, parameter in self.named.items():
            self.average[name].lerp_(parameter, 1 - decay)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on: counters, moments and the average."""
        return {"steps": self.steps, "parts": [part.state_dict() for _, part in self.parts], "average": self.average}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned."""
        self.steps, self.average = state["steps"], state["average"]
        for (_, part), kept in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(kept)
