"""Any exception during a run becomes one error that names the request and the line.

A model, a drafter, an extern, a processor, a tokenizer or a listener may raise anything. The run ends there, and its result has
the tokens committed so far and the DecError made here, whose `__cause__` is the exception. Ctrl-C is not an error.
"""

from __future__ import annotations

import re
from typing import TypeVar

from decgraph.errors import ConstraintError, ContextFullError, DecError, InternalError
from decgraph.ir.opdef import OpError
from decgraph.runtime.request import Request

_PLACE = re.compile(r"^\S+:\d+:\d+: ")
_MEMORY = ("out of memory", "can't allocate memory")


def fault(error: BaseException, *, request: str, place: str = "", op: str = "") -> DecError:
    """The error of a run, to be raised from `error`. A DecError that already names a request is returned as it is.

    request: its name in messages, `request 3`. place: file, line and column where it happened. op: the operation there.
    """
    if isinstance(error, DecError):
        if error.request:
            return error
        first, *rest = error.diagnostics or ("",)
        kind = type(error) if isinstance(error, (ContextFullError, ConstraintError)) else DecError
        made = kind([_named(first, request, place) if isinstance(first, str) else first, *rest], hint=error.hint)
    else:
        message, hint = _said(error)
        doing = f"{op} cannot go on: " if op else ""
        made = DecError(_named(doing + message, request, place), hint=hint)
    made.request, made.outside = request, is_outside(error)
    made.__cause__ = error.__cause__ or error if isinstance(error, DecError) else error  # the exception that came first
    return made


E = TypeVar("E", bound=BaseException)


def noted_outside(error: E) -> E:
    """The exception, marked as one of a model or of the caller's function, which ends the run and not only a draft."""
    error.outside = True  # type: ignore[attr-defined]  # of any class
    return error


def is_outside(error: BaseException) -> bool:
    """Whether an exception comes from outside the program: from a model, the caller's functions, the request or the machine."""
    mine = isinstance(error, DecError) and not isinstance(error, (ContextFullError, ConstraintError))
    memory = isinstance(error, MemoryError) or any(words in str(error).lower() for words in _MEMORY)
    own = mine or isinstance(
        error, (OpError, LookupError, ValueError, ArithmeticError, TypeError, RuntimeError, AttributeError)
    )
    return bool(getattr(error, "outside", False)) or memory or not own


def _named(text: str, request: str, place: str) -> str:
    """The text with the place and the request before it, unless it names them already."""
    text = text.removeprefix("error: ")
    found = _PLACE.match(text)
    where, text = (found[0], text[found.end() :]) if found else (f"{place}: " if place else "", text)
    named = "" if re.search(rf"\b{re.escape(request)}\b", text) else f"{request}: "
    return where + named + text


def _said(error: BaseException) -> tuple[str, str]:
    """The message for an exception, and the hint."""
    if isinstance(error, OpError):
        return str(error), error.hint
    if isinstance(error, InternalError):
        return str(error), "this is a bug in decgraph; please report it"
    text = _first_lines(str(error))
    name = type(error).__name__
    if isinstance(error, MemoryError) or any(words in text.lower() for words in _MEMORY):
        return f"no memory was left ({name}{': ' if text else ''}{text})", "fewer requests at a time, or a shorter text"
    from decgraph.runtime.value_errors import reworded

    return reworded(error) or (f"{name}: {text}" if text else name, "")


def _first_lines(text: str, most: int = 600) -> str:
    """A text of at most `most` characters: torch's messages may contain whole graphs."""
    text = text.strip()
    return text if len(text) <= most else text[:most].rstrip() + " ..."


def title_of(request: Request) -> str:
    """A request's name in messages."""
    return f"request {request.request_id}"
