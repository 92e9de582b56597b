"""Where names are defined and used, what a text consists of, and what can be run of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from decgraph.dsl import printer
from decgraph.dsl import syntax as S
from decgraph.dsl.source import Source, Span
from decgraph.editor.analysis import Analysis
from decgraph.editor.names import NameIndex, Symbol
from decgraph.editor.words import CONSTANTS, RESERVED, VALUES, functions
from decgraph.editor.workspace import Found, Workspace
from decgraph.errors import DecError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TextPlace(NamedTuple):
    """A span of a text of the standard library (`path`), or of the text itself (None)."""

    path: Path | None
    source: Source
    span: Span


class Outline(NamedTuple):
    """A definition, or what it declares: name, kind, detail, all of it, its name, what is inside."""

    name: str
    kind: str
    detail: str
    span: Span
    name_span: Span
    inside: tuple[Outline, ...] = ()


def stdlib_path(source: Source) -> Path | None:
    """The file of a text of the standard library."""
    if not source.path.startswith("stdlib/"):
        return None
    import decgraph.stdlib

    path = Path(decgraph.stdlib.FOLDER) / source.path.removeprefix("stdlib/")
    return path if path.exists() else None


def definition(analysis: Analysis, offset: int) -> TextPlace | None:
    """Where the name at an offset is defined: here, or in the standard library, also through an import."""
    module = _imported(analysis, offset)
    if module is not None:
        return module
    occurrence = analysis.index.at(offset)
    if occurrence is None:
        return None
    symbol = occurrence.symbol
    if analysis.index.kinds.get(symbol) not in (None, "import"):
        first = next((o for o in analysis.index.of(symbol) if o.defines), None)
        return TextPlace(None, analysis.source, first.span) if first else None
    owner = symbol.name if symbol.scope in ("", "?") else symbol.scope
    item, source = analysis.names.get(owner), analysis.names.source(owner)
    if item is None or source is None:
        return None
    path, span = stdlib_path(source), item.name_span or item.span
    for p in item.params:
        if owner != symbol.name and p.name == symbol.name:
            span = p.name_span or p.span
    return TextPlace(path, source, span) if path else None


def _imported(analysis: Analysis, offset: int) -> TextPlace | None:
    """The file that an import names, where the cursor is on its module."""
    from decgraph.dsl.lower.library import stdlib_file

    for item in analysis.file.items:
        if isinstance(item, S.Import) and item.span.start <= offset < item.names[0].span.start:
            found = stdlib_file(item.module.removeprefix("stdlib."))
            path = stdlib_path(found[1]) if found else None
            return TextPlace(path, found[1], Span(0, 0, 1, 1)) if found and path else None
    return None


def references(analysis: Analysis, offset: int, declaration: bool = True) -> list[Span]:
    """All occurrences in this text of the name at an offset."""
    occurrence = analysis.index.at(offset)
    if occurrence is None:
        return []
    found = analysis.index.of(occurrence.symbol)
    return [o.span for o in found if declaration or not o.defines]


def renamed(analysis: Analysis, offset: int, name: str) -> list[Span]:
    """The places to write another name at. Raises DecError for what cannot be renamed, and for names that are taken."""
    occurrence = analysis.index.at(offset)
    if occurrence is None or analysis.index.kinds.get(occurrence.symbol) in (None, "import"):
        raise DecError("this name belongs to the language or to the standard library", hint="rename what this file defines")
    free(analysis.index, occurrence.symbol, name)
    return [o.span for o in analysis.index.of(occurrence.symbol)]


def free(index: NameIndex, symbol: Symbol, name: str, where: str = "here") -> None:
    """Raises DecError where a file cannot have another name for a symbol, since it means something there."""
    if not _NAME.fullmatch(name) or name in (*RESERVED, *CONSTANTS, *VALUES):
        raise DecError(f"`{name}` cannot be a name")
    users = {item for item, named in index.mentions.items() if symbol.scope == "" and symbol.name in named}
    for other in index.kinds:
        if other.name == name and (other.scope in ({symbol.scope, *users, ""}) or symbol.scope == ""):
            kind = index.kinds[other]
            said = f"`{name}` is already {'an' if kind[0] in 'aei' else 'a'} {kind} {where}"
            raise DecError(said, hint="choose another name")


def renamed_everywhere(workspace: Workspace, home: Path, symbol: Symbol, name: str) -> list[Found]:
    """The places, in every file, to write another name at for what a file of the library defines. Raises DecError where that
    file is not the author's to edit, and where the name is taken or cannot change."""
    if not workspace.owns(home):
        raise DecError(f"`{symbol.name}` belongs to the standard library", hint="rename what this file defines")
    if home.stem == symbol.name:
        said = f"`{symbol.name}` is found by the name of its file, {home.name}"
        raise DecError(said, hint="rename the file as well, by hand")
    if not symbol.scope and name in functions():
        raise DecError(f"`{name}` means something in every program", hint="choose another name")
    found = list(workspace.references(home, symbol))
    for path in dict.fromkeys(f.path for f in found):
        if not workspace.owns(path):
            raise DecError(f"`{symbol.name}` is named in {path}, outside of this folder", hint="open the folder of both files")
        if path == home or not symbol.scope:
            free(workspace.known(path).names, symbol, name, f"in {path.name}")
    return found


def outline(analysis: Analysis) -> list[Outline]:
    """The definitions of a text with their parameters, states and canvases."""
    found = []
    for item in analysis.file.items:
        if not isinstance(item, S.Item):
            continue
        inside = []
        for p in item.params if not isinstance(item, S.Extern) else ():
            inside.append(Outline(p.name, "parameter", printer.param(p), p.span, p.name_span or p.span))
        for s in item.body if isinstance(item, S.WithBody) else ():
            if isinstance(s, (S.State, S.Canvas, S.ModelDecl)):
                inside.append(Outline(s.name, type(s).__name__.lower(), printer.statement(s), s.span, s.name_span or s.span))
        kind = type(item).__name__.lower()
        found.append(Outline(item.name, kind, printer.head(item), item.span, item.name_span or item.span, tuple(inside)))
    return found


class Lens(NamedTuple):
    """A line above a definition or claim; `check` names the algorithm to check when it is clicked."""

    span: Span
    title: str
    check: str = ""


def lenses(analysis: Analysis, verdicts: dict[str, str]) -> list[Lens]:
    """What a step of each algorithm calls, and what is known of its claims (`verdicts`: algorithm -> what a check said)."""
    found = []
    for item in analysis.file.items:
        if not isinstance(item, S.Algorithm):
            continue
        place = item.name_span or item.span
        claims = [s for s in item.body if isinstance(s, S.Claim)]
        if claims:
            found.append(Lens(place, verdicts.get(item.name) or "check the claim" + "s" * (len(claims) > 1), item.name))
        calls = analysis.calls_of(item.name)
        if calls:
            found.append(Lens(place, f"a step calls {', '.join(calls)}"))
    return found
