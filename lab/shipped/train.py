"""Train the shipped models: tokenizer, target, masked, drafter, medusa, eagle, exit, in that order.

Seeds are fixed; with `--steps` the schedule is in steps and a run repeats exactly on the same machine and library versions.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from typer import Option

from lab import pages, runs

MINUTES = {"tokenizer": 0.0, "target": 65.0, "masked": 85.0, "drafter": 25.0, "medusa": 8.0, "eagle": 10.0, "exit": 8.0}
WORK = Path(tempfile.gettempdir()) / "decgraph-zoo"


def command(
    only: Annotated[str, Option(help="Train these, comma separated.")] = "",
    minutes: Annotated[float | None, Option(help="Wall-clock length of each run.")] = None,
    steps: Annotated[int | None, Option(help="Length in steps; overrides --minutes and is reproducible.")] = None,
    seed: int = 0,
    threads: int = 1,
    written: Annotated[int, Option(help="Rows the target writes for drafter and heads.")] = 5_000,
    plain: Annotated[int, Option(help="Rows of plain code beside them.")] = 9_000,
    resume: Annotated[bool, Option("--resume", help="Go on from the last checkpoint.")] = False,
    out: Annotated[Path, Option(help="Where model folders go.")] = pages.ROOT / "zoo" / "models",
    work: Annotated[Path, Option(help="Checkpoints.")] = WORK,
) -> None:
    """Train the models that the command line names."""
    import torch
    from transformers.utils import logging

    from lab.shipped import data, heads, loop, masked, target

    logging.disable_progress_bar()  # the runs show their own
    torch.set_num_threads(threads)
    for name in runs.chosen(MINUTES, only):
        budget = loop.Budget(work=work, seed=seed, steps=steps, minutes=minutes or MINUTES[name], resume=resume)
        if name == "tokenizer":
            data.train_tokenizer(out / name)
            continue
        if name in ("target", "masked"):
            outcome = {"target": target, "masked": masked}[name].train(out / name, out / "tokenizer", budget)
        else:
            outcome = heads.train(name, out / name, out / "target", budget, written=written, plain=plain)
        print(f"{name}: {outcome.steps} steps, {outcome.seconds:.0f} s, loss {outcome.loss}")
