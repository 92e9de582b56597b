"""The zoo's drafter and heads, trained as `decgraph train` trains them, on the pool of library code.

Only the zoo's EAGLE head is a kind of its own: the target has six layers, and EAGLE-3 wants three different ones below the
last three. It is EAGLE-1's: the last state after the final norm, and the target's output matrix.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from decgraph.zoo import loop
from decgraph.zoo.training import fitting, teacher
from decgraph.zoo.training.store import StoredRow
from decgraph.zoo.training.students import DrafterStudent, Exit, Medusa, PaddedRows, Student, llama_settings, mean
from lab.shipped import data, models, pool

BATCH_TOKENS = {"drafter": 32 * pool.ROW, "medusa": 12 * pool.ROW, "eagle": 12 * pool.ROW, "exit": 12 * pool.ROW}
EXIT_LAYER = 2
FEATURE_WEIGHT = 0.2


class FeatureEagle(Student):
    """EAGLE's first head (Li et al., 2024): the next state from this state and the next token."""

    kind = "eagle"

    def __init__(self, target: Any, **_: Any) -> None:
        from decgraph.zoo import modeling

        super().__init__(target)
        self.layers = self.layers_for(target)
        self.module = modeling.EagleHead(modeling.EagleConfig(**llama_settings(target.config)))
        torch.nn.init.zeros_(self.module.layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(self.module.layer.mlp.down_proj.weight)
        self.module.embed_tokens.load_state_dict(target.model.embed_tokens.state_dict())
        self.module.embed_tokens.weight.requires_grad_(False)

    def loss(self, batch: PaddedRows) -> torch.Tensor:
        """The next state and the target's view there; once from true states, once from the head's own: a scalar."""
        true = batch.states
        counts = batch.counts[:, 1:]
        where = torch.zeros_like(batch.counts, dtype=torch.bool)
        where[:, 1:] = counts > 0
        top, weights = self.labels(batch, where)
        features, total = true[:, :-1], torch.zeros(())
        for share in (1.0, 0.7):
            guessed = self.module(batch.ids[:, 1:], features)
            chosen = guessed[where[:, 1:]]
            said = teacher.imitation(chosen @ self.output.to(chosen.dtype).T, top, weights)
            close = F.smooth_l1_loss(chosen.float(), true[where].float(), reduction="none").mean(-1)
            total = total + share * mean(said + FEATURE_WEIGHT * close, batch.counts[where])
            # Deeper in a draft the states are guesses: the guess at place i stands in for true state i + 1.
            features = torch.cat((true[:, :1], guessed[:, :-1].detach().to(true.dtype)), dim=1)
        return total


def train(name: str, out: Path, target_folder: Path, budget: loop.Budget, *, written: int, plain: int) -> loop.TrainingOutcome:
    """Train `drafter`, `medusa`, `eagle` or `exit` for the target in `target_folder` and write it to `out`."""
    target, tokenizer, _ = teacher.load(target_folder)
    kinds: dict[str, type[Any]] = {"drafter": DrafterStudent, "medusa": Medusa, "eagle": FeatureEagle, "exit": Exit}
    options = {"exit_layer": EXIT_LAYER} if name == "exit" else {}
    torch.manual_seed(budget.seed)
    student: Student = kinds[name](target, **options)
    lessons: list[StoredRow] = pool.obtain(
        target, target_folder, budget.work, student.layers, written=written, plain=plain, seed=budget.seed
    )

    def export(weights: dict[str, torch.Tensor], outcome: loop.TrainingOutcome) -> None:
        student.save(out, weights, data.load_tokenizer(target_folder))
        models.write_outcome(out, outcome)

    settings = {"rows_written_by_target": written, "rows_of_code": plain}
    return fitting.fit(student, lessons, export, budget=budget, batch_tokens=BATCH_TOKENS[name], settings=settings)
