"""decgraph map: Decode a file of prompts into a file of results, resumable, here or on a Ray cluster."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import decgraph
from decgraph import extras
from decgraph.cli import completion, options, output, threads
from decgraph.cli.clock import brief, timing
from decgraph.cli.options import option
from decgraph.runtime import progress
from decgraph.runtime.defaults import defaults
from decgraph.runtime.prompt_files import digest
from decgraph.runtime.session import check_params
from decgraph.runtime.trace import ended_text

if TYPE_CHECKING:
    from decgraph.scale.decoder import Decoder
    from decgraph.scale.output import JsonLinesOutput
    from decgraph.scale.rows import PromptLine

settings = options.LENIENT
NAMED = "A name that `decgraph list` prints, or a .dec file."


@options.grouped
def command(
    context: typer.Context,
    prompts: Annotated[Path, typer.Argument(help='Prompts: .jsonl, {"id": 7, "prompt": "..."} on a line, or .txt.')],
    out: Annotated[Path, option("--out", "-o", help="The results: a line of JSON for every prompt, as it ends.")],
    models: options.AlgorithmOptions,
    request_options: options.RequestOptions,
    shown: options.OutputOptions,
    talk: options.Chat,
    algorithm: Annotated[str | None, option("--algorithm", "-a", help=NAMED, autocompletion=completion.algorithms)] = None,
    tuned: Annotated[Path | None, option("--tuned", help="What `decgraph tune` wrote; other options go before it.")] = None,
    resume: Annotated[
        bool, option("--resume", help="Go on with a file of results; what is in it is not decoded again.")
    ] = False,
    retry_errors: Annotated[
        bool, option("--retry-errors", help="Go on as with --resume, and decode rows again that have an error.")
    ] = False,
    ray: Annotated[bool, option("--ray", help="Decode on Ray workers: on this machine, unless --address is given.")] = False,
    address: Annotated[str | None, option("--address", help="With --ray: a cluster, as HOST:PORT or auto.")] = None,
    workers: Annotated[int | None, option("--workers", min=1, help="With --ray: how many; default 2.")] = None,
    cpus: Annotated[float, option("--cpus", min=0.1, help="With --ray: CPUs of a worker.")] = 1,
    gpus: Annotated[float, option("--gpus", min=0, help="With --ray: GPUs of a worker.")] = 0,
    batch: Annotated[int, option("--batch", min=1, help="How many at a time, of each worker.")] = 8,
) -> None:
    """Decode every prompt of a file, and append each result to another file as it ends.

    Stopped or killed, it goes on with --resume. A row that cannot be decoded has its error in its result.
    """
    if ray:
        extras.check("models", "ray")
    threads.few()  # Ray gives its workers as many as their CPUs
    from decgraph.cli import profiled
    from decgraph.scale import local, on_ray, rows
    from decgraph.scale.decoder import Decoder
    from decgraph.scale.output import JsonLinesOutput

    if not ray and (workers is not None or address is not None):
        raise decgraph.DecError("--workers and --address go with --ray", hint="--ray --workers 2")
    talk.check()
    placed = models.placed()
    applied = profiled.read(tuned, batch, algorithm) if tuned is not None else None
    chosen = applied.algorithm if applied is not None else options.named(algorithm, "map", "--algorithm speculative")
    params, folders = models.params(context, chosen.params), models.folders(chosen.models)
    if applied is not None:
        params, folders = {**applied.params, **params}, {**applied.models, **folders}
    check_params(chosen.function, params, unread=True)
    fields = request_options.fields(chosen)
    externs = models.functions(chosen)
    if "allow" in fields:
        fields["allow"].check()
    own = address is None and "RAY_ADDRESS" not in os.environ  # a cluster that is started for this run
    placed = placed.reserved(gpus, local=own) if ray else placed.resolved()
    decoder = Decoder(
        chosen, folders, params, batch=batch, chat=talk.chat, system=talk.system, externs=externs or None,
        backend=models.backend, plan=None if applied is None else applied.plan, device=placed.device, dtype=placed.dtype,
        **fields,
    )  # fmt: skip
    found = rows.read(prompts)
    output.check_writable(out, ".jsonl", ".ndjson", ".json", what="JSON of a record a line", but=prompts)
    decided = {"algorithm": chosen.ir(), "models": folders, "parameters": {n: str(v) for n, v in params.items()},
               "chat template": [talk.chat, talk.system], "functions": sorted(models.extern or ())}  # fmt: skip
    decided |= {f"content of {name}": found for name, found in profiled.contents_of(folders).items()}
    decided |= {f"content of {one}": digest(Path(one.rpartition(":")[0]).read_bytes()) for one in models.extern or ()}
    decided |= {name: str(value) for name, value in fields.items()} | placed.settled()
    with (
        JsonLinesOutput(out, decided, resume=resume or retry_errors, retry=retry_errors) as results,
        progress.shown("map:", quiet=shown.quiet) as heard,
    ):
        results.check_prompts(found)
        todo = [row for row in found if not results.has(row.id)]
        done = _Told(results, todo, heard, context.obj)
        try:
            for row in todo:
                if row.prompt is None:
                    done.tell(rows.failed(row.id, row.error))
            decodable = [row for row in todo if row.prompt is not None]
            if decodable and ray:
                with contextlib.redirect_stdout(sys.stderr):  # Ray reports lost workers on standard output
                    on_ray.run(decoder, decodable, done.tell, on_ray.Pool(workers or 2, address, cpus, gpus))
            elif decodable:
                session = decoder.session
                session.load_seconds = time.perf_counter() - done.started
                if applied is not None:
                    applied.warn(session, folders, {**defaults(session), **fields}["temperature"], batch)
                local.run(decoder, decodable, done.tell)
        except KeyboardInterrupt:
            done.interrupted = True
    code = done.report(
        out,
        decoder,
        skipped=len(found) - len(todo),
        failed=sum(results.failed(row.id) for row in found) - done.errors,
        todo=len(todo) - done.rows,
        shown=shown,
    )
    raise typer.Exit(code)


class _Told:
    """Writes records as they come, shows the progress, and prints a summary. started: when the command started."""

    def __init__(self, results: JsonLinesOutput, todo: Sequence[PromptLine], heard: progress.Told, started: float) -> None:
        self.results, self.rows, self.tokens, self.errors = results, 0, 0, 0
        self.draft_errors: dict[str, int] = {}
        self.interrupted = False
        self.total, self.heard, self.started = len(todo), heard, started
        self.by_id = {row.id: row for row in todo}

    def tell(self, record: dict[str, Any]) -> None:
        from decgraph.scale.rows import prompt_digest

        if not self.results.write({**record, "prompt_digest": prompt_digest(self.by_id[record["id"]])}):
            return
        self.rows += 1
        for error, count in record.get("draft_errors", {}).items():
            self.draft_errors[error] = self.draft_errors.get(error, 0) + count
        self.tokens += len(record["tokens"])
        self.errors += record["error"] is not None
        self.heard(f"{self.rows} of {self.total} rows, {self.tokens} tokens", self.rows, self.total)

    def report(self, out: Path, decoder: Decoder, *, skipped: int, failed: int, todo: int, shown: options.OutputOptions) -> int:
        """What was done, on stdout; the exit code."""
        seconds = time.perf_counter() - self.started
        times, apart = f"{brief(seconds)} s", {}
        if decoder.first_call is not None:  # rows were decoded in this process
            load, (first, begun) = decoder.session.load_seconds, decoder.first_call
            decoding = seconds - load - (first or 0.0)
            times = timing(load, first, self.tokens - begun, decoding)
            apart = {"load_seconds": load, "first_call_seconds": first, "decoding_seconds": decoding,
                     "decoding_tokens": self.tokens - begun}  # fmt: skip
        if shown.json:
            output.emit_json({"out": str(out), "rows": self.rows, "skipped": skipped, "left": todo, "errors": self.errors,
                              "skipped_errors": failed, "draft_errors": self.draft_errors,
                              "tokens": self.tokens, "seconds": round(seconds, 3), **apart,
                              "interrupted": self.interrupted})  # fmt: skip
        elif not shown.quiet:
            lost = f" ({failed} with an error; --retry-errors decodes them again)" if failed else ""
            before = f", {skipped} were there{lost}" if skipped else ""
            bad = f", {self.errors} with an error" if self.errors else ""
            print(f"{self.rows} rows{before}{bad}, {self.tokens} tokens; {times}: {out}")
            if ended := ended_text(self.draft_errors):
                print(ended, file=sys.stderr)
            if todo:
                print(f"{todo} rows are left; --resume goes on", file=sys.stderr)
        if self.interrupted:
            return output.INTERRUPTED
        return output.FAILED if self.errors or failed else 0
