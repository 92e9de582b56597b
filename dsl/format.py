"""The house layout of a text: four spaces, lines of at most 120 columns, one blank line between definitions.

Formatting keeps comments and single blank lines, changes nothing that means something (`format_source` checks
that the tree stays the same), and formatting twice is formatting once. printer.py gives the text of one line, which
explanations and messages show too; here is what makes lines a page: blocks, comments, blank lines, where long lines break.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence

from decgraph.dsl import printer
from decgraph.dsl import syntax as s
from decgraph.dsl.lexer import Comment, Lexeme
from decgraph.dsl.parse import ParsedText, parse_source, parse_text
from decgraph.dsl.source import Source
from decgraph.errors import InternalError

__all__ = ["WIDTH", "format_source", "format_tree"]

WIDTH = 120
"""Lines are broken inside brackets to stay below this; what has no bracket stays long."""

INDENT = 4


def format_source(text: str, path: str = "<text>") -> str:
    """A text in house layout, comments kept. Raises DecError where the text does not parse.

    >>> format_source("algorithm f(target:causal):\\n  commit   argmax( target(ctx) ) # greedy")
    'algorithm f(target: causal):\\n    commit argmax(target(ctx))  # greedy\\n'
    """
    parsed = parse_source(Source(text, path))
    new = _Writer(parsed).file(parsed.file)
    if new != text and parse_text(new, path) != parsed.file:
        raise InternalError(f"formatting {path} would change its meaning", reproducer=f"decgraph fmt {path}")
    return new


def format_tree(file: s.File) -> str:
    """A tree as a text in house layout, for trees that were never a text. `parse_text` reads it back as an
    equal tree.
    """
    return _Writer(None).file(file)


class _Writer:
    """Lines written so far, and the comments still to be placed."""

    def __init__(self, parsed: ParsedText | None) -> None:
        self.lines: list[str] = []
        self.comments: deque[Comment] = deque(parsed.comments if parsed else ())
        self.tokens: list[Lexeme] = [t for t in parsed.tokens if t.text and t.kind != "_INDENT"] if parsed else []
        self.starts = [t.span.start for t in self.tokens]
        self.source = parsed.source if parsed else None
        self.last_line = 0  # the line of the source that was written last
        self.opened = True  # nothing stands in this block yet

    # ---- definitions

    def file(self, file: s.File) -> str:
        before: s.Item | s.Import | None = None
        for item in file.items:
            apart = before is not None and not (_one_line(before) and _one_line(item))
            self._comments_before(item.span.start, 0, apart)
            self._item(item, apart and not self._comment_written)
            before = item
        self._comments_before(None, 0, before is not None)
        return "\n".join([*self.lines, ""]) if self.lines else ""

    _comment_written = False

    def _item(self, item: s.Item | s.Import, apart: bool) -> None:
        start = item.span.start
        if isinstance(item, s.Import):
            text = f"from {item.module} import {', '.join(n.name for n in item.names)}"
            self._line(item, start, item.span.end, text, 0, apart)
            return
        text = printer.head(item)
        if isinstance(item, s.Extern):
            self._line(item, start, item.span.end, text, 0, apart)
            return
        end = self._colon(start)
        self._line(item, start, end, text, 0, apart)
        self.opened = True
        doc: str | None = getattr(item, "doc", None)
        if doc is not None:
            self._doc(doc, end)
        if isinstance(item, s.Policy):
            self._clauses(item.clauses)
        else:
            body: tuple[s.Stmt, ...] = getattr(item, "body", ())
            self._block(body, INDENT, item.span.end)

    def _doc(self, doc: str, head_end: int) -> None:
        """A docstring, which keeps its own lines."""
        token = next((t for t in self.tokens[bisect_left(self.starts, head_end) :][:1] if t.kind == "STRING"), None)
        if token is not None:
            self._comments_before(token.span.start, INDENT, False)
        self._blank(token.span.line if token is not None else 0, False)
        first, *rest = (" " * INDENT + printer.docstring(doc)).split("\n")
        self.lines += [first, *rest]
        if token is not None:
            self._after(token.span.end)
        self.opened = False

    def _clauses(self, clauses: Sequence[s.Clause]) -> None:
        heads = [printer.clause_head(c) for c in clauses]
        bodies = [printer.actions(c) for c in clauses]
        fits = [INDENT + len(h) + 2 + len(b) <= WIDTH for h, b in zip(heads, bodies, strict=True)]
        pad = max((len(h) for h, fit in zip(heads, fits, strict=True) if fit), default=0) + 2
        for clause, head, body, fit in zip(clauses, heads, bodies, fits, strict=True):
            start, end = clause.span.start, clause.span.end
            if fit and INDENT + pad + len(body) <= WIDTH:
                self._line(clause, start, end, f"{head:<{pad}}{body}", INDENT, False)
                continue
            self._line(clause, start, end, head, INDENT, False)
            trailing = self._take_trailing()
            for action in clause.actions:
                text = f"{action.verb} {printer.expression(action.what)}"
                self.lines += wrap(text, 2 * INDENT)
            self.lines[-1] += trailing
        if clauses:
            self._comments_at_end(clauses[0], clauses[-1].span.end, INDENT)

    # ---- statements

    def _block(self, body: Sequence[s.Stmt], indent: int, end: int) -> None:
        for node in body:
            self._statement(node, indent)
        if body:
            self._comments_at_end(body[0], end, indent)

    def _statement(self, node: s.Stmt, indent: int) -> None:
        start = node.span.start
        if isinstance(node, s.If):
            self._if(node, indent)
            return
        body: tuple[s.Stmt, ...] | None = getattr(node, "body", None)
        if body is None:
            self._line(node, start, node.span.end, printer.statement(node), indent, False)
            return
        self._head(node, start, printer.statement(node), body, indent)

    def _head(self, node: s.Node, start: int, text: str, body: Sequence[s.Stmt], indent: int) -> None:
        """The head of a block and the block."""
        self._line(node, start, self._colon(start), text, indent, False)
        self.opened = True
        self._block(body, indent + INDENT, body[-1].span.end if body else 0)

    def _if(self, node: s.If, indent: int) -> None:
        for number, branch in enumerate(node.branches):
            word = "elif" if number else "if"
            text = f"{word} {printer.expression(branch.cond)}:"
            self._head(branch, branch.span.start, text, branch.body, indent)
        if node.orelse:
            start = self._else_before(node.orelse[0].span.start)
            self._head(node.orelse[0], start, "else:", node.orelse, indent)

    # ---- places in the source

    def _colon(self, start: int) -> int:
        """The end of the colon that ends the head that starts at an offset."""
        depth = 0
        for at in range(bisect_left(self.starts, start), len(self.tokens)):
            token = self.tokens[at]
            if token.kind in ("LPAR", "LSQB"):
                depth += 1
            elif token.kind in ("RPAR", "RSQB"):
                depth -= 1
            elif token.kind == "COLON" and not depth:
                return token.span.end
        return start

    def _else_before(self, offset: int) -> int:
        for at in range(bisect_left(self.starts, offset) - 1, -1, -1):
            if self.tokens[at].kind == "ELSE":
                return self.tokens[at].span.start
        return offset

    def _line_of(self, offset: int) -> int:
        return self.source.locate(offset)[0] if self.source else 0

    # ---- lines, blank lines and comments

    def _line(self, node: s.Node, start: int, end: int, text: str, indent: int, apart: bool) -> None:
        """One statement or head with the comments before, inside and after it."""
        line = self._line_of(start)
        while self.comments and self.comments[0].span.start < end:
            comment = self.comments.popleft()
            self._comment(comment, indent, min(comment.span.line, line), apart)
            apart = False
        self._blank(line, apart)
        self.lines += wrap(text, indent)
        self._after(end)
        self.opened = False

    def _after(self, end: int) -> None:
        """The comment on the line of what ends at an offset, and that line as the last one."""
        self.last_line = self._line_of(end)
        self.lines[-1] += self._take_trailing()

    def _take_trailing(self) -> str:
        if self.comments and not self.comments[0].alone and self.comments[0].span.line == self.last_line:
            next_token = bisect_left(self.starts, self.comments[0].span.start)
            here = self.comments[0]
            trailing = next_token == len(self.starts) or self.tokens[next_token].span.line != here.span.line
            if trailing and self._last_token_line(next_token - 1) == here.span.line:
                return f"  {self.comments.popleft().text}"
        return ""

    def _last_token_line(self, at: int) -> int:
        return self._line_of(self.tokens[at].span.end) if at >= 0 else 0

    def _comment(self, comment: Comment, indent: int, line: int, apart: bool) -> None:
        self._blank(line, apart)
        self.lines.append(" " * indent + comment.text)
        self.last_line = max(self.last_line, line)
        self.opened = False

    def _comments_before(self, offset: int | None, indent: int, apart: bool) -> None:
        """The comments before an offset (before the end: None), at an indentation."""
        self._comment_written = False
        while self.comments and (offset is None or self.comments[0].span.start < offset):
            comment = self.comments.popleft()
            self._comment(comment, indent, comment.span.line, apart)
            apart, self._comment_written = False, True

    def _comments_at_end(self, first: s.Node, end: int, indent: int) -> None:
        """The comments after the last statement of a block that are indented like the block."""
        at = bisect_left(self.starts, end)
        limit = self.starts[at] if at < len(self.starts) else None
        while self.comments and (limit is None or self.comments[0].span.start < limit):
            comment = self.comments[0]
            if not comment.alone or comment.span.column < first.span.column:
                break
            self.comments.popleft()
            self._comment(comment, indent, comment.span.line, False)

    def _blank(self, line: int, apart: bool) -> None:
        """A blank line where the source has one, or where two definitions must be apart."""
        wanted = apart or line - self.last_line > 1
        if wanted and self.lines and not self.opened:
            self.lines.append("")


def _one_line(item: s.Item | s.Import) -> bool:
    return isinstance(item, (s.Import, s.Extern))


def wrap(text: str, indent: int) -> list[str]:
    """A line, broken inside brackets where it is longer than WIDTH: after commas if that is enough, else at
    any space.
    """
    if indent + len(text) <= WIDTH:
        return [" " * indent + text]
    pieces = _pieces(text)
    lines = _fill(pieces, indent, commas_only=True)
    if any(len(line) > WIDTH for line in lines):
        lines = _fill(pieces, indent, commas_only=False)
    return lines


def _outside_strings(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """The characters of a text from a column on that stand in no string, with their columns."""
    quoted = skip = False
    for at in range(start, len(text)):
        character = text[at]
        if skip:
            skip = False
        elif quoted:
            quoted, skip = character != '"', character == "\\"
        else:
            quoted = character == '"'
            yield at, character


def _pieces(text: str) -> list[str]:
    """The text cut at the spaces inside brackets and outside of strings."""
    pieces, start, depth = [], 0, 0
    for at, character in _outside_strings(text):
        depth += (character in "([") - (character in ")]")
        if character == " " and depth:
            pieces.append(text[start:at])
            start = at + 1
    return [*pieces, text[start:]]


def _fill(pieces: Sequence[str], indent: int, *, commas_only: bool) -> list[str]:
    """Pieces on as few lines as fit, each new line aligned after the bracket that is open."""
    lines: list[str] = []
    line = " " * indent
    opened: list[int] = []
    words = _joined(pieces) if commas_only else list(pieces)
    for number, word in enumerate(words):
        if number and len(line) + 1 + len(word) > WIDTH and opened:
            lines.append(line)
            line = " " * opened[-1] + word
        else:
            line += (" " if number else "") + word
        _track(opened, line, len(line) - len(word))
    return [*lines, line]


def _joined(pieces: Sequence[str]) -> list[str]:
    """Pieces put together again where no comma parts them."""
    words: list[str] = []
    for piece in pieces:
        if words and not words[-1].endswith(","):
            words[-1] += " " + piece
        else:
            words.append(piece)
    return words


def _track(opened: list[int], line: str, start: int) -> None:
    """Follows the brackets of a line from a column on; `opened` has the columns after those still open."""
    for at, character in _outside_strings(line, start):
        if character in "([":
            opened.append(at + 1)
        elif character in ")]" and opened:
            opened.pop()
