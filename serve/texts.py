"""The text of an answer as its tokens come: stop strings are never shown, nor a part of one, and characters only whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from decgraph.runtime.text import Detokenizer


@dataclass(frozen=True)
class TextPiece:
    """A token of an answer and the text that it adds, without what a stop string cuts off. at: where that begins in the
    answer's text, in characters."""

    token: int
    text: str
    at: int


class GrowingText:
    """A text made of tokens. What `feed` returns may be shown at once; `finish` returns the rest.

    The text ends before the stop string that is complete first, and of those that are complete together before the one that
    begins first, as the stop machine ends the run (runtime/stop.py); with `whole` after it. Tokens that end a text (eos) add
    none. Special tokens are not shown, and a stop string may spell them; those in `special` are shown as spelled there.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        stop: Sequence[str] = (),
        eos: Collection[int] = (),
        *,
        whole: bool = False,
        special: Mapping[int, str] | None = None,
    ) -> None:
        self.detokenizer, self._stop, self._eos = detokenizer, tuple(stop), eos
        self._whole, self._special = whole, special or {}
        self._pending = detokenizer.start()
        self._text = ""
        self._spelled = ""  # the text with its special tokens
        self._places: list[int] = []  # where each character of that stands in the text
        self._shown = 0
        self._longest = max((len(s) for s in self._stop), default=0)
        self.pieces: list[TextPiece] = []
        self.stopped = False
        self.matched = ""
        """The stop string that ended it."""

    @property
    def text(self) -> str:
        """All of it so far."""
        return self._text

    def feed(self, tokens: Iterable[int]) -> str:
        """Add tokens; the characters that are certain now. Tokens after a stop string add nothing."""
        for token in tokens:
            if self.stopped:
                break
            new, spelled = "", ""
            if token not in self._eos:
                self._pending, new = self.detokenizer.feed(self._pending, token)
                spelled = self.detokenizer.special.get(token, "")
                if token in self._special:
                    spelled, new = "", spelled + new
            self._add(token, new, spelled)
        held = 0 if self.stopped or self._whole else self._held()
        return self._show(self._places[-held] if held else len(self._text))

    def finish(self) -> str:
        """The rest, when no token follows."""
        if not self.stopped and (left := self.detokenizer.finish(self._pending)):
            self._pending = self.detokenizer.start()
            self._text += left
        return self._show(len(self._text))

    def _add(self, token: int, new: str, spelled: str) -> None:
        first = max(0, len(self._spelled) - self._longest + 1)
        at = len(self._text)
        self._text += new
        self._spelled += spelled + new
        self._places += [*[at] * len(spelled), *range(at, at + len(new))]
        found = [(i + len(s), i, s) for s in self._stop if (i := self._spelled.find(s, first)) >= 0]
        if found and (new or spelled):
            end, begin, self.matched = min(found)
            self.stopped = True
            self._text = self._text[: [*self._places, len(self._text)][end if self._whole else begin]]
        self.pieces.append(TextPiece(token, self._text[at:], min(at, len(self._text))))
        if self.stopped:  # the stop string may have begun in earlier tokens
            self.pieces = [TextPiece(p.token, self._text[p.at : p.at + len(p.text)], p.at) for p in self.pieces]
            while self.pieces and not self.pieces[-1].text:
                self.pieces.pop()

    def _held(self) -> int:
        """How many of the last characters, special tokens' too, may be the beginning of a stop string."""
        most = min(self._longest - 1, len(self._spelled))
        ends = (n for n in range(most, 0, -1) if any(s.startswith(self._spelled[-n:]) for s in self._stop))
        return next(ends, 0)

    def _show(self, end: int) -> str:
        out = self._text[self._shown : end] if end > self._shown else ""
        self._shown = max(self._shown, end)
        return out
