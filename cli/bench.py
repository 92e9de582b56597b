"""decgraph bench: Measure algorithms against transformers' own loops on the same weights, interleaved."""

from __future__ import annotations

import json as json_
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from decgraph import extras
from decgraph.cli import options, output, parsing
from decgraph.cli.options import option
from decgraph.errors import DecError
from decgraph.runtime import progress

settings = options.LENIENT
FORMATS = {"table": (".md", ".txt"), "md": (".md", ".txt"), "csv": (".csv",), "latex": (".tex",), "json": (".json",)}
"""How tables are written, with the endings of their files."""
PICTURES = (".pdf", ".svg", ".png")
ON_SHIPPED = ("autoregressive", "speculative", "prompt_lookup", "kangaroo", "eagle2", "medusa", "token_recycling", "lookahead")
ON_OWN = ("autoregressive", "prompt_lookup")


@options.grouped
def command(
    context: typer.Context,
    models: options.Models,
    algorithms: Annotated[
        list[str] | None, options.algorithm("Names or .dec files; `speculative:gamma=6` has parameters.")
    ] = None,
    all_: Annotated[
        bool, option("--all", help="Every algorithm of the standard library; those that lack a model are named at the end.")
    ] = False,
    prompts: Annotated[
        Path | None, option("--prompts", help="Prompts: .txt, one a line, or .jsonl with prompt or messages, and kind.")
    ] = None,
    chat: Annotated[bool, option("--chat", help="Through the model's chat template.")] = False,
    take: Annotated[int | None, option("--take", min=1, help="At most so many prompts of each kind.")] = None,
    temperature: Annotated[float, option("--temperature", "-t", help="0 is greedy.")] = options.DEFAULT_TEMPERATURE,
    max_tokens: options.MaxTokens = 64,
    threads: Annotated[int, option("--threads", min=1, help="Threads of both sides.")] = 1,
    rounds: Annotated[int, option("--rounds", min=1, help="Timed runs of each request.")] = 5,
    batch: Annotated[int, option("--batch", min=1, help="Requests decoded at a time, by both sides.")] = 1,
    seed: options.Seed = 0,
    baseline: Annotated[
        list[str] | None,
        option("--baseline", help="generate, assisted, assisted_default, prompt_lookup, early_exit, or another algorithm."),
    ] = None,
    set_: options.Set = None,
    ignore_eos: Annotated[bool, option("--ignore-eos", help="Every text runs to --max-tokens.")] = False,
    one_copy: Annotated[
        bool, option("--one-copy", help="Both sides on the same weights in memory, as decgraph laid them out.")
    ] = False,
    quick: Annotated[bool, option("--quick", help="Few and short runs: rough figures soon.")] = False,
    format: Annotated[str, option("--format", help="table, md, csv, latex or json.")] = "table",
    out: Annotated[Path | None, option("--out", "-o", help="Write that to this file, not to stdout.")] = None,
    results: Annotated[Path | None, option("--results", help="Write everything measured to this file as well.")] = None,
    plot: Annotated[
        Path | None,
        option("--plot", help="Draw it: into a folder as PNG and SVG, or FILE.pdf (.svg, .png) as FILE-ratios.pdf."),
    ] = None,
    style: Annotated[
        str | None, option("--style", help="A style file of matplotlib for --plot, or the name of a style.")
    ] = None,
    quiet: Annotated[bool, option("--quiet", "-q", help="No word of how far it is.")] = False,
    json: Annotated[bool, option("--json", help="As --format json.")] = False,
) -> None:
    """Measure algorithms against transformers' own loops on the same weights, interleaved.

    Every request is run by every contender, one after the other in a random order, before the next request. Ratios are of the
    time a token takes; above 1, decgraph is faster. Greedy tokens are compared with generate's: where an algorithm claims them
    and they differ by more than near-ties in float32, the exit code is 1. After Ctrl-C what was measured is shown.
    """
    # Mistakes in the command line are reported before anything is loaded.
    placed, format = models.placed(), "json" if json else format
    if max_tokens < 2:
        raise DecError(f"--max-tokens is {max_tokens}; the time a token takes needs 2 at least", hint="--max-tokens 64")
    parsing.one_of("format", format, FORMATS)
    model, drafter = models.model, models.drafter
    targets = [item for item in model or () if "=" not in item]
    parts = parsing.pairs([item for item in model or () if "=" in item], "--model")
    if len(targets) + ("target" in parts) > 1:
        raise DecError("there are two models to measure", hint="one --model, and --drafter or --model head=FOLDER beside it")
    target = targets[0] if targets else parts.pop("target", None)
    small = parts.pop("drafter", None)
    if drafter is not None and small is not None:
        raise DecError("there are two drafters", hint="either --drafter or --model drafter=FOLDER")
    asked_for = {ending: f"--format {name}" for name, endings in FORMATS.items() for ending in endings}
    other = asked_for.get(out.suffix.lower(), "--plot FOLDER or FILE.pdf draws pictures") if out is not None else ""
    output.check_writable(out, *FORMATS[format], what=f"--format {format}", instead=other)
    output.check_writable(results, ".json")
    if plot is not None and plot.suffix.lower() not in PICTURES:
        if plot.suffix[1:].isalpha() and not plot.is_dir():
            raise DecError(f"cannot draw {plot}", hint=f"a folder, or a name that ends in {', '.join(PICTURES)}")
    if style is not None and plot is None:
        raise DecError("--style is of what --plot draws", hint="--plot FOLDER")
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    extras.check("models", *(["plots"] if plot is not None else []))
    import torch

    from decgraph.bench import benchmark, compare, plots, render
    from decgraph.bench.measure import MeasureSettings

    if plot is not None:
        plots.check(plot, style)
    named, direct = apart([*(algorithms or ()), *context.args])
    if all_ and named:
        raise DecError(
            "--all and names of algorithms exclude each other", hint="decgraph bench --all, or decgraph bench eagle2"
        )
    names = tuple(named or (benchmark.causal() if all_ else ON_SHIPPED if target is None else ON_OWN))
    known = {name for one in compare.candidates(names, {}) for name in one.algorithm.params}
    common = {**parsing.pairs(set_ or (), "--set"), **parsing.direct(direct, sorted(known), context)}
    contenders = compare.candidates(names, common)
    wanted = MeasureSettings(max_tokens, rounds, batch, temperature, seed)
    if quick:
        wanted, take = replace(wanted, limit=min(max_tokens, 24), rounds=min(rounds, 2)), min(take or 2, 2)
    torch.set_num_threads(threads)
    order = benchmark.Benchmark(
        tuple(contenders), wanted, target, drafter or small, parts, tuple(baseline) if baseline else None, prompts, chat, take,
        placed, not ignore_eos, one_copy,
    )  # fmt: skip
    with progress.shown("measuring", quiet=quiet) as report_progress:
        document = benchmark.document(
            lambda: order.runs(lambda what, done: report_progress(what, done, 1.0)), command=written(context)
        )
    if results is not None:
        write(results, json_.dumps(document, indent=1) + "\n")
    if plot is not None:
        for path in plots.draw(document, plot, style):
            print(f"drawn {path}", file=sys.stderr)
    if format == "table" and out is None:
        for run in document["runs"]:
            for headings, rows in render.tables(run):
                output.print_table(headings, rows)
                print()
            print("\n".join([render.caption(run), *render.notes(document, run)]))
    else:
        text = (
            json_.dumps(document, indent=1) + "\n" if format == "json" else render.TEXT.get(format, render.markdown)(document)
        )
        write(out, text)
    if any(run["interrupted"] for run in document["runs"]):
        raise typer.Exit(output.INTERRUPTED)
    if faults := [fault for run in document["runs"] for fault in compare.wrong(run)]:
        output.show_user_error(DecError("; ".join(faults)))
        raise typer.Exit(output.FAILED)
    if not any(row["side"] == "decgraph" for run in document["runs"] for row in run["rows"]):
        raise DecError("no algorithm could be measured", hint="the reasons are below the table")


def apart(words: list[str]) -> tuple[list[str], list[str]]:
    """(algorithms, parameters as options): an option that the command does not have arrives among the algorithms, with its
    value after it."""
    names: list[str] = []
    options: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            names.append(word)
            continue
        options.append(word)
        if "=" not in word:
            options += [value for value in [next(rest, None)] if value is not None]
    return names, options


def written(context: typer.Context) -> str:
    """The command line, as it would be written again: what was given and is not a default."""
    words = ["decgraph", "bench"]
    options: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if parameter.param_type_name == "argument":
            words += value or ()
        elif value is not None and value != parameter.default and value != ():
            name = parameter.opts[0]
            if value is True:
                options.append(name)
                continue
            for item in value if isinstance(value, list | tuple) else [value]:
                options += [name, f"{item:g}" if isinstance(item, float) else str(item)]
    return shlex.join([*words, *options, *context.args])


def write(path: Path | None, text: str) -> None:
    """A text into a file, or on stdout. Raises DecError where that cannot be done."""
    if path is None:
        print(text, end="")
    else:
        output.write(path, text)
