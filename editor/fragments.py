"""Values as HTML for notebooks: algorithms, cost reports, checks, results, explanations, and what is wrong with a text.

No scripts, no network, and colours of its own on a light or dark page: styles stand on the elements, so that a fragment can be
copied into any page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

from decgraph.check.proof_page import proof_page
from decgraph.dsl.diagnostics import Diagnostic
from decgraph.editor.highlight import pieces
from decgraph.views.steps import origins_of
from decgraph.views.words import word

STYLE = (
    "font-family:ui-monospace,SFMono-Regular,Menlo,monospace;font-size:13px;line-height:1.45;white-space:pre-wrap;"
    "background:#f6f8fa;color:#1f2328;border-radius:6px;padding:8px 12px;margin:4px 0;overflow-x:auto"
)
COLOURS = {
    "comment": "#59636e", "doc": "#0a3069", "string": "#0a3069", "number": "#0550ae", "declaration": "#cf222e",
    "import": "#cf222e", "keyword": "#cf222e", "word": "#cf222e", "operator": "#0550ae", "definition": "#6639ba",
    "type": "#953800", "constant": "#0550ae", "special": "#0550ae", "function": "#6639ba", "call": "#1f2328",
    "attribute": "#1f2328", "name": "#1f2328", "punctuation": "#1f2328", "wrong": "#d1242f",
}  # fmt: skip
VERDICTS = {"proved": "#1a7f37", "holds": "#0969da", "refuted": "#d1242f", "undecided": "#9a6700", "none": "#59636e"}
ORIGINS = {
    "accepted": "#d9f2df", "residual": "#fdebd3", "own": "#fdebd3", "bonus": "#d7eafc", "plain": "#eceef0", "canvas": "#d8b9ff",
}  # fmt: skip
"""The colours of tokens by where they came from."""


def fragment(value: object) -> str:
    """HTML that shows a value. Raises TypeError for what has none."""
    show = SHOWN.get(type(value).__name__)
    if show is None:
        raise TypeError(f"there is no HTML for {type(value).__name__}")
    return f'<div class="decgraph">{show(value)}</div>'


def source(text: str, marks: Iterable[tuple[int, int]] = ()) -> str:
    """A text in colours; `marks` (offsets) are underlined."""
    out, at = [], 0
    under = sorted(marks)
    for piece in pieces(text):
        out.append(escape(text[at : piece.start]))
        inside = escape(text[piece.start : piece.end])
        style = f"color:{COLOURS[piece.kind]}"
        if any(start < piece.end and piece.start < max(end, start + 1) for start, end in under):
            style += ";text-decoration:underline wavy #d1242f"
        out.append(f'<span style="{style}">{inside}</span>' if len(style) > 13 or piece.kind != "name" else inside)
        at = piece.end
    return _pre("".join(out) + escape(text[at:]))


def diagnostics(error: Any) -> str:
    """What is wrong with a text (a DecError): each message with its line, carets and advice."""
    out = []
    for d in error.diagnostics:
        text = d.render() if isinstance(d, Diagnostic) else str(d)
        first, _, rest = text.partition("\n")
        out.append(
            f'<span style="color:#d1242f;font-weight:600">{escape(first)}</span>' + (f"\n{escape(rest)}" if rest else "")
        )
    if error.hint:
        out.append(escape(f"  = try: {error.hint}"))
    return f'<div class="decgraph">{_pre(chr(10).join(out))}</div>'


def algorithm(value: Any) -> str:
    """Source, claims, models and parameters, and the drawing of a step."""
    function = value.function
    rows = [("claims", "\n".join(c.text for c in function.claims) or "none")]
    rows += [("models", ", ".join(f"{name}: {kind}" for name, kind in value.models.items()) or "none")]
    params = [f"{p.name} = {p.default}" if p.has_default else p.name for p in value.params.values()]
    rows += [("parameters", ", ".join(params))] if params else []
    rows += [("published", value.source)] if value.source else []
    shown = f"{_title(value.name)}{_table(rows)}"
    if value.text:
        explanation = value.explanation()
        shown += source(value.text) + _folded("a step, drawn", _pre(escape("\n".join(explanation.drawing))))
    return shown


def explanation(value: Any) -> str:
    """An algorithm in words, line by line, and its drawing."""
    shown = _title(value.name) + f"<p>{escape(' '.join(value.doc.split()))}</p>"
    shown += _table([(claim, meaning) for claim, meaning in value.claims])
    shown += _table([*value.models, *value.params])
    lines = [
        (str(line.number or ""), f'<div style="padding-left:{2 * line.depth}em">{escape(line.words)}</div>')
        for line in value.step
    ]
    return shown + _table(lines, raw=True) + _folded("a step, drawn", _pre(escape("\n".join(value.drawing))))


def cost(value: Any) -> str:
    """The static cost of a step."""
    rows = [("model", "at", "calls in a step", "at most", "line", "computes")]
    for c in value.calls:
        computes = f"{c.computed}; reads {c.asked}" if c.computed else ""
        rows.append((c.model, c.place, c.times, "" if c.most is None else str(c.most), str(c.line or ""), computes))
    shown = _title(f"{value.name}: static cost of {value.step}") + _table(rows, head=True)
    groups = [
        ("capacities", value.capacities),
        ("effects", value.effects),
        ("on the host", value.host),
        ("waits for the host", value.syncs),
    ]
    return shown + _table([(name, "\n".join(lines)) for name, lines in groups if lines])


def report(value: Any) -> str:
    """A check: the verdict, what was looked at, and the counterexample."""
    colour = VERDICTS.get(value.verdict, "#59636e")
    badge = f'<span style="background:{colour};color:#fff;border-radius:8px;padding:1px 8px">{escape(value.verdict)}</span>'
    well = value.verdict in ("proved", "holds")
    rows = [
        ("claims", "\n".join(value.claims) or "none"),
        *([(value.verdict, value.reach())] if well else []),
        *([("no derivation", "\n".join(value.stopped()))] if value.verdict == "holds" else []),
        (
            "worlds",
            f"{value.models}" + (f", {value.shrunk} of them with smaller parameters or lengths" if value.shrunk else ""),
        ),
        ("runs", f"{value.runs:,} in {value.seconds:.1f} s"),
    ]
    if value.verdict in ("holds", "undecided") and value.models:  # what was looked at
        rows.append(("tried", "\n".join(value.tried.words())))
    rows += [("reasons", "\n".join(value.reasons))] if value.reasons else []
    rows += [("notes", "\n".join(value.notes))] if value.notes else []
    shown = f"<p>{badge} <b>{escape(value.name)}</b></p>{_table(rows)}"
    if value.verdict == "proved" and value.text:
        shown += _folded("the derivation", _pre(escape(proof_page(value))))
    if value.counterexample is not None:
        shown += _pre(escape(value.counterexample.render()))
    return shown


def result(value: Any) -> str:
    """A run: its text by where each token came from, and its statistics."""
    stats = value.stats
    origins = origins_of(value.events)
    if value.pieces and len(value.pieces) == len(value.tokens):
        body = "".join(
            f'<span style="background:{ORIGINS[o]};color:#1f2328" title="{word(o)}">{escape(piece)}</span>'
            for piece, o in zip(value.pieces, origins, strict=False)
        )
        legend = " ".join(
            f'<span style="background:{colour};color:#1f2328;padding:0 6px">{word(o)}</span>'
            for o, colour in ORIGINS.items()
            if o in origins
        )
        shown = _pre(body) + f"<p>{legend}</p>"
    else:
        shown = _pre(escape(value.text or " ".join(map(str, value.tokens))))
    rows = [
        ("tokens", f"{stats.tokens}, ended by {value.reason}"),
        ("target calls", f"{stats.target_calls}, {stats.tokens_per_call:.2f} tokens per call"),
    ]
    rows += (
        [("draft calls", f"{stats.draft_calls}, {stats.drafted} tokens drafted")] if stats.draft_calls or stats.drafted else []
    )
    rows += [("accepted by depth", ", ".join(f"{share:.0%}" for share in stats.acceptance))] if stats.acceptance else []
    if value.error is not None:
        shown += diagnostics(value.error)
    return shown + _table(rows)


def calls(value: Any) -> str:
    """Each model call of a step, and what half of each whole number would save."""
    shown = _title(f"{value.name}: the model calls of {value.step}")
    for call in value.calls:
        head, *lines = call.text().split("\n")
        rows = [(line[2:10].strip(), line[12:]) for line in lines]
        shown += f"<p><code>{escape(head)}</code></p>{_table(rows)}"
    return shown + (_table([("parameters", "\n".join(map(str, value.savings)))] if value.savings else []))


SHOWN: Mapping[str, Callable[[Any], str]] = {
    "Algorithm": algorithm,
    "Calls": calls,
    "Cost": cost,
    "Explanation": explanation,
    "Report": report,
    "Result": result,
}


def _pre(inside: str) -> str:
    return f'<pre style="{STYLE}">{inside}</pre>'


def _title(text: str) -> str:
    return f"<p><b>{escape(text)}</b></p>"


def _folded(title: str, inside: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def _table(rows: Iterable[Iterable[str]], *, head: bool = False, raw: bool = False) -> str:
    """Rows of texts; the first cell of each is its name, or with `head` the first row."""
    out = []
    for number, row in enumerate(rows):
        cells = [cell if raw else escape(cell).replace("\n", "<br>") for cell in row]
        tag = "th" if head and number == 0 else "td"
        out.append(
            "<tr>"
            + "".join(
                f'<{tag} style="text-align:left;vertical-align:top;padding:1px 14px 1px 0">{cell}</{tag}>' for cell in cells
            )
            + "</tr>"
        )
    return f"<table>{''.join(out)}</table>" if out else ""
