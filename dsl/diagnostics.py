"""What is said about a program: messages with a place, a reason and a way out, and how they look."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from decgraph.dsl.source import NOWHERE, TAB_WIDTH, Source, Span, screen_width
from decgraph.errors import DecError

MOST = 20
"""More diagnostics than this are counted and not shown: the first ones usually cause the rest."""

SHOWN_WIDTH = 150
"""Longer source lines are cut around the place in question."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing wrong, or worth knowing, at one place of a text.

    `label` stands beside the carets, each note `(span, text)` under its own line, `why` gives the reason and
    `help` what to do. `inside` are further places in other texts: a rule of the standard library that the line uses.
    Without a `source` only the message, the reason and the advice are shown.
    """

    code: str
    message: str
    span: Span = NOWHERE
    label: str = ""
    notes: tuple[tuple[Span, str], ...] = ()
    why: str = ""
    help: str = ""
    severity: str = "error"
    source: Source | None = field(default=None, compare=False, repr=False)
    inside: tuple[tuple[Source, Span, str], ...] = field(default=(), compare=False, repr=False)

    def render(self) -> str:
        """The text to show, without a final newline."""
        return render(self, self.source)

    def __str__(self) -> str:
        return self.render()


def failure(
    source: Source,
    span: Span,
    message: str,
    help: str = "",
    code: str = "E210",
    notes: tuple[tuple[Span, str], ...] = (),
    inside: tuple[tuple[Source, Span, str], ...] = (),
) -> DecError:
    """One error at a place of a text."""
    return DecError([Diagnostic(code, message, span, notes=notes, help=help, source=source, inside=inside)])


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """What was nearly written, of the names that are known, or the advice for when there is none."""
    alike = 0.6 if len(word) > 2 else 0.7  # "n" is not nearly "no"
    near = get_close_matches(word, list(known), 2, alike)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


class Collector:
    """Gathers diagnostics about one source and raises them together: sorted, at most `MOST` of them."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []

    def add(self, diagnostic: Diagnostic) -> None:
        """Keeps a diagnostic; one with the same code at the same place is dropped."""
        if all((d.code, d.span) != (diagnostic.code, diagnostic.span) for d in self.diagnostics):
            self.diagnostics.append(replace(diagnostic, source=diagnostic.source or self.source))

    def error(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        label: str = "",
        notes: Iterable[tuple[Span, str]] = (),
        why: str = "",
        help: str = "",
    ) -> None:
        """Adds an error at a span."""
        self.add(Diagnostic(code, message, span, label, tuple(notes), why, help))

    @property
    def errors(self) -> list[Diagnostic]:
        """The errors, without warnings, in the order of the text."""
        return [d for d in self.sorted() if d.severity == "error"]

    def sorted(self) -> list[Diagnostic]:
        """Everything found, in the order of the text."""
        return sorted(self.diagnostics, key=lambda d: (d.span.start, d.code, d.message))

    def raise_if_any(self) -> None:
        """Raises a DecError when there is at least one error."""
        errors = self.errors
        if not errors:
            return
        shown: list[Diagnostic | str] = list(errors[:MOST])
        if len(errors) > MOST:
            shown.append(f"error: {len(errors) - MOST} more, not shown; the first ones usually cause the rest")
        raise DecError(shown)


def render(diagnostic: Diagnostic, source: Source | None = None) -> str:
    """A diagnostic as text: message, place, the lines it is about with carets, why, and what to try."""
    source = source or diagnostic.source
    code = f"[{diagnostic.code}]" if diagnostic.code else ""
    lines = [f"{diagnostic.severity}{code}: {diagnostic.message}"]
    gutter = 1
    if source is not None and diagnostic.span:
        marks = [(diagnostic.span, "^", diagnostic.label)]
        marks += [(span, "-", text) for span, text in diagnostic.notes if span]
        gutter = max(len(str(span.line)) for span in (*(m[0] for m in marks), *(m[1] for m in diagnostic.inside)))
        lines.append(f"{' ' * gutter}┌─ {_plain(source.place(diagnostic.span))}")
        last = None
        for span, mark, text in sorted(marks, key=lambda m: (m[0].line, m[0].start, m[1])):
            shown, caret = _excerpt(source, span, mark)
            if span.line != last:
                lines.append(f"{span.line:>{gutter}}│ {shown}".rstrip())
            last = span.line
            lines.append(f"{' ' * gutter}│ {caret} {text}".rstrip())
        for other, span, label in diagnostic.inside:
            shown, caret = _excerpt(other, span, "-")
            lines.append(f"{' ' * gutter}├─ {_plain(other.place(span))}")
            lines += [f"{span.line:>{gutter}}│ {shown}".rstrip(), f"{' ' * gutter}│ {caret} {label}".rstrip()]
    elif source is not None:
        lines.append(f"{' ' * gutter}┌─ {_plain(source.path)}")
    for word, text in (("why", diagnostic.why), ("try", diagnostic.help)):
        if text:
            first, *more = text.split("\n")
            lines.append(f"{' ' * gutter}= {word}: {first}")
            lines += [f"{' ' * gutter}       {line}".rstrip() for line in more]
    return "\n".join(lines)


def _excerpt(source: Source, span: Span, mark: str) -> tuple[str, str]:
    """The source line of a span as a terminal shows it, cut if long, and the marks under it."""
    line = source.line(span.line)
    left = span.column - 1
    right = min(left + span.end - span.start, len(line))
    before, inside, after = line[:left], line[left:right], line[right:]
    shown = _plain(before)
    pad = screen_width(shown)
    body = _plain(before + inside)[len(shown) :]
    rest = _plain(line)[len(shown) + len(body) :] if after else ""
    if pad + screen_width(body + rest) > SHOWN_WIDTH:
        if pad > SHOWN_WIDTH // 2:
            shown = "…" + _last_columns(shown, SHOWN_WIDTH // 3)
            pad = screen_width(shown)
        room = SHOWN_WIDTH - pad
        if len(body) > room:
            body, rest = body[:room] + "…", ""
        elif len(body + rest) > room:
            rest = rest[: room - len(body)] + "…"
    return shown + body + rest, " " * pad + mark * max(1, screen_width(body.rstrip("…")))


def _last_columns(text: str, columns: int) -> str:
    return text[-columns:]


def _plain(text: str) -> str:
    """Text that is safe to show: tabs become spaces, control and stray characters a replacement mark."""
    out: list[str] = []
    width = 0
    for character in text:
        if character == "\t":
            piece = " " * (TAB_WIDTH - width % TAB_WIDTH)
        elif character == "\ufeff":
            piece = ""
        elif unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            piece = "\ufffd"
        else:
            piece = character
        out.append(piece)
        width += screen_width(piece)
    return "".join(out)
