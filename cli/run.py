"""decgraph run: Decode a prompt with an algorithm and real models."""

from __future__ import annotations

import dataclasses
import json as json_
import os
import re
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

import decgraph
from decgraph.cli import options, output, parsing, planning, threads
from decgraph.cli.options import option
from decgraph.cli.output import check_writable
from decgraph.errors import DecError
from decgraph.models import request_for
from decgraph.passes.plan import Plan
from decgraph.runtime import prompt_files
from decgraph.runtime.arguments import Tokenizing
from decgraph.runtime.collecting import uncollected
from decgraph.runtime.defaults import defaults
from decgraph.runtime.placement import Placement
from decgraph.runtime.prompt_files import Text
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session, check_params
from decgraph.runtime.trace import Commits

settings = options.LENIENT


@options.grouped
def command(
    context: typer.Context,
    given_prompt: options.PromptOptions,
    models: options.AlgorithmOptions,
    request_options: options.RequestOptions,
    shown: options.OutputOptions,
    wishes: planning.Wishes,
    algorithm: Annotated[str | None, options.algorithm()] = None,
    prompts: Annotated[Path | None, option("--prompts", help="Prompts, decoded together: .txt, one a line, or .jsonl.")] = None,
    batch: Annotated[int, option("--batch", min=1, help="With --prompts: how many at a time.")] = 8,
    logprobs: Annotated[int | None, option("--logprobs", help="With --json: of the tokens, and of the n likeliest.")] = None,
    eos: Annotated[list[str] | None, option("--eos", help="Tokens that end it; default: the model's.")] = None,
    ban: Annotated[list[str] | None, option("--ban", help="Tokens never chosen: ids or texts.")] = None,
    cache: Annotated[str | None, option("--cache", help="Another cache policy for the masked model: dual, prefix.")] = None,
    events: Annotated[Path | None, option("--events", help="Write every event to this JSON file.")] = None,
    compile: Annotated[bool, option("--compile", help="torch.compile the forwards: slow to start.")] = False,
    tuned: Annotated[Path | None, option("--tuned", help="What `decgraph tune` wrote; other options go before it.")] = None,
    show_drafts: Annotated[bool, option("--show-drafts", help="Show rejected drafts too, struck through.")] = False,
) -> None:
    """Decode a prompt with an algorithm and real models.

    Models default to the shipped ones. Parameters of the algorithm are options too: --gamma 4;
    `decgraph run ALGORITHM --help` lists them.
    """
    if logprobs is not None and not shown.json:
        raise decgraph.DecError("--logprobs are printed as JSON alone", hint="--json")
    placed, applied = models.placed(), None
    if tuned is not None:
        from decgraph.cli import profiled

        applied = profiled.read(tuned, batch if prompts is not None else 1, algorithm)
    chosen = applied.algorithm if applied is not None else options.named(algorithm, "run", "decgraph run speculative")
    if cache is not None:
        chosen = chosen.cached(cache)
    params = models.params(context, chosen.params)
    folders = models.folders(chosen.models)
    if applied is not None:
        params, folders = {**applied.params, **params}, {**applied.models, **folders}
    known = check_params(chosen.function, params, unread=True)
    plan = wishes.plan() if wishes.any else applied.plan if applied is not None else None
    if wishes.dump_ir is not None or wishes.validate:
        wishes.run(chosen.module, known)
    externs = models.functions(chosen)
    if prompts is not None:
        if events is not None or any((given_prompt.prompt, given_prompt.prompt_file, given_prompt.ids)):
            raise decgraph.DecError(
                "--prompts goes with no other prompt and no --events", hint="one file, a prompt on every line"
            )
        given_prompt.check()
    text = given_prompt.read() if prompts is None else None
    texts = (text,) if text is not None else prompt_files.read(prompts).texts if prompts is not None else ()
    for one in texts:
        given_prompt.said(one)  # contradictions, and files that cannot be written, are errors before models are read
    check_writable(events, ".json", instead="`decgraph trace` writes pages and pictures")
    fields = request_options.fields(chosen, logprobs=logprobs)
    session = open_session(chosen, folders, params, externs, models.backend, plan, compile, placed=placed)
    session.load_seconds = time.perf_counter() - context.obj  # since the command began
    fields |= {"bans": parsing.tokens(ban, "--ban", session.tokenizer)} if ban else {}
    if applied is not None:
        heat = {**defaults(session), **fields}["temperature"]
        applied.warn(session, folders, heat, batch if prompts is not None else 1)
    if eos:
        fields["eos"] = parsing.tokens(eos, "--eos", session.tokenizer)
    for one in texts:
        one.check_ids(next(iter(session.models.values())).vocab.size)
    if text is None:
        from decgraph.cli.many import run_all

        raise typer.Exit(run_all(session, texts, batch, fields, given_prompt.said, json=shown.json, quiet=shown.quiet))
    request = request_for(session, given_prompt.said(text), **fields)
    if shown.json:
        from decgraph.cli.summary import result_of

        result = session.run(request, keep_events=events is not None)
        output.emit_json(result_of(session, result))
    else:
        shown_text = text_of(session, text) + "\n" * given_prompt.chat
        result = show(session, request, shown_text, quiet=shown.quiet, drafts=show_drafts, keep_events=events is not None)
    if events is not None:
        write_trace(events, session, result)
    if result.reason == "interrupted":
        raise typer.Exit(output.INTERRUPTED)
    if result.error is not None:
        if not shown.json:
            output.report(unnumbered(result.error))
        raise typer.Exit(output.FAILED)


