"""A progress bar for many requests, on stderr."""

from __future__ import annotations

from typing import Any


class Bar:
    """Counts finished requests of `total` and their tokens. Where stderr is no terminal, nothing is shown."""

    def __init__(self, total: int, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                              TextColumn("{task.fields[tokens]} tokens"), TimeRemainingColumn()]  # fmt: skip
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.progress.add_task(what, total=total, tokens=0)
        self.tokens = 0
        self.progress.start()

    def step(self, tokens: int) -> None:
        """One more request has ended, with this many tokens."""
        self.tokens += tokens
        self.progress.update(self.task, advance=1, tokens=self.tokens)

    def close(self) -> None:
        """Take the bar away."""
        self.progress.stop()
