"""The command `decgraph`: a file of this folder whose docstring begins with `decgraph <verb>:` is a verb.

A verb's module has either `command`, a function with typer annotations (and perhaps `settings`, click's context
settings), or `app`, a `typer.Typer` with verbs of its own. Only the chosen verb is imported; the help of the others
is the first line of their files. A shell that completes a line is answered without typer.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from decgraph.cli import completion
from decgraph.cli.verbs import verbs


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code is one of those at the top of `output`."""
    if argv is None and os.environ.get(completion.VARIABLE, "").startswith("complete_"):
        return completion.answer(os.environ)
    from decgraph.cli import application, clock, output
    from decgraph.runtime.collecting import process_is_ours, uncollected

    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        process_is_ours()
        signal.signal(signal.SIGTERM, _interrupted)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = output.warn
            with uncollected():
                app = application.of(arguments, verbs())
            began = clock.process_began() if argv is None else time.perf_counter()
            code = app(args=arguments, prog_name="decgraph", obj=began, standalone_mode=False) or 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:  # everything a verb can raise becomes a message and a code here
        code = output.report(application.refused(error, arguments), arguments)
    try:
        if not sys.stdout.closed:  # a language server closes it
            sys.stdout.flush()
    except BrokenPipeError:
        output.silence_stdout()
    # An interruption inside an `exec` of text, as dataclasses make their methods, is noted by Python even where it is caught: a
    # plain exit would then end the process by SIGINT and not with our code.
    quickly = "torch" in sys.modules or code == output.INTERRUPTED
    if argv is None and quickly and not (sys.gettrace() or sys.getprofile() or sys.flags.interactive):
        _leave(code)
    return code


def _interrupted(number: int, _: object) -> NoReturn:
    """SIGTERM ends a command as Ctrl-C does: what was done until then is kept. A second one ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt


def _leave(code: int) -> NoReturn:
    """Ends the process as multiprocessing ends its own: threads and exit functions are waited for and run, and what is left in
    memory goes with the process. Python would free it object by object, which takes a second after torch and transformers."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader has gone, or the stream is closed
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
