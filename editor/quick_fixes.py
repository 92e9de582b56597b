"""What an editor can write in the place of a mistake: the names that a diagnostic takes for the one that was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from decgraph.dsl.diagnostics import Diagnostic
from decgraph.dsl.source import Source, Span

_MEANT = re.compile(r"did you mean `?(\w+)`?(?: or `?(\w+)`?)?\?")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Fix:
    """A word to be written at a place."""

    diagnostic: Diagnostic
    span: Span
    word: str


def fixes(source: Source, diagnostics: list[Diagnostic]) -> Iterator[Fix]:
    """The quick fixes of diagnostics: of those about one word, the words that it may stand for, the likeliest first."""
    for one in diagnostics:
        meant = _MEANT.search(one.help)
        if meant is None or one.span is None or not _WORD.fullmatch(source.text[one.span.start : one.span.end]):
            continue
        for word in meant.groups():
            if word:
                yield Fix(one, one.span, word)
