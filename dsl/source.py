"""A source text and places in it."""

from __future__ import annotations

import bisect
import unicodedata
from typing import NamedTuple

TAB_WIDTH = 8


class Span(NamedTuple):
    """A piece of one text: offsets `start <= end` in code points, and the 1-based line and column of `start`.

    `column` counts code points; what a terminal shows (tabs, wide characters) is `Source.screen_column`.
    """

    start: int
    end: int
    line: int
    column: int

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of `other`."""
        return Span(self.start, max(self.end, other.end), self.line, self.column)

    def __bool__(self) -> bool:
        """False for `NOWHERE`, the span of nodes that were built by a program instead of read from a text."""
        return self.line > 0


NOWHERE = Span(0, 0, 0, 0)


class Source:
    """A text with its path, lines and columns. Lines end with LF, CR LF or CR, which are not part of them."""

    def __init__(self, text: str, path: str = "<text>") -> None:
        self.text = text
        self.path = path
        self._starts = [0]
        at = 0
        while True:
            at = _next_line(text, at)
            if at < 0:
                break
            self._starts.append(at)

    def __repr__(self) -> str:
        return f"Source({self.path!r}, {len(self._starts)} lines)"

    @property
    def line_count(self) -> int:
        """How many lines the text has; an empty text has one."""
        return len(self._starts)

    def line(self, number: int) -> str:
        """The text of a 1-based line without its end; empty outside the text."""
        if not 1 <= number <= len(self._starts):
            return ""
        start = self._starts[number - 1]
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def line_start(self, number: int) -> int:
        """The offset at which a 1-based line starts."""
        return self._starts[min(max(number, 1), len(self._starts)) - 1]

    def locate(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column (in code points) of an offset; offsets outside the text are clamped."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        """The span between two offsets."""
        line, column = self.locate(start)
        return Span(start, max(start, end), line, column)

    def screen_column(self, offset: int) -> int:
        """The 1-based column at which a terminal shows the character at `offset`."""
        line, column = self.locate(offset)
        return screen_width(self.line(line)[: column - 1]) + 1

    def place(self, span: Span) -> str:
        """`path:line:column`, with the column a terminal shows; the path alone for `NOWHERE`."""
        return f"{self.path}:{span.line}:{self.screen_column(span.start)}" if span else self.path


def screen_width(text: str) -> int:
    """How many columns a terminal needs for the start of a line: tabs to multiples of 8, two if wide."""
    width = 0
    for character in text:
        if character == "\t":
            width += TAB_WIDTH - width % TAB_WIDTH
        elif unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
            continue
        else:
            width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return width


def _next_line(text: str, at: int) -> int:
    """The offset after the next line end at or after `at`, or -1."""
    feed, carriage = text.find("\n", at), text.find("\r", at)
    if carriage >= 0 and (feed < 0 or carriage < feed):
        return carriage + (2 if text.startswith("\r\n", carriage) else 1)
    return feed + 1 if feed >= 0 else -1
