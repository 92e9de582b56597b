"""decgraph bench: Measure algorithms against transformers' own loops on the same weights, alternating."""

from __future__ import annotations

import dataclasses
import json as json_
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import decgraph
from decgraph.cli import given, output


def command(
    algorithms: Annotated[
        list[str] | None,
        given.algorithm("Names or .dec files; left out: the whole table."),
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the results to this file as well; - is stdout.")] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            help="generate, assisted, prompt_lookup, early_exit, or "
            "another algorithm. Default: its counterpart in transformers.",
        ),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=0, help="Requests at a time, against one; 0 is off.")] = 8,
    max_new: Annotated[int, typer.Option("--max-new", "-n", min=2, help="New tokens of a request.")] = 64,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads of both sides.")] = 1,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Timed runs of each request.")] = 5,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A parameter of those that have it: gamma=5.")] = None,
    size: Annotated[
        list[str] | None, typer.Option("--size", help="Also on random weights: random-5M, random-25M, random-100M.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few and short runs: rough figures soon.")] = False,
) -> None:
    """Measure algorithms against transformers' own loops on the same weights, alternating.

    Both sides run on the same float32 modules, prompts and number of threads and make the same number of tokens; a ratio
    above 1 says that decgraph is faster. Greedy tokens are compared: if they differ by more than near-ties, the exit code is 1.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    from decgraph.bench import decoding, table, weights
    from decgraph.bench.measure import Settings

    for name in size or ():
        if name not in weights.SIZES:
            raise decgraph.DecError(f"there is no size {name!r}", hint=f"one of {', '.join(weights.SIZES)}")
    torch.set_num_threads(threads)
    settings = Settings(limit=max_new, rounds=repeat, batch=batch)
    if quick:
        settings = dataclasses.replace(settings, requests=2, limit=min(max_new, 24), rounds=min(repeat, 2), batch=min(batch, 4))
    faults: list[str] = []
    lines: list[tuple[str, ...]] = []

    def heard(row: dict[str, Any], _: dict[str, Any]) -> None:
        lines.append(table.cells(table.EVERY, row))
        faults.extend(filter(None, [decoding.wrong(row)]))

    def told(what: str) -> None:
        print(f"measuring {what}", file=sys.stderr, flush=True)  # in a pipe too: the table comes after minutes

    found = decoding.rows(
        algorithms or (),
        settings,
        usual=baseline,
        given=given.pairs(set_ or (), "--set"),
        sizes=size or (),
        batches=batch > 1,
        told=told,
    )
    document = decoding.document(found, settings, heard)
    if str(json) == "-":
        output.emit_json(document)
    else:
        output.print_table([heading for heading, _ in table.EVERY], lines)
        print(_machine(document["machine"]))
    if json is not None and str(json) != "-":
        try:
            json.write_text(json_.dumps(document, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise decgraph.DecError(f"cannot write {json}: {error.strerror or error}") from None
    if faults:
        raise decgraph.DecError("; ".join(faults))


def _machine(facts: dict[str, Any]) -> str:
    versions = facts["versions"]
    busy = ", busy with other work: compare the CPU ratios" if facts["load"] > facts["cores"] else ""
    return (
        f"{facts['processor']}, {facts['cores']} cores, {facts['threads']} threads, load {facts['load']}{busy}; "
        f"torch {versions['torch']}, transformers {versions['transformers']}, float32"
    )
