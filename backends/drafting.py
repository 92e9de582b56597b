"""Errors in a draft: they end the draft, which goes on with what was grown before (docs/decisions/0010-errors-in-drafts.md)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

from decgraph.errors import DecError
from decgraph.runtime.faults import is_outside, noted_outside
from decgraph.runtime.request import Request
from decgraph.runtime.trace import DraftEnded

WHERE = re.compile(r"^(\S+:\d+):\d+: (?:\w+(?:\.\w+)? cannot go on: )?")
"""The place that an error names, and its op: backends differ in the column and in how they divide a line into ops."""
P = ParamSpec("P")
T = TypeVar("T")

CALLS = frozenset(
    {
        *("model.eval", "model.evals", "model.memory", "model.read", "model.states", "model.attention"),
        *("head.read", "head.score"),
        *("run", "batch.fold", "batch.top"),
    }
)
"""Ops whose errors are a model's, another algorithm's or another sequence's, and end the run wherever they stand."""


class Drafts(Protocol):
    """What of a run a draft needs: the blocks that are under way, its request and its name, and how it tells of an error."""

    open_drafts: list[Drafting]
    request: Request
    title: str

    def failure(self, error: Any, /) -> DecError: ...

    def end_draft(self, event: DraftEnded) -> None: ...


class Drafting:
    """A block `draft t:` that is under way. `tree` is the tree as it is. An error that leaves the block ends here, unless the
    request is strict or the error is not the program's own."""

    def __init__(self, run: Drafts, name: str, tree: Any) -> None:
        self.run, self.name, self.tree = run, name, tree

    def __enter__(self) -> Drafting:
        self.run.open_drafts.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self.run.open_drafts.remove(self)
        if not isinstance(error, Exception) or is_outside(error) or self.run.request.strict:
            return False
        told = str(self.run.failure(error).diagnostics[0]).removeprefix("error: ").replace(f"{self.run.title}: ", "")
        self.run.end_draft(DraftEnded(self.name, WHERE.sub(r"\1: ", told)))
        return True


def calls(f: Callable[P, T]) -> Callable[P, T]:
    """The function, with what it raises noted as a model's."""

    @wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return f(*args, **kwargs)
        except Exception as error:
            noted_outside(error)
            raise

    return call
