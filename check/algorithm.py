"""`decgraph check`: an algorithm by name, path or module."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from decgraph.check.report import Report, check_module
from decgraph.dsl.lower import load_text
from decgraph.dsl.lower.library import names, shelf
from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.runtime.session import check_value


def find(algorithm: str | Path | Module) -> Module:
    """The module of a name in stdlib, a path to a .dec file, or a module. Raises DecError."""
    if isinstance(algorithm, Module):
        return algorithm
    text = str(algorithm)
    found = shelf(text) if text in names() else None
    if found is not None:
        return load_text(found[1].text, found[1].path)
    path = Path(text)
    if not path.is_file():
        import difflib
        near = difflib.get_close_matches(text, names(), 3)
        raise DecError(f"there is no algorithm or file called {text!r}",
                       hint=f"did you mean {', '.join(near)}?" if near else "decgraph list shows what there is")
    return load_text(path.read_text(encoding="utf-8", errors="replace"), str(path))


def check_algorithm(algorithm: str | Path | Module, *, vocab: int = 3, models: int = 20, params: Mapping[str, Any] | None = None,
                    mutants: bool = True, progress: Callable[[str, int, int], None] | None = None) -> Report:
    """Decide the claims of an algorithm, and with `mutants` that every bug planted in it is found.

    vocab: tokens of the tables (3 or more sees what 2 cannot). models: worlds per claim. params: values to check with, by
    name; what is not given is varied over small values. progress: called with (what, done, of). Raises DecError.
    """
    module = find(algorithm)
    f = module.entry
    given = {}
    for name, value in (params or {}).items():
        known = {p.name: p for p in f.params if p.value.type.elem != "model"}
        if name not in known:
            raise DecError(f"{f.name} has no parameter `{name}`", hint=f"it has {', '.join(known) or 'none'}")
        given[name] = check_value(f.name, known[name], value)
    if vocab < 2 or models < 1:
        raise DecError("a check needs at least 2 tokens and 1 model")
    return check_module(module, vocab=vocab, models=models, params=given, progress=progress)
