"""How a vocabulary is spelled: the text of its tokens, and the tokens of a text. Two vocabularies meet in their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

FIRST = 0x4E00
"""Where letters of vocabularies without a tokenizer begin: a block of Unicode that is long enough."""


class Spelling:
    """pieces: the bytes of every token, b"" for special ones. encode: the tokens of a text. whole: the same of a text from its
    beginning, as a model reads it (with a beginning-of-text token, where the tokenizer adds one). names: special tokens by what
    they are called. start: what a model reads where a text has no token."""

    def __init__(
        self,
        pieces: Sequence[bytes],
        encode: Callable[[str], Iterable[int]],
        names: Mapping[str, int] | None = None,
        start: int = 0,
        whole: Callable[[str], Iterable[int]] | None = None,
    ) -> None:
        self.pieces, self.encode, self.whole = tuple(pieces), encode, whole or encode
        self.names, self.start = dict(names or {}), start

    def text(self, tokens: Iterable[int]) -> str:
        """The text of tokens; U+FFFD for what is no UTF-8."""
        known = (self.pieces[t] for t in tokens if 0 <= t < len(self.pieces))
        return b"".join(known).decode("utf-8", "replace")

    def token(self, text: str) -> int | None:
        """The token that has this text, None where none does: the special one of that name; of several the one that the text
        alone is read as, else the last."""
        read = self.read(text, whole=False)
        same = [t for t, piece in enumerate(self.pieces) if piece and piece == text.encode()]
        return self.names.get(text, read[0] if len(read) == 1 and read[0] in same else same[-1] if same else None)

    def read(self, text: str, *, whole: bool) -> tuple[int, ...]:
        """The tokens of a text, or of a whole one."""
        return tuple(int(t) for t in (self.whole if whole else self.encode)(text))


def spelled(pieces: Sequence[str]) -> Spelling:
    """The spelling whose tokens have these texts; a text is read from its beginning, always the longest token that fits, and a
    letter that begins none is left out."""
    known: dict[str, int] = {}
    for token, piece in enumerate(pieces):
        known.setdefault(piece, token)
    longest = max(map(len, known), default=0)

    def encode(text: str) -> list[int]:
        out, at = [], 0
        while at < len(text):
            fits = (n for n in range(min(longest, len(text) - at), 0, -1) if text[at : at + n] in known)
            n = next(fits, 0)
            if n:
                out.append(known[text[at : at + n]])
            at += n or 1
        return out

    return Spelling([p.encode() for p in pieces], encode)


def numbered(size: int) -> Spelling:
    """The spelling of a vocabulary without a tokenizer: every token is a letter of its own, the same for equal ids."""
    return spelled([chr(FIRST + i) for i in range(size)])


def shared(a: Spelling, b: Spelling) -> tuple[tuple[int, int], ...]:
    """The tokens that two vocabularies share: pairs of a token of `a` and the one of `b` that has the same text, or, of special
    tokens, the same name; the first where several have it. Each token is in one pair at most."""
    theirs: dict[bytes, int] = {}
    for token, piece in enumerate(b.pieces):
        if piece:
            theirs.setdefault(piece, token)
    pairs: dict[int, int] = {}  # by b's token: the first of a's
    for token, piece in enumerate(a.pieces):
        if piece in theirs:
            pairs.setdefault(theirs[piece], token)
    for name, token in a.names.items():
        if name in b.names:
            pairs.setdefault(b.names[name], token)
    return tuple(sorted((mine, other) for other, mine in pairs.items()))


def retokenized(tokens: Iterable[int], source: Spelling, to: Spelling, *, whole: bool) -> tuple[int, ...]:
    """The tokens of one vocabulary that have the text of tokens of another. whole: it is a text from its beginning, and where
    it is empty, what the model reads in its place."""
    read = to.read(source.text(tokens), whole=whole)
    return read or (to.start,) if whole else read
