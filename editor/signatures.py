"""How the call that is open at the cursor is written: its forms, what each gives, and the argument that the cursor is in."""

from __future__ import annotations

import re
from typing import NamedTuple

from decgraph.dsl import printer
from decgraph.dsl import syntax as S
from decgraph.dsl.lexer import Lexeme
from decgraph.editor.analysis import Analysis
from decgraph.editor.function_lines import Line, function_lines, method_lines, type_lines
from decgraph.editor.hover import kind_of, type_of_name
from decgraph.ir.types import Type

_OPEN, _CLOSE = ("(", "["), (")", "]")


class Form(NamedTuple):
    """One way to write a call: the text, the places of its parameters in it, and markdown about it."""

    label: str
    params: tuple[tuple[int, int], ...]
    doc: str = ""

    def named(self, place: int) -> str:
        """The name of a parameter that is given by name, else ""."""
        start, end = self.params[place]
        found = re.match(r"(\w+)\s*[=:]", self.label[start:end])
        return found[1] if found else ""


class Signature(NamedTuple):
    """The forms of a call, the one that fits best what is written, and the parameter that the cursor is in, of that form."""

    forms: tuple[Form, ...]
    form: int
    param: int


def signature(analysis: Analysis, offset: int) -> Signature | None:
    """The call that is open at an offset; None outside of calls, and where the callee is unknown."""
    tokens = [t for t in analysis.partly.parsed.tokens if t.span.end <= offset and t.text.strip()]
    place, depth = len(tokens) - 1, 0
    while place >= 0:
        text = tokens[place].text
        depth += (text in _CLOSE) - (text in _OPEN)
        if depth < 0:
            forms = _forms(analysis, tokens[:place]) if text == "(" else ()
            if forms:
                return _fitting(forms, tokens[place + 1 :])
            depth = 0  # a group or an index: the call around it
        if text == ":" and depth == 0:  # a block begins on the line before
            return None
        place -= 1
    return None


def _forms(analysis: Analysis, tokens: list[Lexeme]) -> tuple[Form, ...]:
    """The signatures of what stands before an opening parenthesis."""
    if not tokens or not tokens[-1].text.isidentifier():
        return ()
    name = tokens[-1].text
    item = analysis.item_at(tokens[-1].span.start)
    before = tokens[-2].text if len(tokens) > 1 else ""
    if before == ".":
        receiver = _receiver(analysis, item, tokens[:-2])
        called = tokens[-3].text if len(tokens) > 2 and tokens[-3].text.isidentifier() else ""
        return _lines(method_lines().get(f"{kind_of(receiver)}.{name}"), called) if receiver is not None else ()
    if before in ("algorithm", "rule", "policy", "def", "extern"):
        return ()
    own = type_of_name(analysis, item, name)
    if own is not None:
        other = {"causal": "model(", "masked": "target("}.get(str(own.of[0]) if own.of else "", " ")
        return _lines(method_lines().get(f"{kind_of(own)}."), name, other)
    found = analysis.names.get(name)
    if found is not None and (analysis.file.named(name) is not None or name not in function_lines()):
        return (_of_item(found),)
    if name in function_lines():
        return _lines(function_lines()[name])
    return _lines(type_lines().get(name))


def _receiver(analysis: Analysis, item: S.Item | None, tokens: list[Lexeme]) -> Type | None:
    """The type of the value that these tokens end with: a name, or an expression that was seen as a whole."""
    if not tokens:
        return None
    end = tokens[-1].span.end
    if tokens[-1].text.isidentifier() and (len(tokens) < 2 or tokens[-2].text != "."):
        return type_of_name(analysis, item, tokens[-1].text)
    if item is None or item.name not in analysis.lowered:
        return None
    lowered, moved, _ = analysis.lowered[item.name]
    ends = [(start, known) for (start, stop), known in lowered.types.items() if stop == end - moved]
    return min(ends, key=lambda pair: pair[0])[1] if ends else None


def _lines(line: Line | None, name: str = "", other: str = " ") -> tuple[Form, ...]:
    """The calls that the docs show, of a value of this name; those that begin with `other` are of another kind of value."""
    if line is None:
        return ()
    found = []
    for call, value in zip(line.calls, line.values, strict=True):
        if call.endswith(")") and not call.startswith(other):
            label = re.sub(r"^\w+(\[\w+\])?", name, call) if name else call
            found.append(Form(label, _params(label), value))
    return tuple(found)


def _of_item(item: S.Item) -> Form:
    """A definition's head, without its word and its colon."""
    label = printer.head(item).removesuffix(":").split(" ", 1)[-1]
    doc = item.doc if isinstance(item, S.WithDoc) else None
    return Form(label, _params(label), " ".join(doc.split()) if doc else "")


def _params(label: str) -> tuple[tuple[int, int], ...]:
    """The places of the arguments of the first call in a text."""
    depth, start = 0, 0
    found: list[tuple[int, int]] = []
    for at in range(label.find("("), len(label)):
        mark = label[at]
        depth += (mark in _OPEN) - (mark in _CLOSE)
        if depth == 1 and mark == "(" and not found:
            start = at + 1
        if (depth == 1 and mark == ",") or depth == 0:
            left = start + len(label[start:at]) - len(label[start:at].lstrip())
            if label[left:at].strip():
                found.append((left, at))
            start = at + 1
        if depth == 0:
            break
    return tuple(found)


def _fitting(forms: tuple[Form, ...], inside: list[Lexeme]) -> Signature:
    """The first form that has all the options which are written and as many arguments, and the cursor's place in it."""
    written: list[str] = [""]  # the name of each argument so far, "" for one without
    depth = 0
    for n, token in enumerate(inside):
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if depth == 0 and token.text == ",":
            written.append("")
        elif depth == 0 and token.text == "=" and n and inside[n - 1].text.isidentifier():
            written[-1] = inside[n - 1].text

    def misses(number: int) -> tuple[int, int]:
        names = {forms[number].named(place) for place in range(len(forms[number].params))}
        return len({name for name in written if name} - names), max(0, len(written) - len(forms[number].params))

    best = min(range(len(forms)), key=misses)
    form, place = forms[best], len(written) - 1
    names = [form.named(n) for n in range(len(form.params))]
    if written[-1]:
        place = names.index(written[-1]) if written[-1] in names else place
    elif place < len(names) and names[place] and names[place] in written:  # the next option that is not written
        place = next((n for n, name in enumerate(names) if name and name not in written), place)
    return Signature(forms, best, place)
