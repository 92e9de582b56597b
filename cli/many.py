"""Many prompts of one file, decoded together: what `decgraph run --prompts` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.text import Text

from decgraph.cli import output
from decgraph.cli.clock import timing
from decgraph.cli.summary import result_of
from decgraph.runtime import prompt_files
from decgraph.runtime.arguments import Prompt
from decgraph.runtime.result import first_call
from decgraph.runtime.session import Result, Session


def run_all(
    session: Session,
    lines: Sequence[prompt_files.Text],
    batch: int,
    fields: Mapping[str, Any],
    said: Callable[[prompt_files.Text], Prompt],
    *,
    json: bool,
    quiet: bool,
) -> int:
    """Decode every prompt of a file, as `said` makes it, at most `batch` at a time; prints each as it ends.
    Returns the exit code."""
    console = output.console()

    def show(number: int, result: Result) -> None:
        if json:
            return
        if quiet:
            print(result.text if result.error is None else f"error: {result.error}")
            return
        head = f"{number + 1}. {len(result.tokens)} tokens, {result.reason}"
        console.print(Text(head, "bold"))
        console.print(Text(lines[number].shown(), "dim"), Text(result.text), sep="", soft_wrap=True)
        if result.error is not None:
            console.print(Text(str(result.error), "red"))

    started = time.perf_counter()
    asked = [said(line) for line in lines]
    results = session.generate(asked, batch=batch, progress=not quiet, finished=show, **fields)
    seconds = time.perf_counter() - started
    tokens = sum(len(r.tokens) for r in results)
    first, before = first_call(results[:batch])
    if json:
        output.emit_json({"seconds": seconds, "load_seconds": session.load_seconds, "first_call_seconds": first,
                          "decoding_seconds": seconds - (first or 0), "decoding_tokens": tokens - before,
                          "tokens": tokens, "results": [result_of(session, r) for r in results]})  # fmt: skip
    elif not quiet:
        calls = sum(r.stats.target_calls for r in results)
        times = timing(session.load_seconds, first, tokens - before, seconds - (first or 0))
        console.print(Text(f"{len(results)} prompts, {tokens} tokens, {calls} target calls; {times}", "bold"))
    if any(r.reason == "interrupted" for r in results):
        return output.INTERRUPTED
    return output.FAILED if any(r.error is not None for r in results) else 0
