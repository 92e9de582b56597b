"""Keyword arguments that a function collects (`**given`): which of them it does not have, and what was meant."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping

from decgraph.errors import DecError


def check_keywords(
    title: str, given: Iterable[str], known: Iterable[str], *, elsewhere: Mapping[str, str] | None = None
) -> None:
    """Raises DecError for a name that is not known, with the nearest one. title: what does not have it. elsewhere: by a name
    that is known in another place, how it is given there."""
    known = list(known)
    for name in given:
        if name in known:
            continue
        if elsewhere is not None and name in elsewhere:
            raise DecError(f"{title} has no `{name}`", hint=elsewhere[name])
        near = difflib.get_close_matches(name, [*known, *(elsewhere or ())], 1)
        raise DecError(f"{title} has no `{name}`", hint=f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}")


def keywords_of(function: Callable[..., object]) -> list[str]:
    """The names that a function takes as keyword arguments of its own, without what it collects."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds and p.name != "self"]
