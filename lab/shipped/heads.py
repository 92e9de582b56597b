"""The zoo's drafter and heads, trained on the pool of library code.

Only the zoo's EAGLE head is a kind of its own: the target has six layers, and EAGLE-3 wants three different ones below the
last three. It is EAGLE-1's: the last state after the final norm, and the target's output matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from lab.shipped import data, loop, models, pool, teacher
from lab.shipped.optim import Optimizer
from lab.shipped.store import Rows
from lab.shipped.students import DrafterStudent, Exit, Medusa, Student, llama_settings

BATCH_ROWS = {"drafter": 32, "medusa": 12, "eagle": 12, "exit": 12}
# (matrices by Muon, everything else by Adam), by kind; what begins with the target's weights is moved more gently.
RATES = {"drafter": (0.02, 6e-3), "eagle": (0.01, 1e-3), "medusa": (0.02, 2e-3), "exit": (0.02, 2e-3)}
FEATURE_WEIGHT = 0.2


class FeatureEagle(Student):
    """EAGLE's first head (Li et al., 2024): the next state from this state and the next token."""

    def __init__(self, target: Any) -> None:
        from decgraph.zoo import modeling

        super().__init__(target)
        self.module = modeling.EagleHead(modeling.EagleConfig(**llama_settings(target.config)))
        torch.nn.init.zeros_(self.module.layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(self.module.layer.mlp.down_proj.weight)
        self.module.embed_tokens.load_state_dict(target.model.embed_tokens.state_dict())
        self.module.embed_tokens.weight.requires_grad_(False)

    def loss(self, rows: Rows) -> torch.Tensor:
        """The next state and the target's view there; once from true states, once from the head's own: a scalar."""
        true, where = rows.states, rows.asked
        top, weights = self.labels(rows, where)
        features, total = true[:, :-1], torch.zeros(())
        for share in (1.0, 0.7):
            guessed = self.module(rows.ids[:, 1:], features)
            chosen = guessed[where[:, 1:]]
            said = teacher.imitation(chosen @ self.output.to(chosen.dtype).T, top, weights)
            close = F.smooth_l1_loss(chosen.float(), true[where].float(), reduction="none").mean(-1)
            total = total + share * (said + FEATURE_WEIGHT * close).mean()
            # Deeper in a draft the states are guesses: the guess at place i stands in for true state i + 1.
            features = torch.cat((true[:, :1], guessed[:, :-1].detach().to(true.dtype)), dim=1)
        return total


def train(name: str, out: Path, target_folder: Path, budget: loop.Budget, *, written: int, plain: int) -> loop.TrainingOutcome:
    """Train `drafter`, `medusa`, `eagle` or `exit` for the target in `target_folder` and write it to `out`."""
    target = teacher.load(target_folder)
    kinds: dict[str, type[Any]] = {"drafter": DrafterStudent, "medusa": Medusa, "eagle": FeatureEagle, "exit": Exit}
    torch.manual_seed(budget.seed)
    student: Student = kinds[name](target)
    lessons = pool.obtain(target, target_folder, budget.work, student.layers, written=written, plain=plain, seed=budget.seed)

    def export(weights: dict[str, torch.Tensor], outcome: loop.TrainingOutcome) -> None:
        student.save(out, weights, data.load_tokenizer(target_folder))
        models.write_outcome(out, outcome)

    def loss_of(step: int, progress: float) -> Iterator[torch.Tensor]:
        size = min(BATCH_ROWS[name], len(lessons))
        first = int(torch.randint(0, len(lessons), (), generator=loop.rng(budget.seed, step)))
        first = min(first, len(lessons) - size)
        with torch.autocast("cpu", torch.bfloat16):
            value = student.loss(lessons[first : first + size])
        yield value

    matrix, other = RATES[name]
    optimizer = Optimizer(student.module, matrix_lr=matrix, other_lr=other)
    settings = {"rows_written_by_target": written, "rows_of_code": plain}
    return loop.fit(student.module, loss_of, export, name=name, budget=budget, optimizer=optimizer, settings=settings)
