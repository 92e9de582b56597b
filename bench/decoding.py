"""What `decgraph bench` measures, and its result file.

    .venv/bin/python -m decgraph.bench.decoding [--quick]      the whole table, into bench/results/decoding.json

The result file is one JSON object: `machine` (machine.py), `settings`, `weights` (sizes by name of the models) and `rows`.
docs/benchmarks.md describes a row.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import decgraph
from decgraph.bench import measure, table, weights
from decgraph.bench.machine import facts
from decgraph.bench.measure import Row, Settings
from decgraph.errors import DecError

RESULTS = Path(__file__).parent / "results" / "decoding.json"
CAUSAL = (
    "autoregressive", "speculative", "prompt_lookup", "kangaroo", "eagle2", "medusa", "medusa_match", "lookahead",
    "token_recycling", "recursive_sd", "sequoia", "pearl",
)  # fmt: skip
SAMPLED = ("autoregressive", "speculative", "prompt_lookup", "kangaroo", "eagle2")
BATCHED = ("autoregressive", "speculative", "prompt_lookup", "eagle2")
MASKED = ("fast_dllm", "fast_dllm_prefix")
ON_RANDOM = ("autoregressive", "speculative", "prompt_lookup")
QUICK = Settings(requests=2, limit=24, rounds=2, batch=4)


def kind_of(name: str) -> str:
    """ "causal" or "masked": what an algorithm decodes with. Raises DecError for an unknown name."""
    kinds = set(decgraph.load(name).models.values())
    return "masked" if "masked" in kinds else "causal"


def rows(
    names: Sequence[str],
    settings: Settings,
    *,
    usual: str | None = None,
    given: Mapping[str, Any] | None = None,
    sizes: Iterable[str] = (),
    batches: bool = True,
    told: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Row, Any]]:
    """(row, weights) one after the other; without names, the whole table. `told` hears what is measured now.

    Raises DecError for a name, a parameter or a baseline that there is not.
    """
    whole = not names
    names = list(names) or [*CAUSAL[:4], *MASKED, *CAUSAL[4:]]
    kinds = {name: kind_of(name) for name in names}
    loaded = weights.shipped() if "causal" in kinds.values() else None
    for name in names:
        if kinds[name] == "masked":
            from decgraph.bench.masked import against_another

            told(name)
            yield against_another(name, settings, given=given, usual=usual), None
            continue
        assert loaded is not None
        for sampled in (False, True):
            if sampled and whole and name not in SAMPLED:
                continue
            told(f"{name}, {'sampled' if sampled else 'greedy'}")
            yield measure.against_transformers(name, loaded, settings, given=given, usual=usual, sampled=sampled), loaded
            if whole and not sampled and name in ("speculative", "prompt_lookup"):
                told(f"{name} against generate")
                yield measure.against_transformers(name, loaded, settings, given=given, usual="generate"), loaded
        if batches and settings.batch > 1 and (not whole or name in BATCHED):
            told(f"{name}, {settings.batch} at a time")
            yield measure.batched(name, loaded, settings, given=given), loaded
    few = replace(settings, requests=max(1, settings.requests // 2), rounds=max(1, settings.rounds // 2))
    for size in sizes:  # a forward of the largest takes as long as twenty of the shipped model's
        on = weights.random_llama(size)
        for name in [n for n in (ON_RANDOM if whole else names) if kinds.get(n, "causal") == "causal"]:
            told(f"{name} on {size}")
            yield measure.against_transformers(name, on, few, given=given, usual=usual), on


Heard = Callable[[Row, dict[str, Any]], None]


def document(found: Iterable[tuple[Row, Any]], settings: Settings, heard: Heard) -> dict[str, Any]:
    """The result file's object; `heard` is told each row as it comes, and the object as far as it is."""
    made: dict[str, Any] = {"machine": facts(), "settings": vars(settings), "weights": {}, "rows": []}
    for row, on in found:
        made["rows"].append(row)
        if on is not None:
            made["weights"][on.name] = on.facts()
        heard(row, made)
    return made


def wrong(row: Row) -> str:
    """What a row says that must not be: greedy tokens that differ by more than near-ties, calls that the interpreter
    does not make. Empty where all is well."""
    equal, meant = row.get("tokens_equal"), row.get("interpreter")
    if equal and equal["different"]:
        who = f"{row['algorithm']} against {row['baseline']}"
        return f"{who}: {equal['different']} of {sum_of(equal)} differ ({equal['first']})"
    if meant and (meant["calls"] != meant["interpreter_calls"] or not meant["tokens_equal"]):
        return f"{row['algorithm']}: {meant['calls']} calls, {meant['interpreter_calls']} by the interpreter" + (
            "" if meant["tokens_equal"] else ", other tokens"
        )
    return ""


def sum_of(equal: Mapping[str, Any]) -> int:
    """How many runs were compared."""
    return int(equal["same"]) + int(equal["near_ties"]) + int(equal["different"])


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, write. Raises DecError where tokens or calls are not what they must be (`wrong`)."""
    parser = argparse.ArgumentParser(prog="python -m decgraph.bench.decoding", description=__doc__)
    parser.add_argument("names", nargs="*", help="algorithms; all of the table when left out")
    parser.add_argument("--quick", action="store_true", help="few and short runs")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, help="timed rounds")
    parser.add_argument("--sizes", default=",".join(weights.SIZES), help="random models, comma separated; none: ''")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    settings = QUICK if options.quick else Settings()
    settings = replace(settings, rounds=options.repeat or settings.rounds)
    sizes = [size for size in options.sizes.split(",") if size]
    print("\t".join(heading for heading, _ in table.EVERY), flush=True)
    faults: list[str] = []

    def heard(row: Row, made: dict[str, Any]) -> None:
        print("\t".join(table.cells(table.EVERY, row)), f"load {row['load']}", flush=True)
        options.out.write_text(json.dumps(made, indent=1) + "\n")  # what was measured outlives a later row's failure
        if fault := wrong(row):
            faults.append(fault)

    told = lambda what: print(f"... {what}", file=sys.stderr, flush=True)
    options.out.parent.mkdir(exist_ok=True)
    document(rows(options.names, settings, sizes=sizes, told=told), settings, heard)
    print(f"written {options.out}")
    if faults:
        raise DecError("; ".join(faults))


if __name__ == "__main__":
    main()
