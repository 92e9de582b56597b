"""The two errors that cross a public boundary: yours (`DecError`) and ours (`InternalError`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class DecError(Exception):
    """Something in the program, the request or the files named cannot be used as it stands.

    Carries the diagnostics found, each of which renders itself with file, line, caret and a suggestion; a
    plain string is allowed where there is no source to point at. `str(error)` is the whole text to show: no
    traceback is needed to understand it.

    >>> str(DecError("gamma is 40; it must be in 1..32"))
    'error: gamma is 40; it must be in 1..32'

    `request` is what the message calls the request whose run ended with this error, "" outside of runs; what a model or
    another function of the caller raised is its `__cause__`.
    """

    request: str = ""
    outside: bool = False
    """Whether it was raised by a model or by a function of the caller's, and not by what the program computes."""

    def __init__(self, diagnostics: Any, *, hint: str = "") -> None:
        if isinstance(diagnostics, str) or not isinstance(diagnostics, Iterable):
            diagnostics = (diagnostics,)
        self.diagnostics: tuple[Any, ...] = tuple(diagnostics)
        self.hint = hint
        super().__init__(self.diagnostics)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the diagnostics that have one, in order: `("E012", "E031")`."""
        return tuple(str(d.code) for d in self.diagnostics if getattr(d, "code", None))

    def __str__(self) -> str:
        parts = [_render(d) for d in self.diagnostics]
        if self.hint:
            parts.append(f"  = try: {self.hint}")
        return "\n".join(parts) if self.hint and len(parts) == 2 else "\n\n".join(parts)


class ContextFullError(DecError):
    """A model was asked about a position past its context length. A run that has committed tokens ends there, with reason
    "context": a drafter, a head or a second context of a program may be full before the request's own text is."""


class ConstraintError(DecError):
    """What a request asks for (bans, a minimum length, a grammar) leaves no token: the request's fault, no program's."""


class InternalError(Exception):
    """A bug in decgraph itself: an invariant of ours does not hold. `reproducer` says how to see it again."""

    def __init__(self, message: str, *, reproducer: str = "") -> None:
        super().__init__(message)
        self.reproducer = reproducer

    def __str__(self) -> str:
        text = f"internal error: {self.args[0]}"
        return f"{text}\n  = reproduce: {self.reproducer}" if self.reproducer else text


def _render(diagnostic: Any) -> str:
    """A diagnostic's own rendering; strings get the `error:` they lack."""
    if isinstance(diagnostic, str):
        return diagnostic if diagnostic.startswith("error") else f"error: {diagnostic}"
    render = getattr(diagnostic, "render", None)
    return str(render()) if callable(render) else str(diagnostic)
