"""decgraph serve: Serve algorithms over HTTP with OpenAI's API."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import decgraph
from decgraph import extras
from decgraph.cli import completion, options, output, parsing, threads
from decgraph.cli.options import option
from decgraph.serve.worker import QUEUE, WIDTH

ALGORITHM = "An algorithm to serve; again for more, the first is the default. Default: autoregressive."

CORS = "Pages of this origin may call it too: https://ui.example, or '*' for all. Those of this machine always may."

FORWARDED = "Proxies whose X-Forwarded-For and -Proto are believed; '*' for all."

OTLP = "Send a trace of each request to this OpenTelemetry collector: http://localhost:4318/v1/traces."

TUNED = "What `decgraph tune` wrote: requests that name no algorithm get its choice for as many as are running."

GENERATION = "Sampling that a request leaves out: auto, the model's generation_config.json; none; or a folder with one."


@options.grouped
def command(
    models: options.Models,
    algorithm: Annotated[
        list[str] | None, option("--algorithm", "-a", help=ALGORITHM, autocompletion=completion.algorithms)
    ] = None,
    set_: options.Set = None,
    tuned: Annotated[Path | None, option("--tuned", help=TUNED)] = None,
    name: Annotated[str | None, option("--name", help="What clients call the model; default: its folder's name.")] = None,
    host: Annotated[str, option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, option("--port", min=0, max=65535, help="0 is any free port.")] = 8000,
    api_key: Annotated[
        list[str] | None, option("--api-key", help="Needed by clients; again for more. Or DECGRAPH_API_KEY.")
    ] = None,
    api_key_file: Annotated[Path | None, option("--api-key-file", help="API keys, one a line.")] = None,
    cors: Annotated[list[str] | None, option("--cors", help=CORS)] = None,
    ssl_certfile: Annotated[Path | None, option("--ssl-certfile", help="Serve HTTPS with this certificate (PEM).")] = None,
    ssl_keyfile: Annotated[Path | None, option("--ssl-keyfile", help="Its key, where that is a file of its own.")] = None,
    root_path: Annotated[str, option("--root-path", help="Where a proxy has the server: /models.")] = "",
    forwarded_allow_ips: Annotated[str, option("--forwarded-allow-ips", help=FORWARDED)] = "127.0.0.1",
    otlp_traces: Annotated[str | None, option("--otlp-traces", help=OTLP)] = None,
    generation_config: Annotated[str, option("--generation-config", help=GENERATION)] = "auto",
    max_concurrent: Annotated[int, option("--max-concurrent", min=1, help="Answers computed at a time.")] = WIDTH,
    max_queue: Annotated[int, option("--max-queue", min=0, help="Answers that may wait; 429 after that.")] = QUEUE,
    max_tokens: Annotated[int, option("--max-tokens", min=1, help="New tokens of one answer at most.")] = 4096,
    max_context: Annotated[int | None, option("--max-context", min=2, help="Tokens of a prompt and answer.")] = None,
    max_body: Annotated[int, option("--max-body", min=1024, help="Bytes of a body.")] = 4 << 20,
    prefill: Annotated[int, option("--prefill", min=0, help="Prompt tokens between other forwards; 0: whole.")] = 256,
    keep: Annotated[int, option("--keep", min=0, help="MiB of keys and values kept for later prompts.")] = 1024,
    patience: Annotated[float, option("--patience", min=0, help="Seconds to end running requests after SIGTERM.")] = 30.0,
    strict_fields: Annotated[bool, option("--strict-fields", help="Refuse unknown fields instead of ignoring them.")] = False,
    backend: options.Backend = None,
    quiet: Annotated[bool, option("--quiet", "-q", help="The address alone.")] = False,
    json: Annotated[bool, option("--json", help="Print where it listens as JSON.")] = False,
) -> None:
    """Serve algorithms over HTTP with OpenAI's API: /v1/chat/completions, /v1/completions, /v1/responses, /v1/models.

    Logs are JSON on stderr. Ctrl-C or SIGTERM lets running requests end.
    """
    placed, (main, by_name) = models.placed(), models.shared()
    loads = []
    if tuned is not None:
        from decgraph.cli import profiled
        from decgraph.runtime.tune.profile import Profile

        profile = Profile.read(tuned)
        loads = [profiled.applied(profile, load) for load in profile.loads]
        if models.model is None and models.drafter is None:
            by_name = {name: folder for one in loads for name, folder in one.foreign.items()}
            main = by_name.get(next(iter(loads[0].algorithm.models)))
    for origin in cors or ():
        if not re.fullmatch(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+", origin):
            raise decgraph.DecError(f"{origin!r} is no origin of a page", hint="--cors https://ui.example, or --cors '*'")
    keys = parsing.keys(api_key or (), api_key_file) or [one for one in [os.environ.get("DECGRAPH_API_KEY")] if one]
    secure: dict[str, Any] = {"ssl_certfile": ssl_certfile, "ssl_keyfile": ssl_keyfile} if ssl_certfile is not None else {}
    for file in filter(None, (ssl_certfile, ssl_keyfile)):
        if ssl_certfile is None or not file.is_file():
            what = "--ssl-keyfile goes with --ssl-certfile" if ssl_certfile is None else f"cannot read {file}: no such file"
            raise decgraph.DecError(what, hint="--ssl-certfile FILE.pem --ssl-keyfile FILE.pem")
    try:
        from decgraph.serve import logs
        from decgraph.serve.app import app_of
        from decgraph.serve.server import Server, listen
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("fastapi", "starlette", "uvicorn", "pydantic", "prometheus_client"):
            raise
        raise extras.needed("models", "serve", first=error.name or "") from None
    from decgraph.runtime.defaults import defaults
    from decgraph.serve.catalogue import Catalogue
    from decgraph.serve.generation import Limits
    from decgraph.serve.service import Service

    traces = None
    if otlp_traces is not None:
        from decgraph.serve.traces import exported

        try:
            traces = exported(otlp_traces, decgraph.__version__)
        except ModuleNotFoundError as error:
            raise extras.needed("traces", first=error.name or "opentelemetry") from None
    threads.few()
    # Every height of a batch makes products of its own, and oneDNN keeps 1,024 of them: half a gigabyte after some minutes.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    try:
        listening = listen(host, port)
    except OSError as error:
        why = error.strerror or error
        raise decgraph.DecError(f"cannot listen at {host}:{port}: {why}", hint="--port 0 is any free port") from None
    with listening:
        catalogue = Catalogue(
            algorithm or ([] if loads else ["autoregressive"]),
            main,
            drafter=models.drafter,
            models=by_name,
            params=parsing.pairs(set_ or (), "--set"),
            name=name,
            backend=backend,
            device=placed.device,
            dtype=placed.dtype,
            generation=generation_config,
            loads=[(one.load.batch, one.algorithm, one.params) for one in loads],
        )
        for chosen in loads:
            session = catalogue.sessions[chosen.algorithm.name]
            heat = float(defaults(session)["temperature"])
            chosen.warn(session, chosen.models if models.model is None else {}, heat, chosen.load.batch)
        most = max_concurrent + max_queue
        limits = Limits(tokens=max_tokens, context=max_context, answers=most, body=max_body, strict=strict_fields)
        service = Service(
            catalogue, limits=limits, width=max_concurrent, queue=max_queue, chunk=prefill or None, prefix_bytes=keep << 20
        )
        app = app_of(service, keys=keys, origins=cors or (), traces=traces)
        logs.to_stderr()
        lies = catalogue.placement
        address = f"[{host}]" if ":" in host else host
        url = f"http{'s' if secure else ''}://{address}:{listening.getsockname()[1]}/v1"
        where: dict[str, Any] = {"url": url, "models": catalogue.ids(),
                                 "device": lies.device, "dtype": lies.dtype}  # fmt: skip
        logs.LOG.info("serving", extra={"fields": where})
        if json:
            output.emit_json(where)
        elif quiet:
            print(where["url"])
        else:
            print(f"serving {', '.join(catalogue.ids())} at {where['url']} ({lies.text()})")
        for mode in sorted({session.machine.mode for session in catalogue.sessions.values()} - {""}):
            print(f"note: {mode}", file=sys.stderr)
        sys.stdout.flush()
        more = {"root_path": root_path.rstrip("/"), "forwarded_allow_ips": forwarded_allow_ips, **secure}
        Server(app, service, host=host, port=port, patience=patience, **more).run(sockets=[listening])