def open_session(
    chosen: decgraph.Algorithm,
    models: Mapping[str, Any],
    params: dict[str, Any],
    externs: dict[str, Any],
    backend: str | None,
    plan: Plan | None = None,
    compile: bool = False,
    tokenizer: Tokenizing | None = None,
    placed: Placement | None = None,
) -> Session:
    """Models read from their folders, with a word about it while that takes its seconds."""
    threads.few()
    where = placed or Placement()
    waiting = output.console(stderr=True).status("reading the models") if sys.stderr.isatty() else nullcontext()
    with uncollected(), waiting:
        return chosen.session(
            models,
            externs=externs,
            tokenizer=tokenizer,
            backend=backend,
            plan=plan,
            compile=compile,
            device=where.device,
            dtype=where.dtype,
            **params,
        )


def show(
    session: Session, request: Request, text: str, *, quiet: bool, drafts: bool = False, keep_events: bool = False,
    brief: bool = False,
) -> Result:  # fmt: skip
    """Run, with the text appearing as it is committed, and the summary after it; `brief`: the text alone. Backend triton
    decodes in graph mode, which has no events of drafts, unless they are to be shown (`drafts`) or stored (`keep_events`)."""
    from decgraph.cli.stream import Stream
    from decgraph.cli.summary import show as show_summary
    from decgraph.runtime.text import detokenizer_of

    console = output.console()
    detokenizer = session.tokenizer.detokenizer if session.tokenizer is not None else detokenizer_of(())
    colour = console.is_terminal and "NO_COLOR" not in os.environ and not quiet
    colour = colour and (session.machine.name != "triton" or drafts or keep_events)
    canvas = any(model.kind == "masked" for model in session.models.values())
    stream = Stream(console, detokenizer, colour=colour, canvas=canvas, drafts=drafts)
    if not (quiet or brief):
        stream.legend()
        stream.prompt(text)
        console.file.flush()
    result = session.run(request, listener=stream.hear if colour else Commits(stream.hear), keep_events=keep_events)
    if result.error is not None and isinstance(result.error.__cause__, BrokenPipeError):
        raise result.error.__cause__  # nobody reads what is said: no fault of the run's
    stream.finish()
    print()
    if not (quiet or brief):
        show_summary(console, session, result)
    return result


def unnumbered(error: DecError) -> DecError:
    """The error of a single request, without its number."""
    named = re.compile(rf"\b{re.escape(error.request)}: |, in {re.escape(error.request)}\b") if error.request else None
    if named is None:
        return error
    made = DecError([named.sub("", one) if isinstance(one, str) else one for one in error.diagnostics], hint=error.hint)
    made.__cause__ = error.__cause__
    return made


def text_of(session: Session, prompt: Text) -> str:
    """A prompt as a person reads it: token ids as their text, where there is a tokenizer."""
    if not prompt.ids or session.tokenizer is None:
        return prompt.shown()
    return session.tokenizer.decode(prompt.ids)


def write_trace(path: Path, session: Session, result: Result) -> None:
    """Every event in order, with the result, as JSON."""
    from decgraph.cli.summary import result_of

    events = [{"event": type(e).__name__, **dataclasses.asdict(e)} for e in result.events]
    document = output.plain({**result_of(session, result), "events": events})
    output.write(path, json_.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n")
