"""A report of `decgraph check` as a page: the verdict, and the counterexample with its draws, their lines, and what each side
commits as bars."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from decgraph.check.proof_page import proof_page
from decgraph.runtime.parameters import shown
from decgraph.views.page import embedded, in_frame, read

if TYPE_CHECKING:
    from decgraph.check.counterexample import Counterexample
    from decgraph.check.report import Report

THEME = '<button id="theme" aria-label="Light or dark" title="Light or dark (t)">◐</button>'
MOST = 200  # rows of a distribution that are shown
LINE = re.compile(r"(?:(?P<file>[\w./-]+) )?line (?P<line>\d+)")
DRAWN = {
    "tokens": "What was drawn, by both sides alike",
    "token": "What was drawn",
    "distribution": "What is drawn in a run whose tokens come too often",
    "adversary": "What the functions of the world returned",
}


def report_page(reports: Sequence[tuple[Report, str]]) -> str:
    """A page of reports, each with the text of its algorithm ("" where there is none)."""
    title = " and ".join(report.name for report, _ in reports) if len(reports) < 4 else f"{len(reports)} algorithms"
    articles = "\n".join(article(report, text) for report, text in reports)
    body = f'<header><h1>{html.escape(title)}: check</h1><span class="spring"></span>'
    body += f"{THEME}</header>\n"
    return page_of(f"{title}: check", f"{body}<main>\n{articles}\n</main>")


def framed(example: Counterexample) -> str:
    """The page of a counterexample as a part of a notebook; its program is already in the notebook."""
    title = f"{example.names[0]}: counterexample"
    body = f'<header><h1>{html.escape(title)}</h1><span class="spring"></span>{THEME}</header>\n'
    claim = f'<p class="mono">{html.escape(example.claim)}</p>'
    return in_frame(title, page_of(title, f"{body}<main>{claim}{counterexample(example, '')}</main>"), 520)


def page_of(title: str, body: str) -> str:
    """A page without data of its own, whose script does no more than choose light or dark."""
    out = read("page.html").replace("@title@", html.escape(title)).replace("@style@", read("page.css"))
    out = out.replace("@data@", embedded({})).replace("@script@", read("report.js"))
    before, _, after = out.partition("@body@")
    return before + body + after


def article(report: Report, text: str) -> str:
    """A report: the verdict, what it rests on, and the counterexample."""
    said = "; ".join(report.claims) or "it claims nothing, so there is nothing to prove"
    reach = [report.reach()] if report.verdict in ("proved", "holds") else []
    reach += report.stopped() if report.verdict == "holds" else []
    out = [
        f'<article class="run" aria-label="{html.escape(report.name)}">',
        f'<div><h2><span class="verdict {report.verdict}">{report.verdict}</span> {html.escape(report.name)}</h2>',
        f'<p class="mono">{html.escape(said)}</p><p class="faint">{report.counted()}</p>',
        *(f"<p>{html.escape(words)}</p>" for words in (*reach, *report.reasons)),
        "</div>",
    ]
    if report.text and any(proof.derived for proof in report.proofs):
        out.append(panel("Derivation", f"<pre>{html.escape(proof_page(report))}</pre>"))
    if report.counterexample is not None:
        out.append(counterexample(report.counterexample, text))
    return "\n".join([*out, "</article>"])


def counterexample(example: Counterexample, text: str) -> str:
    """What goes wrong, in the world it goes wrong in."""
    world = [("prompt", " ".join(map(str, example.prompt))), ("start", example.start), ("request", example.request)]
    world.append(("parameters", ", ".join(f"{name} = {shown(value)}" for name, value in example.params.items())))
    rows = "".join(
        f"<tr><th scope=row>{name}</th><td class=mono>{html.escape(value)}</td></tr>" for name, value in world if value
    )
    tables = "\n".join(example.tables)
    left = [panel("What each side commits", sides(example))]
    if example.decisions:
        items = "".join(f"<li>{html.escape(decision)}</li>" for decision in example.decisions)
        left.append(panel(DRAWN.get(example.kind, "What was drawn"), f"<ol>{items}</ol>"))
    left.append(panel("The world", f"<table>{rows}</table><pre>{html.escape(tables)}</pre>"))
    if example.functions:
        left.append(panel("Its functions", f"<pre>{html.escape(chr(10).join(example.functions))}</pre>"))
    right = [panel("Program", source(text, lines_of(example.decisions)))] if text else []
    columns = "".join(f'<div class="stack">{"".join(parts)}</div>' for parts in (left, right) if parts)
    return f'<div class="columns report">{columns}</div>'


def panel(title: str, inner: str) -> str:
    """A box with a title; the inner part is HTML."""
    return f'<section class="panel" aria-label="{html.escape(title)}"><h3>{html.escape(title)}</h3>{inner}</section>\n'


def lines_of(decisions: Sequence[str]) -> set[int]:
    """The lines of the program's own file at which something was drawn."""
    found = (LINE.search(decision) for decision in decisions)
    return {int(match["line"]) for match in found if match is not None and not match["file"]}


