"""What the label check finds, said at its line: where the draw is, why it matters, what to do instead."""

from __future__ import annotations

from decgraph.dsl.diagnostics import Diagnostic
from decgraph.dsl.lower.library import ItemsInReach, stdlib_source
from decgraph.dsl.source import Source, Span
from decgraph.ir.labels import Finding, check_labels
from decgraph.ir.values import Loc, Module

CODE = "E031"
WHY = "a draft is accepted with min(1, p/q) only if q is still its distribution, given all that was tested before it"
CHOICE = ";\na choice that depends on the drawn token changes that distribution, though every q is right"
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
        "this draw is grown twice at one place",
        "the same draw again",
        "grow it once; for a second sibling draw again: it may turn out the same, and is a draw of its own",
    ),
    "below": (
        "this draw is grown again below itself",
        "reached only where the same draw was accepted",
        "grow it once, and draw again for the place below: y ~ drafter(t.leaves), grow y",
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
        "every iteration grows the same draw, in a tree of its own",
        "drawn before this iteration, and not anew in it",
        "draw inside the loop: once a draw was tested, its distribution is no longer the one it was drawn from",
    ),
    "kept?": (
        "an iteration may grow a draw that an earlier one has grown already",
        "read from a state that is not set wherever this line runs",
        "set the state to new draws, or to those that were not grown, in every iteration that grows what it holds",
    ),
    "chosen": (
        "which tree is verified, or whose path is committed, depends on the tree's own draws",
        "reached only for some of the drawn tokens or accepted paths",
        (
            "grow both into one tree and verify that, or decide before the draws, by what does not depend on them;\n"
            "a tree that is drafted and verified after the commit of the other is right, too"
        ),
    ),
    "mass": (
        "what is drawn from here is no distribution: it does not sum to 1",
        "the draw is of this divided by its sum, and its `.law` is what stands here",
        "normalize(...) what is drawn from; of scores take softmax(...), or the model's own row",
    ),
    "mass?": (
        "what is drawn from here may be no distribution: nothing shows that it sums to 1",
        "the draw is of this divided by its sum, and its `.law` is what stands here",
        "normalize(...) what is drawn from, which changes nothing where it sums to 1",
    ),
    "order": (
        "these draws were drawn in another order than they are tested in",
        "a token decided later may have been drawn from a distribution conditioned on this one",
        "decide the cells from left to right, or all at once (steps = 1)",
    ),
}


def findings(module: Module, names: ItemsInReach, source: Source) -> list[Diagnostic]:
    """Diagnostics (errors and warnings) of the label check, with spans in the texts they are about."""
    return [said(f, names, source) for f in check_labels(module)]


def said(f: Finding, names: ItemsInReach, source: Source) -> Diagnostic:
    """A finding of the label check as a diagnostic: where, why, and what to do instead."""
    message, label, help_ = SAID.get(f"{f.kind}?" if f.severity == "warning" else f.kind, SAID[f.kind])
    why = WHY if f.kind in ("below", "siblings", "kept", "mass") else WHY + CHOICE
    text, span, inside = place(f.loc, source, label)
    notes: tuple[tuple[Span, str], ...] = ()
    drawn = f.drawn.called or f.drawn
    if drawn.path == text.path and drawn not in (f.loc, f.loc.called):
        notes = ((span_of(drawn, text), "drawn here"),)
    said = "" if inside else label
    return Diagnostic(
        CODE, message, span, label=said, notes=notes, why=why, help=help_, severity=f.severity, source=text, inside=inside
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
