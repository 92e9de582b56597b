"""The command `decgraph`: a file of this folder whose docstring begins with `decgraph <verb>:` is a verb.

A verb's module has either `command`, a function with typer annotations (and perhaps `settings`, click's context
settings), or `app`, a `typer.Typer` with verbs of its own. Only the verb asked for is imported; the help of the others
is the first line of their files.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import decgraph
from decgraph.cli import clock, output
from decgraph.runtime.collecting import process_is_ours, uncollected

# The order of the help, from first use to rare use; other verbs follow by name.
ORDER = ("run", "check", "list", "explain", "compile", "tune", "fmt", "new", "zoo")
FIRST_LINE = re.compile(r'"""decgraph (?P<verb>\w+): (?P<help>.*?)(?:""")?\s*$')


def verbs() -> dict[str, str]:
    """The verbs and one line about each, found by reading the first line of this folder's files."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        with path.open(encoding="utf-8") as file:
            if match := FIRST_LINE.match(file.readline()):
                found[match["verb"]] = match["help"]
    rank = {verb: place for place, verb in enumerate(ORDER)}
    return dict(sorted(found.items(), key=lambda item: (rank.get(item[0], len(ORDER)), item[0])))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code: 0, 1 (your input), 2 (usage), 70 (a bug of ours), 130 (interrupted)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        process_is_ours()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = output.warn
            with uncollected():
                app = application(asked_of(arguments, os.environ))
            app(args=arguments, prog_name="decgraph", obj=clock.process_began() if argv is None else time.perf_counter())
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:  # everything a verb can raise becomes a message and a code here
        code = output.report(error, arguments)
    else:
        code = 0
    try:
        if not sys.stdout.closed:  # a language server closes it
            sys.stdout.flush()
    except BrokenPipeError:
        output.silence_stdout()
    if argv is None and "torch" in sys.modules and not (sys.gettrace() or sys.getprofile() or sys.flags.interactive):
        _leave(code)
    return code


def _leave(code: int) -> NoReturn:
    """Ends the process as multiprocessing ends its own: threads and exit functions are waited for and run, and what is left in
    memory goes with the process. Python would free it object by object, which takes a second after torch and transformers."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it, or it is closed
            stream.flush()
    os._exit(code)


def asked_of(arguments: Sequence[str], environment: Mapping[str, str]) -> Sequence[str]:
    """The words that the verb is found in: a shell that completes a line hands it over in the environment."""
    if "_DECGRAPH_COMPLETE" not in environment:
        return arguments
    line = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        return shlex.split(line)[1:]
    except ValueError:  # a quote that is still open
        return line.split()[1:]


def application(arguments: Sequence[str]) -> typer.Typer:
    """The typer application with the verb given; the other verbs are there by name and help only."""
    app = typer.Typer(
        help="A compiler for decoding algorithms: run them on real models, prove what they claim.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for verb, line in verbs().items():
        if verb != asked:
            app.command(verb, help=line)(elsewhere)
            continue
        module = import_module(f"decgraph.cli.{verb}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=verb, help=line)
        else:
            words = module.command.__doc__ or line  # python -OO leaves docstrings out
            app.command(verb, help=words, context_settings=getattr(module, "settings", None))(module.command)
    return app


def elsewhere() -> None:
    """Holds a verb's place in the help."""


def show_version(wanted: bool) -> None:
    """What `--version` does."""
    if wanted:
        print(f"decgraph {decgraph.__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""


if __name__ == "__main__":
    sys.exit(main())
