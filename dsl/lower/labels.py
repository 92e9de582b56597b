"""What the label check finds, said at its line: where the draw is, why it matters, what to do instead."""

from __future__ import annotations

from decgraph.dsl.diagnostics import Diagnostic
from decgraph.dsl.lower.library import Names, stdlib_source
from decgraph.dsl.source import Source, Span
from decgraph.ir.label_check import Finding, check_labels
from decgraph.ir.values import Loc, Module

CODE = "E031"
WHY = (
    "a draft is accepted with min(1, p/q) only if q is still its distribution, given all that was tested before it;\n"
    "a choice that depends on the drawn token changes that distribution, though every q is right"
)
SAID: dict[str, tuple[str, str, str]] = {
    "prune": (
        "what is pruned here depends on the draws themselves",
        "these are kept or dropped by what was drawn",
        (
            "prune one-hot draws only: `t.drafted where t.law.point`, drafted with topk(q.raw, k),\n"
            "or prune by what does not depend on the draws, such as t.depth, or verify by match"
        ),
    ),
    "choice": (
        "which draws are grown depends on the draws themselves",
        "chosen or ordered by what was drawn",
        (
            "grow all of them, in drawing order: grow xs; choose beforehand how many to draw,\n"
            "or choose by race keys: top(race(q), k, by = xs.race)"
        ),
    ),
    "skip": (
        "whether this draw is grown depends on the draw itself",
        "reached only for some of the drawn tokens",
        "grow the draw first and decide then: grow x, break if q.raw[x] < eta; equal draws stay two draws",
    ),
    "earlier": (
        "what was grown before this draw already depends on it",
        "its earlier siblings were computed from it",
        "grow the draw first, and what was computed from it after it",
    ),
    "twice": (
        "this draw is grown twice, at one place or below itself",
        "the same draw again",
        "grow it once; for a second sibling draw again: it may turn out the same, and is a draw of its own",
    ),
    "siblings": (
        "siblings that were drawn without replacement are grown in another order",
        "drawn before a sibling that is grown already",
        (
            "grow them in drawing order, xs[0] before xs[1]; leaving some out is fine.\n"
            "Draws with replacement may have any fixed order: sample(q, k, replace = yes)"
        ),
    ),
    "kept": (
        "this draw is older than the loop that grows it, and every iteration verifies it in a new tree",
        "the same draw in every iteration",
        "draw it inside the loop: once it was tested, its distribution is no longer the one it was drawn from",
    ),
    "chosen": (
        "which tree is verified, or which of its paths is committed, depends on its own draws",
        "reached only for some of the drawn tokens or accepted paths",
        (
            "grow both into one tree and verify that, or decide before the draws, by what does not depend on them;\n"
            "a tree that is drafted and verified after the commit of the other is right, too"
        ),
    ),
    "mass": (
        "what is drawn from here is no distribution: it does not sum to 1",
        "the draw is of q, and its `.law` is what stands here",
        "normalize(...) what is drawn from; of scores take softmax(...), or the model's own row",
    ),
    "order": (
        "these draws were drawn in another order than they are tested in",
        "a token decided later may have been drawn from a distribution conditioned on this one",
        "decide the cells from left to right, or all at once (steps = 1)",
    ),
}


def findings(module: Module, names: Names, source: Source) -> list[Diagnostic]:
    """Diagnostics (errors and warnings) of the label check, with spans in the texts they are about."""
    return [said(f, names, source) for f in check_labels(module)]


def said(f: Finding, names: Names, source: Source) -> Diagnostic:
    """A finding of the label check as a diagnostic: where, why, and what to do instead."""
    message, label, help_ = SAID[f.kind]
    text, span, inside = place(f.loc, source, label)
    notes: tuple[tuple[Span, str], ...] = ()
    drawn = f.drawn.called or f.drawn
    if drawn.path == text.path and drawn not in (f.loc, f.loc.called):
        notes = ((span_of(drawn, text), "drawn here"),)
    said = "" if inside else label
    return Diagnostic(
        CODE, message, span, label=said, notes=notes, why=WHY, help=help_, severity=f.severity, source=text, inside=inside
    )


def place(loc: Loc, source: Source, label: str) -> tuple[Source, Span, tuple[tuple[Source, Span, str], ...]]:
    """Where to point for an op: its text and span, and what stands in other texts. Of a rule or helper of another file that is
    the program's own line, with the rule's behind it under `label`."""
    text = source if loc.path == source.path else stdlib_source(loc.path) or source
    if loc.called is None or loc.called.path != source.path:
        return text, span_of(loc, text), ()
    return source, span_of(loc.called, source), ((text, span_of(loc, text), label),)


def span_of(loc: Loc, source: Source) -> Span:
    """The span of an IR location in its text."""
    start = source.line_start(loc.line) + loc.column - 1
    end = source.line_start(loc.end_line) + loc.end_column - 1 if loc.end_line else start
    return Span(start, max(start, end), loc.line, loc.column)
