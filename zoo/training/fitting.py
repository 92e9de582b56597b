"""A student on texts through the loop: batches, precision and rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from decgraph.zoo import loop
from decgraph.zoo.optim import Optimizer
from decgraph.zoo.training.batches import Batches
from decgraph.zoo.training.store import StoredRow
from decgraph.zoo.training.students import Student

# (matrices by Muon, everything else by Adam), by kind; what begins with the target's weights is moved more gently.
RATES = {"drafter": (0.02, 6e-3), "eagle": (0.01, 1e-3), "medusa": (0.02, 2e-3), "exit": (0.02, 2e-3)}


def fit(
    student: Student,
    texts: list[StoredRow],
    export: Callable[[dict[str, torch.Tensor], loop.TrainingOutcome], None],
    *,
    budget: loop.Budget,
    batch_tokens: int,
    settings: dict[str, Any],
) -> loop.TrainingOutcome:
    """Train a student in place; `export` is called with its weights, of the module's shapes, now and then and at the end."""
    batches = Batches(texts, tokens=batch_tokens, seed=budget.seed)

    def loss_of(step: int, progress: float) -> Iterator[torch.Tensor]:
        batch = batches(step).to(student.target.device)
        with torch.autocast(student.target.device.type, torch.bfloat16):
            value = student.loss(batch)
        yield value

    matrix, other = RATES[student.kind]
    optimizer = Optimizer(student.module, matrix_lr=matrix, other_lr=other)
    return loop.fit(student.module, loss_of, export, name=student.kind, budget=budget, optimizer=optimizer, settings=settings)
