"""What may be written at the cursor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from decgraph.dsl import printer
from decgraph.dsl import syntax as S
from decgraph.dsl.lower.access import FIELDS, TREE_COLUMNS, TREE_SETS
from decgraph.dsl.lower.builtins import METHODS
from decgraph.dsl.lower.library import names as modules
from decgraph.dsl.lower.library import stdlib_file
from decgraph.dsl.lower.state import show
from decgraph.editor.analysis import Analyser, Analysis
from decgraph.editor.function_lines import function_lines, method_lines, options
from decgraph.editor.hover import definition, from_docs, kind_of, type_of_name
from decgraph.editor.words import (
    CLAUSES,
    CONSTANTS,
    ITEMS,
    STATEMENT_LINES,
    STATEMENTS,
    TYPES,
    VALUES,
    WORD_LINES,
    functions,
    helpers,
)
from decgraph.ir.types import Type

_WORD = re.compile(r"[A-Za-z_]\w*\Z")
_OF_NODE = ("token", "path", "length", "parent", "last")
MORE_FIELDS = {"dist": ("raw", "logits"), "position": ("start", "stop", "index"), "model": ("vocab", "layers")}


class Choice(NamedTuple):
    """A word to insert, what it is (a name's kind, or `function`, `keyword`, `type`, `attribute`, `module`, `option`), its type
    or signature, and markdown about it."""

    label: str
    kind: str
    detail: str = ""
    doc: str = ""


def complete(analyser: Analyser, analysis: Analysis, offset: int) -> list[Choice]:
    """What may stand at an offset, each name once; what is already written of the word does not narrow it."""
    text = analysis.source.text
    start = offset
    if (word := _WORD.search(text, 0, offset)) is not None:
        start = word.start()
    line = text[text.rfind("\n", 0, start) + 1 : start]
    if line.rstrip().endswith(".") and not line.rstrip().endswith(".."):
        found = _attributes(analyser, analysis, start - (len(line) - len(line.rstrip())) - 1, offset)
    else:
        found = _words(analysis, line, start)
    seen: dict[str, Choice] = {}
    for choice in found:
        seen.setdefault(choice.label, choice)
    return list(seen.values())


def _words(analysis: Analysis, line: str, start: int) -> Iterator[Choice]:
    if re.match(r"from\s+\S*\Z", line):
        yield from (Choice(name, "module") for name in modules())
        return
    if imports := re.match(r"from\s+(?:stdlib\.)?(\w+)\s+import\b", line):
        file = stdlib_file(imports[1])
        yield from (_item(i) for i in (file[0].items if file else ()) if isinstance(i, S.Item))
        return
    if re.search(r"\bverify\s.*\bby\s+\Z", line):
        yield from _items(analysis, S.Rule)
        return
    if re.search(r"\bcache\s.*\bby\s+\Z", line):
        yield from _items(analysis, S.Policy)
        return
    if re.search(r"\b(?:refines|run)\s+\Z", line):
        yield from _items(analysis, S.Algorithm)
        yield from (Choice(name, "algorithm") for name in modules() if name not in ("rules", "policies", "helpers"))
        return
    head = re.match(r"\s*(?:algorithm|rule|policy|def|extern|state)\b", line) or analysis_head(analysis, start)
    if re.search(r"(?:\w\s*:|->)\s*\Z", line) and head:
        yield from (Choice(name, "type") for name in TYPES)
        return
    if not line.strip():
        words = ITEMS if not line else (*STATEMENTS, "at most", *CLAUSES)
        yield from (Choice(word, "keyword", "", STATEMENT_LINES.get(word, "")) for word in words)
        if not line:
            return
    yield from _options(analysis, start)
    yield from _values(analysis, start)


def analysis_head(analysis: Analysis, offset: int) -> bool:
    """Whether an offset is in the parameters of a definition."""
    text = analysis.source.text
    before = text[
        max(
            text.rfind("\nalgorithm ", 0, offset), text.rfind("\ndef ", 0, offset), text.rfind("\nrule ", 0, offset), 0
        ) : offset
    ]
    return before.lstrip().startswith(("algorithm ", "def ", "rule ")) and before.count("(") > before.count(")")


def _values(analysis: Analysis, start: int) -> Iterator[Choice]:
    item = analysis.item_at(start)
    for name, kind in analysis.index.in_scope(item.name if item else "").items():
        of_file = analysis.file.named(name) if kind not in ("import",) else None
        known = type_of_name(analysis, item, name) if of_file is None else None
        detail = printer.head(of_file) if of_file is not None else show(known) if known is not None else kind
        yield Choice(name, kind, detail)
    for name in sorted(functions()):
        line = function_lines().get(name)
        if line is not None:
            yield Choice(name, "function", line.calls[0], line.value)
        elif name in helpers():
            found = analysis.names.get(name)
            if found is not None:
                yield _item(found)
    for name in (*VALUES, *CONSTANTS):
        yield Choice(name, "constant", "", WORD_LINES.get(name, ""))


def _options(analysis: Analysis, start: int) -> Iterator[Choice]:
    """The named options of the call that is open here."""
    text, depth = analysis.source.text, 0
    for at in range(start - 1, max(-1, start - 2000), -1):
        depth += (text[at] in ")]") - (text[at] in "([")
        if depth < 0:
            if text[at] == "(" and (callee := _WORD.search(text, 0, at)) is not None:
                yield from _options_of(analysis, callee[0])
            return


def _options_of(analysis: Analysis, callee: str) -> Iterator[Choice]:
    item = analysis.names.get(callee)
    if item is not None and callee not in function_lines():
        for p in item.params:
            yield Choice(p.name, "option", printer.param(p))
        return
    for name in options(callee):
        yield Choice(name, "option", callee)
    known = analysis.index.kinds
    if any(symbol.name == callee and kind in ("parameter", "model") for symbol, kind in known.items()):
        yield from (Choice(name, "option", callee) for name in ("at", "given", "allow"))


def _items(analysis: Analysis, kind: type[S.Item]) -> Iterator[Choice]:
    for name in analysis.names:
        found = analysis.names.get(name)
        if isinstance(found, kind):
            yield _item(found)


def _item(item: S.Item) -> Choice:
    return Choice(item.name, type(item).__name__.lower(), printer.head(item), definition(item))


# ---- attributes


def _attributes(analyser: Analyser, analysis: Analysis, dot: int, end: int) -> Iterator[Choice]:
    """What the value before a dot has. The text is read without the dot and the word after it, which is mostly a whole one."""
    text = analysis.source.text
    whole = analyser.analyse(text[:dot] + " " * (end - dot) + text[end:], analysis.source.path)
    item = whole.item_at(dot)
    found: Type | None = None
    if item is not None and item.name in whole.lowered:
        lowered, moved, _ = whole.lowered[item.name]
        ends = [(start, known) for (start, stop), known in lowered.types.items() if stop == dot - moved]
        if ends:
            found = min(ends, key=lambda pair: pair[0])[1]
    name = _WORD.search(text, 0, dot)
    if found is None and name is not None:
        found = type_of_name(whole, item, name[0])
        if name[0] in ("ctx", "vocab") and found is None:
            yield from (Choice(n, "attribute") for n in (_OF_NODE if name[0] == "ctx" else ("size",)))
    if found is not None:
        yield from _fields(found, whole, item)


def _fields(t: Type, analysis: Analysis, item: S.Item | None) -> Iterator[Choice]:
    names = [*(FIELDS[t.elem][2] if t.elem in FIELDS else ()), *MORE_FIELDS.get(t.elem, ())]
    if t.elem == "tree":
        columns = [k.name for n in S.walk(item) if isinstance(n, S.Grow) for k in n.columns] if item is not None else []
        names += [*TREE_SETS, *TREE_COLUMNS, "children", "size", "height", "accepted", *columns]
    elif t.elem == "node":
        names += _OF_NODE if t.of and t.of[0] == "ctx" else TREE_COLUMNS
    yield from (Choice(name, "attribute", show(t)) for name in names)
    methods = METHODS.get(kind_of(t), "")
    for name in re.findall(r"\.(\w+)", methods):
        line = method_lines().get(f"{kind_of(t)}.{name}")
        yield Choice(name, "method" if f".{name}(" in methods else "attribute", show(t), from_docs(line))
