"""Which part of a run is spent in models: the engines' steps and read-outs, timed from outside.

What is left is the driver, the ops, the engines' own bookkeeping and the scheduler: what a compiler of decoding
algorithms can do something about. Uses `time.thread_time`, so that waiting for a shared processor counts for nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from decgraph.ir.memo import memo_of
from decgraph.runtime.session import Session


class ModelShare:
    """Seconds inside models, by the name of an engine's part."""

    def __init__(self) -> None:
        self.by: dict[str, float] = {"target": 0.0, "draft": 0.0}
        self._deep = False

    def timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function, with its time counted under a name; calls inside a timed call are part of it."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._deep:
                return function(*args, **kwargs)
            self._deep = True
            started = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.by[name] += time.thread_time() - started
                self._deep = False

        return call


class Timed:
    """An object whose call is timed, and which otherwise is the object."""

    def __init__(self, share: ModelShare, inner: Any, name: str) -> None:
        self._inner, self._call = inner, share.timed(inner, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def engines(session: Session) -> list[Any]:
    """All engines that a session's models use, the target's first, those below and beside them included. To be called after a
    run."""
    found: list[Any] = []

    def add(engine: Any) -> None:
        if engine is None or any(engine is other for other in found):
            return
        found.append(engine)
        for name in ("core", "target", "below"):
            add(getattr(engine, name, None))
        for lower in getattr(engine, "lowers", {}).values():
            add(lower)

    for model in session.models.values():
        add(memo_of(model).get("engine"))  # a model that was called has one
        for made, _ in (memo_of(model).get("derived") or {}).values():
            add(memo_of(made).get("engine"))
    return found


@contextmanager
def timing(session: Session) -> Iterator[ModelShare]:
    """A session whose models' forwards and read-outs are timed; afterwards it is as it was."""
    share = ModelShare()
    changed: list[tuple[Any, str, Any]] = []
    try:
        for number, engine in enumerate(engines(session)):
            for name in ("step", "head", "module", "_scores"):
                inner = getattr(engine, name, None)
                if callable(inner):
                    changed.append((engine, name, inner))
                    setattr(engine, name, Timed(share, inner, "draft" if number else "target"))
        yield share
    finally:
        for engine, name, inner in reversed(changed):
            setattr(engine, name, inner)


def split(session: Session, run: Callable[[], object]) -> dict[str, float]:
    """Seconds of the processor of one run in the target, in what drafts (other models, heads, the target's lower layers where
    a draft is made of them) and outside models. To be called after a run."""
    with timing(session) as share:
        started = time.thread_time()
        run()
        whole = time.thread_time() - started
    return {**share.by, "outside": max(whole - sum(share.by.values()), 0.0)}
