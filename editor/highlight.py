"""What each piece of a text is, for whatever colours it: Pygments, semantic tokens, HTML in notebooks.

The compiler's own lexer decides what is a keyword, so that `state = 3` and `model(c)` are coloured as what they are. Where it
stops (unfinished texts), the rest of the line is taken piece by piece, and reading continues with the next line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from decgraph.dsl.lexer import Comment, Lexed, Lexeme, lex
from decgraph.dsl.parse import literals
from decgraph.dsl.source import Source
from decgraph.editor.words import CONSTANTS, TYPES, VALUES, functions

KINDS = (
    "comment", "doc", "string", "number", "declaration", "import", "keyword", "word", "operator", "punctuation",
    "definition", "type", "constant", "special", "function", "call", "attribute", "name", "wrong",
)  # fmt: skip
"""declaration: `algorithm`, `rule`, `policy`, `def`, `extern`; word: `and`, `or`, `not`, `in`; definition: the name that is
defined; special: `ctx`, `done`, ...; function: one of the language's or of stdlib/, called; call: another name, called."""

_ITEMS = frozenset(("ALGORITHM", "RULE", "POLICY", "DEF", "EXTERN"))
_WORDS = frozenset(("AND", "OR", "NOT", "IN", "NOT_IN"))
_PUNCTUATION = frozenset(("COLON", "COMMA", "DOT", "LPAR", "RPAR", "LSQB", "RSQB"))
_HEADS = frozenset((*_ITEMS, "STATE"))
_LOOSE = re.compile(r"\#[^\r\n]*|[A-Za-z_]\w*|[0-9]+(?:\.[0-9]+)?|\"(?:[^\"\\\r\n]|\\[^\r\n])*\"?|[ \t]+|[\r\n]+|.", re.DOTALL)


class HighlightedPiece(NamedTuple):
    """Offsets in code points, `start < end`, and one of KINDS."""

    start: int
    end: int
    kind: str


def pieces(text: str) -> Iterator[HighlightedPiece]:
    """The pieces of a text in order, without overlaps and without the white space between them. Never raises."""
    source, at = Source(text), 0
    while at < len(text):
        lexed = lex(source, literals(), at)
        end = at
        for piece in _merged(lexed):
            yield piece
            end = piece.end
        if lexed.problem is None:
            return
        at = end
        stop = _line_end(text, at)
        if not text[at:stop].strip() and stop < len(text):  # stopped at the indentation of the next line
            stop = _line_end(text, stop + 1)
        yield from _loose(text, at, stop)
        at = stop
        while at < len(text) and text[at] in "\r\n":
            at += 1


def _line_end(text: str, at: int) -> int:
    found = re.compile(r"[\r\n]").search(text, at)
    return found.start() if found else len(text)


def _merged(lexed: Lexed) -> Iterator[HighlightedPiece]:
    """Tokens and comments in the order of the text."""
    comments = iter(lexed.comments)
    comment: Comment | None = next(comments, None)
    for piece in _tokens([t for t in lexed.tokens if t.text and t.kind != "_INDENT"]):
        while comment is not None and comment.span.start < piece.start:
            yield HighlightedPiece(comment.span.start, comment.span.start + len(comment.text), "comment")
            comment = next(comments, None)
        yield piece
    while comment is not None:
        yield HighlightedPiece(comment.span.start, comment.span.start + len(comment.text), "comment")
        comment = next(comments, None)


def _tokens(tokens: list[Lexeme]) -> Iterator[HighlightedPiece]:
    """Each token with its kind, which depends on its neighbours."""
    head = ""  # the definition or declaration whose head this is
    depth = squares = 0
    typed = False  # inside of a type
    for n, token in enumerate(tokens):
        kind, last = token.kind, tokens[n - 1].kind if n else ""
        follows = tokens[n + 1].kind if n + 1 < len(tokens) else ""
        fresh = n == 0 or tokens[n - 1].span.line != token.span.line
        if fresh and not depth:
            head, typed = (kind if kind in _HEADS else ""), False
        depth += (kind in ("LPAR", "LSQB")) - (kind in ("RPAR", "RSQB"))
        squares += (kind == "LSQB") - (kind == "RSQB")
        if kind == "ARROW" or (head in _HEADS and kind == "COLON" and not squares):
            typed = True
        elif kind in ("EQUAL", "IN", "PER") or (kind == "COMMA" and depth == 1 and head != "EXTERN"):
            typed = False
        elif head == "EXTERN" and kind == "LPAR":
            typed = True
        what = (
            "name"
            if head == "FROM" and kind == "NAME" and last in ("FROM", "DOT")
            else _kind(token, last, follows, typed, fresh)
        )
        yield HighlightedPiece(token.span.start, token.span.end, what)


def _kind(token: Lexeme, last: str, follows: str, typed: bool, fresh: bool) -> str:
    kind, text = token.kind, token.text
    if kind == "NAME":
        if last == "DOT":
            return "attribute"
        if last in _ITEMS:
            return "definition"
        if typed and text in TYPES and follows != "COLON":
            return "type"
        if text in CONSTANTS:
            return "constant"
        if text in VALUES and follows != "LPAR":
            return "special"
        if follows == "LPAR":
            return "function" if text in functions() else "call"
        return "name"
    if kind == "STRING":
        return "doc" if text.startswith('"""') else "string"
    if kind == "NUMBER":
        return "number"
    if kind in _ITEMS:
        return "declaration"
    if kind == "IMPORT" or (kind == "FROM" and fresh):
        return "import"
    if kind in _WORDS:
        return "word"
    if kind in _PUNCTUATION:
        return "punctuation"
    return "keyword" if text[0].isalpha() else "operator"


def _loose(text: str, at: int, end: int) -> Iterator[HighlightedPiece]:
    """The rest of a line that the lexer does not read; what no text may hold is wrong, the rest is as plain as can be."""
    for found in _LOOSE.finditer(text, at, end):
        piece = found[0]
        if piece.isspace():
            continue
        kind = "wrong"
        if piece[0] == "#":
            kind = "comment"
        elif piece[0] == '"':
            kind = "string"
        elif piece[0].isdigit() and piece[0].isascii():
            kind = "number"
        elif piece[0].isalpha() or piece[0] == "_":
            kind = "name" if piece.isascii() else "wrong"
        elif piece in "()[]:,.":
            kind = "punctuation"
        elif piece in "+-*/%^=<>~?!":
            kind = "operator"
        yield HighlightedPiece(found.start(), found.end(), kind)
