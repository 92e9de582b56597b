"""The text of an answer as its tokens come: stop strings are never shown, nor a part of one, and characters only whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from decgraph.runtime.text import Detokenizer


@dataclass(frozen=True)
class Piece:
    """A token of an answer and the text that it adds, without what a stop string cuts off. at: where that begins in the
    answer's text, in characters."""

    token: int
    text: str
    at: int


class GrowingText:
    """A text made of tokens. What `feed` returns may be shown at once; `finish` returns the rest.

    The text ends before the stop string that is complete first, and of those that are complete together before the one that
    begins first, as the stop machine ends the run (runtime/stop.py). Tokens that end a text (eos) add none.
    """

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str] = (), eos: Collection[int] = ()) -> None:
        self._detokenizer, self._stop, self._eos = detokenizer, tuple(stop), eos
        self._pending = detokenizer.start()
        self._text = ""
        self._shown = 0
        self._longest = max((len(s) for s in self._stop), default=0)
        self.pieces: list[Piece] = []
        self.stopped = False

    @property
    def text(self) -> str:
        """All of it so far."""
        return self._text

    def feed(self, tokens: Iterable[int]) -> str:
        """Add tokens; the characters that are certain now. Tokens after a stop string add nothing."""
        for token in tokens:
            if self.stopped:
                break
            new = ""
            if token not in self._eos:
                self._pending, new = self._detokenizer.feed(self._pending, token)
            self._add(token, new)
        return self._show(len(self._text) if self.stopped else len(self._text) - self._held())

    def finish(self) -> str:
        """The rest, when no token follows."""
        if not self.stopped and (left := self._detokenizer.finish(self._pending)):
            self._pending = self._detokenizer.start()
            self._text += left
        return self._show(len(self._text))

    def _add(self, token: int, new: str) -> None:
        first = max(0, len(self._text) - self._longest + 1)
        at = len(self._text)
        self._text += new
        found = [
            (self._text.index(s, first) + len(s), self._text.index(s, first)) for s in self._stop if s in self._text[first:]
        ]
        if found and new:
            self.stopped = True
            self._text = self._text[: min(found)[1]]
        self.pieces.append(Piece(token, self._text[at:], min(at, len(self._text))))
        if self.stopped:  # the stop string may have begun in earlier tokens
            self.pieces = [Piece(p.token, self._text[p.at : p.at + len(p.text)], p.at) for p in self.pieces]
            while self.pieces and not self.pieces[-1].text:
                self.pieces.pop()

    def _held(self) -> int:
        """How many of the last characters may be the beginning of a stop string."""
        most = min(self._longest - 1, len(self._text))
        ends = (n for n in range(most, 0, -1) if any(s.startswith(self._text[-n:]) for s in self._stop))
        return next(ends, 0)

    def _show(self, end: int) -> str:
        out = self._text[self._shown : end] if end > self._shown else ""
        self._shown = max(self._shown, end)
        return out
