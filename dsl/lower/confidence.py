"""A confidence that is read before the request shapes what tokens are drawn from, said at its line (ir/confidence.py)."""

from __future__ import annotations

import re

from decgraph.dsl.diagnostics import Diagnostic
from decgraph.dsl.lower.labels import place, span_of
from decgraph.dsl.source import Source, Span
from decgraph.ir.confidence import unshaped_confidences
from decgraph.ir.values import Loc, Module

CODE = "E032"
MEANT = re.compile(rf"#.*\b{CODE}\b\W*\w")
"""A comment that means it: the code and a reason, at the line of the draw or where it is read."""
WHY = (
    "`.raw` is the distribution before temperature, top-k and top-p, so wherever the request has some of them this is not the\n"
    "probability that the token was drawn with; published decoders read either, and greedy runs do not tell them apart"
)
TRY = (
    "q = p.raw if greedy else p, and q[x], to read what the token was drawn from;\n"
    f"where published code reads raw scores, say so at the end of this line or of the draw's: # {CODE}: whose code, or why"
)


def confidences(module: Module, source: Source) -> list[Diagnostic]:
    """Warnings about the lines of this text that read a drawn token's probability unshaped, without a comment that means it."""
    return [said(read, drawn, source) for read, drawn in unshaped_confidences(module) if not _meant(read, drawn, source)]


def _meant(read: Loc, drawn: Loc, source: Source) -> bool:
    """Whether a comment says so, or another text does it."""
    lines = [at.line for loc in (read, drawn) for at in (loc, loc.called) if at is not None and at.path == source.path]
    own = source.path in (read.path, read.called.path if read.called is not None else None)
    return not own or any(MEANT.search(source.line(n)) for n in lines)


def said(read: Loc, drawn: Loc, source: Source) -> Diagnostic:
    """The warning: where it is read, where the token was drawn, why it matters and what to do."""
    label = "of the unshaped distribution"
    text, span, inside = place(read, source, label)
    notes: tuple[tuple[Span, str], ...] = ()
    if drawn.path == text.path and drawn.line != span.line:
        notes = ((span_of(drawn, text), "drawn here, after them"),)
    message = "a drawn token's probability is read before the request's temperature, top-k and top-p"
    return Diagnostic(
        CODE,
        message,
        span,
        label="" if inside else label,
        notes=notes,
        why=WHY,
        help=TRY,
        severity="warning",
        source=text,
        inside=inside,
    )
