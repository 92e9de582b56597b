"""decgraph map: Decode a file of prompts into a file of results, resumable, here or on a Ray cluster."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import decgraph
from decgraph import extras
from decgraph.cli import given, options, output, threads
from decgraph.cli.clock import brief, told
from decgraph.cli.options import option
from decgraph.runtime.placement import AUTO, Placement
from decgraph.runtime.progress import Bar
from decgraph.runtime.session import check_externs, check_params
from decgraph.runtime.unshaped import refuse_unread, unread

if TYPE_CHECKING:
    from decgraph.scale.decoder import Decoder

settings = {"allow_extra_args": True, "ignore_unknown_options": True}
OWN = ("algorithm", "out", "resume", "retry_errors", "ray", "address", "workers", "cpus", "gpus", "batch", "chat", "system",
       "model", "set", "max_new", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "stop", "regex",
       "strict", "json_schema", "grammar", "extern", "backend", "device", "dtype", "json")  # fmt: skip


NAMED = "A name that `decgraph list` prints, or a .dec file."


def command(
    context: typer.Context,
    prompts: Annotated[Path, typer.Argument(help='Prompts: .jsonl, {"id": 7, "prompt": "..."} on a line, or .txt.')],
    algorithm: Annotated[str, typer.Option("--algorithm", "-a", help=NAMED, autocompletion=given.algorithms)],
    out: Annotated[Path, option("--out", "-o", help="The results: a line of JSON for every prompt, as it ends.")],
    resume: Annotated[
        bool, option("--resume", help="Go on with a file of results; what is in it is not decoded again.")
    ] = False,
    retry_errors: Annotated[
        bool, option("--retry-errors", help="Go on as with --resume, and decode rows again that have an error.")
    ] = False,
    ray: Annotated[bool, option("--ray", help="Decode on Ray workers: on this machine, unless --address is given.")] = False,
    address: Annotated[str | None, option("--address", help="With --ray: a cluster, as HOST:PORT or auto.")] = None,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="With --ray: how many; default 2.")] = None,
    cpus: Annotated[float, typer.Option("--cpus", min=0.1, help="With --ray: CPUs of a worker.")] = 1,
    gpus: Annotated[float, typer.Option("--gpus", min=0, help="With --ray: GPUs of a worker.")] = 0,
    batch: Annotated[int, typer.Option("--batch", min=1, help="How many at a time, of each worker.")] = 8,
    chat: Annotated[bool, option("--chat", help="A text is a message: use the model's chat template.")] = False,
    system: options.System = None,
    model: options.Model = None,
    set_: options.Set = None,
    max_new: Annotated[int, option("--max-new", "-n", help="Most new tokens of a prompt.")] = 64,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    seed: Annotated[int, option("--seed", help="Seed of all noise; a row's noise also depends on its id.")] = 0,
    strict: options.Strict = False,
    stop: Annotated[list[str] | None, option("--stop", help="Text that ends a run.")] = None,
    regex: Annotated[str | None, option("--regex", help="New text must match this regular expression.")] = None,
    json_schema: options.JsonSchema = None,
    grammar: options.Grammar = None,
    extern: options.Extern = None,
    backend: options.Backend = None,
    device: options.Device = AUTO,
    dtype: options.Dtype = AUTO,
    json: Annotated[bool, option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Decode every prompt of a file, and append each result to another file as it ends.

    Stopped or killed, it goes on with --resume. A row that cannot be decoded has its error in its result.
    """
    if ray:
        extras.check("models", "ray")
    threads.few()  # Ray gives its workers as many as their CPUs
    from decgraph.scale import local, on_ray, rows
    from decgraph.scale.decoder import Decoder
    from decgraph.scale.output import Output

    if not ray and (workers is not None or address is not None):
        raise decgraph.DecError("--workers and --address go with --ray", hint="--ray --workers 2")
    if system is not None and not chat:
        raise decgraph.DecError("--system goes with --chat", hint='--chat --system "Answer in one sentence."')
    placed = Placement.of(device, dtype)
    chosen = decgraph.load(algorithm)
    params: dict[str, Any] = given.pairs(set_ or (), "--set") | given.direct(context.args, chosen.params, OWN)
    check_params(chosen.function, params, unread=True)
    folders = given.folders(model or (), chosen.models)
    fields: dict[str, Any] = {
        "limit": max_new,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
        "strict": strict,
        "stop": tuple(stop or ()),
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    plain = decgraph.Request((0,), **fields)  # what is out of range is said before models are read
    refuse_unread(chosen.function, plain, unread(chosen.function))
    allow = given.grammar(regex, json_schema, grammar)
    if allow is not None:
        fields["allow"] = allow
    externs = given.functions(extern or ())
    check_externs(chosen.module, chosen.name, externs)
    if allow is not None:
        allow.check()
    own = address is None and "RAY_ADDRESS" not in os.environ  # a cluster that is started for this run
    placed = placed.reserved(gpus, here=own) if ray else placed.found()
    decoder = Decoder(
        chosen, folders, params, batch=batch, chat=chat, system=system, externs=externs or None,
        backend=backend, device=placed.device, dtype=placed.dtype, **fields,
    )  # fmt: skip
    found = rows.read(prompts)
    output.check_writable(out, ".jsonl", ".ndjson", ".json", what="JSON of a record a line")
    decided = {"algorithm": chosen.ir(), "models": folders, "parameters": {n: str(v) for n, v in params.items()},
               "chat template": [chat, system], "functions": sorted(extern or ())}  # fmt: skip
    decided |= {name: str(value) for name, value in fields.items()} | placed.settled()
    with Output(out, decided, resume=resume or retry_errors, retry=retry_errors) as results:
        todo = [row for row in found if not results.has(row.id)]
        done = _Told(results, len(todo), chosen.name, context.obj, shown=sys.stderr.isatty() and not json)
        try:
            for row in todo:
                if row.prompt is None:
                    done.tell(rows.failed(row.id, row.error))
            asked = [row for row in todo if row.prompt is not None]
            if asked and ray:
                with contextlib.redirect_stdout(sys.stderr):  # Ray tells of lost workers on standard output
                    on_ray.run(decoder, asked, done.tell, on_ray.Pool(workers or 2, address, cpus, gpus))
            elif asked:
                session = decoder.session
                session.load_seconds = time.perf_counter() - done.started
                local.run(decoder, asked, done.tell)
        except KeyboardInterrupt:
            done.interrupted = True
        finally:
            done.close()
    code = done.report(
        out,
        decoder,
        skipped=len(found) - len(todo),
        failed=sum(results.failed(row.id) for row in found) - done.errors,
        left=len(todo) - done.rows,
        json=json,
    )
    raise typer.Exit(code)


QUIET = 30.0
"""Seconds without a word where there is no terminal for a bar."""


class _Told:
    """Writes records as they come, shows how far it is, and says what was done. started: when the command was."""

    def __init__(self, results: Any, total: int, name: str, started: float, *, shown: bool) -> None:
        self.results, self.rows, self.tokens, self.errors = results, 0, 0, 0
        self.interrupted = False
        self.total = total
        self.started, self.said = started, time.perf_counter()
        self.bar = Bar(total, name) if shown else None

    def tell(self, record: dict[str, Any]) -> None:
        if not self.results.write(record):
            return
        self.rows += 1
        self.tokens += len(record["tokens"])
        self.errors += record["error"] is not None
        if self.bar is not None:
            self.bar.step(len(record["tokens"]))
        elif time.perf_counter() - self.said > QUIET:
            self.said = time.perf_counter()
            print(f"map: {self.rows} of {self.total} rows, {self.tokens} tokens", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()

    def report(self, out: Path, decoder: Decoder, *, skipped: int, failed: int, left: int, json: bool) -> int:
        """What was done, on stdout; the exit code."""
        seconds = time.perf_counter() - self.started
        times, apart = f"{brief(seconds)} s", {}
        if decoder.first_call is not None:  # rows were decoded in this process
            load, (first, begun) = decoder.session.load_seconds, decoder.first_call
            decoding = seconds - load - (first or 0.0)
            times = told(load, first, self.tokens - begun, decoding)
            apart = {"load_seconds": load, "first_call_seconds": first, "decoding_seconds": decoding,
                     "decoding_tokens": self.tokens - begun}  # fmt: skip
        if json:
            output.emit_json({"out": str(out), "rows": self.rows, "skipped": skipped, "left": left, "errors": self.errors,
                              "skipped_errors": failed,
                              "tokens": self.tokens, "seconds": round(seconds, 3), **apart,
                              "interrupted": self.interrupted})  # fmt: skip
        else:
            lost = f" ({failed} with an error; --retry-errors decodes them again)" if failed else ""
            before = f", {skipped} were there{lost}" if skipped else ""
            bad = f", {self.errors} with an error" if self.errors else ""
            print(f"{self.rows} rows{before}{bad}, {self.tokens} tokens; {times}: {out}")
            if left:
                print(f"{left} rows are left; --resume goes on", file=sys.stderr)
        if self.interrupted:
            return output.INTERRUPTED
        return output.USER_ERROR if self.errors or failed else 0
