"""decgraph tune: Choose an algorithm's parameters by measurement, for these models, prompts and this device."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

import decgraph
from decgraph.cli import options, output, parsing
from decgraph.cli.options import option
from decgraph.runtime import progress, prompt_files

settings = options.LENIENT
LEAST_SECONDS, LEAST_TOKENS = 1.0, 8


@options.grouped
def command(
    context: typer.Context,
    models: options.AlgorithmOptions,
    request_options: options.RequestOptions,
    shown: options.OutputOptions,
    algorithm: Annotated[str | None, options.algorithm()] = None,
    prompts: Annotated[Path | None, option("--prompts", help="A file with a prompt on every line, like those to come.")] = None,
    out: Annotated[Path | None, option("--out", "-o", help="The profile to write: ALGORITHM.profile.toml.")] = None,
    search: Annotated[
        list[str] | None,
        option("--search", help="Search this parameter: gamma, gamma=1..8, shape=4x2,8x1. Default: all that change no token."),
    ] = None,
    seconds: Annotated[float, option("--seconds", help="How long to measure.")] = 60.0,
    clock: Annotated[
        str, option("--clock", help="wall, or cpu: the processor's time, steadier on a busy machine without a GPU.")
    ] = "wall",
    batch: Annotated[int, option("--batch", min=1, help="Tune for prompts that are decoded together, so many at a time.")] = 1,
    threads: Annotated[int | None, option("--threads", min=1, help="Threads on the CPU. Default: as `run` does.")] = None,
    fresh: Annotated[bool, option("--fresh", help="With --rows: measure what is known again.")] = False,
    rows: Annotated[bool, option("--rows", help="Say instead what a forward of 1 to 64 rows of a model costs here.")] = False,
) -> None:
    """Choose an algorithm's parameters by measurement, for these models, prompts and this device.

    It takes --seconds seconds. Parameters that change what is committed are searched only when --search names them.
    """
    if rows:
        if algorithm is not None or prompts is not None:
            raise decgraph.DecError("--rows measures a model, with no algorithm", hint="decgraph tune --rows --model FOLDER")
        from decgraph.cli.row_costs import show

        show(models.folders({"target": "causal"}), models.placed(), threads, fresh=fresh, as_json=shown.json)
        return
    if algorithm is None:
        raise decgraph.DecError("tune needs an algorithm", hint="decgraph tune speculative --prompts FILE")
    chosen = decgraph.load(algorithm)
    words = models.params(context, chosen.params)
    if prompts is None:
        raise decgraph.DecError(
            "tune needs prompts like those to come", hint="--prompts FILE.txt, a prompt a line, or FILE.jsonl"
        )
    if not LEAST_SECONDS <= seconds < float("inf"):
        raise decgraph.DecError(
            f"--seconds is {seconds:g}; at least {LEAST_SECONDS:g} is needed to measure anything", hint="--seconds 60"
        )
    if request_options.max_tokens is not None and request_options.max_tokens < LEAST_TOKENS:
        raise decgraph.DecError(
            f"--max-tokens is {request_options.max_tokens}; at least {LEAST_TOKENS} are needed to measure anything",
            hint=f"--max-tokens {LEAST_TOKENS}",
        )
    path = out or Path(f"{chosen.name}.profile.toml")
    output.check_writable(path, ".toml", what="a profile")
    if clock not in ("wall", "cpu"):
        raise decgraph.DecError(f"there is no clock {clock!r}", hint="--clock wall, or --clock cpu")
    from decgraph.cli import tuned
    from decgraph.cli.tuning import TuningJob

    lines = [text.prompt() for text in prompt_files.read(prompts).texts]
    os.environ.setdefault("OMP_NUM_THREADS", str(threads or max(1, (os.cpu_count() or 2) // 2)))
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    job = TuningJob(
        chosen,
        lines,
        parsing.known(chosen.function, words),
        list(search or ()),
        models.folders(chosen.models),
        {"temperature": options.DEFAULT_TEMPERATURE, **request_options.fields(chosen)},
        externs=models.functions(chosen),
        backend=models.backend,
        clock=clock,
        threads=threads,
        batch=batch,
        placed=models.placed(),
    )
    with progress.shown("tune:", quiet=shown.quiet) as heard:
        began = time.perf_counter()
        outcome = job.run(seconds, lambda what: heard(what, min(time.perf_counter() - began, seconds), seconds))
    if outcome.judged:
        tuned.profile(job, outcome).write(path)
    if shown.json:
        output.emit_json({**tuned.to_json(job, outcome), "profile": str(path) if outcome.judged else None})
    elif not shown.quiet:
        output.print_table(tuned.HEADINGS, tuned.rows(job, outcome))
        print("\n".join(tuned.summary(job, outcome, path)))
    elif outcome.judged:
        print(path)
    if outcome.interrupted:
        raise typer.Exit(output.INTERRUPTED)
