"""The optimiser: Muon for matrices, Adam for embeddings and norms, one moving average of the weights.

Muon (Keller Jordan, 2024) steps along the orthogonalised momentum of each matrix. On a few million parameters
and a CPU it reaches a given loss in clearly fewer tokens than AdamW, and costs about a tenth of a step here
because matrices of one shape are orthogonalised together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import nn

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrices: torch.Tensor, *, iterations: int = 5) -> torch.Tensor:
    """Nearest semi-orthogonal matrices, roughly: `[n, rows, cols]` in and out, computed in bfloat16.

    Newton-Schulz with the quintic coefficients of the Muon note; singular values end between about 0.7 and
    1.2.
    """
    a, b, c = _NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.bfloat16()
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    if tall:
        x = x.mT
    return x.float()


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
        self.matrix_lr, self.other_lr, self.momentum, self.betas = matrix_lr, other_lr, momentum, betas
        self.weight_decay, self.average_decay = weight_decay, average_decay
        self.steps = 0
        self.named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.matrices = [n for n, p in self.named.items() if p.ndim == 2 and "embed" not in n and "lm_head" not in n]
        self.others = [n for n in self.named if n not in set(self.matrices)]
        self.first = {n: torch.zeros_like(p) for n, p in self.named.items()}
        self.second = {n: torch.zeros_like(self.named[n]) for n in self.others}
        self.average = {n: p.detach().clone() for n, p in self.named.items()}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One update from the gradients in `.grad`, which are cleared; `lr` is the schedule's factor."""
        self.steps += 1
        nn.utils.clip_grad_norm_(self.named.values(), 1.0)
        self._step_matrices(lr)
        self._step_others(lr)
        # A young average forgets faster, so that it never remembers the initialisation.
        decay = min(self.average_decay, self.steps / (self.steps + 10))
        for name, parameter in self.named.items():
            self.average[name].lerp_(parameter, 1 - decay)
            parameter.grad = None

    def _step_matrices(self, lr: float) -> None:
        groups: dict[tuple[int, int], list[str]] = defaultdict(list)
        for name in self.matrices:
            parameter = self.named[name]
            if parameter.grad is not None:
                self.first[name].mul_(self.momentum).add_(parameter.grad)
                rows, cols = parameter.shape
                groups[rows, cols].append(name)
        for (rows, cols), names in groups.items():
            stacked = torch.stack([self.named[n].grad.add(self.first[n], alpha=self.momentum) for n in names])
            updates = orthogonalize(stacked)
            size = lr * self.matrix_lr * math.sqrt(max(1.0, rows / cols))
            for name, update in zip(names, updates, strict=True):
                self.named[name].mul_(1 - lr * self.matrix_lr * self.weight_decay).add_(update, alpha=-size)

    def _step_others(self, lr: float) -> None:
        beta1, beta2 = self.betas
        for name in self.others:
            parameter = self.named[name]
            if parameter.grad is None:
                continue
            first, second = self.first[name], self.second[name]
            first.lerp_(parameter.grad, 1 - beta1)
            second.lerp_(parameter.grad.square(), 1 - beta2)
            corrected = (second / (1 - beta2**self.steps)).sqrt_().add_(1e-8)
            parameter.addcdiv_(first, corrected, value=-lr * self.other_lr / (1 - beta1**self.steps))

    def state(self) -> dict[str, Any]:
        """Everything needed to go on: counters, moments and the average."""
        return {"steps": self.steps, "first": self.first, "second": self.second, "average": self.average}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned."""
        self.steps = state["steps"]
        self.first, self.second, self.average = state["first"], state["second"], state["average"]
