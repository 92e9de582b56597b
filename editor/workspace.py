"""The files of a workspace and of the standard library: symbols, and references and renames across files.

A file can name what another one defines only in the standard library, so a name is followed from a file of stdlib/ into every
file that has it: by an import, ambiently (rules, policies, helpers), or by the name of its file (an algorithm).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import NamedTuple

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import Collector
from decgraph.dsl.lexer import ITEMS
from decgraph.dsl.lower.library import SHELVES
from decgraph.dsl.parse import parse_partly
from decgraph.dsl.source import Source, Span
from decgraph.editor.analysis import names_of, params_in
from decgraph.editor.names import NameIndex, Symbol, index_of

SKIPPED = ("node_modules", "build", "dist", "__pycache__", "site-packages")
MOST_FILES = 2_000
LISTED_FOR = 10.0
"""Seconds for which a list of the folders' files is good."""
_DEFINED = re.compile(rf"^({'|'.join(w for w in ITEMS if w != 'from')})[ \t]+([A-Za-z_]\w*)", re.MULTILINE)


class Defined(NamedTuple):
    """A definition in a file."""

    path: Path
    name: str
    kind: str
    line: int  # from 0
    column: int


class Found(NamedTuple):
    """A place in a file of the workspace or of the library."""

    path: Path
    source: Source
    span: Span
    defines: bool


class AnalysedVersion(NamedTuple):
    """The analysis of one version of a file."""

    text: str
    file: S.File
    names: NameIndex


def library() -> Path:
    """The folder of the standard library."""
    import decgraph.stdlib

    return Path(decgraph.stdlib.FOLDER).resolve()


class Workspace:
    """The `.dec` files below some folders, and those of the standard library. `opened`: the texts that an editor has open."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders
        self.opened: dict[Path, str] = {}
        self._listed: tuple[float, list[Path]] = (-inf, [])
        self._texts: dict[Path, tuple[int, str]] = {}
        self._known: dict[Path, AnalysedVersion] = {}

    def files(self) -> list[Path]:
        """Every file, each once: those that are open, the workspace's, the library's. Folders are listed anew after a while."""
        if time.monotonic() - self._listed[0] > LISTED_FOR:
            self._listed = (time.monotonic(), self._list())
        return list(dict.fromkeys((*self.opened, *self._listed[1])))

    def _list(self) -> list[Path]:
        found: dict[Path, None] = {}
        for folder in (*self.folders, library()):
            for where, inside, names in os.walk(folder):
                inside[:] = sorted(name for name in inside if not name.startswith(".") and name not in SKIPPED)
                for name in sorted(names):
                    if name.endswith(".dec") and len(found) < MOST_FILES:
                        found[Path(where, name).resolve()] = None
        return list(found)

    def owns(self, path: Path) -> bool:
        """Whether a file lies in the workspace, so that edits of it are the author's to make."""
        return any(path.is_relative_to(folder) for folder in self.folders)

    def text(self, path: Path) -> str:
        """The text of a file: the editor's, else the disk's; "" where it cannot be read."""
        if path in self.opened:
            return self.opened[path]
        try:
            changed = path.stat().st_mtime_ns
            kept = self._texts.get(path)
            if kept is None or kept[0] != changed:
                kept = self._texts[path] = (changed, path.read_text(encoding="utf-8"))
            return kept[1]
        except (OSError, ValueError):
            return ""

    def known(self, path: Path) -> AnalysedVersion:
        """The tree and the names of a file."""
        text, kept = self.text(path), self._known.get(path)
        if kept is None or kept.text != text:
            source = Source(text, str(path))
            file = parse_partly(source).parsed.file
            names = names_of(file, source, Collector(source))
            kept = self._known[path] = AnalysedVersion(text, file, index_of(file, params_in(names)))
        return kept

    def symbols(self, query: str) -> Iterator[Defined]:
        """The definitions whose names have the letters of a query, in this order."""
        like = re.compile(".*".join(map(re.escape, query)), re.IGNORECASE)
        for path in self.files():
            text = self.text(path)
            for found in _DEFINED.finditer(text):
                if like.search(found[2]):
                    start = text.rfind("\n", 0, found.start()) + 1
                    yield Defined(path, found[2], found[1], text.count("\n", 0, start), found.start(2) - start)

    def home(self, path: Path, file: S.File, symbol: Symbol) -> tuple[Path, Symbol] | None:
        """The file of the library that a name in a file stands for something of, and what it is called there; None where
        the name is the file's own."""
        folder = library()
        if symbol.scope not in ("", "?"):  # a parameter of a definition of the library, in that file or in a call
            own = path if file.named(symbol.scope) is not None else None
            there = own or self._home_of(path, file, symbol.scope)
            item = self.known(there).file.named(symbol.scope) if there else None
            is_param = item is not None and any(p.name == symbol.name for p in item.params)
            return (there, symbol) if there and is_param and there.is_relative_to(folder) else None
        there = path if file.named(symbol.name) is not None else self._home_of(path, file, symbol.name)
        return (there, Symbol("", symbol.name)) if there and there.is_relative_to(folder) else None

    def _home_of(self, path: Path, file: S.File, name: str) -> Path | None:
        """The file of the library from which another file has a name that it does not define."""
        folder = library()
        for item in file.items:
            if isinstance(item, S.Import) and any(n.name == name for n in item.names):
                return folder / f"{item.module.removeprefix('stdlib.')}.dec"
        for stem in (*SHELVES, name):
            there = folder / f"{stem}.dec"
            if there != path and re.search(rf"\b{re.escape(name)}\b", self.text(there)):
                if self.known(there).file.named(name) is not None:
                    return there
        return None

    def references(self, home: Path, symbol: Symbol) -> Iterator[Found]:
        """Everywhere that what a file of the library defines is named, its own file first."""
        word = re.compile(rf"\b{re.escape(symbol.name)}\b")
        owner = symbol.scope or symbol.name
        for path in [home, *(p for p in self.files() if p != home)]:
            text = self.text(path)
            if word.search(text) is None or (symbol.scope and owner not in text):
                continue
            known = self.known(path)
            if path != home and (known.file.named(owner) is not None or self._home_of(path, known.file, owner) != home):
                continue
            source = Source(known.text, str(path))
            here = {symbol} if path == home or symbol.scope else {symbol, Symbol("?", symbol.name)}
            for o in known.names.occurrences:
                if o.symbol in here:
                    yield Found(path, source, o.span, o.defines and path == home)
