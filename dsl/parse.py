"""Text to syntax tree. `parse_text` is the way in; everything that is wrong with a text comes as one
`DecError`.

lark parses the tokens of lexer.py by grammar.lark, and build.py makes the syntax tree of its tree. After an error the parser
goes on at the next definition, so several mistakes are shown at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import lark
from lark import Lark, Token
from lark.lexer import Lexer, PatternStr
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from decgraph import cache
from decgraph.dsl.build import BUILD, NotAllowed
from decgraph.dsl.diagnostics import MOST, Collector, Diagnostic
from decgraph.dsl.lexer import ITEMS, Comment, Lexed, Lexeme, lex
from decgraph.dsl.source import NOWHERE, Source, Span
from decgraph.dsl.syntax import File, Import, Item


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


__all__ = ["FILLER", "MAX_CHARACTERS", "ParsedText", "Partly", "parse_partly", "parse_source", "parse_text"]

MAX_CHARACTERS = 4_000_000
"""The longest text that is read."""

_NEXT_ITEM = re.compile(rf"^(?:{'|'.join(ITEMS)})[ \t]+[A-Za-z_]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ParsedText:
    """A text's tree with what the tree leaves out: its tokens and comments, in order."""

    file: File
    source: Source
    tokens: list[Lexeme]
    comments: list[Comment]


def parse_text(text: str, path: str = "<text>") -> File:
    """The syntax tree of a text.

    Raises DecError with one diagnostic for each mistake found (at most one in a definition, at most 20).

    >>> parse_text("from rules import match").items[0].names[0].name
    'match'
    """
    return parse_source(Source(text, path)).file


def parse_source(source: Source) -> ParsedText:
    """The syntax tree of a source, with its tokens and comments. Raises DecError like `parse_text`."""
    collector = Collector(source)
    if len(source.text) > MAX_CHARACTERS:
        length = f"{len(source.text):,}".replace(",", " ")
        collector.error(
            "E001",
            f"this text has {length} characters; at most {MAX_CHARACTERS:,} are read".replace(",", " "),
            NOWHERE,
            help="split it into files and import what they share",
        )
        collector.raise_if_any()
    lexed = lex(source, literals())
    if lexed.problem is not None and lexed.problem.code == "E001":  # not worth parsing up to there
        collector.add(lexed.problem)
        collector.raise_if_any()
    file, problem = _parse(source, lexed)
    if file is None:
        while problem is not None:
            collector.add(problem)
            again = _NEXT_ITEM.search(source.text, problem.span.end)
            if again is None or len(collector.diagnostics) > MOST:
                break
            _, problem = _parse(source, lex(source, literals(), again.start()))
        collector.raise_if_any()
    assert file is not None
    _check_names(file, collector)
    collector.raise_if_any()
    return ParsedText(file, source, lexed.tokens, lexed.comments)


@dataclass(frozen=True, slots=True)
class Partly:
    """What of a text parses: `parsed` without the definitions that do not, and what is wrong with the text.

    `patched`: the definitions in which lines were left out so that the others parse, and what those lines may have named.
    `FILLER` stands in for such a line where a statement must stand.
    """

    parsed: ParsedText
    problems: tuple[Diagnostic, ...]
    patched: dict[str, frozenset[str]]


FILLER = "_"
"""Called (`_()`), it is the statement that stands for a line that was left out."""
_HEAD_FILLER = "if yes:"
_NAMING = re.compile(
    r"^[ \t]*(?:(?:draft|for|lanes|canvas|state|model|noise)[ \t]+(.*)|([\w, .\[\]]+?)[ \t]*(?:~|[-+]*=))", re.M
)
"""What a line may give a name to."""
MAX_PATCHES = 6
"""The most lines of a definition that are left out to read the others."""


def parse_partly(source: Source) -> Partly:
    """What of a text parses, for texts that are being written: a definition that does not is read without its wrong lines.
    Never raises."""
    collector = Collector(source)
    if len(source.text) > MAX_CHARACTERS:
        collector.error("E001", f"more than {MAX_CHARACTERS} characters are not read", NOWHERE)
        return Partly(ParsedText(File(()), source, [], []), tuple(collector.sorted()), {})
    lexed = lex(source, literals())
    file, problem = (None, lexed.problem) if lexed.problem is not None else _parse(source, lexed)
    patched: dict[str, frozenset[str]] = {}
    if file is None and (problem is None or problem.code != "E001"):
        starts = [found.start() for found in _NEXT_ITEM.finditer(source.text)]
        if not starts or source.text[: starts[0]].strip():
            starts.insert(0, 0)
        items: list[Item | Import] = []
        for start, end in zip(starts, [*starts[1:], len(source.text)], strict=True):
            if len(collector.diagnostics) > MOST:
                break
            found, words = _patched(source, start, end, collector)
            items += found
            patched.update({item.name: words for item in found if words and isinstance(item, Item)})
        file = File(tuple(items))
    elif problem is not None:
        collector.add(problem)
    file = file or File(())
    _check_names(file, collector)
    return Partly(ParsedText(file, source, lexed.tokens, lexed.comments), tuple(collector.sorted()), patched)


