"""Pygments' lexer for .dec texts: `pygmentize -l dec FILE`, code blocks marked dec in Sphinx, MkDocs and Jupyter."""

from __future__ import annotations

from collections.abc import Iterator

from pygments.lexer import Lexer
from pygments.token import (
    Comment,
    Error,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Whitespace,
    _TokenType,
)

from decgraph.editor.highlight import pieces

TOKENS: dict[str, _TokenType] = {
    "comment": Comment.Single,
    "doc": String.Doc,
    "string": String.Double,
    "number": Number,
    "declaration": Keyword.Declaration,
    "import": Keyword.Namespace,
    "keyword": Keyword,
    "word": Operator.Word,
    "operator": Operator,
    "punctuation": Punctuation,
    "definition": Name.Function,
    "type": Keyword.Type,
    "constant": Keyword.Constant,
    "special": Name.Builtin.Pseudo,
    "function": Name.Builtin,
    "call": Name.Function,
    "attribute": Name.Attribute,
    "name": Name,
    "wrong": Error,
}


class DecLexer(Lexer):
    """Colours .dec texts, complete or not, by the compiler's own lexer."""

    name = "decgraph"
    aliases = ["dec", "decgraph"]
    filenames = ["*.dec"]
    mimetypes = ["text/x-decgraph"]
    url = "https://github.com/decgraph/decgraph"

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, _TokenType, str]]:
        """Offset, token type and text of every piece, white space too: together they are the whole text."""
        at = 0
        for piece in pieces(text):
            if piece.start > at:
                yield at, Whitespace, text[at : piece.start]
            yield piece.start, TOKENS[piece.kind], text[piece.start : piece.end]
            at = piece.end
        if at < len(text):
            yield at, Whitespace, text[at:]

    @staticmethod
    def analyse_text(text: str) -> float:
        """How surely an unnamed text is one of these: it has an algorithm's head."""
        return 0.4 if text.lstrip().startswith(("algorithm ", "rule ", "policy ")) else 0.0
