"""grammar.lark as lark's LALR parser.

lark makes the table from the grammar the first time, which takes half a second, and keeps it in the user's cache; later starts
read it in some 15 ms. Where the cache cannot be written every start makes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files

from lark import Lark, Token
from lark.lexer import Lexer, PatternStr

from decgraph import cache


class _NoLexer(Lexer):
    """Tokens are fed one by one; lexer.py makes them, and says why."""

    def __init__(self, conf: object) -> None:
        pass

    def lex(self, lexer_state: object, parser_state: object) -> Iterator[Token]:
        return iter(())


def make(grammar: str, *, strict: bool = False, cache: str | bool = False) -> Lark:
    """The parser of a grammar. Raises lark's GrammarError for one that is no grammar, and with `strict=True` for conflicts."""
    return Lark(
        grammar, parser="lalr", lexer=_NoLexer, maybe_placeholders=True, propagate_positions=True, strict=strict, cache=cache
    )


@lru_cache(maxsize=1)
def parser() -> Lark:
    """The parser of .dec files."""
    text = files("decgraph.dsl").joinpath("grammar.lark").read_text(encoding="utf-8")
    folder = cache.folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return make(text)
    return make(text, cache=str(folder / "grammar.table"))


@lru_cache(maxsize=1)
def literals() -> Mapping[str, str]:
    """The terminal's name of every keyword and symbol, by its text."""
    return {t.pattern.value: t.name for t in parser().terminals if isinstance(t.pattern, PatternStr)}
