"""The drafter: a Llama of a tenth of the target's size that learns to say what the target says.

It learns from the pool (see `pool.py`): cross entropy against the target's own distribution, with a share on
the target's first choice, because at temperature 0 only that is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from decgraph.zoo import data, loop, pool, target
from decgraph.zoo.optim import Optimizer

ROWS = 32
HARD = 0.5
# Places before this one carry little context; the target's guesses there are not worth imitating.
FROM = 4


def train(out: Path, target_folder: Path, budget: loop.Budget, *, written: int, plain: int) -> loop.Outcome:
    """Distil the target in `target_folder` into a drafter, written to `out`."""
    tokenizer = data.load_tokenizer(target_folder)
    lessons = pool.obtain(target_folder, budget.work, written=written, plain=plain, seed=budget.seed)
    labels = pool.soft_labels(lessons.logp, HARD)
    model = target.build(budget.seed, width=128, layers=2, heads=4, inner=256)

    def loss_of(step: int, progress: float) -> Iterator[torch.Tensor]:
        rows = torch.randint(0, len(lessons.ids), (ROWS,), generator=loop.rng(budget.seed, step))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(lessons.ids[rows], use_cache=False).logits[:, FROM:]
        yield pool.imitation(logits, lessons.top[rows][:, FROM:], labels[rows][:, FROM:])

    def export(weights: dict[str, torch.Tensor], outcome: loop.Outcome) -> None:
        loop.save_model(model, out, weights, outcome, tokenizer)

    settings = {"rows_written_by_target": lessons.written, "rows_of_code": len(lessons.ids) - lessons.written}
    optimizer = Optimizer(model, other_lr=6e-3)
    return loop.fit(model, loss_of, export, name="drafter", budget=budget, optimizer=optimizer, settings=settings)