def _patched(source: Source, start: int, end: int, collector: Collector) -> tuple[tuple[Item | Import, ...], frozenset[str]]:
    """The definitions between two offsets, read without the lines that do not parse; the words of those lines."""
    text, found = source.text[:end], list[Diagnostic]()
    words: set[str] = set()
    for _ in range(MAX_PATCHES):
        part = Source(text, source.path)
        lexed = lex(part, literals(), start)
        file, problem = _parse(part, lexed)
        if file is not None:
            for diagnostic in found:
                collector.add(replace(diagnostic, source=source))
            return file.items, frozenset(words)
        if problem is None:
            break
        found.append(problem)
        without = _without(part, _opened(lexed, problem.span.start), problem.span.start, start)
        if without is None:
            break
        text, gone = without
        words.update(word for named in _NAMING.findall(gone) for word in re.findall(r"[A-Za-z_]\w*", "".join(named)))
    for diagnostic in found[:1]:
        collector.add(replace(diagnostic, source=source))
    return (), frozenset()


def _opened(lexed: Lexed, at: int) -> int:
    """The offset of the first bracket that is open at an offset, else the offset."""
    opened: list[int] = []
    for token in lexed.tokens:
        if token.span.start >= at:
            break
        if token.kind in ("LPAR", "LSQB"):
            opened.append(token.span.start)
        elif token.kind in ("RPAR", "RSQB") and opened:
            opened.pop()
    return opened[0] if opened else at


def _without(source: Source, first: int, at: int, start: int) -> tuple[str, str] | None:
    """The text without the lines from one offset to another, at the same offsets, and those lines; None where they cannot be
    left out. The last line stays where it is indented like the first: there a bracket was not closed."""
    number, last = source.locate(first)[0], source.locate(at)[0]
    while number > 1 and not source.line(number).strip():
        number -= 1
    last = max(last, number)
    indent, begin = _indent(source.line(number)), source.line_start(number)
    while last > number and _indent(source.line(last)) <= indent:
        last -= 1
    if begin <= start:
        return None
    below = next((n for n in range(last + 1, source.line_count + 1) if source.line(n).strip()), 0)
    filler = _HEAD_FILLER if below and _indent(source.line(below)) > indent else f"{FILLER}()"
    lines = [source.line(n) for n in range(number, last + 1)]
    if lines[0].strip() == filler:
        return None
    if len(filler) > len(lines[0]) - indent:
        filler = ""
    text = source.text
    for n in range(number, last + 1):
        line, place = source.line(n), source.line_start(n)
        patched = ((line[:indent] + filler) if n == number else "").ljust(len(line))
        text = text[:place] + patched + text[place + len(line) :]
    return text, "\n".join(lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _check_names(file: File, collector: Collector) -> None:
    """A name is defined or imported once in a file."""
    seen: dict[str, Span] = {}
    for item in file.items:
        named = [(n.name, n.span) for n in item.names] if isinstance(item, Import) else []
        if isinstance(item, Item):
            named.append((item.name, item.name_span))
        for name, span in named:
            if name in seen:
                collector.error(
                    "E016",
                    f"`{name}` is defined twice in this file",
                    span,
                    label="again here",
                    notes=((seen[name], "first here"),),
                    help="give one of them another name",
                )
            seen.setdefault(name, span)


def _parse(source: Source, lexed: Lexed) -> tuple[File | None, Diagnostic | None]:
    """The tree of a token sequence, or what is wrong with it first."""
    reading = parser().parse_interactive()
    found: lark.Tree[Lexeme] | None = None
    problem = lexed.problem
    for position, token in enumerate(lexed.tokens):
        try:
            found = reading.feed_token(token)
        except lark.UnexpectedToken:
            accepted = frozenset(reading.accepts())  # type: ignore[no-untyped-call]
            from decgraph.dsl.mistakes import Stuck, explain

            problem = explain(Stuck(source, lexed.tokens, position, accepted, literals()))
            break
    try:  # also of what was read before a problem: what is refused there comes first
        built = [_BUILDING.transform(tree) for tree in reading.parser_state.value_stack if isinstance(tree, lark.Tree)]
    except NotAllowed as refused:
        return None, refused.diagnostic
    if found is None:
        return None, problem
    file = built[-1]
    assert isinstance(file, File)
    return file, None


class _Building(Transformer_NonRecursive[Lexeme, object]):
    """lark's tree to the syntax tree, by the builders of build.py."""

    def __default__(self, data: str, children: list[Any], meta: Meta) -> Any:
        if data.startswith("_"):  # the parts of a rule whose end was not read
            return children
        span = Span(0, 0, 1, 1) if meta.empty else Span(meta.start_pos, meta.end_pos, meta.line, meta.column)
        return BUILD[data](span, children)


_BUILDING = _Building()
