"""decgraph tune: Choose an algorithm and its parameters by measurement, for these models, prompts and this device."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

import decgraph
from decgraph import extras, zoo
from decgraph.cli import options, output, parsing
from decgraph.cli.options import option
from decgraph.runtime import progress, prompt_files
from decgraph.runtime.models import folders
from decgraph.runtime.sources import handed_out

settings = options.LENIENT
LEAST_SECONDS, LEAST_TOKENS = 1.0, 8
SECONDS = {"one": 60.0, "all": 600.0}
BATCHES = (1, 4, 16)


@options.grouped
def command(
    context: typer.Context,
    models: options.AlgorithmOptions,
    request_options: options.RequestOptions,
    shown: options.OutputOptions,
    talk: options.Chat,
    algorithm: Annotated[str | None, options.algorithm("Tune this one alone. Default: choose among all that fit.")] = None,
    prompts: Annotated[
        Path | None,
        option("--prompts", help="Prompts like those to come: .txt, one a line, or .jsonl, also requests of OpenAI's."),
    ] = None,
    out: Annotated[Path | None, option("--out", "-o", help="The profile to write: tuned.profile.toml.")] = None,
    search: Annotated[
        list[str] | None,
        option("--search", help="Search this parameter: gamma, gamma=1..8, shape=4x2,8x1. Default: all that change no token."),
    ] = None,
    lossy: Annotated[bool, option("--lossy", help="Choose also among algorithms that may commit other tokens.")] = False,
    seconds: Annotated[
        float | None, option("--seconds", help="How long to measure: 600, and for one algorithm 60, if left out.")
    ] = None,
    clock: Annotated[
        str, option("--clock", help="wall, or cpu: the processor's time, steadier on a busy machine without a GPU.")
    ] = "wall",
    batch: Annotated[
        str | None, option("--batch", help="How many prompts are decoded together: 1,4,16, and for one algorithm 1.")
    ] = None,
    context_: Annotated[
        list[int] | None, option("--context", min=2, help="Measure prompts made longer to so many tokens as well.")
    ] = None,
    threads: Annotated[int | None, option("--threads", min=1, help="Threads on the CPU. Default: as `run` does.")] = None,
    fresh: Annotated[bool, option("--fresh", help="With --rows: measure what is known again.")] = False,
    rows: Annotated[bool, option("--rows", help="Say instead what a forward of 1 to 64 rows of a model costs here.")] = False,
) -> None:
    """Choose an algorithm and its parameters by measurement, for these models, prompts and this device.

    All that fit and change no token are compared with plain decoding, alone and in batches; the profile says which to take
    when. Parameters that change what is committed are searched only when --search names them. It takes --seconds
    seconds; Ctrl-C shows what is known.
    """
    if rows:
        if algorithm is not None or prompts is not None:
            raise decgraph.DecError("--rows measures a model, with no algorithm", hint="decgraph tune --rows --model FOLDER")
        from decgraph.cli.row_costs import show

        show(models.folders({"target": "causal"}), models.placed(), threads, fresh=fresh, as_json=shown.json)
        return
    # Mistakes in the command line are reported before anything is loaded.
    for given, name in ((search, "--search"), (context.args, "a parameter")) if algorithm is None else ():
        if given:
            raise decgraph.DecError(f"{name} ({given[0]}) goes with an algorithm", hint=f"decgraph tune speculative {given[0]}")
    seconds = seconds if seconds is not None else SECONDS["all" if algorithm is None else "one"]
    if not LEAST_SECONDS <= seconds < float("inf"):
        raise decgraph.DecError(
            f"--seconds is {seconds:g}; at least {LEAST_SECONDS:g} is needed to measure anything", hint="--seconds 60"
        )
    if request_options.max_tokens is not None and request_options.max_tokens < LEAST_TOKENS:
        raise decgraph.DecError(
            f"--max-tokens is {request_options.max_tokens}; at least {LEAST_TOKENS} are needed to measure anything",
            hint=f"--max-tokens {LEAST_TOKENS}",
        )
    if clock not in ("wall", "cpu"):
        raise decgraph.DecError(f"there is no clock {clock!r}", hint="--clock wall, or --clock cpu")
    batches = counts(batch) if batch is not None else BATCHES if algorithm is None else (1,)
    chosen = decgraph.load(algorithm) if algorithm is not None else None
    path = out or Path(f"{'tuned' if chosen is None else chosen.name}.profile.toml")
    output.check_writable(path, ".toml", what="a profile")
    talk.check()
    placed, externs = models.placed(), parsing.functions(models.extern or ()) if chosen is None else models.functions(chosen)
    words = parsing.pairs(models.set_ or (), "--set") if chosen is None else models.params(context, chosen.params)
    main, named = models.shared() if chosen is None else (None, models.folders(chosen.models))
    source = prompt_files.read(prompts) if prompts is not None else None
    os.environ.setdefault("OMP_NUM_THREADS", str(threads or max(1, (os.cpu_count() or 2) // 2)))
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    extras.check("models")
    from decgraph.bench import fitting
    from decgraph.bench import prompts as kinds
    from decgraph.bench.compare import Candidate
    from decgraph.cli import tuned
    from decgraph.cli.tuning import TuningJob

    chats = talk.chat or (source is None and bool(main or named))
    texts = (source or (kinds.built_in() if chats else kinds.code())).texts
    if batch is None:
        if skipped := [n for n in batches if n > len(texts)]:
            print(
                f"note: {', '.join(map(str, skipped))} at a time is not measured: there are {len(texts)} prompts",
                file=sys.stderr,
            )
        batches = [n for n in batches if n <= len(texts)]

    def given_to(one: decgraph.Algorithm) -> dict[str, str]:
        return named if chosen is not None else handed_out(one.function, main, models.drafter, named)

    left: dict[str, str] = {}
    if chosen is not None:
        base, candidates = None, [Candidate(chosen.name, chosen, parsing.known(chosen.function, words))]
        for name in named:
            if name.split(".")[0] not in chosen.models:
                raise decgraph.DecError(f"{chosen.name} takes no model `{name}`", hint=f"it takes {', '.join(chosen.models)}")
    else:
        kind = kind_of(main)
        plain = decgraph.load(fitting.PLAIN[kind])
        base = Candidate(plain.name, plain, {name: value for name, value in words.items() if name in plain.params})
        candidates, left = fitting.fitting(
            kind, given_to, common=words, externs=externs, accepts=request_options.fields,
            temperature=request_options.temperature or 0.0, lossy=lossy,
        )  # fmt: skip
        known = {name for one in (base, *candidates) for name in one.algorithm.params}
        if unknown := sorted(set(words) - known):
            raise decgraph.DecError(f"none of the algorithms that fit has a parameter `{unknown[0]}`")
        takes = {name for one in (base, *candidates) for name in one.algorithm.models}
        if foreign := [name for name in named if name.split(".")[0] not in takes]:
            raise decgraph.DecError(
                f"no algorithm that fits takes a model `{foreign[0]}`", hint=f"they take {', '.join(sorted(takes))}"
            )
    job = TuningJob(
        candidates,
        base,
        texts,
        models=given_to,
        fields=request_options.fields,
        said=lambda text: text.prompt(chat=chats and not text.ids, system=talk.system),
        wishes=list(search or ()),
        externs=externs,
        backend=models.backend,
        clock=clock,
        threads=threads,
        batches=batches,
        contexts=context_ or (),
        placed=placed,
    )
    with progress.shown("tune:", quiet=shown.quiet) as heard:
        began = time.perf_counter()
        job.run(
            seconds,
            lambda what: heard(what, min(time.perf_counter() - began, seconds), seconds),
            lambda said: None if shown.quiet else print(f"note: {said}", file=sys.stderr),
        )
    left |= job.unfit
    if tuned.judged(job):
        tuned.profile(job).write(path)
    if shown.json:
        output.emit_json({**tuned.to_json(job, left), "profile": str(path) if tuned.judged(job) else None})
    elif not shown.quiet:
        output.print_table(tuned.HEADINGS, tuned.rows(job))
        print("\n".join(tuned.summary(job, path, left)))
    elif tuned.judged(job):
        print(path)
    if any(found.interrupted for found in job.outcomes.values()):
        raise typer.Exit(output.INTERRUPTED)


def counts(text: str) -> list[int]:
    """Whole numbers above 0, by commas, the least first. Raises DecError for others."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise decgraph.DecError(f"--batch {text} is no list of whole numbers", hint="--batch 8, or --batch 1,4,16")
    return sorted(set(map(int, words)))


def kind_of(main: str | None) -> str:
    """Whether a folder holds a causal or a masked model, by its configuration; without one it is the shipped target."""
    if main is None or folders.is_gguf(main):
        return "causal"
    try:
        folders.read(zoo.folder_of(main), "causal")
    except decgraph.DecError:
        return "masked"
    return "causal"
