"""Where the grammar is at a loss: known mistakes by name, with what to write instead, and a general answer
for the rest.

The known ones are the table mistakes.toml: each is recognised by what stands before and at the token that does not fit, and by
what would have fitted, and has an example, which the tests parse: it must be explained by its own entry.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from typing import Any

from decgraph.dsl.diagnostics import Diagnostic
from decgraph.dsl.lexer import BLOCKS, CLAUSES, ITEMS, RESERVED, STATEMENTS, Lexeme
from decgraph.dsl.source import Source

_VALUE = frozenset(("NAME", "NUMBER", "STRING", "LPAR", "LSQB"))
_STARTS_VALUE = _VALUE | {"MINUS", "NOT", "RUN"}
_OPERATORS = frozenset((
    "PLUS", "MINUS", "CAT", "STAR", "SLASH", "PERCENT", "CARET", "EQUALS", "DIFFERS", "LESS_EQUAL", "MORE_EQUAL", "LESS",
    "MORE", "NOT_IN", "DOTS", "AND", "OR", "IN", "WHERE", "IF", "DOT", "LPAR", "LSQB",
))  # fmt: skip
_CLOSERS = frozenset(("RPAR", "RSQB"))
_SPOKEN = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "_NL": "the end of the line",
    "_INDENT": "an indented block",
    "_DEDENT": "the end of the block",
    "$END": "the end of the text",
    "NOT_IN": "`not in`",
    "_AT_MOST": "`at most`",
    "THE_REST": "`the rest`",
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One way to write something wrong; mistakes.toml says what its fields mean."""

    name: str
    code: str
    message: str
    help: str
    example: str
    kinds: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    label: str = ""
    back: int = 0


@lru_cache(maxsize=1)
def known() -> tuple[Mistake, ...]:
    """The entries of mistakes.toml. They are read when the first text does not parse."""
    text = files("decgraph.dsl").joinpath("mistakes.toml").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = tomllib.loads(text.replace("<block>", f"({'|'.join(sorted(BLOCKS))})"))["mistake"]
    found: list[Mistake] = []
    for entry in entries:
        if "line" in entry:
            entry["example"] = f"algorithm f(target: causal):\n    {entry.pop('line')}\n"
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
        found.append(Mistake(**values))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Stuck:
    """The place at which a parse cannot go on: the tokens, which of them does not fit, and the kinds that
    would.
    """

    source: Source
    tokens: list[Lexeme]
    position: int
    accepted: frozenset[str]
    literals: Mapping[str, str] = field(repr=False)

    @property
    def token(self) -> Lexeme:
        """The token that does not fit."""
        return self.tokens[self.position]

    @property
    def previous(self) -> Lexeme | None:
        """The token before it, if there is one."""
        return self.tokens[self.position - 1] if self.position else None

    @property
    def line_head(self) -> int:
        """The index of the first token of the line (between line ends outside brackets)."""
        at = self.position
        while at and self.tokens[at - 1].kind not in ("_NL", "_INDENT", "_DEDENT"):
            at -= 1
        return at

    def around(self) -> tuple[str, str]:
        """The text of the line before the token, and from the token on."""
        span = self.token.span
        start = self.source.line_start(span.line)
        line = self.source.line(span.line)
        return line[: span.start - start], line[span.start - start :]


def explain(stuck: Stuck) -> Diagnostic:
    """The diagnostic for a token that does not fit."""
    before, after = stuck.around()
    for mistake in known():
        if _is(mistake, stuck, before, after):
            span = stuck.token.span
            if mistake.back and stuck.position:
                span = stuck.tokens[max(stuck.line_head, stuck.position - mistake.back)].span.to(span)
            return Diagnostic(mistake.code, mistake.message, span, label=mistake.label, help=mistake.help)
    return _misspelt(stuck) or _general(stuck)


def _is(mistake: Mistake, stuck: Stuck, before: str, after: str) -> bool:
    if mistake.kinds and stuck.token.kind not in mistake.kinds:
        return False
    if not stuck.accepted.issuperset(mistake.wanted):
        return False
    if mistake.before and not re.search(rf"(?:{mistake.before})[ \t]*\Z", before):
        return False
    return not mistake.after or re.match(mistake.after, after) is not None