def source(text: str, marked: set[int]) -> str:
    """The program, with lines marked."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        current = ' class="current" aria-current="true"' if number in marked else ""
        lines.append(f"<div{current}>{html.escape(line) or ' '}</div>")
    return f'<pre class="source">{"".join(lines)}</pre>'


def sides(example: Counterexample) -> str:
    """Both distributions as bars, those furthest apart first; of point masses, the tokens."""
    ours, theirs = (html.escape(name) for name in example.names)
    words = f"<p>{html.escape(example.words)}</p>" if example.words else ""
    if example.kind in ("token", "count", "error"):
        return words
    if example.kind in ("tokens", "text"):
        rows = ((ours, example.ours), (theirs, example.theirs))
        told = "".join(
            f"<tr><th scope=row>{name}</th><td class=mono>{spelled(next(iter(d), ((), False)))}</td></tr>" for name, d in rows
        )
        return f"{words}{'<p>With the same noise:</p>' * (example.kind == 'tokens')}<table>{told}</table>"
    keys = sorted({*example.ours, *example.theirs}, key=lambda k: (-abs(share(example.ours, k) - share(example.theirs, k)), k))
    legend = f"<b class=swatch></b> {ours} <b class='swatch theirs'></b> {theirs}"
    bars = [f"<span class=faint>tokens</span><span class=faint>{legend}</span><span></span>"]
    for key in keys[:MOST]:
        a, b = share(example.ours, key), share(example.theirs, key)
        apart = " apart" if a != b else ""
        said = f"{spelled(key)}: {ours} {a}, {theirs} {b}"
        pair = f"<i style='width:{float(a):.4%}'></i><i class=theirs style='width:{float(b):.4%}'></i>"
        bars.append(
            f"<span class=mono>{spelled(key)}</span><span class=pair role=img aria-label='{said}'>{pair}</span>"
            f"<span class='mono{apart}'>{ratio(a)} {'=' if a == b else '≠'} {ratio(b)}</span>"
        )
    more = f"<p class=faint>and {len(keys) - MOST} more</p>" if len(keys) > MOST else ""
    distance = f"<p>Total variation {example.distance} = {float(example.distance):.4f}</p>"
    return f"{words}{distance}<div class=bars>{''.join(bars)}</div>{more}"


def share(distribution: dict[tuple[tuple[int, ...], bool], Fraction], key: tuple[tuple[int, ...], bool]) -> Fraction:
    """The probability of tokens."""
    return distribution.get(key, Fraction(0))


def spelled(key: tuple[tuple[int, ...], bool]) -> str:
    """Tokens, and whether the text ends after them."""
    tokens, over = key
    return " ".join(map(str, tokens)) + (" end" if over else "") or "nothing"


def ratio(x: Fraction) -> str:
    """A fraction where it is short."""
    text = str(x)
    return text if len(text) <= 14 else f"{float(x):.6f}"
