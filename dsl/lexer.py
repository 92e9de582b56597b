"""Text to tokens: words, numbers, strings, symbols, line ends and indentations that make blocks; and which words are keywords.

Keywords are words in keyword places. After something that ends an operand (a name, a number, a closing
bracket) a word can only join it to something (`at`, `by`, `where`, `if`); at the start of a line it can only
start a statement; anywhere else it is a name. A line that goes on as an assignment (`state = 3`) starts with
a name too.

Why not lark's contextual lexer: it knows what the grammar would take, not whether a line goes on as an assignment, and it
stops at the first character it does not know, where the messages (brackets, indentation, look-alikes) need what came before.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple, NoReturn, cast

import lark

from decgraph.dsl.diagnostics import Diagnostic
from decgraph.dsl.source import Source, Span

ITEMS = (
    "algorithm", "rule", "policy", "def", "extern", "from",
)  # fmt: skip
"""What starts a definition."""

STATEMENTS = (
    "refines", "ensures", "keeps", "state", "canvas", "cache", "model", "noise", "note", "verify",
    "prune", "commit", "accept", "emit", "return", "break", "grow", "unmask", "remask", "while", "loop", "repeat",
    "for", "lanes", "if", "elif", "else", "draft", "across",
)  # fmt: skip
"""What starts a statement."""

CLAUSES = (
    "on", "when", "otherwise", "recompute", "reuse", "forget",
)  # fmt: skip
"""What starts a clause of a policy, or an action in one."""

JOINTS = (
    "and", "or", "in", "where", "if", "else", "at", "by", "to", "with", "from", "until", "as", "using",
    "of", "over", "against", "per", "growing", "while", "for", "on", "when", "import",
)  # fmt: skip
"""What joins an operand to what follows."""

RESERVED = (
    "and", "or", "not", "in", "if", "elif", "else", "while", "for", "loop", "repeat", "break", "return",
)  # fmt: skip
"""Words that are never names, save after a dot."""

DECLARING = frozenset((
    "algorithm", "rule", "policy", "def", "extern", "from", "state", "canvas", "cache", "model", "noise",
    "note", "verify", "prune", "lanes", "draft", "refines", "keeps", "unmask", "remask", "across",
))  # fmt: skip
"""Words that are keywords only before a name, so that `model(c)` or `state[i] = 3` can start a line."""

BLOCKS = frozenset((
    "algorithm", "rule", "policy", "def", "while", "loop", "repeat", "for", "lanes", "if", "elif", "else",
    "draft", "across", "on", "when", "otherwise",
))  # fmt: skip
"""What starts the head of a block, which ends in `:`."""

UNLIKELY = (
    "algorithm", "rule", "policy", "def", "extern", "state", "canvas", "verify", "prune", "commit", "draft",
    "repeat", "lanes", "unmask", "remask", "return", "emit", "accept", "refines",
)  # fmt: skip
"""Words that, before a name, do not occur inside brackets: where they do, a bracket was not closed."""


BIDI = "\u202a-\u202e\u2066-\u2069\u200e\u200f"
"""Characters that change the order in which text is shown: a program with them is not the program one reads.
"""

_MEANT = {
    "≤": "<=", "≥": ">=", "≠": "!=", "→": "->", "←": "=", "×": "*", "·": "*", "÷": "/", "−": "-",
    "–": "-", "—": "-", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‘": '"', "’": '"', "…": "..",
    "∼": "~", "～": "~", "∧": "and", "∨": "or", "¬": "not ", "∈": "in", "∞": "inf", "（": "(",
    "）": ")", "［": "[", "］": "]", "：": ":", "，": ",", "\u00a0": " ", "\u3000": " ", "\u2003": " ",
    "\u2009": " ", "\u202f": " ", "\u200b": "", "\u200d": "", "\ufeff": "",
}  # fmt: skip

_ADVICE = {
    "'": 'strings stand in double quotes: "text"',
    "`": 'strings stand in double quotes: "text"',
    ";": "one statement a line; start a new line instead",
    "{": "blocks are written with `:` and indentation, sets and tables by functions",
    "}": "blocks are written with `:` and indentation, sets and tables by functions",
    "!": "write `not x`, or `!=` for a comparison",
    "&": "write `and`",
    "|": "write `or`",
    "\\": "a statement goes on over several lines inside brackets; put `(` and `)` around it",
    "@": "decorators belong to the Python form; a file of algorithms needs none",
    "$": "names start with a letter or `_`",
    '"': "close the string on its line",
}


def odd_character(source: Source, offset: int) -> Diagnostic:
    """The diagnostic for a character that no token starts with, or that no comment or string may hold."""
    character = source.text[offset]
    span = source.span(offset, offset + 1)
    name = unicodedata.name(character, "")
    code = f"U+{ord(character):04X}"
    if character in _ADVICE:
        return Diagnostic("E002", f"`{character}` has no meaning here", span, help=_ADVICE[character])
    if character in _MEANT:
        meant = _MEANT[character]
        what = f"`{meant.strip()}`" if meant.strip() else "an ordinary space" if meant else "nothing; delete it"
        return Diagnostic("E002", f"{code} {name} is not part of the language", span, help=f"write {what}")
    if character.isalpha():
        return Diagnostic(
            "E002",
            f"`{character}` ({code} {name}) cannot be part of a name",
            span,
            help="names consist of a to z, digits and `_`; other letters may stand in strings and comments",
        )
    category = unicodedata.category(character)
    if category in ("Cf", "Cc", "Cs", "Co", "Cn"):
        kind = {"Cf": "an invisible character", "Cc": "a control character", "Cs": "half of a character"}.get(
            category, "not a character that everyone can read"
        )
        return Diagnostic("E002", f"{code} {name or 'here'} is {kind}".replace("here is", "is"), span, help="delete it")
    return Diagnostic("E002", f"`{character}` ({code} {name}) has no meaning in a program", span)


MAX_BRACKETS = 100
MAX_INDENTS = 100
MAX_CHAIN = 150
MAX_NUMBER = 40
"""Bounds: brackets inside brackets, blocks inside blocks, operators inside one operand, characters of a
number. They keep every recursive reader of the tree inside Python's stack; no program comes near them.
"""
MAX_TOKENS = 100_000
"""The most words, numbers and signs of a text: what is read and lowered in seconds."""

_PIECE = re.compile(
    r"[ \t]*(?:([A-Za-z_][A-Za-z0-9_]*)"
    r"|([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"
    r"|(\+\+=|\+\+|\+=|-=|->|==|!=|<=|>=|\.\.|[-+*/%^=<>:,.()\[\]~?])"
    r"|(\r\n?|\n)"
    r"|(\#[^\r\n]*)"
    r'|("))'
)
_WORD, _NUMBER, _SYMBOL, _LINE, _COMMENT, _QUOTE = range(1, 7)
_NOT_A_KEYWORD = re.compile(r"[ \t]*(?:=(?!=)|~|\+=|-=|\+\+=|,|\.(?!\.))")
_NAME_FOLLOWS = re.compile(r"[ \t]+[A-Za-z_]|[ \t]*(?:[\r\n#:]|\Z)")
_RUN = re.compile(rf"[ \t\r\n]+(?!(?:not|{'|'.join(JOINTS)})\b)[A-Za-z_]")
_IN, _MOST, _REST = (re.compile(rf"[ \t\r\n]+{word}\b") for word in ("in", "most", "rest"))
_WORD_GOES_ON = re.compile(r"[A-Za-z_0-9]+")
_STRING = re.compile(r'(?:[^"\\\r\n]|\\[^\r\n])*')
_TEXT = re.compile(r'(?:[^"\\]|\\[\s\S]|"(?!""))*')
_LOST_BRACKET = re.compile(
    rf"[ \t]*(?:(?:{'|'.join(UNLIKELY)})[ \t]+(?!(?:not|{'|'.join(JOINTS)})\b)[A-Za-z_]"
    r"|loop[ \t]*:|while[ \t]+not[ \t])"
)
_CONTROL = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff{BIDI}]")


class Lexeme(lark.Token):
    """A piece of text: the grammar's name for it (`kind`), its text, where it is (`span`)."""

    span: Span

    def __new__(cls, kind: str, text: str, span: Span) -> Lexeme:
        made = cast(Lexeme, super().__new__(cls, kind, text, span.start, span.line, span.column, None, None, span.end))
        made.span = span
        return made

    @property
    def kind(self) -> str:
        """The terminal of the grammar."""
        return self.type

    @property
    def text(self) -> str:
        """What stands there."""
        return str(self.value)


