"""One thread at a time uses a model: its engine, caches and remembered scores are changed by every call."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

from decgraph.ir.memo import memo_of
from decgraph.runtime.models.distinct import original_of
from decgraph.runtime.models.interface import Model

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
        locks = {lock.number: lock for lock in map(_lock_of, models)}
    with ExitStack() as stack:
        for number in sorted(locks):
            stack.enter_context(locks[number].lock)
        yield


def _lock_of(model: Model) -> _Lock:
    model = original_of(model)
    return memo_of(model.holder() if isinstance(model, Model) else model).once("lock", _Lock)
