"""The runs behind docs/benchmarks.md, into lab/results/decoding.json.

    .venv/bin/python -m lab.decoding [--quick] [--only shipped,batches]      (table.py writes the page from it)

The result file is what `decgraph bench --json` writes (docs/benchmarks.md describes it), each run with a `name`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from decgraph.bench import compare, render
from decgraph.bench.benchmark import Benchmark, document
from decgraph.bench.compare import asked
from decgraph.bench.measure import MeasureSettings, Row, Told
from decgraph.errors import DecError

RESULTS = Path(__file__).parent / "results" / "decoding.json"
CAUSAL = (
    "autoregressive", "speculative", "prompt_lookup", "kangaroo", "eagle2", "medusa", "medusa_match", "lookahead",
    "token_recycling", "recursive_sd", "sequoia", "pearl",
)  # fmt: skip
SAMPLED = ("autoregressive", "speculative", "prompt_lookup", "kangaroo", "eagle2")
BATCHED = ("autoregressive", "speculative", "prompt_lookup", "eagle2", "sequoia", "medusa", "token_recycling")
# The smallest drafts; most of them `decgraph tune` chose with other prompts than these (docs/benchmarks.md, "Tuned settings").
TUNED = ("eagle2:depth=1,k=1,budget=1", "sequoia:shape=1x1", "medusa:shape=1x1", "token_recycling:shape=1,k=1")
TUNED_BATCHED = (*TUNED, "prompt_lookup:k=1,reach=1")
MASKED = ("fast_dllm", "fast_dllm_prefix")
ON_RANDOM = ("autoregressive", "speculative", "prompt_lookup")
ON_CHAT = ("autoregressive", "prompt_lookup", "token_recycling")


def benchmarks(settings: MeasureSettings, chat: str) -> Iterator[tuple[str, Benchmark]]:
    """What the page shows, by the name of its table. chat: the model that chats, a folder or a name."""
    few = replace(settings, rounds=max(1, settings.rounds // 2))
    yield "shipped", Benchmark(tuple(asked((*CAUSAL, *TUNED), {})), settings, most=4)
    yield "sampled", Benchmark(tuple(asked(SAMPLED, {})), replace(settings, temperature=1.0), most=4)
    yield "batches", Benchmark(tuple(asked((*BATCHED, *TUNED_BATCHED), {})), replace(settings, batch=8))
    yield "masked", Benchmark(tuple(asked(MASKED, {})), settings, most=4)
    yield "random25", Benchmark(tuple(asked(ON_RANDOM, {})), few, target="random-25M", most=2)
    yield "random135", Benchmark(tuple(asked(ON_RANDOM, {})), few, target="random-135M", most=2)
    yield "chat", Benchmark(tuple(asked(ON_CHAT, {})), few, target=chat, chat=True, most=2)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, write. Raises DecError where tokens or calls are not what they must be (`compare.wrong`)."""
    parser = argparse.ArgumentParser(prog="python -m lab.decoding", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few and short runs")
    parser.add_argument("--only", help="tables, comma separated")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chat", default="smollm2", help="the model that chats: a folder or a name")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    settings = MeasureSettings(limit=24, rounds=2) if options.quick else MeasureSettings(rounds=options.rounds)
    only = options.only.split(",") if options.only else None
    kept = json.loads(options.out.read_text("utf-8"))["runs"] if only and options.out.is_file() else []
    faults: list[str] = []

    def told(what: str, _: float) -> None:
        print(f"... {what}", file=sys.stderr, flush=True)

    def every(told: Told) -> list[Row]:
        made: list[Row] = [run for run in kept if run["name"] not in (only or ())]
        for name, benchmark in benchmarks(settings, options.chat):
            if only and name not in only:
                continue
            for run in benchmark.runs(told):
                made.append({"name": name, **run})
                print(f"\n{name}: {render.caption(run)}\n")
                print("\n".join(render.markdown_table(table) for table in render.tables(run)), flush=True)
                faults.extend(compare.wrong(run))
        return made

    options.out.parent.mkdir(exist_ok=True)
    command = shlex.join(["python", "-m", "lab.decoding", *(sys.argv[1:] if arguments is None else arguments)])
    found = document(lambda: every(told), command=command)
    options.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(f"written {options.out}")
    if faults:
        raise DecError("; ".join(faults))


if __name__ == "__main__":
    main()
