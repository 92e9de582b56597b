"""Models of folders that several sessions have in common: weights, engine and caches are there once, while one of them lives.

A folder is the same while the names, sizes and times of its files are. Two sessions over one model take turns (locks.py); what
a run leaves in the cache changes no scores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar, cast
from weakref import WeakValueDictionary

M = TypeVar("M")
_models: WeakValueDictionary[Hashable, object] = WeakValueDictionary()
_guard = threading.Lock()
_makers: dict[Hashable, threading.RLock] = {}
"""A lock for each model that is being read, so that two threads do not read it twice."""


def shared(folder: Path, key: tuple[Hashable, ...], make: Callable[[], M], share: bool = True) -> M:
    """The model that `make` reads from a folder, or the one that it read before for the same key. share: whether another
    session's may be given."""
    if not share:
        return make()
    whole = (*_state(folder), *key)
    with _guard:
        maker = _makers.setdefault(whole, threading.RLock())
    try:
        with maker:
            found = cast("M | None", _models.get(whole))
            if found is None:
                found = _models[whole] = make()
            return found
    finally:
        with _guard:
            _makers.pop(whole, None)


def forget() -> None:
    """The next session of a folder reads it anew; models in use stay with those who use them."""
    _models.clear()


def _state(folder: Path) -> tuple[Hashable, ...]:
    """Where a folder is, and what tells that a file of it has changed."""
    at = folder.expanduser().resolve()
    files = sorted(at.iterdir()) if at.is_dir() else [at] if at.is_file() else []
    facts = ((file, file.stat()) for file in files if file.is_file())
    return at, *((file.name, was.st_size, was.st_mtime_ns, was.st_ino) for file, was in facts)
