"""What `decgraph explain` says of a word of the language: how it is written, its types, and where stdlib/ uses it."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from decgraph import stdlib
from decgraph.dsl import printer
from decgraph.dsl import syntax as S
from decgraph.dsl.lower.library import SHELVES, stdlib_file
from decgraph.editor.function_lines import function_lines, method_lines, type_lines
from decgraph.editor.words import STATEMENT_LINES, WORD_LINES, helpers

SHOWN = 12
KINDS = {S.Rule: "rule", S.Policy: "policy"}


@dataclass(frozen=True)
class ExplainedWord:
    """A word: what kinds of word it is, how each is written and what it gives, its signatures in Python and a line about each
    of their types, a line of a program (text, file:line), and the algorithms that use it."""

    name: str
    kinds: tuple[str, ...]
    written: tuple[tuple[str, str], ...]
    signatures: tuple[tuple[str, str], ...]
    example: tuple[str, str]
    used_by: tuple[str, ...]

    def text(self, width: int) -> str:
        """It in lines of at most `width` characters, as far as what is written allows."""
        out = [self.name, f"  {', '.join(self.kinds)}"]
        for title, rows in (("written", self.written), ("in Python", self.signatures), ("for example", (self.example,))):
            out += ["", title] * any(map(any, rows))
            for form, about in rows:
                out += [
                    textwrap.indent(form, "  "),
                    *textwrap.wrap(about, width, initial_indent=" " * 6, subsequent_indent=" " * 6),
                ]
        more = f" and {len(self.used_by) - SHOWN} more" if len(self.used_by) > SHOWN else ""
        said = textwrap.wrap(", ".join(self.used_by[:SHOWN]) + more, width, initial_indent="  ", subsequent_indent="  ")
        return "\n".join([*out, *(["", "used by", *said] if said else [])])


def known() -> set[str]:
    """The names that `word` knows."""
    methods = {of.partition(".")[2] for of in method_lines()} - {""}
    return {*function_lines(), *type_lines(), *STATEMENT_LINES, *WORD_LINES, *methods, *helpers()}


def word(name: str) -> ExplainedWord | None:
    """What there is to say of a name of the language: a function, a rule or policy, a statement, a value, a type, a method."""
    found: list[tuple[str, str, str]] = []  # kind, form, value
    for shelf in SHELVES:
        for item in parsed[0].items if (parsed := stdlib_file(shelf)) is not None else ():
            if isinstance(item, S.WithDoc) and item.name == name:
                kind = f"a {KINDS.get(type(item), 'function')} of stdlib/{shelf}.dec"
                found.append((kind, printer.head(item), " ".join((item.doc or "").split())))
    for kind, lines in (("a function", function_lines()), ("a type", type_lines())):
        if name in lines and not any(one[0].startswith(kind) for one in found):
            found += [(kind, *use) for use in zip(lines[name].calls, lines[name].values, strict=True)]
    for of, line in method_lines().items():
        if of.endswith(f".{name}"):
            found += [(f"of {of.partition('.')[0]}", *use) for use in zip(line.calls, line.values, strict=True)]
    if name in STATEMENT_LINES:
        form, _, value = STATEMENT_LINES[name].partition(": ")
        found.append(("a statement", form, value))
    if name in WORD_LINES:
        found.append(("a value", name, WORD_LINES[name]))
    if not found:
        return None
    kinds, forms = (tuple(dict.fromkeys(part)) for part in zip(*((kind, (form, value)) for kind, form, value in found)))
    uses = list(_uses(name, kinds))
    example = min((use[1:] for use in uses), key=lambda use: len(use[0]), default=("", ""))
    return ExplainedWord(name, kinds, forms, tuple(_python(name)), example, tuple(dict.fromkeys(use[0] for use in uses)))


def _python(name: str) -> Iterator[tuple[str, str]]:
    """The signatures of a function in prelude.pyi, and the first sentence about each class that they name."""
    tree = _prelude()
    shown = []
    for one in tree.body:
        if isinstance(one, ast.FunctionDef) and one.name == name:
            returns = f" -> {ast.unparse(one.returns)}" if one.returns is not None else ""
            shown.append(f"{name}({ast.unparse(one.args).replace(', /', '')}){returns}")
    for one in tree.body:
        about = ast.get_docstring(one) if isinstance(one, ast.ClassDef) else None
        if isinstance(one, ast.ClassDef) and about and re.search(rf"\b{one.name}\b", " ".join(shown)):
            shown.append(f"    {one.name}: {about.partition('. ')[0].rstrip('.')}")
    return ((line, "") for line in dict.fromkeys(shown))


@cache
def _prelude() -> ast.Module:
    return ast.parse(files("decgraph.dsl").joinpath("prelude.pyi").read_text(encoding="utf-8"))


def _uses(name: str, kinds: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """(algorithm, text, file:line) of each line of the standard library's algorithms that uses a word, outside of texts."""
    before = r"^\s*" if "a statement" in kinds else r"\." if any(kind.startswith("of ") for kind in kinds) else r"(?<![\w.])"
    called = any(kind.startswith("a function") for kind in kinds) and before != r"\."
    pattern = re.compile(rf"{before}{re.escape(name)}\b" + r"\(" * called)
    for one in stdlib.names():
        plain = re.sub(r'""".*?"""', lambda doc: "\n" * doc[0].count("\n"), stdlib.text(one), flags=re.S)
        for number, line in enumerate(plain.splitlines(), 1):
            if pattern.search(code := line.partition("#")[0]):
                yield one, code.strip(), f"stdlib/{one}.dec:{number}"
