"""Measure the runs behind docs/benchmarks.md, on chat, shipped, random and masked models.

Each run of the result file, which is what `decgraph bench --results` writes, has a name; `python -m lab benchmarks` writes the
page's tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from typer import Option

from decgraph.bench import render
from decgraph.bench.benchmark import Benchmark
from decgraph.bench.compare import asked
from decgraph.bench.measure import MeasureSettings, Row
from lab import pages, runs

CAUSAL = (
    "autoregressive", "speculative", "prompt_lookup", "kangaroo", "eagle2", "medusa", "medusa_match", "lookahead",
    "token_recycling", "recursive_sd", "sequoia", "pearl",
)  # fmt: skip
SAMPLED = ("autoregressive", "speculative", "prompt_lookup", "kangaroo", "eagle2")
BATCHED = ("autoregressive", "speculative", "prompt_lookup", "eagle2", "sequoia", "medusa", "token_recycling")
# The smallest drafts; most of them `decgraph tune` chose with other prompts than these (docs/benchmarks.md, "Tuned settings").
TUNED = ("eagle2:depth=1,k=1,budget=1", "sequoia:shape=1x1", "medusa:shape=1x1", "token_recycling:shape=1,k=1")
ON_RANDOM = ("autoregressive", "speculative", "prompt_lookup")


def benchmarks(settings: MeasureSettings, chat: str) -> Mapping[str, Benchmark]:
    """What the page shows, by the name of its table. chat: the model that chats, a folder or a name."""
    few = replace(settings, rounds=max(1, settings.rounds // 2))
    batched = (*BATCHED, *TUNED, "prompt_lookup:k=1,reach=1")
    return {
        "shipped": Benchmark(tuple(asked((*CAUSAL, *TUNED), {})), settings, most=4),
        "sampled": Benchmark(tuple(asked(SAMPLED, {})), replace(settings, temperature=1.0), most=4),
        "batches": Benchmark(tuple(asked(batched, {})), replace(settings, batch=8)),
        "masked": Benchmark(tuple(asked(("fast_dllm", "fast_dllm_prefix"), {})), settings, most=4),
        "random25": Benchmark(tuple(asked(ON_RANDOM, {})), few, target="random-25M", most=2),
        "random135": Benchmark(tuple(asked(ON_RANDOM, {})), few, target="random-135M", most=2),
        "chat": Benchmark(
            tuple(asked(("autoregressive", "prompt_lookup", "token_recycling"), {})), few, target=chat, chat=True, most=2
        ),
    }


def shown(run: Row) -> None:
    """Print a run's tables."""
    print(f"\n{run['name']}: {render.caption(run)}\n")
    print("\n".join(render.markdown_table(table) for table in render.tables(run)), flush=True)


def command(
    only: Annotated[str, Option(help="Tables, comma separated; the others' runs stay.")] = "",
    quick: Annotated[bool, Option(help="Few and short runs.")] = False,
    threads: int = 1,
    rounds: int = 3,
    chat: Annotated[str, Option(help="The model that chats: a folder or a name.")] = "smollm2",
) -> None:
    """Measure, print, write. Raises DecError where tokens or calls are not what they must be."""
    import torch

    torch.set_num_threads(threads)
    settings = MeasureSettings(limit=24, rounds=2) if quick else MeasureSettings(rounds=rounds)
    parts = {name: one.runs for name, one in benchmarks(settings, chat).items()}
    found = runs.measured(parts, runs.chosen(parts, only), pages.result("decoding") if only else {}, shown)
    print(f"written {pages.keep('decoding', found)}")
    runs.judge(found["runs"])
