"""decgraph tune: Choose an algorithm's parameters by measurement, for these models, prompts and this device."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

import decgraph
from decgraph.cli import given, options, output
from decgraph.runtime import prompt_files
from decgraph.runtime.placement import AUTO, Placement
from decgraph.runtime.request import DEFAULT_TEMPERATURE

settings = {"allow_extra_args": True, "ignore_unknown_options": True}
OWN = ("prompts", "out", "param", "set", "model", "seconds", "max_new", "temperature", "top_k", "top_p", "seed", "clock",
       "batch", "threads", "backend", "device", "dtype", "fresh", "rows", "json")  # fmt: skip
LEAST_SECONDS = 1.0


def command(
    context: typer.Context,
    algorithm: Annotated[str | None, given.algorithm()] = None,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", help="A file with a prompt on every line, like those to come.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The profile to write: ALGORITHM.profile.toml.")] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param", help="Search this parameter: gamma, gamma=1..8, shape=4x2,8x1. Default: all that change no token."
        ),
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A parameter that stays: gamma=4. Also as --gamma 4.")] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="FOLDER or a shipped model's name; drafter=FOLDER for another.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="How long to measure.")] = 60.0,
    max_new: Annotated[int, typer.Option("--max-new", "-n", min=8, help="New tokens of a request.")] = 64,
    temperature: options.Temperature = DEFAULT_TEMPERATURE,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: Annotated[int, typer.Option("--seed", help="Key of all noise.")] = 0,
    clock: Annotated[
        str, typer.Option("--clock", help="wall, or cpu: the processor's time, steadier on a busy machine without a GPU.")
    ] = "wall",
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Tune for prompts that are decoded together, so many at a time.")
    ] = 1,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Threads on the CPU. Default: as `run` does.")] = None,
    backend: Annotated[str | None, typer.Option("--backend", help="torch or reference.")] = None,
    device: options.Device = AUTO,
    dtype: options.Dtype = AUTO,
    fresh: Annotated[bool, typer.Option("--fresh", help="With --rows: measure what is known again.")] = False,
    rows: Annotated[
        bool, typer.Option("--rows", help="Say instead what a forward of 1 to 64 rows of a model costs here.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Choose an algorithm's parameters by measurement, for these models, prompts and this device.

    It takes --seconds seconds. Parameters that change what is committed are searched only when --param names them.
    """
    if rows:
        if algorithm is not None or prompts is not None:
            raise decgraph.DecError("--rows measures a model, with no algorithm", hint="decgraph tune --rows --model FOLDER")
        from decgraph.cli.row_costs import show

        show(given.folders(model or (), ("target",)), Placement.of(device, dtype), threads, fresh=fresh, as_json=json)
        return
    if algorithm is None:
        raise decgraph.DecError("tune needs an algorithm", hint="decgraph tune speculative --prompts FILE")
    chosen = decgraph.load(algorithm)
    if prompts is None:
        raise decgraph.DecError(
            "tune needs prompts like those to come", hint="--prompts FILE.txt, a prompt a line, or FILE.jsonl"
        )
    if not LEAST_SECONDS <= seconds < float("inf"):
        raise decgraph.DecError(f"--seconds is {seconds:g}; at least {LEAST_SECONDS:g} is needed to measure anything")
    path = out or Path(f"{chosen.name}.profile.toml")
    output.check_writable(path, ".toml", what="a profile")
    if clock not in ("wall", "cpu"):
        raise decgraph.DecError(f"--clock is wall or cpu, not {clock!r}")
    from decgraph.cli import tuned
    from decgraph.cli.tuning import Job

    lines = [text.prompt() for text in prompt_files.read(prompts).texts]
    words = given.pairs(set_ or (), "--set")
    words |= given.direct(context.args, chosen.params, OWN)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads or max(1, (os.cpu_count() or 2) // 2)))
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    fields = {"limit": max_new, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    job = Job(
        chosen,
        lines,
        given.known(chosen.function, words),
        list(param or ()),
        given.folders(model or (), chosen.models),
        {k: v for k, v in fields.items() if v is not None},
        backend=backend,
        clock=clock,
        threads=threads,
        batch=batch,
        placed=Placement.of(device, dtype),
    )
    with telling(quiet=json) as told:
        outcome = job.run(seconds, told)
    if outcome.judged:
        tuned.profile(job, outcome).write(path)
    if json:
        output.emit_json({**tuned.to_json(job, outcome), "profile": str(path) if outcome.judged else None})
    else:
        output.print_table(tuned.HEADINGS, tuned.rows(job, outcome))
        print("\n".join(tuned.summary(job, outcome, path)))
    if outcome.interrupted:
        raise typer.Exit(output.INTERRUPTED)


@contextmanager
def telling(*, quiet: bool) -> Iterator[Callable[[str], Any]]:
    """A function that is told what is done now: a line on the terminal that changes, or one after the other in a pipe."""
    if quiet:
        yield lambda what: None
        return
    if not sys.stderr.isatty():
        said: list[str] = []

        def plain(what: str) -> None:
            head = what.split(":")[0]
            if said[-1:] != [head]:  # a count that goes up is no news in a file
                said.append(head)
                print(what, file=sys.stderr)

        yield plain
        return
    with output.console(stderr=True).status("reading the models") as status:
        yield status.update
