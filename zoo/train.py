"""Train the shipped models: `python -m decgraph.zoo.train --only target --minutes 60`.

Without `--only`, everything is trained in order: tokenizer, target, masked, drafter, medusa, eagle, exit.
Seeds are fixed; with `--steps` the schedule is in steps and a run repeats exactly on the same machine and
library versions.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
from pathlib import Path

ORDER = ("tokenizer", "target", "masked", "drafter", "medusa", "eagle", "exit")
MODULES = {name: name for name in ORDER} | dict.fromkeys(("drafter", "medusa", "eagle", "exit"), "heads")
MINUTES = {"target": 65.0, "masked": 85.0, "drafter": 25.0, "medusa": 8.0, "eagle": 10.0, "exit": 8.0}


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m decgraph.zoo.train", description=__doc__)
    parser.add_argument("--only", choices=ORDER, action="append", help="train only this (may be repeated)")
    parser.add_argument("--minutes", type=float, help="wall-clock length of each run")
    parser.add_argument("--steps", type=int, help="length in steps; overrides --minutes and is reproducible")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--written", type=int, default=5_000, help="rows the target writes for drafter and heads")
    parser.add_argument("--plain", type=int, default=9_000, help="rows of plain code beside them")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "models", help="where model folders go")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "decgraph-zoo", help="checkpoints")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Train the model that the command line names."""
    options = _arguments(arguments)
    import torch
    from transformers.utils import logging

    from decgraph.zoo import data, loop

    logging.disable_progress_bar()  # the runs show their own

    torch.set_num_threads(options.threads)
    tokenizer = options.out / "tokenizer"
    for name in options.only or ORDER:
        if name == "tokenizer":
            data.train_tokenizer(tokenizer)
            continue
        budget = loop.Budget(
            work=options.work,
            seed=options.seed,
            steps=options.steps,
            minutes=options.minutes or MINUTES[name],
            resume=options.resume,
        )
        module = importlib.import_module(f"decgraph.zoo.{MODULES[name]}")
        folder, teacher = options.out / name, options.out / "target"
        if name in ("target", "masked"):
            outcome = module.train(folder, tokenizer, budget)
        else:
            outcome = module.train(name, folder, teacher, budget, written=options.written, plain=options.plain)
        print(f"{name}: {outcome.steps} steps, {outcome.seconds:.0f} s, loss {outcome.loss}")


if __name__ == "__main__":
    main()
