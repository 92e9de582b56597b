"""Where a model lies: the name of a shipped or fetched one, or a path."""

from __future__ import annotations

import difflib
from pathlib import Path

from decgraph import zoo
from decgraph.errors import DecError
from decgraph.runtime.models.folders import folder
from decgraph.runtime.models.gguf.file import SUFFIX, is_file


def folder_of(name: str | Path) -> Path:
    """A model's folder, or its GGUF file: the name of a shipped or fetched model, or a path. Raises DecError for a model that
    was not fetched yet, a misspelt name, and what looks like an id on the Hub."""
    if Path(name).suffix == SUFFIX:
        if not Path(name).exists():
            raise DecError(f"there is no file {name}")
        return Path(name)
    if isinstance(name, str) and not Path(name).is_dir():
        known = [*zoo.names(), *zoo.fetchable()]
        if name in known:
            return zoo.path(name)
        if near := difflib.get_close_matches(name, known, 1, 0.7):
            raise DecError(f"there is no folder and no model called {name!r}", hint=f"did you mean {near[0]}?")
        if name.count("/") == 1 and not name.startswith((".", "~", "/")) and not Path(name).parent.is_dir():
            hint = (
                f"download it: hf download {name} --local-dir DIR, and give DIR; or load it with from_pretrained and give that"
            )
            raise DecError(f"{name} is not a folder here, and nothing is fetched from the Hub", hint=hint)
    return Path(name)


def check_folder(name: str | Path) -> None:
    """Look whether a model is there, without reading it: before torch is imported. Raises DecError where it is not."""
    if is_file(name):
        return
    if folder_of(name).is_file():
        folder(name)
    if not folder_of(name).is_dir():
        named = ", ".join([*zoo.names(), *zoo.fetchable()])
        raise DecError(f"{name} is not a folder with a model in it", hint=f"a folder with a config.json, or one of {named}")


def is_shipped(name: str | Path) -> bool:
    """Whether a name or a path is that of a shipped model."""
    if isinstance(name, str) and not Path(name).is_dir():
        return name in zoo.names()
    return Path(name).resolve().parent == (Path(zoo.__file__).parent / "models").resolve()