class Comment(NamedTuple):
    """A comment with its `#`; `alone` says that nothing else stands on its line."""

    text: str
    span: Span
    alone: bool


class Lexed(NamedTuple):
    """Tokens up to the end ($END) or up to what cannot be read (`problem`), and the comments between them."""

    tokens: list[Lexeme]
    comments: list[Comment]
    problem: Diagnostic | None


class _Stop(Exception):
    """Carries the diagnostic of what cannot be read."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


def _stop(code: str, message: str, span: Span, help: str, label: str = "") -> NoReturn:
    raise _Stop(Diagnostic(code, message, span, label=label, help=help))


def lex(source: Source, literals: Mapping[str, str], start: int = 0) -> Lexed:
    """The tokens of a text from an offset at the start of a line. Never raises; linear in the length of the
    text.
    """
    lexer = _Lexer(source, literals)
    problem: Diagnostic | None = None
    try:
        lexer.read(start)
    except _Stop as stop:
        problem = stop.diagnostic
    return Lexed(lexer.tokens, lexer.comments, problem)


class _Lexer:
    """The state of one reading."""

    def __init__(self, source: Source, literals: Mapping[str, str]) -> None:
        self.source, self.text, self.literals = source, source.text, literals
        self.tokens: list[Lexeme] = []
        self.comments: list[Comment] = []
        self.indents = [""]
        self.brackets: list[tuple[str, Span]] = []
        self.chains = [0]  # operators since the last comma, for each open bracket
        self.chain = 0  # and their sum
        self.head = ""  # the keyword that started the line
        self.in_policy = False
        self.starting = True  # the next word may start a statement
        self.operand = False  # the last token ends an operand
        self.fresh = True  # no token on this line yet
        self.line, self.line_start = 1, 0

    def read(self, at: int) -> None:
        """Reads the text from an offset to its end."""
        text, match = self.text, _PIECE.match
        self.line, self.line_start = self.source.locate(at)[0], at
        if text.startswith("\ufeff", at):
            at += 1
            self.line_start = at
        while True:
            found = match(text, at)
            if found is None:
                rest = len(text) - len(text[at:].lstrip(" \t")) if text[at : at + 1] in (" ", "\t") else at
                if rest >= len(text):
                    break
                raise _Stop(odd_character(self.source, rest))
            group = found.lastindex or 0
            begin, at = found.span(group)
            if group == _LINE:
                self._newline(at)
                continue
            span = Span(begin, at, self.line, begin - self.line_start + 1)
            if len(self.tokens) > MAX_TOKENS:
                raise _Stop(_too_many(span))
            if group == _COMMENT:
                self._check(begin, at)
                self.comments.append(Comment(found[group].rstrip(), span, self.fresh and self._alone(begin)))
                continue
            if self.fresh:
                if not self.brackets:
                    self._indent(begin, span)
                self.fresh = False
            if group == _WORD:
                at = self._word(found[group], span)
                if at != span.end:
                    self._relocate(at)
            elif group == _SYMBOL:
                self._symbol(found[group], span)
            elif group == _NUMBER:
                self._number(found[group], span)
            else:
                at = self._string(begin)
        self._finish()

    # ---- lines and indentation

    def _newline(self, at: int) -> None:
        """A line end at the offset before `at`."""
        if not self.brackets:
            if not self.fresh:
                self._end_line()
        elif _LOST_BRACKET.match(self.text, at):
            raise _Stop(self._unclosed())
        self.fresh = True
        self.line += 1
        self.line_start = at

    def _end_line(self) -> None:
        self._mark("_NL")
        self.starting, self.operand, self.head = True, False, ""
        self.chains, self.chain = [0], 0

    def _mark(self, kind: str) -> None:
        """A token of no width after the last one."""
        if self.tokens:
            last = self.tokens[-1].span
            offset = last.end
            line, column = (last.line, last.column + last.end - last.start)
            if last.end - last.start > 2 and "\n" in self.text[last.start : last.end]:
                line, column = self.source.locate(offset)
            self.tokens.append(Lexeme(kind, "", Span(offset, offset, line, column)))
        else:
            self.tokens.append(Lexeme(kind, "", Span(0, 0, 1, 1)))

    def _alone(self, begin: int) -> bool:
        return not self.text[self.line_start : begin].strip(" \t")

    def _indent(self, begin: int, span: Span) -> None:
        """Compares the indentation of a line with the blocks around it."""
        white = self.text[self.line_start : begin]
        top = self.indents[-1]
        if white == top:
            return
        where = Span(self.line_start, begin, self.line, 1)
        if white.startswith(top):
            if len(self.indents) > MAX_INDENTS:
                raise _Stop(_too_deep(span, f"blocks are nested more than {MAX_INDENTS} deep"))
            self.indents.append(white)
            self.tokens.append(Lexeme("_INDENT", white, where))
            return
        if not top.startswith(white):
            message = "this line is indented with other characters than the lines around it"
            advice = "indent with four spaces; `decgraph fmt` does it"
            _stop("E006", message, where if where.end > where.start else span, advice, "spaces and tabs are mixed")
        while len(self.indents) > 1 and len(self.indents[-1]) > len(white):
            self.indents.pop()
            self._mark("_DEDENT")
        if self.indents[-1] != white:
            widths = ", ".join(str(len(i)) for i in [*self.indents, top])
            message = "this line ends a block, but not at the indentation of any block around it"
            label = f"{len(white)} wide; the blocks around it are at {widths}"
            place = where if where.end > where.start else span
            _stop("E006", message, place, "align the line with the statement that it should follow", label)

    def _finish(self) -> None:
        if self.brackets:
            raise _Stop(self._unclosed())
        if self.tokens and self.tokens[-1].kind not in ("_NL", "_DEDENT"):
            self._end_line()
        for _ in self.indents[1:]:
            self._mark("_DEDENT")
        end = len(self.text)
        line, column = self.source.locate(end)
        self.tokens.append(Lexeme("$END", "", Span(end, end, line, column)))

    # ---- tokens

    def _word(self, word: str, span: Span) -> int:
        """Adds a word as a keyword or a name; returns the offset after it."""
        kind, end = "NAME", span.end
        last = self.tokens[-1].kind if self.tokens else ""
        if last == "DOT":
            pass
        elif (
            word == "at"
            and (self.operand or self.starting and not self.brackets)
            and (more := self._follows(_MOST, end))
            and not _NOT_A_KEYWORD.match(self.text, more.end())
        ):
            kind, end = "_AT_MOST", more.end()
        elif self.operand:
            if word == "not" and (more := self._follows(_IN, end)):
                kind, end = "NOT_IN", more.end()
            elif word in JOINTS or word == "not":
                kind = self.literals[word]
        elif self.starting and not self.brackets and self._starts(word, end):
            kind, self.head = self.literals[word], word
            if word in ITEMS:
                self.in_policy = word == "policy"
        elif word in RESERVED or (word == "run" and self._follows(_RUN, end)) or (word == "grow" and last.endswith("EQUAL")):
            kind = self.literals[word]
        elif word == "from" and last in ("RECOMPUTE", "REUSE", "FORGET"):
            kind = "FROM"
        elif word == "the" and (more := self._follows(_REST, end)):
            kind, end = "THE_REST", more.end()
        if end != span.end:
            span = span._replace(end=end)
        self.tokens.append(Lexeme(kind, self.text[span.start : end], span))
        self.starting = False
        # `loop at most`, `break if` and `growing to` go on like an operand; the event in `on enter b` does not.
        event = last == "ON" and self.head == "on"
        self.operand = not event and kind in ("NAME", "THE_REST", "LOOP", "BREAK", "GROWING")
        if kind not in ("NAME", "THE_REST"):
            self._deeper(span)
        return end

    def _follows(self, pattern: re.Pattern[str], end: int) -> re.Match[str] | None:
        """Whether a word goes on in another word, on the next line only inside brackets."""
        found = pattern.match(self.text, end)
        if found and not self.brackets and ("\n" in found[0] or "\r" in found[0]):
            return None
        return found

    def _starts(self, word: str, end: int) -> bool:
        """Whether a word at the start of a statement is the keyword it looks like."""
        if word not in ITEMS and word not in (CLAUSES if self.in_policy else STATEMENTS):
            return False
        if word in RESERVED:
            return True
        if word in DECLARING and not _NAME_FOLLOWS.match(self.text, end):
            return False
        return not _NOT_A_KEYWORD.match(self.text, end)

    def _symbol(self, symbol: str, span: Span) -> None:
        if symbol in ")]":
            self._close(symbol, span)
        kind = self.literals[symbol]
        self.tokens.append(Lexeme(kind, symbol, span))
        self.starting = False
        if symbol in "([":
            if len(self.brackets) >= MAX_BRACKETS:
                raise _Stop(_too_deep(span, f"brackets are nested more than {MAX_BRACKETS} deep"))
            self._deeper(span)
            self.brackets.append((symbol, span))
            self.chains.append(0)
            self.operand = False
        elif symbol in ")]":
            self.operand = True
        elif symbol == ",":
            self.chain -= self.chains[-1]
            self.chains[-1] = 0
            self.operand = False
            self.starting = self.in_policy and not self.brackets and self.head in CLAUSES
        elif symbol == ":":
            self.starting = not self.brackets and self.head in BLOCKS
            self.operand = False
        else:
            self._deeper(span)
            self.operand = symbol == "?"

    def _deeper(self, span: Span) -> None:
        """Counts an operator: each may put the operand so far one level deeper."""
        self.chain += 1
        self.chains[-1] += 1
        if self.chain > MAX_CHAIN:
            raise _Stop(_too_deep(span, f"more than {MAX_CHAIN} operators in one expression"))

    def _close(self, symbol: str, span: Span) -> None:
        wanted = "(" if symbol == ")" else "["
        if not self.brackets:
            raise _Stop(Diagnostic("E005", f"`{symbol}` closes nothing", span, help="remove it, or open it before"))
        opened, where = self.brackets.pop()
        self.chain -= self.chains.pop()
        if opened != wanted:
            raise _Stop(
                Diagnostic(
                    "E005",
                    f"`{symbol}` closes a `{opened}`",
                    span,
                    label=f"`{')' if opened == '(' else ']'}` was expected here",
                    notes=((where, "opened here"),),
                )
            )

    def _unclosed(self) -> Diagnostic:
        opened, where = self.brackets[-1]
        return Diagnostic(
            "E005", f"this `{opened}` is never closed", where, help=f"add the missing `{')' if opened == '(' else ']'}`"
        )

    def _number(self, number: str, span: Span) -> None:
        follows = _WORD_GOES_ON.match(self.text, span.end)
        if follows:
            whole = span._replace(end=follows.end())
            shown = self.text[whole.start : min(whole.end, whole.start + MAX_NUMBER)]
            advice = "write a product as `2 * x`; names start with a letter"
            _stop("E004", f"`{shown}` is neither a number nor a name", whole, advice)
        exponent = number.lower().partition("e")[2]
        if len(number) > MAX_NUMBER or (exponent and abs(int(exponent)) > 300):
            advice = f"use at most {MAX_NUMBER} characters and exponents up to 300"
            _stop("E004", "this number is too long to be exact", span, advice)
        self.tokens.append(Lexeme("NUMBER", number, span))
        self.starting, self.operand = False, True

    def _string(self, begin: int) -> int:
        """Adds the string whose quote stands at an offset; returns the offset after it."""
        triple = self.text.startswith('"""', begin)
        quote = '"""' if triple else '"'
        found = (_TEXT if triple else _STRING).match(self.text, begin + len(quote))
        end = found.end() if found else begin + len(quote)
        span = Span(begin, end, self.line, begin - self.line_start + 1)
        if not self.text.startswith(quote, end):
            line_end = 'a string ends on its line; write `\\n` for a line end, or use `"""`'
            place = Span(begin, begin + len(quote), span.line, span.column) if triple else span
            _stop("E003", f"this string is never closed with `{quote}`", place, 'close it with `"""`' if triple else line_end)
        end += len(quote)
        self._check(begin, end)
        self.tokens.append(Lexeme("STRING", self.text[begin:end], span._replace(end=end)))
        self.starting, self.operand = False, True
        if triple:
            self._relocate(end)
        return end

    def _relocate(self, offset: int) -> None:
        """Counts the lines inside a token that may have gone over several."""
        self.line = self.source.locate(offset)[0]
        self.line_start = self.source.line_start(self.line)

    def _check(self, begin: int, end: int) -> None:
        """Refuses control characters, and those that make a text look other than it is, in comments and
        strings.
        """
        found = _CONTROL.search(self.text, begin, end)
        if found:
            raise _Stop(odd_character(self.source, found.start()))


def _too_many(span: Span) -> Diagnostic:
    """More tokens than are read."""
    limit = f"{MAX_TOKENS:,}".replace(",", " ")
    return Diagnostic(
        "E001",
        f"this text has more than {limit} words and signs; the first one too many is here",
        span,
        help="split it into files and import what they share; many numbers belong into a parameter",
    )


def _too_deep(span: Span, message: str) -> Diagnostic:
    return Diagnostic("E007", message, span, help="give the inner part a name, or move it into a `def`")