def _misspelt(stuck: Stuck) -> Diagnostic | None:
    """A keyword that was nearly written: the word itself, or the one before it at the start of the line."""
    token, previous = stuck.token, stuck.previous
    head = stuck.tokens[stuck.line_head]
    wanted = tuple(word for word, kind in stuck.literals.items() if kind in stuck.accepted and word.isalpha())
    if token.kind == "NAME":
        if token.text in wanted:  # it is a keyword where a name follows, and here none does
            return _unnamed(stuck, token)
        near = get_close_matches(token.text, wanted, 1, 0.7)
        if near:
            return _suggest(token, near[0])
    if previous is not None and previous is head and head.kind == "NAME":
        words = {"": ITEMS}.get(_indentation(stuck, head), (*STATEMENTS, *CLAUSES))
        near = get_close_matches(head.text, words, 1, 0.7)
        if near and near[0] != head.text:
            return _suggest(head, near[0])
    return None


def _unnamed(stuck: Stuck, token: Lexeme) -> Diagnostic:
    """What stands where a definition's name should."""
    text = stuck.source.text
    rest = re.compile(r"[ \t]*([^\s(:]*)").match(text, token.span.end)
    assert rest is not None  # it fits everything
    span = token.span
    if rest[1]:
        span = span._replace(start=rest.start(1), end=rest.end(1), column=span.column + rest.start(1) - span.start)
    rule = "names consist of a to z, digits and `_`, and do not begin with a digit"
    return Diagnostic("E008", f"`{token.text}` is followed by a name", span, label="expected a name", help=rule)


def _indentation(stuck: Stuck, token: Lexeme) -> str:
    start = stuck.source.line_start(token.span.line)
    return stuck.source.text[start : token.span.start]


def _suggest(token: Lexeme, word: str) -> Diagnostic:
    return Diagnostic("E009", f"`{token.text}` is not a keyword", token.span, help=f"did you mean `{word}`?")


def _general(stuck: Stuck) -> Diagnostic:
    """What would have fitted, and what was found."""
    token = stuck.token
    expected = expectation(stuck.accepted, stuck.literals)
    if token.kind in ("_NL", "_DEDENT", "$END"):
        what = "the line ends too early" if token.kind == "_NL" else "the text ends too early"
        return Diagnostic("E008", what, token.span, label=f"expected {expected}")
    if token.kind == "_INDENT":
        return Diagnostic(
            "E006",
            "this line is indented more than the one before",
            token.span,
            help="only a line that ends in `:` is followed by an indented block",
        )
    found = f"`{token.text}`" if token.kind != "STRING" else "string"
    advice = ""
    previous = stuck.previous
    touching = previous is not None and (previous.kind in _VALUE or previous.kind in ("RPAR", "RSQB"))
    if touching and token.kind in ("NAME", "NUMBER", "STRING") and stuck.accepted >= {"COMMA"} and stuck.accepted & _CLOSERS:
        advice = "is a comma missing before it?"
    elif token.text in RESERVED and "NAME" in stuck.accepted and "NUMBER" not in stuck.accepted:
        advice = f"`{token.text}` is a keyword; choose another name"
    return Diagnostic("E008", f"unexpected {found}", token.span, label=f"expected {expected}", help=advice)


def expectation(accepted: frozenset[str], literals: Mapping[str, str]) -> str:
    """Terminals in words: `a name`, `an expression`, `` `:` or an operator``."""
    texts = {kind: text for text, kind in literals.items()}
    left = set(accepted) - {"$END"}
    said: list[str] = []
    if {"ALGORITHM", "RULE"} <= left:
        left -= {texts_kind for texts_kind in left if texts.get(texts_kind) in ITEMS}
        said.append("a definition (`algorithm`, `rule`, `policy`, `def`, `extern` or `from`)")
        left -= {"_NL"}
    if {"WHILE", "COMMIT"} <= left:
        left -= {k for k in left if texts.get(k) in STATEMENTS} | _STARTS_VALUE
        said.append("a statement")
    if "TILDE" in left:
        left -= {"ADD_EQUAL", "SUB_EQUAL", "CAT_EQUAL", "COMMA", "LPAR", "LSQB", "DOT"}
    if left >= _VALUE:
        left -= _STARTS_VALUE
        said.append("an expression")
    operators = left & _OPERATORS
    if len(operators) > 5:
        left -= operators
    else:
        operators = set()
    words = sorted(left, key=lambda k: (k not in _SPOKEN, texts.get(k, k)))
    said += [_SPOKEN.get(k) or f"`{texts.get(k, k)}`" for k in words]
    if operators:
        said.append("an operator")
    if len(said) > 8:
        said = [*said[:7], "something else"]
    return " or ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said) if said else "nothing more"
