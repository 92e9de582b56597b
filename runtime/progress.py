"""How far something long is, on stderr: at a terminal a bar with the time that is left, elsewhere a line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 10.0
"""Seconds between two lines where there is no terminal."""
Told = Callable[[str, float, float], None]
"""It is told what is done, how much of it, and of how much; 0 of 0 where that is not known."""


@contextmanager
def shown(name: str, *, quiet: bool = False, bytes: bool = False) -> Iterator[Told]:
    """The function that a command tells how far it is. name: of the command. quiet: nothing is shown. bytes: what is counted.

    What nobody tells for a while is shown again as it was, so that a silent wait looks like one and not like an end.
    """
    if quiet:
        yield lambda what, done, of: None
        return
    if not sys.stderr.isatty():
        with _lines(name) as told:
            yield told
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    size = [DownloadColumn()] if bytes else []
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *size, TimeElapsedColumn(), TextColumn("left:"),
               TimeRemainingColumn())  # fmt: skip
    # This stream: stderr is another one while transformers reads weights. Standard output is not rich's unless it is the same
    # screen, or what goes into a file would go to the screen.
    screen = Console(file=sys.stderr, highlight=False)
    with Progress(*columns, console=screen, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        task = bar.add_task(name, total=None)

        def tell(what: str, done: float, of: float) -> None:
            nonlocal task
            if bar.tasks[-1].total != (of or None):  # another count: rich does not forget the size and pace of the last one
                bar.remove_task(task)
                task = bar.add_task(name, total=of or None)
            bar.update(task, description=f"{name} {what}", completed=done)

        yield tell


@contextmanager
def _lines(name: str) -> Iterator[Told]:
    """A line every ten seconds, from a thread of its own."""
    state: tuple[str, float, float] = ("", 0, 0)
    began = time.perf_counter()
    ended = threading.Event()

    def tell(what: str, done: float, of: float) -> None:
        nonlocal state
        state = what, done, of

    def speak() -> None:
        while not ended.wait(EVERY):
            print(line(name, *state, time.perf_counter() - began), file=sys.stderr, flush=True)

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        ended.set()
        thread.join()


def line(name: str, what: str, done: float, of: float, seconds: float) -> str:
    """How far it is, in a line: `tune: step 40, 33% after 20 s, about 40 s left`. Of less than a fiftieth nothing is
    told. seconds: since it began."""
    head = f"{name.rstrip(':')}: {what}".rstrip(": ")
    if not of or done / of < 0.02:
        return f"{head}, {_lasting(seconds)} so far"
    left = seconds * (of - done) / done
    return f"{head}, {done / of:.0%} after {_lasting(seconds)}, about {_lasting(max(0.0, left))} left"


def _lasting(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
