"""Help for what is under the cursor: its kind and type, and its lines in the library and the language."""

from __future__ import annotations

import re

from decgraph.dsl import printer
from decgraph.dsl import syntax as S
from decgraph.dsl.lower.state import show
from decgraph.dsl.source import Span
from decgraph.editor.analysis import Analysis
from decgraph.editor.function_lines import Line, function_lines, method_lines, type_lines
from decgraph.editor.names import Occurrence
from decgraph.editor.words import STATEMENT_LINES, WORD_LINES
from decgraph.ir.types import Type

WRITTEN = {
    "tree": "tree", "dist": "dist", "draws": "draw", "canvas": "canvas", "positions": "position", "span": "position",
    "causal": "model", "masked": "model", "memory": "memory", "suffixes": "index", "ngrams": "index", "automaton": "automaton",
}  # fmt: skip
"""The kinds of values of the types that are written."""


def hover(analysis: Analysis, offset: int) -> tuple[str, Span] | None:
    """Markdown about the word at an offset, with its span; None where there is no help."""
    attribute = _attribute(analysis, offset)
    if attribute is not None:
        said = of_attribute(analysis, attribute)
        return (said, attribute.name_span) if said else None
    written = _type(analysis, offset)
    if written is not None:
        said = from_docs(type_lines().get(written.name))
        span = written.span._replace(end=written.span.start + len(written.name))
        return (said, span) if said else None
    occurrence = analysis.index.at(offset)
    if occurrence is not None:
        said = about(analysis, occurrence)
        return (said, occurrence.span) if said else None
    for token in analysis.partly.parsed.tokens:
        if token.span.start <= offset <= token.span.end and token.text in STATEMENT_LINES and token.kind != "NAME":
            return f"`{token.text}`: {STATEMENT_LINES[token.text]}", token.span
    return None


def of_attribute(analysis: Analysis, attribute: S.Attr) -> str:
    """The type of an attribute; of a method, how it is called, with all its options; what the docs say of it."""
    line = method_lines().get(f"{_kind_of(analysis, attribute.value)}.{attribute.name}")
    found = analysis.type_of(attribute.span)
    if found is None:
        return from_docs(line)
    return f"```dec\n{printer.expression(attribute)}: {show(found)}\n```" + (f"\n{line.value}" if line else "")


def kind_of(t: Type) -> str:
    """What the docs' tables call a value of a type: its kind, save for stores that are tables, and the context."""
    if t.elem == "index" and t.of and t.of[0] == "lru":
        return "lru"
    return "context" if t.elem == "node" and t.of and t.of[0] == "ctx" else t.elem


def _kind_of(analysis: Analysis, value: S.Expr) -> str:
    """The kind of an expression's value, "" where it is not known. What the body of a rule names is only lowered where the rule
    is used, so there the written type of a parameter is shown."""
    found = analysis.type_of(value.span)
    if found is not None:
        return kind_of(found)
    if not isinstance(value, S.Name):
        return ""
    item = analysis.item_at(value.span.start)
    if (known := type_of_name(analysis, item, value.name)) is not None:
        return kind_of(known)
    if value.name == "ctx":
        return "context"
    for p in item.params if item is not None else ():
        if p.name == value.name and p.type is not None:
            return WRITTEN.get(p.type.name, "")
    loops = [n for n in S.walk(item) if isinstance(n, S.For)] if isinstance(item, S.Rule) else []
    return "draw" if any(value.name in [x.name for x in loop.names] for loop in loops) else ""  # the children it tests


def from_docs(line: Line | None) -> str:
    """How something is written, and what it gives."""
    return "```dec\n" + "\n".join(line.calls) + f"\n```\n{line.value}" if line is not None else ""


def about(analysis: Analysis, occurrence: Occurrence) -> str:
    """A name's kind and type, or the head and docstring of the definition it names."""
    name, symbol = occurrence.symbol.name, occurrence.symbol
    kind = analysis.index.kinds.get(symbol, "")
    if symbol.scope in ("", "?"):
        item = analysis.names.get(name)
        if item is not None and (symbol.scope == "" or name not in function_lines()):
            return definition(item)
        return function(name) if symbol.scope == "?" else ""
    found = analysis.type_of(occurrence.span) or type_elsewhere(analysis, occurrence)
    declared = _declaration(analysis, occurrence)
    head = declared or (f"{name}: {show(found)}" if found is not None else name)
    said = f"```dec\n{head}\n```\n{kind or f'parameter of {symbol.scope}'}"
    store = type_lines().get(str(found.of[0])) if found is not None and found.elem == "index" and found.of else None
    if store is not None and found is not None:  # what it is, and what it can do
        uses = [use for of, line in method_lines().items() if of.startswith(f"{kind_of(found)}.") for use in line.calls]
        uses = [re.sub(r"^(index|table)\b", name, use) for use in uses]
        return f"{said}: {store.value}\n```dec\n" + "\n".join(uses) + "\n```"
    return f"{said}, {show(found)}" if declared and found is not None else said


def definition(item: S.Item) -> str:
    """A definition's head and its docstring."""
    doc = item.doc if isinstance(item, S.WithDoc) else None
    return f"```dec\n{printer.head(item)}\n```" + (f"\n{' '.join(doc.split())}" if doc else "")


def function(name: str) -> str:
    """A function of the language, or a word with a value."""
    return from_docs(function_lines().get(name)) or (f"`{name}`: {WORD_LINES[name]}" if name in WORD_LINES else "")


def type_of_name(analysis: Analysis, item: S.Item | None, name: str) -> Type | None:
    """The type of a name at its first typed occurrence."""
    for o in analysis.index.occurrences:
        if o.symbol.name == name and item is not None and o.symbol.scope == item.name:
            known = analysis.type_of(o.span)
            if known is not None:
                return known
    return None


def type_elsewhere(analysis: Analysis, occurrence: Occurrence) -> Type | None:
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
    scope = analysis.file.named(occurrence.symbol.scope) or analysis.names.get(occurrence.symbol.scope) or item
    for p in scope.params if scope is not None else ():
        if p.name == occurrence.symbol.name:
            return printer.param(p)
    for s in scope.body if isinstance(scope, S.WithBody) else ():
        if isinstance(s, (S.State, S.Canvas, S.ModelDecl)) and s.name == occurrence.symbol.name:
            return printer.statement(s)
    return ""


def _type(analysis: Analysis, offset: int) -> S.TypeExpr | None:
    item = analysis.item_at(offset)
    if item is None:
        return None
    for node in S.walk(item):
        if isinstance(node, S.TypeExpr) and node.span.start <= offset <= node.span.start + len(node.name):
            return node
    return None


def _attribute(analysis: Analysis, offset: int) -> S.Attr | None:
    item = analysis.item_at(offset)
    if item is None:
        return None
    for node in S.walk(item):
        if isinstance(node, S.Attr) and node.name_span and node.name_span.start <= offset <= node.name_span.end:
            return node
    return None
