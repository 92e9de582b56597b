"""Many prompts of one file, decoded together: what `decgraph run --prompts` does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from decgraph.cli import output
from decgraph.cli.summary import result_of
from decgraph.errors import DecError
from decgraph.runtime.arguments import Prompt
from decgraph.runtime.session import Result, Session


def run_all(
    session: Session,
    file: Path,
    batch: int,
    fields: Mapping[str, Any],
    said: Callable[[str], Prompt],
    *,
    json: bool,
    quiet: bool,
) -> int:
    """Decode every line of a file, as the prompt that `said` makes of it, at most `batch` at a time; prints each as it ends.
    Returns the exit code."""
    lines = prompts_of(file)
    console = output.console()

    def show(number: int, result: Result) -> None:
        if json:
            return
        if quiet:
            print(result.text if result.error is None else f"error: {result.error}")
            return
        head = f"{number + 1}. {len(result.tokens)} tokens, {result.reason}"
        console.print(Text(head, "bold"))
        console.print(Text(lines[number], "dim"), Text(result.text), sep="", soft_wrap=True)
        if result.error is not None:
            console.print(Text(str(result.error), "red"))

    started = time.perf_counter()
    asked = [said(line) for line in lines]
    results = session.generate(asked, batch=batch, progress=sys.stderr.isatty() and not json, finished=show, **fields)
    seconds = time.perf_counter() - started
    tokens = sum(len(r.tokens) for r in results)
    if json:
        output.emit_json({"seconds": seconds, "tokens": tokens, "results": [result_of(session, r) for r in results]})
    elif not quiet:
        calls = sum(r.stats.target_calls for r in results)
        console.print(Text(f"{len(results)} prompts, {tokens} tokens, {calls} target calls, {seconds:.1f} s, "
                           f"{tokens / seconds:.0f} tokens/s", "bold"))  # fmt: skip
    if any(r.reason == "interrupted" for r in results):
        return output.INTERRUPTED
    return output.USER_ERROR if any(r.error is not None for r in results) else 0


def prompts_of(file: Path) -> list[str]:
    """The lines of a file that are not empty. Raises DecError for a file that cannot be read, or that has none."""
    try:
        lines = file.read_bytes().decode("utf-8").splitlines()
    except OSError as error:
        raise DecError(f"cannot read {file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DecError(f"{file} is not UTF-8 text (byte {error.start})") from None
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise DecError(f"{file} has no prompts", hint="a prompt on every line")
    return lines
