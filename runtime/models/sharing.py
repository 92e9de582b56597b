"""Models that several users have in common: sessions of one folder, two names of one algorithm, two threads.

Weights, engine and caches of a folder's model are there once, while a session of it lives. A folder is the same while the
names, sizes and times of its files are. Whoever uses a model is alone with it (`alone`), since every call changes its engine
and caches. What a run leaves in the cache changes no scores.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TypeVar, cast
from weakref import WeakValueDictionary

from decgraph.ir.memo import memo_of
from decgraph.runtime.models.interface import Model

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
    """A folder's path, and the names, sizes and times of its files."""
    at = folder.expanduser().resolve()
    files = sorted(at.iterdir()) if at.is_dir() else [at] if at.is_file() else []
    facts = ((file, file.stat()) for file in files if file.is_file())
    return at, *((file.name, was.st_size, was.st_mtime_ns, was.st_ino) for file, was in facts)


def distinct(models: Mapping[str, Model]) -> dict[str, Model]:
    """The models by parameter name, none of them twice: a later occurrence is a shallow copy that shares weights, engine and KV
    cache with the first. A run tells its target from its drafter by the object."""
    out: dict[str, Model] = {}
    for name, model in models.items():
        if any(model is other for other in out.values()):
            out[name] = copy.copy(model)
            memo_of(out[name]).once("original", lambda model=model: original_of(model))  # type: ignore[misc]
        else:
            out[name] = model
    return out


def original_of(model: Model) -> Model:
    """The model that `distinct` made this one of, or itself. What is derived from a copy is no copy: a memo is not copied."""
    return memo_of(model).get("original") or model


making = threading.RLock()
"""Held while models are made of modules, and while locks are: none of that is done twice."""
_numbers = count()


class _Lock:
    def __init__(self) -> None:
        self.number, self.lock = next(_numbers), threading.RLock()


@contextmanager
def alone(models: Iterable[Model]) -> Iterator[None]:
    """No other thread uses one of these models inside; the same thread may enter again. Locks are taken in the order in which
    they were made, so two sessions over the same models do not wait for each other."""
    with making:
        locks = {lock.number: lock.lock for lock in map(_lock_of, models)}
    acquired: list[threading.RLock] = []
    try:
        for number in sorted(locks):
            locks[number].acquire()
            acquired.append(locks[number])
        yield
    finally:
        for lock in reversed(acquired):
            lock.release()


def _lock_of(model: Model) -> _Lock:
    model = original_of(model)
    return memo_of(model.holder() if isinstance(model, Model) else model).once("lock", _Lock)


Made = TypeVar("Made", bound=Model)


def renewed(model: Made) -> Made:
    """The model of its module or folder in the present state: itself where nothing has changed."""
    renew: Callable[[], Made] | None = getattr(model, "renew", None)
    return model if renew is None else renew()


def renewed_all(models: Mapping[str, Model]) -> dict[str, Model]:
    """The models by name, each `renewed`. A module that several of them share is compared once."""
    if all(getattr(model, "renew", None) is None for model in models.values()):
        return dict(models)
    from decgraph.runtime.models.watch import one_look

    with one_look():
        return {name: renewed(model) for name, model in models.items()}
