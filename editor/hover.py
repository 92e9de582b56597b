"""What stands under the cursor: its type, what it is, what the library and the language say of it."""

from __future__ import annotations

from decgraph.dsl import printer
from decgraph.dsl import syntax as S
from decgraph.dsl.lower.wording import show
from decgraph.dsl.source import Span
from decgraph.editor.analysis import Analysis
from decgraph.editor.function_lines import function_lines
from decgraph.editor.names import Occurrence
from decgraph.editor.words import STATEMENT_LINES, WORD_LINES
from decgraph.ir.types import Type


def hover(analysis: Analysis, offset: int) -> tuple[str, Span] | None:
    """Markdown about what stands at an offset, and where that stands; None where there is nothing to say."""
    attribute = _attribute(analysis, offset)
    if attribute is not None:
        found = analysis.type_of(attribute.span)
        if found is None:
            return None
        return f"```dec\n{printer.expression(attribute)}: {show(found)}\n```", attribute.name_span
    occurrence = analysis.index.at(offset)
    if occurrence is not None:
        said = about(analysis, occurrence)
        return (said, occurrence.span) if said else None
    for token in analysis.partly.parsed.tokens:
        if token.span.start <= offset <= token.span.end and token.text in STATEMENT_LINES and token.kind != "NAME":
            return f"`{token.text}`: {STATEMENT_LINES[token.text]}", token.span
    return None


def about(analysis: Analysis, occurrence: Occurrence) -> str:
    """What is known of a name: its kind and type, or the head and docstring of the definition it names."""
    name, symbol = occurrence.symbol.name, occurrence.symbol
    kind = analysis.index.kinds.get(symbol, "")
    if symbol.scope in ("", "?"):
        item = analysis.names.get(name)
        if item is not None and (symbol.scope == "" or name not in function_lines()):
            return definition(item)
        return function(name) if symbol.scope == "?" else ""
    found = analysis.type_of(occurrence.span) or _type_elsewhere(analysis, occurrence)
    declared = _declaration(analysis, occurrence)
    head = declared or (f"{name}: {show(found)}" if found is not None else name)
    said = f"```dec\n{head}\n```\n{kind}"
    return f"{said}, {show(found)}" if declared and found is not None else said


def definition(item: S.Item) -> str:
    """A definition's head and its docstring."""
    doc = getattr(item, "doc", None)
    return f"```dec\n{printer.head(item)}\n```" + (f"\n{' '.join(doc.split())}" if doc else "")


def function(name: str) -> str:
    """A function of the language, or a word with a value."""
    line = function_lines().get(name)
    if line is not None:
        calls = "\n".join(line.calls)
        return f"```dec\n{calls}\n```\n{line.value}"
    return f"`{name}`: {WORD_LINES[name]}" if name in WORD_LINES else ""


def _type_elsewhere(analysis: Analysis, occurrence: Occurrence) -> Type | None:
    """The type that a name has at the place nearest before: a target of a loop is no expression."""
    found = None
    for other in analysis.index.of(occurrence.symbol):
        known = analysis.type_of(other.span)
        if known is not None and (found is None or other.span.start <= occurrence.span.start):
            found = known
    return found


def _declaration(analysis: Analysis, occurrence: Occurrence) -> str:
    """The text of a parameter or state, as it is declared."""
    item = analysis.item_at(occurrence.span.start)
    scope = analysis.file.named(occurrence.symbol.scope) or item
    for p in getattr(scope, "params", ()):
        if p.name == occurrence.symbol.name:
            return printer.param(p)
    for s in getattr(scope, "body", ()):
        if isinstance(s, (S.State, S.Canvas, S.ModelDecl)) and s.name == occurrence.symbol.name:
            return printer.statement(s)
    return ""


def _attribute(analysis: Analysis, offset: int) -> S.Attr | None:
    item = analysis.item_at(offset)
    if item is None:
        return None
    for node in S.walk(item):
        if isinstance(node, S.Attr) and node.name_span and node.name_span.start <= offset <= node.name_span.end:
            return node
    return None
